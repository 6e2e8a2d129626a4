package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/sim/check"
)

// watch reads, and looks at what leaders say of themselves, again and again.
func (c *cluster) watch() {
	c.w.After(c.w.Between(5*time.Millisecond, 150*time.Millisecond), func() {
		c.read()
		for _, n := range c.nodes {
			if n.up() && !n.paused {
				c.look(n)
			}
		}
		c.countAll()
		c.lookForDeposed()
		c.watch()
	})
}

// look tells the checker what a node says that it leads.
func (c *cluster) look(n *node) {
	n.touched = true
	for _, l := range n.leads() {
		c.check.Leads(l)
	}
}

// leads is what a node says that it leads and serves.
func (n *node) leads() []check.Leader {
	var out []check.Leader
	for _, r := range n.manager.Replicas() {
		if r.Offline == nil && r.Leader && n.serves(r.Partition, r.LeaderEpoch) {
			out = append(out, check.Leader{
				Partition: r.Partition, Node: n.id, Epoch: r.LeaderEpoch, LogStart: r.LogStart, HighWatermark: r.HighWatermark, LEO: r.LEO,
			})
		}
	}
	return out
}

// high is the high watermark of a partition, as a node has it.
func (n *node) high(p model.Partition) int64 {
	for _, r := range n.manager.Replicas() {
		if r.Partition == p {
			return r.HighWatermark
		}
	}
	return 0
}

// serves: a node leads a partition under an epoch, and its log is open.
func (n *node) serves(p model.Partition, epoch model.LeaderEpoch) bool {
	q := model.EpochQuery{Partition: p, CurrentEpoch: epoch, Epoch: epoch}
	return n.manager.EpochEnds(context.Background(), []model.EpochQuery{q})[0].Err == nil
}

// read fetches from some place of some partition, at whoever leads, or at a follower. (KIP-392)
func (c *cluster) read() {
	p := model.Partition{Topic: c.topic, Index: int32(c.w.Rand.IntN(c.opts.Partitions))}
	heard := model.NoEpoch // readers are at old leaders too
	n := c.leaderOf(p, &heard)
	if c.w.Chance(3) {
		n = c.nodes[c.w.Rand.IntN(len(c.nodes))]
	}
	if n == nil || !n.up() || n.paused {
		return
	}
	from := int64(0)
	if hw := c.highest[p]; hw > 0 {
		from = c.w.Rand.Int64N(hw)
		if c.w.Chance(2) {
			from = hw - min(hw, 3)
		}
	}
	got := n.fetch(p, from, 200+c.w.Rand.IntN(2000))
	if got.Err != nil {
		return
	}
	c.highest[p] = max(c.highest[p], got.HighWatermark)
	for r, err := range batch.Records(slices.Concat(got.Data...), 0) {
		if err != nil {
			c.check.Violate("partition %d: what was fetched at %d from node %d is damaged: %v", p.Index, from, n.id, err)
			return
		}
		if r.Offset >= got.HighWatermark {
			c.check.Violate("partition %d: offset %d was served, the high watermark is %d", p.Index, r.Offset, got.HighWatermark)
		}
		if r.Offset >= from {
			c.check.Read(p, r.Offset, string(r.Value))
			c.report.Reads++
		}
	}
}

func (n *node) fetch(p model.Partition, from int64, maxBytes int) model.Fetched {
	n.touched = true
	return n.manager.Fetch(context.Background(), model.Fetch{
		Partitions: []model.FetchPartition{{
			Partition: p, Offset: from, LogStart: -1, MaxBytes: maxBytes, CurrentEpoch: model.NoEpoch, LastFetchedEpoch: model.NoEpoch,
		}},
		MaxBytes: maxBytes,
	}).Partitions[0]
}
