package check

import (
	"fmt"
	"maps"

	"github.com/brokerd/brokerd/core/model"
)

// Checker is told what happened, in the order in which it happened. It belongs to one
// goroutine.
type Checker struct {
	note       func(violation string)
	violations []string

	partitions map[model.Partition]*partition
	idempotent map[int]bool
	metadata   metadata
	ballots    map[ballot]uint64 // who was voted for
	terms      map[uint64]uint64 // who led the quorum
}

// partition is what is known of one partition.
type partition struct {
	id      model.Partition
	acked   map[int64]acked
	read    map[int64]string
	leaders map[model.LeaderEpoch]*term
	highest model.LeaderEpoch // of leaders
	end     int64             // below it all was committed
	gaps    bool              // all that is known of a producer may have been lost
}

// acked is a record that was acknowledged with acks=all.
type acked struct {
	value string
	epoch model.LeaderEpoch
}

// term is one leader epoch, as far as somebody was seen to lead in it.
type term struct {
	leader model.NodeID
	source string // who said so
	high   int64
	begun  bool  // it was seen to serve
	end    int64 // of its log, when it was seen first
}

// New makes a checker, which gives each violation to note, unless that is nil.
func New(note func(violation string)) *Checker {
	return &Checker{
		note: note, partitions: make(map[model.Partition]*partition), idempotent: make(map[int]bool),
		metadata: newMetadata(), ballots: make(map[ballot]uint64), terms: make(map[uint64]uint64),
	}
}

// Violations are what was wrong so far, in the order in which it was found.
func (c *Checker) Violations() []string { return c.violations }

// Violate notes what somebody else has found to be wrong.
func (c *Checker) Violate(format string, args ...any) { c.violate(format, args...) }

func (c *Checker) violate(format string, args ...any) {
	v := fmt.Sprintf(format, args...)
	c.violations = append(c.violations, v)
	if c.note != nil {
		c.note(v)
	}
}

func (c *Checker) of(p model.Partition) *partition {
	s := c.partitions[p]
	if s == nil {
		s = &partition{
			id: p, acked: make(map[int64]acked), read: make(map[int64]string),
			leaders: make(map[model.LeaderEpoch]*term), highest: model.NoEpoch,
		}
		c.partitions[p] = s
	}
	return s
}

// Acknowledged tells that a client was told by a node, which leads under epoch, that its values are
// committed from base on (acks=all).
func (c *Checker) Acknowledged(p model.Partition, node model.NodeID, epoch model.LeaderEpoch, base int64, values []string) {
	s := c.of(p)
	c.leads(s, epoch, node, "it acknowledged a record")
	s.end = max(s.end, base+int64(len(values)))
	for i, v := range values {
		at := base + int64(i)
		if old, ok := s.acked[at]; ok && old.value != v {
			c.violate("partition %s: offset %d was acknowledged for %s and for %s", p, at, old.value, v)
		}
		if old, ok := s.read[at]; ok && old != v {
			c.violate("partition %s: offset %d is acknowledged for %s, and %s was read there", p, at, v, old)
		}
		if _, ok := s.acked[at]; !ok { // a repeat says nothing of when it was committed
			s.acked[at] = acked{value: v, epoch: epoch}
		}
	}
}

// Read tells that a consumer was given a value by a leader.
func (c *Checker) Read(p model.Partition, at int64, value string) {
	s := c.of(p)
	if old, ok := s.read[at]; ok && old != value {
		c.violate("partition %s: offset %d was read as %s and as %s", p, at, old, value)
	}
	if old, ok := s.acked[at]; ok && old.value != value {
		c.violate("partition %s: offset %d was acknowledged for %s and read as %s", p, at, old.value, value)
	}
	s.read[at] = value
	s.end = max(s.end, at+1)
}

// Committed is the offset below which all was committed, by what clients were told.
func (c *Checker) Committed(p model.Partition) int64 { return c.of(p).end }

