package cluster

import (
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
)

// overtakenOneIn: of so many questions of a leader for another ISR one comes late.
const overtakenOneIn = 6

// overtaken has a question for another ISR come late. Meanwhile one of those that are named in it
// is fenced, and back by its next heartbeat; or one that is to join loses power, and is back in
// another life. Who that is hears its leader late too; and those that are to leave are back. The
// leader hears of all that at once.
func (c *cluster) overtaken(n *node, changes []model.ISRChange) {
	if !c.faulty || !c.w.Chance(overtakenOneIn) {
		return
	}
	change := changes[c.w.Rand.IntN(len(changes))]
	active := c.active()
	named, joining := c.followers(n, change)
	if active == nil || active == n || len(named) == 0 {
		return
	}
	c.report.Overtaken++
	other, loses := named[c.w.Rand.IntN(len(named))], false
	if len(joining) > 0 && c.keepsOthers(change.Partition) && c.w.Chance(2) {
		other, loses = joining[c.w.Rand.IntN(len(joining))], true
	}
	late := c.w.Between(50*time.Millisecond, lateMax)
	c.w.Note("node %d asks for another ISR, which takes %v; node %d is fenced meanwhile, or loses power: %v", n.id, late, other.id, loses)
	for _, o := range c.nodes {
		if o != n {
			c.usual(n, o)
			c.usual(o, n)
			o.resume()
		}
	}
	for _, o := range []*node{active, other} {
		c.wrong(n, o, memnet.Faults{Delay: memnet.Range{Min: late, Max: late}})
	}
	c.w.After(c.w.Between(0, late/4), func() {
		epoch, ok := other.member.Epoch()
		switch {
		case !c.faulty:
		case loses:
			c.losePower(other)
		case ok && active.up() && !active.paused:
			active.command(controller.FenceBroker{ID: other.id, Epoch: epoch}, func(controller.Answer) {})
		}
	})
	c.mend(n, []*node{active, other}, 2*late)
}

// keepsOthers: with a minimum of two, one other than the leader counts until a replica that
// joins does, and while that one's loss is not noticed. See spared.
func (c *cluster) keepsOthers(id model.Partition) bool {
	img := c.check.Newest()
	p, t, ok := img.Partition(id)
	return ok && minISR(img, t, p) > 1
}

// lateMax is less than a lease: what a leader says to the controller after its question comes
// as late, its heartbeats too.
const lateMax = 900 * time.Millisecond

// active is the node of the active controller, or nil.
func (c *cluster) active() *node {
	i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.up() && n.quorum != nil && n.quorum.Leading() })
	if i < 0 {
		return nil
	}
	return c.nodes[i]
}

// followers are the nodes that are up, beside the leader, of those that are to be in sync, and of
// those the ones that are not yet.
func (c *cluster) followers(leader *node, change model.ISRChange) (named, joining []*node) {
	p, _, ok := c.check.Newest().Partition(change.Partition)
	for _, m := range change.ISR {
		n := c.node(m.Node)
		if n == nil || n == leader || !n.up() {
			continue
		}
		named = append(named, n)
		if ok && !slices.Contains(p.ISR, m.Node) {
			joining = append(joining, n)
		}
	}
	return named, joining
}
