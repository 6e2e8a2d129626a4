package cluster

import (
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
)

// overtakenOneIn: of so many questions of a leader for another ISR one comes late.
const overtakenOneIn = 12

// overtaken has a question for another ISR come late. Meanwhile the controller fences one of
// those that are named in it, who is back by its next heartbeat, and who hears its leader late
// too; and those that are to leave are back. The leader hears of all that at once.
func (c *cluster) overtaken(n *node, changes []model.ISRChange) {
	if !c.faulty || !c.w.Chance(overtakenOneIn) {
		return
	}
	change := changes[c.w.Rand.IntN(len(changes))]
	active := c.active()
	named := c.followers(n, change)
	if active == nil || active == n || len(named) == 0 {
		return
	}
	c.report.Overtaken++
	fenced := named[c.w.Rand.IntN(len(named))]
	late := c.w.Between(50*time.Millisecond, 800*time.Millisecond)
	c.w.Note("node %d asks for another ISR, which takes %v; node %d is fenced meanwhile", n.id, late, fenced.id)
	for _, o := range c.nodes {
		if o != n {
			c.usual(n, o)
			c.usual(o, n)
			o.resume()
		}
	}
	for _, o := range []*node{active, fenced} {
		c.wrong(n, o, memnet.Faults{Delay: memnet.Range{Min: late, Max: late}})
	}
	c.w.After(c.w.Between(0, late/2), func() {
		if epoch, ok := fenced.member.Epoch(); ok && c.faulty && active.up() && !active.paused {
			active.command(controller.FenceBroker{ID: fenced.id, Epoch: epoch}, func(controller.Answer) {})
		}
	})
	c.mend(n, []*node{active, fenced}, 2*late)
}

// active is the node of the active controller, or nil.
func (c *cluster) active() *node {
	i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.up() && n.quorum != nil && n.quorum.Leading() })
	if i < 0 {
		return nil
	}
	return c.nodes[i]
}

// followers are the nodes that are up, beside the leader, of those that are to be in sync.
func (c *cluster) followers(leader *node, change model.ISRChange) (out []*node) {
	for _, m := range change.ISR {
		if n := c.node(m.Node); n != nil && n != leader && n.up() {
			out = append(out, n)
		}
	}
	return out
}
