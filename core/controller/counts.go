package controller

import (
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// Counts says how often committed changes have given partitions other leaders and ISRs.
// What a new topic begins with is not counted.
type Counts struct {
	// Elections by what is known of the leader: it has all that was acknowledged; it has the
	// longest log where all that had everything may have lost something; it may have anything.
	Clean, Longest, Unclean int64
	// Shrinks and Expands of ISRs. Where one replica left and another joined, it is both.
	Shrinks, Expands int64
}

// Add adds others to c.
func (c *Counts) Add(o Counts) {
	c.Clean += o.Clean
	c.Longest += o.Longest
	c.Unclean += o.Unclean
	c.Shrinks += o.Shrinks
	c.Expands += o.Expands
}

// count takes a change of a partition.
func (c *Counts) count(was *image.Partition, r *image.PartitionChangeRecord) {
	switch {
	case !r.LeaderChange || r.Leader == model.NoNode:
	case r.Loss == nil:
		c.Clean++
	case r.Loss.Unclean:
		c.Unclean++
	default:
		c.Longest++
	}
	if r.ISR == nil {
		return
	}
	left := func(of, in []model.NodeID) bool {
		return slices.ContainsFunc(of, func(n model.NodeID) bool { return !slices.Contains(in, n) })
	}
	if left(was.ISR, r.ISR) {
		c.Shrinks++
	}
	if left(r.ISR, was.ISR) {
		c.Expands++
	}
}
