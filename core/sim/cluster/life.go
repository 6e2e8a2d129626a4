package cluster

import (
	"time"

	"github.com/brokerd/brokerd/core/sim/world"
)

// life is one life of a node's process, by the node's clock. While the node is paused,
// what is due waits.
type life struct {
	n    *node
	over bool
}

var _ world.Life = (*life)(nil)

// Now implements world.Life.
func (l *life) Now() time.Time { return l.n.Now() }

// After implements world.Life.
func (l *life) After(d time.Duration, do func()) {
	l.n.c.w.After(l.n.clock.real(d), func() { l.do(do) })
}

// Over implements world.Life.
func (l *life) Over() bool { return l.over }

// do does something now, or when the node goes on.
func (l *life) do(do func()) {
	switch {
	case l.over:
	case l.n.paused:
		l.n.parked = append(l.n.parked, do)
	default:
		l.n.touched = true
		do()
	}
}

// clock is a node's: it runs a little too fast or too slow, and leaps ahead when the node
// has been away without noticing.
type clock struct {
	drift time.Duration // for each second
	ahead time.Duration
}

// at is what the clock shows at a time of the world.
func (c *clock) at(t time.Time) time.Time {
	past := t.Sub(world.Epoch)
	return t.Add(c.ahead + time.Duration(float64(past)*c.drift.Seconds()))
}

// real is how long the clock takes to go on by d, rounded up.
func (c *clock) real(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(float64(d)/(1+c.drift.Seconds())) + 1
}
