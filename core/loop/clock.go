package loop

import "time"

// Clock tells the time and wakes. Its methods may be called concurrently.
type Clock interface {
	Now() time.Time
	// NewTimer gives a channel that receives once after d, and a function that
	// releases the timer.
	NewTimer(d time.Duration) (fire <-chan time.Time, stop func() bool)
	// AfterFunc calls f, on a goroutine of its own, after d, unless it is stopped
	// before.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// System is the machine's clock. Its times carry a monotonic reading, so that
// durations between them do not follow a wall clock that is set.
type System struct{}

// Now is time.Now.
func (System) Now() time.Time { return time.Now() }

// AfterFunc is time.AfterFunc.
func (System) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// NewTimer is time.NewTimer.
func (System) NewTimer(d time.Duration) (<-chan time.Time, func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}
