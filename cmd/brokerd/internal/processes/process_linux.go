package processes

import (
	"fmt"
	"os"
	"syscall"
)

// childAttributes: the child is killed when this process ends, also when it is paused, and,
// being in a process group of its own, gets no signal from our terminal.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// within is a path to a file of an open directory that is short enough for a socket.
func within(dir *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
}

// executable is a path that names this program even when its file has been replaced.
func executable() (string, error) { return "/proc/self/exe", nil }
