package plugin

import (
	"fmt"
	"os"
	"syscall"
)

// childAttributes: the child is killed when the thread that started it ends,
// and, being in a process group of its own, gets no signal from our terminal.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// ownExecutable is a path that names our executable even when the file has been
// replaced.
func ownExecutable(string) string { return "/proc/self/exe" }

// descriptorPath is a path that names an open file itself. The descriptor is
// ours and closes on exec; the child resolves it before that.
func descriptorPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// rawSocketPair makes a connected pair of unix stream sockets that close on exec.
func rawSocketPair() ([2]int, error) {
	return syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
}
