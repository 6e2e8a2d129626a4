//go:build !linux

package plugin

import (
	"os"
	"syscall"
)

// childAttributes: the end of standard input alone tells the child that we are
// gone.
func childAttributes() *syscall.SysProcAttr { return nil }

// ownExecutable is the path of our executable.
func ownExecutable(name string) string { return name }

// descriptorPath: there is no path for an open file.
func descriptorPath(*os.File) string { return "" }

// rawSocketPair makes a connected pair of unix stream sockets that close on exec.
func rawSocketPair() ([2]int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	return fds, err
}
