package server

import (
	"os"

	"golang.org/x/sys/unix"
)

// canSendFiles says whether the kernel sends from files to sockets.
const canSendFiles = true

// sendMore sends parts, as far as the socket takes them at once; they wait for what
// follows to be sent with it.
func sendMore(fd uintptr, parts [][]byte) (int, error) {
	return unix.SendmsgBuffers(int(fd), parts, nil, nil, unix.MSG_MORE)
}

// sendFile sends n bytes of a file, as far as the socket takes them at once. The file's
// own offset is left alone.
func sendFile(fd uintptr, file *os.File, pos int64, n int) (int, error) {
	return unix.Sendfile(int(fd), int(file.Fd()), &pos, n)
}
