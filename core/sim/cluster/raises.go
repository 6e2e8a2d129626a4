package cluster

import (
	"fmt"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// raisesMax is so small that some partitions wait.
const raisesMax = 3

// replicas is how many a new topic is to have: so many, or where the cluster begins with one
// node, the cluster's target, towards which the controller raises it.
func (c *cluster) replicas(count int) int16 {
	if c.opts.Nodes == 1 {
		return -1
	}
	return int16(count)
}

// grow has nodes join a cluster that begins with one while the first faults are on.
func (c *cluster) grow() {
	if c.opts.Nodes > 1 {
		return
	}
	for range c.opts.NodesMax - 1 {
		c.w.After(c.w.Between(0, c.opts.Faulty/2), c.join)
	}
}

// raises counts what the controller has begun with this metadata.
func (c *cluster) raises(old *image.Image, t *image.Topic, index int) {
	p := &t.Partitions[index]
	if !p.Raised || old == nil {
		return
	}
	if was, _, ok := old.Partition(model.Partition{Topic: t.ID, Index: int32(index)}); ok && !was.Raised {
		c.report.Raised++
		c.w.Note("partition %s-%d is raised to %v", t.Name, index, p.Replicas)
	}
}

// unraised says which partition has fewer replicas than it is to have, though there are nodes for
// them, or "".
func (c *cluster) unraised() string {
	for t := range c.check.Newest().Topics() {
		for i := range t.Partitions {
			if p := &t.Partitions[i]; t.BelowTarget(p) && p.Counted() < len(c.nodes) {
				return fmt.Sprintf("partition %s-%d has replicas %v, and is to have %d", t.Name, i, p.Replicas, t.TargetOf(p))
			}
		}
	}
	return ""
}
