package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// writeVec writes buffers at off with one call; it may write fewer bytes.
func writeVec(f *os.File, bufs [][]byte, off int64) (int, error) {
	return unix.Pwritev(int(f.Fd()), bufs, off)
}

// syncData makes a file's bytes and size durable.
func syncData(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// allocate reserves room for a file's first bytes, where the file system can.
// EOPNOTSUPP matches errors.ErrUnsupported.
func allocate(f *os.File, bytes int64) error { return unix.Fallocate(int(f.Fd()), 0, 0, bytes) }
