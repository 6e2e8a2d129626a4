package main

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/brokerd/brokerd/core/loop"
)

// clock is the machine's, but for its wall clock, which is wrong by what a file says: eight
// bytes, of whole seconds. It may change at any time, as where an operator sets a clock: time
// that is measured goes on as ever. Its methods may be called concurrently.
type clock struct {
	loop.System
	by *atomic.Int64
}

// openClock maps the file, which is there for as long as the process.
func openClock(path string) (*clock, error) {
	f, err := os.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the clock: %w", err)
	}
	defer f.Close()
	shared, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the clock: %w", err)
	}
	now := time.Now()
	if moved := shift(now, 1); moved.Sub(now) != 0 || moved.Round(0).Sub(now.Round(0)) != time.Second {
		return nil, errors.New("times are not laid out as this program believes")
	}
	return &clock{by: (*atomic.Int64)(unsafe.Pointer(&shared[0]))}, nil
}

// Now implements loop.Clock.
func (c *clock) Now() time.Time { return shift(time.Now(), c.by.Load()) }

// wallSecond is where a time with a monotonic reading has the seconds of its wall clock: above
// 30 bits of nanoseconds, in the first of its words (see time.Time).
const wallSecond = 30

// shift sets a time's wall clock by some seconds, and leaves its monotonic reading. There is no
// other way to have a time as it is after the clock of a machine was set.
func shift(t time.Time, seconds int64) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += uint64(seconds) << wallSecond
	return t
}
