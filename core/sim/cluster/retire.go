package cluster

import (
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
)

// retire takes a node out of the cluster for ever, as an operator does: its replicas go to others,
// and its vote if it has one, it is stopped, and the cluster forgets it.
func (c *cluster) retire(n *node) {
	switch {
	case c.retiring != nil || len(c.nodes) <= votersTarget:
		return
	case c.opts.Departures && c.unvoted() != "", !c.opts.Departures && c.mayVote(n):
		return
	}
	c.w.Note("node %d is to leave for ever", n.id)
	c.retiring = n
	c.retireMore()
}

// retireMore does what is next, until the node is forgotten.
func (c *cluster) retireMore() {
	c.w.After(c.w.Between(200*time.Millisecond, time.Second), func() {
		n, img := c.retiring, c.check.Newest()
		b, registered := img.Broker(n.id)
		changes, held := c.replicasOf(n, img)
		switch asked := c.someNode(); {
		case !registered && held == 0 && !n.up() && !c.remembers(n, img):
			c.w.Note("node %d has left for ever", n.id)
			c.report.Retired++
			c.nodes = slices.DeleteFunc(c.nodes, func(o *node) bool { return o == n })
			c.retiring = nil
			c.comeBack(n)
			return
		case asked == nil:
		case held > 0 && n.retired && n.lost == nil && (!c.opts.Departures || c.remembers(n, img)): // somebody has put a topic there meanwhile
			n.retired = false
			c.restart(n)
		case held > 0 && !c.noticed(n):
		case held > 0:
			over := c.doubt()
			asked.command(controller.AlterReassignments{Changes: changes}, func(a controller.Answer) {
				if a.Err == nil {
					over()
				}
			})
		case c.takesVote(n, asked): // it may have come to vote meanwhile
		case n.up():
			n.retired = true
			n.kill(memnet.Reset)
		case c.remembers(n, img) && (!registered || b.Fenced):
			n.retired = true
			c.forgetMember(n, asked, img)
		case registered && b.Fenced:
			n.retired = true
			asked.command(controller.UnregisterBroker{ID: n.id, Epoch: b.Epoch}, func(controller.Answer) {})
		}
		c.retireMore()
	})
}

// replicasOf are changes by which others come to have what a node has, where none is under way,
// and how many replicas it has still.
func (c *cluster) replicasOf(n *node, img *image.Image) (changes []model.Reassignment, held int) {
	for t := range img.Topics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			if !slices.Contains(p.Replicas, n.id) {
				continue
			}
			held++
			if slices.Contains(p.Removing, n.id) {
				continue // it is on its way
			}
			changes = append(changes, model.Reassignment{
				Partition: model.Partition{Topic: t.ID, Index: int32(i)}, Replicas: c.drawOthers(n, len(p.Replicas)-len(p.Adding)),
			})
		}
	}
	return changes, held
}

// drawOthers are so many nodes, or as many as there are, without one of them.
func (c *cluster) drawOthers(n *node, count int) []model.NodeID {
	var out []model.NodeID
	for _, at := range c.w.Rand.Perm(len(c.nodes)) {
		if o := c.nodes[at]; o != n && len(out) < count {
			out = append(out, o.id)
		}
	}
	return out
}

// mayVote says whether a node votes in the quorum, as far as its leader says.
func (c *cluster) mayVote(n *node) bool {
	for _, o := range c.nodes {
		if !o.up() || o.quorum == nil || !o.quorum.Leading() {
			continue
		}
		s, err := o.quorum.Status()
		return err != nil || slices.ContainsFunc(s.Voters, func(v model.QuorumVoter) bool { return v.ID == n.id })
	}
	return true
}
