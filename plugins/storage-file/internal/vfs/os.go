package vfs

import (
	"errors"
	"io"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// OS is the operating system's file system.
type OS struct{}

var _ Lender = OS{}

// maxVec is how many buffers one pwritev takes (IOV_MAX on Linux).
const maxVec = 1024

// noteBytesMax bounds what is read of a lock file.
const noteBytesMax = 256

// Open opens or makes a file; descriptors are closed on exec.
func (OS) Open(name string, mode Mode) (File, error) {
	flags := os.O_RDWR
	if mode == Empty {
		flags |= os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(name, flags, 0o640)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// Mkdir makes one directory, readable by the owner alone.
func (OS) Mkdir(name string) error { return os.Mkdir(name, 0o750) }

// Remove removes a file or an empty directory.
func (OS) Remove(name string) error { return os.Remove(name) }

// Rename renames a file or directory, replacing a file that is in the way.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// List returns what is in a directory.
func (OS) List(dir string) ([]Entry, error) {
	found, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(found))
	for _, d := range found {
		e := Entry{Name: d.Name(), Dir: d.IsDir()}
		if !e.Dir {
			info, err := d.Info()
			if errors.Is(err, os.ErrNotExist) {
				continue // removed meanwhile
			}
			if err != nil {
				return nil, err
			}
			e.Bytes = info.Size()
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// SyncDir syncs a directory.
func (OS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Lock takes flock on a file, which the kernel releases when we die.
func (OS) Lock(name, note string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		holder, _ := io.ReadAll(io.LimitReader(f, noteBytesMax)) // only for the message
		_ = f.Close()
		return nil, &HeldError{Note: string(holder)}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	// The note only helps people: on a full disk the lock still holds.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(note), 0)
	}
	return f, nil
}

// LendEnd implements Lender.
func (OS) LendEnd(f File) (*os.File, error) {
	o, ok := f.(osFile)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return duplicate(o.f)
}

// LendLock implements Lender.
func (OS) LendLock(lock io.Closer) (*os.File, error) {
	f, ok := lock.(*os.File)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return duplicate(f)
}

// duplicate makes another descriptor of an open file.
func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "dup", Path: f.Name(), Err: err}
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// LendBytes implements Lender.
func (OS) LendBytes(f File, name string) (*os.File, error) {
	o, ok := f.(osFile)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	opened, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	mine, err := o.f.Stat()
	if err == nil {
		var its os.FileInfo
		if its, err = opened.Stat(); err == nil && !os.SameFile(mine, its) {
			err = &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
		}
	}
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return opened, nil
}

// Room asks the file system below dir.
func (OS) Room(dir string) (total, free int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Blocks) * int64(s.Bsize), int64(s.Bavail) * int64(s.Bsize), nil //nolint:unconvert // 32 bits on some systems
}

// Descriptors raises the number of files that the process may have open as far
// as it is allowed to, and returns it.
func Descriptors() (int, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, err
	}
	if raised := (unix.Rlimit{Cur: limit.Max, Max: limit.Max}); limit.Cur < limit.Max {
		// Some systems refuse what they call unlimited: what we have is enough to go on.
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &raised); err == nil {
			limit = raised
		}
	}
	return int(min(limit.Cur, math.MaxInt32)), nil
}

type osFile struct{ f *os.File }

func (o osFile) ReadAt(p []byte, off int64) (int, error) { return o.f.ReadAt(p, off) }

func (o osFile) WriteVecAt(bufs [][]byte, off int64) (int, error) {
	if len(bufs) == 1 {
		return o.f.WriteAt(bufs[0], off)
	}
	written := 0
	rest := make([][]byte, len(bufs))
	copy(rest, bufs)
	for len(rest) > 0 {
		n, err := writeVec(o.f, rest[:min(len(rest), maxVec)], off+int64(written))
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return written, &os.PathError{Op: "pwritev", Path: o.f.Name(), Err: err}
		}
		if n == 0 {
			return written, &os.PathError{Op: "pwritev", Path: o.f.Name(), Err: io.ErrShortWrite}
		}
		written += n
		rest = advance(rest, n)
	}
	return written, nil
}

// advance drops the first n bytes of bufs.
func advance(bufs [][]byte, n int) [][]byte {
	for len(bufs) > 0 && n >= len(bufs[0]) {
		n -= len(bufs[0])
		bufs = bufs[1:]
	}
	if n > 0 {
		bufs[0] = bufs[0][n:]
	}
	return bufs
}

func (o osFile) Truncate(bytes int64) error { return o.f.Truncate(bytes) }

func (o osFile) Sync() error {
	for {
		err := syncData(o.f)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "fdatasync", Path: o.f.Name(), Err: err}
		}
		return nil
	}
}

func (o osFile) Allocate(bytes int64) error {
	err := allocate(o.f, bytes)
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	zeros := make([]byte, 1<<20)
	for off := int64(0); off < bytes; off += int64(len(zeros)) {
		if _, err := o.f.WriteAt(zeros[:min(int64(len(zeros)), bytes-off)], off); err != nil {
			return err
		}
	}
	return nil
}

func (o osFile) Stat() (int64, time.Time, error) {
	info, err := o.f.Stat()
	if err != nil {
		return 0, time.Time{}, err
	}
	return info.Size(), info.ModTime(), nil
}

func (o osFile) Close() error { return o.f.Close() }
