package sim

import (
	"fmt"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/sim/world"
)

// checker knows what clients were told and what they read, and holds the one
// against the other.
type checker struct {
	w          *world.World
	retention  bool // old records may go by themselves
	partitions map[model.Partition]*seen
	violations []string
}

// seen is what is known of one partition.
type seen struct {
	acked    map[int64]string // offset -> value, as acknowledged with acks=all
	read     map[int64]string // offset -> value, as read
	trimmed  int64            // below it, records may be gone
	logStart int64
	hw       int64
}

func newChecker(w *world.World, retention bool) *checker {
	return &checker{w: w, retention: retention, partitions: make(map[model.Partition]*seen)}
}

func (c *checker) of(p model.Partition) *seen {
	s := c.partitions[p]
	if s == nil {
		s = &seen{acked: make(map[int64]string), read: make(map[int64]string)}
		c.partitions[p] = s
	}
	return s
}

func (c *checker) violate(format string, args ...any) {
	v := fmt.Sprintf(format, args...)
	c.w.Note("VIOLATION: %s", v)
	c.violations = append(c.violations, v)
}

// acknowledged: a client was told that its values begin at base.
func (c *checker) acknowledged(p model.Partition, base int64, values []string) {
	s := c.of(p)
	for i, v := range values {
		at := base + int64(i)
		if old, ok := s.acked[at]; ok && old != v {
			c.violate("partition %d: offset %d was acknowledged for %s and for %s", p.Index, at, old, v)
		}
		if old, ok := s.read[at]; ok && old != v {
			c.violate("partition %d: offset %d is acknowledged for %s, and %s was read there", p.Index, at, v, old)
		}
		s.acked[at] = v
	}
}

// consumed: a client read a value.
func (c *checker) consumed(p model.Partition, at int64, v string) {
	s := c.of(p)
	if old, ok := s.read[at]; ok && old != v {
		c.violate("partition %d: offset %d was read as %s and as %s", p.Index, at, old, v)
	}
	if old, ok := s.acked[at]; ok && old != v {
		c.violate("partition %d: offset %d was acknowledged for %s and read as %s", p.Index, at, old, v)
	}
	s.read[at] = v
}

// status: a replica shows its offsets.
func (c *checker) status(r model.ReplicaStatus) {
	s := c.of(r.Partition)
	if r.LogStart > r.HighWatermark || r.HighWatermark > r.LEO {
		c.violate("partition %d: log start %d, high watermark %d, log end %d are not in order", r.Partition.Index, r.LogStart, r.HighWatermark, r.LEO)
	}
	if r.LogStart < s.logStart {
		c.violate("partition %d: the log start went back from %d to %d", r.Partition.Index, s.logStart, r.LogStart)
	}
	if r.HighWatermark < s.hw {
		c.violate("partition %d: the high watermark went back from %d to %d", r.Partition.Index, s.hw, r.HighWatermark)
	}
	s.logStart, s.hw = max(s.logStart, r.LogStart), max(s.hw, r.HighWatermark)
}

// final: the whole partition was read, from its log start to its end.
func (c *checker) final(p model.Partition, logStart, end int64, values []string) {
	s := c.of(p)
	if int64(len(values)) != end-logStart {
		c.violate("partition %d: %d records between %d and %d", p.Index, len(values), logStart, end)
		return
	}
	for at, v := range s.acked {
		switch {
		case at < logStart && (at < s.trimmed || c.retention):
		case at < logStart:
			c.violate("partition %d: offset %d, acknowledged for %s, is below the log start %d, and nobody trimmed it", p.Index, at, v, logStart)
		case at >= end:
			c.violate("partition %d: offset %d, acknowledged for %s, is lost: the log ends at %d", p.Index, at, v, end)
		case values[at-logStart] != v:
			c.violate("partition %d: offset %d was acknowledged for %s and holds %s", p.Index, at, v, values[at-logStart])
		}
	}
	c.order(p, logStart > 0, values)
}

// order: what an idempotent producer sent is there once, in order, without a
// gap, but for what was trimmed off the front.
func (c *checker) order(p model.Partition, trimmed bool, values []string) {
	next := make(map[int]int)
	for _, v := range values {
		var id, n int
		if _, err := fmt.Sscanf(v, "%d.%d", &id, &n); err != nil {
			c.violate("partition %d: somebody wrote %q", p.Index, v)
			continue
		}
		if id%plainProducer == 0 {
			continue // not idempotent: retries may double and reorder
		}
		want, seen := next[id]
		if n != want && (seen || !trimmed) {
			c.violate("partition %d: producer %d's value %d comes where %d should", p.Index, id, n, want)
		}
		next[id] = n + 1
	}
}
