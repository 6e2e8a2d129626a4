package plugin_test

import (
	"testing"

	"golang.org/x/sys/unix"
)

// awaitStopped returns when all threads of a child that was sent SIGSTOP stand still.
func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
}
