package cluster

import (
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

const (
	// leaseMax is how long after a broker was fenced it may think that it is not: its lease, and
	// what its clock is off.
	leaseMax = 1500 * time.Millisecond
	// deposedMax is how long after a second node has led the quorum brokers may still have a
	// lease of it.
	deposedMax = 2 * time.Second
)

// leases is what is known of who may acknowledge by itself.
type leases struct {
	fenced  map[model.NodeID]time.Time // since when
	deposed time.Time                  // when two nodes were last seen to lead the quorum
}

// fences takes the newest metadata.
func (x *leases) fences(now time.Time, img *image.Image) {
	if x.fenced == nil {
		x.fenced = make(map[model.NodeID]time.Time)
	}
	for b := range img.Brokers() {
		_, was := x.fenced[b.ID]
		switch {
		case !b.Fenced:
			delete(x.fenced, b.ID)
		case !was:
			x.fenced[b.ID] = now
		}
	}
}

// lookForDeposed notes whether some node leads the quorum beside another.
func (c *cluster) lookForDeposed() {
	leading := 0
	for _, n := range c.nodes {
		if n.up() && n.quorum != nil && n.quorum.Leading() {
			leading++
		}
	}
	if leading > 1 {
		c.leases.deposed = c.w.Now()
	}
}

// weakly looks at an acknowledgement with acks=1: a broker that was fenced, and has had no lease
// since, as after a pause, gives none for what reaches it when another one leads, unless its
// followers have it.
func (c *cluster) weakly(n *node, id model.Partition, s *slot) {
	c.lookForDeposed()
	since, fenced := c.leases.fenced[n.id]
	p, _, ok := c.check.Newest().Partition(id)
	if !fenced || !ok || p.Leader == model.NoNode || p.LeaderEpoch <= s.a.LeaderEpoch || n.high(id) > s.a.BaseOffset {
		return
	}
	if s.at.Sub(since) < leaseMax || c.w.Now().Sub(c.leases.deposed) < deposedMax {
		return
	}
	c.check.Violate("partition %s: node %d acknowledged a record with acks=1 in epoch %d, which reached it %v after it was fenced, and node %d led in epoch %d",
		id, n.id, s.a.LeaderEpoch, s.at.Sub(since), p.Leader, p.LeaderEpoch)
}
