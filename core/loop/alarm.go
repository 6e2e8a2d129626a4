package loop

import (
	"sync/atomic"
	"time"
)

// alarm is the timer of a loop that runs. It rings no later than at the deadline that was
// set last, and maybe at an earlier one, since deadlines mostly move on.
type alarm struct {
	ring func()
	at   time.Time // when it rings; zero: it is not set
	rang atomic.Bool
	stop func() bool
}

// set sees to it that the alarm has rung by a time, or reports false where that is over.
func (a *alarm) set(clock Clock, at time.Time) bool {
	if a.rang.Swap(false) {
		a.at = time.Time{}
	}
	if !a.at.IsZero() && !a.at.After(at) {
		return true
	}
	d := at.Sub(clock.Now())
	if d <= 0 {
		return false
	}
	a.clear()
	a.at = at
	a.stop = clock.AfterFunc(d, func() {
		a.rang.Store(true)
		a.ring()
	})
	return true
}

// clear takes the alarm back. It may be ringing.
func (a *alarm) clear() {
	if a.stop != nil {
		a.stop()
	}
	a.at, a.stop = time.Time{}, nil
}
