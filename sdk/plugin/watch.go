package plugin

import (
	"context"
	"time"
)

const (
	// watchInterval is how exactly appends end at their deadline.
	watchInterval = 20 * time.Millisecond
	// tickIntervals is after how many intervals tick is called, and so about how long
	// the plugin does not hear of what was written under a grant. To hear of it takes its
	// process some of a processor, which others then wait for.
	tickIntervals = 12
	// watchIdleTicks is after how many intervals with nothing to watch the watch
	// sleeps, so that a lane in use seldom has to wake it.
	watchIdleTicks = 50
)

// watch ends appends at their deadline or with their context, for all of the lane
// with one timer. It runs only while there are any, until ctx ends.
func (l *lane) watch(ctx context.Context) {
	for {
		select {
		case <-l.awake:
		case <-ctx.Done():
			return
		}
		l.watchOn(ctx)
	}
}

// watchOn looks again and again until there was nothing to see for a while.
func (l *lane) watchOn(ctx context.Context) {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for idle, n := 0, 0; ; idle++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if l.expireDue(time.Now()) {
			idle = 0
		}
		if n++; n%tickIntervals == 0 {
			if tick := l.takeWanted(); tick != nil {
				tick()
				idle = 0
			}
		}
		if idle >= watchIdleTicks && l.rest() {
			return
		}
	}
}

// rest lets the watch sleep, unless something came.
func (l *lane) rest() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watching = len(l.pending) > 0 || l.wanted
	return !l.watching
}

// wantTick asks for a call of tick within tickIntervals.
func (l *lane) wantTick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = true
	if !l.watching {
		l.watching = true
		nudge(l.awake)
	}
}

// takeWanted returns tick if it is to be called.
func (l *lane) takeWanted() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.wanted {
		return nil
	}
	l.wanted = false
	return l.tick
}

// expireDue ends appends whose time is over, and says whether any was in flight.
func (l *lane) expireDue(now time.Time) bool {
	var due []*call
	var causes []error
	busy := false
	l.mu.Lock()
	for _, c := range l.pending {
		if c.queue == nil {
			continue
		}
		busy = true
		if cause := c.over(now); cause != nil {
			c.refs.Add(1)
			due, causes = append(due, c), append(causes, cause)
		}
	}
	l.mu.Unlock()
	for i, c := range due {
		l.expire(c, causes[i])
		c.unref()
	}
	return busy
}

// over says why the call's time is over, nil if it is not.
func (c *call) over(now time.Time) error {
	left := c.deadline.Sub(now)
	if c.deadline.IsZero() {
		left = watchInterval
	}
	if left <= 0 {
		return context.DeadlineExceeded
	}
	select {
	case <-c.cancelled:
		if left < watchInterval { // the context's own timer was just ahead
			return context.DeadlineExceeded
		}
		return context.Canceled
	default:
		return nil
	}
}
