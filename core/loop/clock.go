package loop

import "time"

// Clock tells the time and wakes. Both methods may be called concurrently.
type Clock interface {
	Now() time.Time
	// NewTimer gives a channel that receives once after d, and a function that
	// releases the timer.
	NewTimer(d time.Duration) (fire <-chan time.Time, stop func() bool)
}

// System is the machine's clock. Its times carry a monotonic reading, so that
// durations between them do not follow a wall clock that is set.
type System struct{}

// Now is time.Now.
func (System) Now() time.Time { return time.Now() }

// NewTimer is time.NewTimer.
func (System) NewTimer(d time.Duration) (<-chan time.Time, func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}
