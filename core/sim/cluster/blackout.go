package cluster

import (
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
)

// blackout takes the power of all hosts at once under the policy replicated, which may take the
// last that was acknowledged: what some replica that counts has lost is not asked for any more.
// It is asked that logs do not diverge, and that all is served again. (KIP-966)
func (c *cluster) blackout() {
	c.report.Blackouts++
	c.w.Note("all nodes lose power at once")
	whole := c.whole()
	for _, n := range c.nodes {
		if n.up() {
			n.kill(memnet.Silent)
		}
		lost, _ := n.disk.LosePower(c.w.Rand.Uint64())
		n.mayHaveLost, n.unheard = true, true
		c.report.PowerLosses++
		c.report.LostBatches += lost
		c.restart(n)
	}
	img := c.check.Newest()
	for t := range img.Topics() {
		for i := range t.Partitions {
			p, may := model.Partition{Topic: t.ID, Index: int32(i)}, &t.Partitions[i]
			if minISR(img, t, may) < 2 {
				whole[p] = may.Replicas // any of which may be asked for, see spared
			}
			end := c.leastEnd(p, may, whole[p])
			if end < c.check.Committed(p) {
				c.report.Excused++
			}
			c.check.MayBeLost(p, end)
			c.highest[p] = min(c.highest[p], end)
		}
	}
}

// whole are the nodes that have all that was committed of each partition: by a question that
// is on its way any of them may be in sync when its answer is known.
func (c *cluster) whole() map[model.Partition][]model.NodeID {
	out := make(map[model.Partition][]model.NodeID)
	for _, n := range c.nodes {
		if !n.up() {
			continue
		}
		for _, r := range n.manager.Replicas() { // also those that are being opened
			if r.LEO >= c.check.Committed(r.Partition) {
				out[r.Partition] = append(out[r.Partition], n.id)
			}
		}
	}
	return out
}

// leastEnd is the least end of the logs of all replicas that count, or may by now, and are there,
// as they lie on disk. One that was wiped can neither lead nor say how long its log is.
func (c *cluster) leastEnd(id model.Partition, p *image.Partition, whole []model.NodeID) int64 {
	least := int64(-1)
	for _, r := range slices.Concat(p.ISR, p.ELR, p.LastKnownELR, whole) {
		n := c.node(r)
		if n == nil || !n.holds(p) {
			continue
		}
		if end := n.endOf(id); least < 0 || end < least {
			least = end
		}
	}
	return max(least, 0)
}

// holds says whether a node's disk is the one that its replica of a partition was put on.
func (n *node) holds(p *image.Partition) bool {
	i := slices.Index(p.Replicas, n.id)
	return i >= 0 && (p.Directories[i].IsZero() || p.Directories[i] == n.directory)
}

// endOf is how far a log on a node's disk can be read, whose store is down.
func (n *node) endOf(p model.Partition) int64 {
	s, err := n.openDisk(memstore.Options{Now: n.Now})
	if err != nil {
		n.c.check.Violate("%v", err)
		return 0
	}
	defer s.Kill()
	o := openFor(s, p)
	if o.Err != nil {
		return 0
	}
	return o.LEO
}

// again begins a producer anew, of whose records some are lost: as another, which knows of
// none of them. What it had sent may be there twice.
func (p *producer) again() {
	p.c.w.Note("producer %d begins anew", p.id)
	p.c.check.Repeats(p.id)
	p.pid += producersMax
	p.seq, p.known = 0, false
	for _, b := range p.window {
		if !b.acked {
			b.data = p.encode(b.values)
		}
	}
	p.reconnect()
}

// producersMax is above the number of producers, so that those that begin anew have IDs of
// their own.
const producersMax = 100
