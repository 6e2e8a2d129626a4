package cluster

import (
	"slices"
	"time"

	"github.com/brokerd/brokerd/sdk/transport/memnet"
)

// unheardOneIn: of so many questions of a leader for another ISR one is the last that is
// heard of it for a while.
const unheardOneIn = 12

// unheard cuts a leader off that has just asked for another ISR. What it has said arrives, its
// question with it at times, and it hears nothing of what comes of that: neither an answer nor
// metadata. Meanwhile it may be in a smaller ISR than it leads by, or a larger one.
func (c *cluster) unheard(n *node) {
	if !c.faulty || !c.w.Chance(unheardOneIn) {
		return
	}
	c.report.Unheard++
	c.w.Note("node %d has asked for another ISR, and hears nothing more", n.id)
	others := slices.DeleteFunc(slices.Clone(c.nodes), func(o *node) bool { return o == n })
	for _, o := range others {
		c.wrong(o, n, memnet.Faults{Cut: true})
	}
	c.w.After(c.w.Between(time.Millisecond, 2*c.opts.Usual+20*time.Millisecond), func() {
		if !c.faulty {
			return
		}
		for _, o := range others {
			c.wrong(n, o, memnet.Faults{Cut: true})
		}
		c.mend(n, others, 4*time.Second)
	})
}
