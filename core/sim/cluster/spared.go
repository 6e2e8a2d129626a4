package cluster

import (
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/storage"
)

// spared says whether a node may lose what it has: of each partition of which it counts as
// one that has all that was committed, some other counts too and has not lost it without
// having told, and those that have are fewer than the minimum of the ISR, so that one other goes
// on counting until the loss is noticed (KIP-966); or the node's own is kept. One that is to come
// in the place of others may count as soon as that is committed, and alone. (KIP-455)
//
// With a minimum of one, a replica that is let into the ISR and is gone by then may be the only
// one that counts when the leader goes too: nobody else is kept in the ELR. Nothing is promised
// of that, and nothing is taken from those that may be asked for.
func (c *cluster) spared(n *node, kept func(model.Partition) bool) bool {
	if c.doubtful() {
		return false
	}
	img := c.check.Newest()
	for t := range img.Topics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			least := minISR(img, t, p)
			counted := slices.Concat(p.ISR, p.ELR, p.LastKnownELR)
			if least < 2 {
				counted = p.Replicas // any of which may be asked for
			}
			counts := slices.Contains(counted, n.id)
			if !counts && !slices.Contains(p.Adding, n.id) {
				continue
			}
			stays := func(id model.NodeID) bool { return !slices.Contains(p.Removing, id) }
			other := slices.ContainsFunc(slices.Concat(p.ISR, p.ELR), func(id model.NodeID) bool {
				m := c.node(id)
				return m != n && !m.lacks() && stays(id)
			})
			if (!other || counts && least <= c.lostWith(n, p)) && !kept(model.Partition{Topic: t.ID, Index: int32(i)}) {
				return false
			}
		}
	}
	return true
}

// lostWith is how many of those that count would have lost something without its being known, n
// among them.
func (c *cluster) lostWith(n *node, p *image.Partition) int {
	lost := 1
	for _, id := range slices.Concat(p.ISR, p.ELR) {
		if m := c.node(id); m != n && m.lacks() {
			lost++
		}
	}
	return lost
}

// lacks: it has lost something that it has not told of.
func (n *node) lacks() bool { return n.mayHaveLost || n.wiped }

// minISR is the minimum of a partition's ISR in effect, or after the reassignment under way if
// that is less.
func minISR(img *image.Image, t *image.Topic, p *image.Partition) int {
	settings, err := img.TopicConfig(t.Name, model.NoNode, nil)
	if err != nil {
		panic("cluster: the metadata have settings that do not hold: " + err.Error())
	}
	stay := 0
	for _, id := range p.Replicas {
		if !slices.Contains(p.Removing, id) {
			stay++
		}
	}
	return image.EffectiveMinISR(settings.MinISR, min(stay, p.Counted()), int(t.ReplicationFactorTarget))
}

// doubtMax is how long what was asked, and not answered, may still come to be.
const doubtMax = 15 * time.Second

// doubt says that something is asked by which replicas may count no more: a minimum of the ISR,
// or other replicas. Until it is over, or can come to nothing more, nobody knows whether it
// counts.
func (c *cluster) doubt() (over func()) {
	until := new(time.Time)
	*until = c.w.Now().Add(doubtMax)
	c.doubts = append(c.doubts, until)
	return func() { *until = time.Time{} }
}

func (c *cluster) doubtful() bool {
	c.doubts = slices.DeleteFunc(c.doubts, func(until *time.Time) bool { return !c.w.Now().Before(*until) })
	return len(c.doubts) > 0
}

// noticed: no node has lost anything that it has not told of, but for one, or nil.
func (c *cluster) noticed(but *node) bool {
	return !slices.ContainsFunc(c.nodes, func(n *node) bool { return n != but && n.lacks() })
}

// flushed: a node that knows that it alone is in sync has flushed what was committed by then.
// What it has acknowledged since, it must have flushed.
func (n *node) flushed(p model.Partition) bool {
	high, alone := n.alone[p]
	durable, there := n.disk.Durable(storage.LogID{Topic: p.Topic, Partition: p.Index})
	return alone && there && durable >= high
}

// noticeMax is how long after a node has heard that it is alone in sync it may still
// acknowledge what others had too.
const noticeMax = 50 * time.Millisecond

// isAlone notes of which partitions a node is alone in sync, by its new image, and what was
// committed by then.
func (n *node) isAlone(img *image.Image) {
	l := n.life
	for t := range img.Topics() {
		for i := range t.Partitions {
			p, id := &t.Partitions[i], model.Partition{Topic: t.ID, Index: int32(i)}
			if p.Leader != n.id || len(p.ISR) != 1 || len(p.ELR) > 0 {
				delete(n.alone, id)
				delete(n.lonely, id)
				continue
			}
			if n.lonely[id] {
				continue
			}
			n.lonely[id] = true
			n.c.w.After(noticeMax, func() {
				if n.life == l && !l.over && n.lonely[id] && !n.paused {
					n.alone[id] = max(n.high(id), n.c.check.Committed(id))
				}
			})
		}
	}
}
