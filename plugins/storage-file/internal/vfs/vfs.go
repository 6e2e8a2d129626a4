package vfs

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"
)

// Mode says how Open treats a file.
type Mode int

const (
	// Existing opens a file that must be there, for reading and writing.
	Existing Mode = iota
	// Empty makes the file, or empties it.
	Empty
)

// Entry is one name in a directory.
type Entry struct {
	Name  string
	Dir   bool
	Bytes int64 // of a file
}

// FS is the part of a file system that a store needs. Methods may be called
// from many goroutines. Paths are slash-separated and absolute or relative to
// the process; Rename stays inside one directory.
type FS interface {
	Open(name string, mode Mode) (File, error)
	Mkdir(name string) error
	Remove(name string) error
	Rename(from, to string) error
	List(dir string) ([]Entry, error)
	// SyncDir makes the names in a directory survive a loss of power.
	SyncDir(dir string) error
	// Lock takes an exclusive lock, held until closed or until the process
	// dies, and writes the holder's note into the file. When another holds it,
	// the error is a *HeldError.
	Lock(name, note string) (io.Closer, error)
	// Room returns the bytes of the device below dir: all, and free to us.
	Room(dir string) (total, free int64, err error)
}

// File is an open file.
type File interface {
	io.ReaderAt
	// WriteVecAt writes the buffers back to back at off and returns how many
	// bytes were written, fewer only with an error.
	WriteVecAt(bufs [][]byte, off int64) (int, error)
	Truncate(bytes int64) error
	// Sync makes the file's bytes and size survive a loss of power; its name is
	// SyncDir's. After an error nothing is known of what was written before.
	Sync() error
	// Allocate reserves room for the file's first bytes.
	Allocate(bytes int64) error
	Stat() (bytes int64, modified time.Time, err error)
	Close() error
}

// Lender is an FS whose files can be handed to another process. Each *os.File is
// the caller's to close.
type Lender interface {
	// LendEnd returns a descriptor of the open file, for reading and writing.
	LendEnd(f File) (*os.File, error)
	// LendBytes opens the file that f is, under the name, for reading only. It is
	// os.ErrNotExist when the name is another file's by now.
	LendBytes(f File, name string) (*os.File, error)
	// LendLock returns the file of a lock, which is held as long as it is open
	// anywhere.
	LendLock(lock io.Closer) (*os.File, error)
}

// HeldError says that a lock belongs to another process.
type HeldError struct {
	Note string // what the holder wrote into the lock file
}

// Error names the holder.
func (e *HeldError) Error() string { return "lock is held by " + e.Note }

// Full reports whether err says that there is no room for a write.
func Full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// NoDescriptors reports whether err says that the process, or the system, has
// as many files open as it may.
func NoDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// ReadAll returns a file's content, refusing one larger than limit.
func ReadAll(fs FS, name string, limit int64) ([]byte, error) {
	f, err := fs.Open(name, Existing)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	n, _, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, syscall.EFBIG
	}
	b := make([]byte, n)
	got, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b[:got], nil
}

// RemoveTree removes a directory and the files in it, and in its directories.
func RemoveTree(fs FS, dir string) error {
	entries, err := fs.List(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := dir + "/" + e.Name
		if e.Dir {
			err = RemoveTree(fs, name)
		} else {
			err = fs.Remove(name)
		}
		if err != nil {
			return err
		}
	}
	return fs.Remove(dir)
}
