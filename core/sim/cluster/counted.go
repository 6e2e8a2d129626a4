package cluster

import (
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// counted tells the checker how far the logs reach of those that count as having all that was
// committed of a partition, by the newest metadata: of those that are up, know it, and have lost
// nothing that they have not told.
func (c *cluster) counted(id model.Partition, p *image.Partition) {
	for _, r := range slices.Concat(p.ISR, p.ELR) {
		n := c.node(r)
		if n == nil || !n.up() || n.lacks() {
			continue
		}
		for _, e := range n.manager.LogEnds([]model.Partition{id}) {
			c.check.Counts(id, r, e.LEO)
		}
	}
}

// countAll does so for all partitions of the producers.
func (c *cluster) countAll() {
	img := c.check.Newest()
	for i := range c.opts.Partitions {
		id := model.Partition{Topic: c.topic, Index: int32(i)}
		if p, _, ok := img.Partition(id); ok {
			c.counted(id, p)
		}
	}
}

// lastOneIn: of so many that come to be alone in sync, while others of the ELR have everything,
// one loses its disk or its power.
const lastOneIn = 6

// loseLast takes what the only one in sync has, at times, where the ELR is to lead. (KIP-966)
func (c *cluster) loseLast(p *image.Partition) {
	if !c.faulty || len(p.ISR) != 1 || len(p.ELR) == 0 || !c.w.Chance(lastOneIn) {
		return
	}
	id := p.ISR[0]
	c.w.After(c.w.Between(0, 500*time.Millisecond), func() {
		switch n := c.node(id); {
		case !c.faulty || n == nil || !n.up():
		case c.w.Chance(2):
			c.wipe(n)
		default:
			c.losePower(n)
		}
	})
}
