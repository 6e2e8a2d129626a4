package plugin

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
)

// ErrChecksum says that an executable is not the one that was pinned.
var ErrChecksum = errors.New("the checksum is not the pinned one")

// executable is what to execute: name is what people know it by, path what the
// kernel is given. It stays open until the process runs, so that what was
// checked is what runs.
type executable struct {
	name, path string
	file       *os.File // may be nil
}

func (e *executable) close() {
	if e.file != nil {
		_ = e.file.Close()
	}
}

// openExecutable finds the executable and checks it. Without a path it is this
// process's own.
func openExecutable(path string, checksum []byte) (*executable, error) {
	e := &executable{name: path, path: path}
	if path == "" {
		name, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program's own executable: %w", err)
		}
		e.name, e.path = name, ownExecutable(name)
	}
	info, err := os.Stat(e.path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find plugin: %w", err)
	case info.IsDir() || info.Mode()&0o111 == 0:
		return nil, fmt.Errorf("plugin %s is not an executable file", e.name)
	case len(checksum) == 0:
		return e, nil
	}
	if err := e.verify(checksum); err != nil {
		return nil, fmt.Errorf("verify plugin %s: %w", e.name, err)
	}
	return e, nil
}

// verify compares the file's SHA-256, and arranges that the very file that was
// read is executed. A script can only be executed by its path, since its
// interpreter opens it again; then the moment between remains in which whoever
// may write to the plugin directory can change it.
func (e *executable) verify(checksum []byte) error {
	file, err := os.Open(e.path)
	if err != nil {
		return err
	}
	head := make([]byte, 2)
	n, _ := io.ReadFull(file, head)
	sum := sha256.New()
	_, _ = sum.Write(head[:n])
	if _, err := io.Copy(sum, file); err != nil {
		_ = file.Close()
		return err
	}
	if got := sum.Sum(nil); !bytes.Equal(got, checksum) {
		_ = file.Close()
		return fmt.Errorf("%w: it is %x, not %x", ErrChecksum, got, checksum)
	}
	byDescriptor := descriptorPath(file)
	if byDescriptor == "" || string(head[:n]) == "#!" {
		return file.Close()
	}
	e.file, e.path = file, byDescriptor
	return nil
}