// Counts tells how far a log reaches of which the newest image says, by the ISR or the ELR, that
// it has all that was committed.
func (c *Checker) Counts(p model.Partition, node model.NodeID, end int64) {
	if s := c.of(p); end < s.end {
		c.violate("partition %s: node %d counts as one that has all that was committed, and has a log up to %d of %d", p, node, end, s.end)
	}
}

// MayBeLost tells that what a partition had from an offset on may be lost, by what nobody
// promises to survive. Another value may come there, and a producer of which nothing is left
// goes on with its next one: a broker takes whatever sequence comes first. (KIP-360)
func (c *Checker) MayBeLost(p model.Partition, from int64) {
	s := c.of(p)
	s.gaps = true
	s.end = min(s.end, from)
	maps.DeleteFunc(s.acked, func(at int64, _ acked) bool { return at >= from })
	maps.DeleteFunc(s.read, func(at int64, _ string) bool { return at >= from })
	for _, t := range s.leaders {
		t.high = min(t.high, from)
	}
}

// Leader is what a node says of a partition that it leads.
type Leader struct {
	Partition     model.Partition
	Node          model.NodeID
	Epoch         model.LeaderEpoch
	LogStart      int64
	HighWatermark int64
	LEO           int64
}

// Leads tells that a node serves a partition as its leader.
func (c *Checker) Leads(l Leader) {
	s := c.of(l.Partition)
	t := c.leads(s, l.Epoch, l.Node, "it says so")
	if l.LogStart > l.HighWatermark || l.HighWatermark > l.LEO {
		c.violate("partition %s: log start %d, high watermark %d, log end %d of leader %d are not in order",
			l.Partition, l.LogStart, l.HighWatermark, l.LEO, l.Node)
	}
	if l.HighWatermark < t.high {
		c.violate("partition %s: the high watermark went back from %d to %d in leader epoch %d",
			l.Partition, t.high, l.HighWatermark, l.Epoch)
	}
	if t.begun && l.HighWatermark <= t.high {
		return // nothing is new that could be held against other epochs
	}
	t.high = max(t.high, l.HighWatermark)
	if !t.begun {
		t.begun, t.end = true, l.LEO
		c.begins(s, l)
	}
	c.kept(s, l.Epoch)
}

// kept holds the high watermark of each epoch against the log of the leader of each later
// one, as it was seen first, where one of the two is of this epoch.
func (c *Checker) kept(s *partition, of model.LeaderEpoch) {
	other := model.NoEpoch
	for epoch, o := range s.leaders {
		old, next := s.leaders[min(epoch, of)], s.leaders[max(epoch, of)]
		if epoch != of && o.begun && old.high > next.end && (other == model.NoEpoch || epoch < other) {
			other = epoch
		}
	}
	if other != model.NoEpoch {
		old, next := min(other, of), max(other, of)
		c.violate("partition %s: the high watermark of epoch %d came to %d, and the log of the leader of epoch %d had only come to %d",
			s.id, old, s.leaders[old].high, next, s.leaders[next].end)
	}
}

// begins: who leads has all that was acknowledged before.
func (c *Checker) begins(s *partition, l Leader) {
	for at, a := range s.acked {
		if a.epoch < l.Epoch && at >= l.LEO {
			c.violate("partition %s: leader %d of epoch %d has a log up to %d, and a record at or above that was acknowledged in an earlier epoch",
				l.Partition, l.Node, l.Epoch, l.LEO)
			return
		}
	}
}

// leads notes who leads in an epoch.
func (c *Checker) leads(s *partition, epoch model.LeaderEpoch, node model.NodeID, source string) *term {
	t := s.leaders[epoch]
	if t == nil {
		t = &term{leader: node, source: source}
		s.leaders[epoch] = t
		s.highest = max(s.highest, epoch)
	}
	if t.leader != node {
		c.violate("partition %s: nodes %d (%s) and %d (%s) lead in epoch %d", s.id, t.leader, t.source, node, source, epoch)
	}
	return t
}

// Elections counts leader epochs in which somebody was seen to lead, but for the first of
// each partition.
func (c *Checker) Elections() int {
	n := 0
	for _, s := range c.partitions {
		n += max(0, len(s.leaders)-1)
	}
	return n
}
