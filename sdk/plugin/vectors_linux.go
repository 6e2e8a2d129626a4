package plugin

import (
	"os"

	"golang.org/x/sys/unix"
)

// canWriteVectors says whether files that a plugin lends can be used here.
const canWriteVectors = true

// writeVectorsAt writes parts back to back at pos, with one system call.
func writeVectorsAt(fd int, parts [][]byte, pos int64) (int, error) {
	if len(parts) == 1 {
		return unix.Pwrite(fd, parts[0], pos)
	}
	return unix.Pwritev(fd, parts, pos)
}

// mayWrite says whether a file is open for writing.
func mayWrite(f *os.File) bool {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_ACCMODE != unix.O_RDONLY && flags&unix.O_APPEND == 0
}
