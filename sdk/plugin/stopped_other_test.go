//go:build unix && !linux

package plugin_test

import (
	"syscall"
	"testing"
)

// awaitStopped returns when all threads of a child that was sent SIGSTOP stand still.
func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("wait for the stop of %d: %v, %v", pid, status, err)
	}
}
