package cluster

import (
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/replica"
	"github.com/brokerd/brokerd/core/sim/world"
	"github.com/brokerd/brokerd/sdk/storage"
)

// fall is what a store has lost of one log while its broker lives on: where that ended, and when
// it was.
type fall struct {
	p   model.Partition
	end int64
	at  time.Time
}

// fallBack has the store of a node that lives on start again without some of what it had not
// flushed, as seed decides, and says how many batches that are.
func (n *node) fallBack(seed uint64) (lost int) {
	n.store.die()
	var before []fall
	if img := n.c.check.Newest(); img != nil {
		before = n.ends(img)
	}
	lost, _ = n.disk.LosePower(seed)
	for _, f := range before {
		if n.endOf(f.p) < f.end {
			n.fell = append(n.fell, f)
		}
	}
	n.mayHaveLost = n.mayHaveLost || len(n.fell) > 0
	n.disk.Kill()
	n.store.start()
	n.touched = true
	n.manager.Restarted("main")
	return lost
}

// knows says whether a node's broker is registered in this life, and has opened all logs: of one
// that falls back before that, only its store could say that it did, and a store that has started
// with its broker is taken at its word that the end of a process costs nothing.
func (n *node) knows() bool {
	if n.toldOf != n.starts {
		return false
	}
	var all []model.Partition
	img := n.c.check.Newest()
	for t := range img.Topics() {
		for i := range t.Partitions {
			if slices.Contains(t.Partitions[i].Replicas, n.id) {
				all = append(all, model.Partition{Topic: t.ID, Index: int32(i)})
			}
		}
	}
	return len(n.manager.LogEnds(all)) == len(all)
}

// ends are where the logs on a node's disk end, whose store is down.
func (n *node) ends(img *image.Image) []fall {
	var out []fall
	for t := range img.Topics() {
		for i := range t.Partitions {
			p := model.Partition{Topic: t.ID, Index: int32(i)}
			if !slices.Contains(t.Partitions[i].Replicas, n.id) || !n.holds(&t.Partitions[i]) {
				continue
			}
			if _, there := n.disk.Durable(storage.LogID{Topic: p.Topic, Partition: p.Index}); there {
				out = append(out, fall{p, n.endOf(p), n.c.w.Now()})
			}
		}
	}
	return out
}

// recovers forgets what a node's logs had lost in this life of its broker and have again, or on
// which nobody counts any more: nor by what was asked before it fell.
func (n *node) recovers() {
	if len(n.fell) == 0 || n.fallen { // not all logs have been opened
		return
	}
	img := n.c.check.Newest()
	n.fell = slices.DeleteFunc(n.fell, func(f fall) bool {
		p, _, ok := img.Partition(f.p)
		if !ok {
			return true
		}
		counts := slices.Contains(p.ISR, n.id) || slices.Contains(p.ELR, n.id) || slices.Contains(p.LastKnownELR, n.id) && p.Leader == model.NoNode
		if !counts && !n.c.w.Now().Before(f.at.Add(doubtMax)) {
			return true
		}
		for _, e := range n.manager.LogEnds([]model.Partition{f.p}) {
			if e.LEO >= f.end && slices.Contains(p.ISR, n.id) {
				return true
			}
		}
		return false
	})
	n.mayHaveLost = len(n.fell) > 0
}

// told: the broker of a node is registered in its present life. What its logs had lost before
// that is known, or should be.
func (n *node) told() {
	if n.toldOf != n.starts {
		n.toldOf = n.starts
		n.unheard, n.fell, n.mayHaveLost = false, nil, false
	}
	n.wiped = false
	n.recovers()
}

// keeper keeps what a broker has to know in its next life. It implements replica.Doubts.
type keeper struct{ n *node }

var _ replica.Doubts = keeper{}

// Doubt implements replica.Doubts.
func (k keeper) Doubt() error { k.n.fallen = true; return nil }

// Settle implements replica.Doubts.
func (k keeper) Settle() error { k.n.fallen = false; return nil }

// fallbacks has stores fall back now and then while faults are on, in runs that have such: where
// nothing that was acknowledged would be missing, had the node lost its power. It draws from a
// source of its own.
func (c *cluster) fallbacks(round int) {
	if !c.opts.FallBacks {
		return
	}
	if c.falls == nil {
		c.falls = world.New(c.report.Seed^0xfa11bac, nil)
	}
	w := c.falls
	c.w.After(w.Between(20*time.Millisecond, 2*c.opts.Calm), func() {
		if !c.faulty || c.round != round {
			return
		}
		n := c.nodes[w.Rand.IntN(len(c.nodes))]
		if n.up() && !n.paused && n.store.alive && n.knows() && c.spared(n, n.flushed) && c.countsOn(n) {
			lost := n.fallBack(w.Rand.Uint64())
			c.report.FallBacks++
			c.report.LostBatches += lost
			c.w.Note("the store of node %d falls back: %d batches are lost, of %v", n.id, lost, n.fell)
			if w.Chance(2) {
				l := n.life
				c.w.After(w.Between(0, 200*time.Millisecond), func() {
					if n.life == l && c.faulty {
						c.kill(n)
					}
				})
			}
		}
		c.fallbacks(round)
	})
}

// countsOn says whether, of each partition that a node has, others go on counting by the minimum
// of the ISR until it is known that its store fell back. With a minimum of one they do not: who is
// let into the ISR, or asked for, may be the one whose store fell back, and nothing is promised.
func (c *cluster) countsOn(n *node) bool {
	img := c.check.Newest()
	for t := range img.Topics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			if slices.Contains(p.Replicas, n.id) && minISR(img, t, p) <= c.lostWith(n, p) {
				return false
			}
		}
	}
	return true
}
