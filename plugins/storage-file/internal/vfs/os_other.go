//go:build !linux

package vfs

import (
	"errors"
	"os"
)

// writeVec writes the first buffer at off.
func writeVec(f *os.File, bufs [][]byte, off int64) (int, error) {
	for _, b := range bufs {
		if len(b) > 0 {
			return f.WriteAt(b, off)
		}
	}
	return 0, nil
}

// syncData makes a file durable; on macOS, Sync asks the disk too.
func syncData(f *os.File) error { return f.Sync() }

// allocate cannot; the caller writes zeros.
func allocate(*os.File, int64) error { return errors.ErrUnsupported }
