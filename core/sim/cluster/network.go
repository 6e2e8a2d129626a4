package cluster

import (
	"time"
)

// network lets a memnet.Machine happen in the world.
type network struct {
	c         *cluster
	scheduled time.Time // when the earliest event that is known is due; zero: none
}

// pump schedules what the network has to give. It is called after every event.
func (x *network) pump() {
	at, ok := x.c.net.Next()
	if !ok || !x.scheduled.IsZero() && !at.Before(x.scheduled) {
		return
	}
	x.scheduled = at
	x.c.w.At(at, func() {
		if x.scheduled.Equal(at) {
			x.scheduled = time.Time{}
		}
		x.deliver()
	})
}

// deliver hands what is due to its nodes.
func (x *network) deliver() {
	for {
		ev, ok := x.c.net.Due(x.c.w.Now())
		if !ok {
			return
		}
		if n := x.c.byPlace[ev.Node]; n.up() {
			n.touched = true
			n.links.event(ev)
		}
	}
}
