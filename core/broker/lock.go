package broker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrLocked says that another process holds the data directory.
var ErrLocked = errors.New("the data directory is in use")

const (
	lockName    = "brokerd.lock"
	lockBytes   = 32 // of the process ID in it
	dataDirMode = 0o750
)

// Lock holds a data directory for this process. The kernel lets it go when the
// process dies.
type Lock struct{ file *os.File }

// LockDirectory makes the directory, if need be, and takes hold of it, as a broker does
// with its own. ErrLocked: another process has it.
func LockDirectory(dir string) (*Lock, error) {
	if err := os.MkdirAll(dir, dataDirMode); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		holder, _ := io.ReadAll(io.LimitReader(f, lockBytes)) // only for the message
		_ = f.Close()
		return nil, fmt.Errorf("%w: %s is held by the brokerd with process ID %s; stop that one, or choose another directory",
			ErrLocked, dir, strings.TrimSpace(string(holder)))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	// The number only helps people: on a full disk the lock still holds.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return &Lock{f}, nil
}

// Release lets another process have the directory.
func (l *Lock) Release() error {
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("unlock the data directory: %w", err)
	}
	return nil
}
