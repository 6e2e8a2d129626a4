package check

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// Log is one replica's log as it was read at the end.
type Log struct {
	Node    model.NodeID
	InSync  bool // it is in the ISR
	Start   int64
	End     int64
	Batches [][]byte // in order
}

// Idempotent tells that a producer, whose values are "<producer>.<number>", numbered from
// zero, is idempotent.
func (c *Checker) Idempotent(producer int) { c.idempotent[producer] = true }

// Repeats tells that a producer has begun anew: what it has sent may be there twice, or not.
func (c *Checker) Repeats(producer int) { c.idempotent[producer] = false }

// Logs holds the logs of a partition's replicas, of which leader is one, against each
// other up to the high watermark, and the leader's against what clients were told.
func (c *Checker) Logs(p model.Partition, leader model.NodeID, highWatermark int64, logs []Log) {
	at := slices.IndexFunc(logs, func(l Log) bool { return l.Node == leader })
	if at < 0 {
		c.violate("partition %s: leader %d has no log", p, leader)
		return
	}
	c.complete(p, &logs[at], highWatermark)
	for i := range logs {
		if i != at && logs[i].InSync {
			c.identical(p, highWatermark, &logs[at], &logs[i])
		}
	}
}

// identical compares two logs up to the high watermark, from where both begin.
func (c *Checker) identical(p model.Partition, highWatermark int64, a, b *Log) {
	if b.End < highWatermark {
		c.violate("partition %s: the log of node %d, in sync, ends at %d below the high watermark %d", p, b.Node, b.End, highWatermark)
		return
	}
	from := max(a.Start, b.Start)
	x, y := a.below(from, highWatermark), b.below(from, highWatermark)
	for i := range min(len(x), len(y)) {
		if !bytes.Equal(x[i], y[i]) {
			c.violate("partition %s: nodes %d and %d have other bytes at offset %d", p, a.Node, b.Node, recordbatch.BaseOffset(x[i]))
			return
		}
	}
	if len(x) != len(y) {
		c.violate("partition %s: nodes %d and %d have %d and %d batches below the high watermark %d", p, a.Node, b.Node, len(x), len(y), highWatermark)
	}
}

// below are the batches from an offset on that begin below another.
func (l *Log) below(from, to int64) [][]byte {
	var out [][]byte
	for _, b := range l.Batches {
		if base := recordbatch.BaseOffset(b); base >= from && base < to {
			out = append(out, b)
		}
	}
	return out
}

// complete holds a leader's log against what was acknowledged and read.
func (c *Checker) complete(p model.Partition, l *Log, highWatermark int64) {
	s := c.of(p)
	values := make(map[int64]string)
	var order []string
	next := l.Start
	for r, err := range batch.Records(bytes.Join(l.Batches, nil), 0) {
		if err != nil {
			c.violate("partition %s: the log of node %d is damaged: %v", p, l.Node, err)
			return
		}
		if r.Offset < l.Start || r.Offset >= highWatermark {
			continue
		}
		if r.Offset != next {
			c.violate("partition %s: the log of node %d has offset %d where %d should be", p, l.Node, r.Offset, next)
		}
		next = r.Offset + 1
		values[r.Offset] = string(r.Value)
		order = append(order, string(r.Value))
	}
	c.present(s, l, highWatermark, values)
	c.once(p, l.Start > 0 || s.gaps, order)
}

// present: what was acknowledged or read is there.
func (c *Checker) present(s *partition, l *Log, highWatermark int64, values map[int64]string) {
	for _, at := range sorted(s.acked) {
		switch v, ok := values[at]; {
		case !ok && at >= l.Start:
			c.violate("partition %s: offset %d, acknowledged for %s in epoch %d, is lost: the high watermark is %d, the log of leader %d ends at %d",
				s.id, at, s.acked[at].value, s.acked[at].epoch, highWatermark, l.Node, l.End)
			return
		case ok && v != s.acked[at].value:
			c.violate("partition %s: offset %d was acknowledged for %s and holds %s", s.id, at, s.acked[at].value, v)
		}
	}
	for _, at := range sorted(s.read) {
		switch v, ok := values[at]; {
		case !ok && at >= l.Start:
			c.violate("partition %s: offset %d, read as %s, is lost: the high watermark is %d", s.id, at, s.read[at], highWatermark)
			return
		case ok && v != s.read[at]:
			c.violate("partition %s: offset %d was read as %s and holds %s", s.id, at, s.read[at], v)
		}
	}
}

// once: what an idempotent producer sent is there once, in order, without a gap, but for its
// first ones where some may be missing, since they were trimmed off the front or lost.
func (c *Checker) once(p model.Partition, missing bool, values []string) {
	next := make(map[int]int)
	for _, v := range values {
		var id, n int
		if _, err := fmt.Sscanf(v, "%d.%d", &id, &n); err != nil {
			c.violate("partition %s: somebody wrote %q", p, v)
			continue
		}
		if !c.idempotent[id] {
			continue
		}
		want, seen := next[id]
		if n != want && (seen || !missing) {
			c.violate("partition %s: producer %d's value %d comes where %d should", p, id, n, want)
		}
		next[id] = n + 1
	}
}

func sorted[V any](m map[int64]V) []int64 {
	keys := make([]int64, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
