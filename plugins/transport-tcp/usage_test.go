//go:build unix

package transporttcp

import (
	"syscall"
	"testing"
	"time"
)

// processor is the processor time that this process has used.
func processor(tb testing.TB) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
