package check

import (
	"hash/fnv"
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// metadata is what is known of the images.
type metadata struct {
	prints     map[int64]uint64 // by offset
	lives      map[life]int64   // the offset of the last image
	topics     map[string]model.TopicID
	removed    map[model.TopicID]bool
	last       map[model.Partition]lastSeen
	newest     *image.Image
	isrChanges int
	moves      int
}

type life struct {
	node  model.NodeID
	start int
}

// lastSeen is a partition in the newest image that was looked at.
type lastSeen struct {
	leader model.NodeID
	epoch  model.LeaderEpoch
	number model.PartitionEpoch
	isr    []model.NodeID
	moving bool // its replicas are being changed
}

func newMetadata() metadata {
	return metadata{
		prints: make(map[int64]uint64), lives: make(map[life]int64),
		topics: make(map[string]model.TopicID), removed: make(map[model.TopicID]bool), last: make(map[model.Partition]lastSeen),
	}
}

// Newest is the image of the highest offset that was published; nil: none was.
func (c *Checker) Newest() *image.Image { return c.metadata.newest }

// ISRChanges counts changes of ISRs in the images.
func (c *Checker) ISRChanges() int { return c.metadata.isrChanges }

// Moves counts the reassignments in the images that came to their end. (KIP-455)
func (c *Checker) Moves() int { return c.metadata.moves }

// Published tells that a node has a new image, in the life of it that start numbers.
func (c *Checker) Published(node model.NodeID, start int, img *image.Image) {
	m := &c.metadata
	l := life{node, start}
	if last, ok := m.lives[l]; ok && img.Offset < last {
		c.violate("node %d published the image of offset %d after that of %d", node, img.Offset, last)
	}
	m.lives[l] = img.Offset
	sum := fingerprint(img)
	if old, ok := m.prints[img.Offset]; ok && old != sum {
		c.violate("node %d has another image at offset %d than was published there before", node, img.Offset)
		return
	}
	m.prints[img.Offset] = sum
	if m.newest != nil && img.Offset <= m.newest.Offset {
		return // it was looked at
	}
	m.newest = img
	for t := range img.Topics() {
		if m.removed[t.ID] {
			c.violate("topic %s (%s) was removed, and is in the image of offset %d", t.Name, t.ID, img.Offset)
		}
		for i := range t.Partitions {
			c.registered(model.Partition{Topic: t.ID, Index: int32(i)}, &t.Partitions[i])
		}
	}
	for name, id := range m.topics {
		if t, ok := img.TopicByName(name); !ok || t.ID != id {
			c.violate("topic %s (%s) was made, and is not in the image of offset %d", name, id, img.Offset)
		}
	}
}

// registered looks at one partition of the newest image.
func (c *Checker) registered(id model.Partition, p *image.Partition) {
	for i, n := range p.ISR {
		if !slices.Contains(p.Replicas, n) || slices.Contains(p.ISR[:i], n) {
			c.violate("partition %s: the ISR %v is not within the replicas %v", id, p.ISR, p.Replicas)
		}
		if slices.Contains(p.ELR, n) {
			c.violate("partition %s: node %d is in the ISR and in the ELR", id, n)
		}
	}
	if len(p.ISR) == 0 && p.Leader != model.NoNode {
		c.violate("partition %s: the ISR is empty, and node %d leads", id, p.Leader)
	}
	if p.Leader != model.NoNode && len(p.ISR) > 0 && !slices.Contains(p.ISR, p.Leader) {
		c.violate("partition %s: leader %d is not in the ISR %v", id, p.Leader, p.ISR)
	}
	old, known := c.metadata.last[id]
	switch {
	case !known:
	case p.LeaderEpoch < old.epoch:
		c.violate("partition %s: the leader epoch went back from %d to %d", id, old.epoch, p.LeaderEpoch)
	case p.PartitionEpoch < old.number:
		c.violate("partition %s: the partition epoch went back from %d to %d", id, old.number, p.PartitionEpoch)
	case p.Leader != old.leader && p.LeaderEpoch == old.epoch:
		c.violate("partition %s: leader %d follows leader %d in leader epoch %d", id, p.Leader, old.leader, p.LeaderEpoch)
	case p.PartitionEpoch == old.number && !slices.Equal(p.ISR, old.isr):
		c.violate("partition %s: the ISR became %v, from %v, in partition epoch %d", id, p.ISR, old.isr, p.PartitionEpoch)
	}
	if known && !slices.Equal(p.ISR, old.isr) {
		c.metadata.isrChanges++
	}
	moving := len(p.Adding)+len(p.Removing) > 0
	if known && old.moving && !moving {
		c.metadata.moves++
	}
	c.metadata.last[id] = lastSeen{leader: p.Leader, epoch: p.LeaderEpoch, number: p.PartitionEpoch, isr: p.ISR, moving: moving}
	if p.Leader != model.NoNode {
		c.leads(c.of(id), p.LeaderEpoch, p.Leader, "the metadata says so")
	}
}

// TopicMade tells that a client was told that a topic exists, with this ID.
func (c *Checker) TopicMade(name string, id model.TopicID) {
	if old, ok := c.metadata.topics[name]; ok && old != id {
		c.violate("topic %s was made as %s and as %s", name, old, id)
	}
	c.metadata.topics[name] = id
}

// TopicLeaves tells that a client asks for a topic to be removed: from now on it may go.
func (c *Checker) TopicLeaves(name string) { delete(c.metadata.topics, name) }

// TopicRemoved tells that a client was told that a topic is removed.
func (c *Checker) TopicRemoved(id model.TopicID) { c.metadata.removed[id] = true }

// fingerprint is a digest of all that is in an image.
func fingerprint(img *image.Image) uint64 {
	var records []image.Record
	for r := range img.Records() {
		records = append(records, r)
	}
	h := fnv.New64a()
	_, _ = h.Write(image.AppendBatch(nil, records))
	return h.Sum64()
}
