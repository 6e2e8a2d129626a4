package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// windowRecords is how many offsets are checked at once.
	windowRecords = 100
	// electionSeen is how long after an election there is surely a sign of it: within it all
	// partitions must serve again.
	electionSeen = servedMax
	// settled is how old a window is before it is checked, so that all signs of elections are
	// there, and nearly all answers.
	settled    = electionSeen + 10*time.Second
	checkEvery = time.Second
	endEvery   = 50 * time.Millisecond
	// windowShown bounds the operations that are told of a window that is wrong.
	windowShown = 12
)

// history is what clients did to each partition's log, and when. It is checked in windows of
// offsets, which are dropped then: whether there is one order of all operations, within the
// times of each, that one log allows. Its methods may be called concurrently; those of nil do
// nothing.
type history struct {
	ledger *ledger
	began  time.Time

	mu      sync.Mutex
	sentAt  map[record]int64
	lines   []*line
	windows int
}

// line is the history of one partition, from the first offset that is unchecked.
type line struct {
	base  int64
	cells []cell // by offset
	ends  []endRead
	// latest is the latest call of an operation below base that nothing after it may have
	// returned before.
	latest int64
	// epochs are the leader epochs of which there was a sign, and when the first came.
	epochs map[int32]int64
}

// cell is what happened at one offset. Zero times: nothing.
type cell struct {
	acked, read     record
	ackedAt, readAt int64
}

// endRead is an end that a leader told.
type endRead struct {
	call, ret, end int64
	epoch          int32
}

func newHistory(l *ledger) *history {
	h := &history{ledger: l, began: time.Now().Add(-1), sentAt: map[record]int64{}}
	for range l.partitions {
		h.lines = append(h.lines, &line{epochs: map[int32]int64{}})
	}
	return h
}

func (h *history) now() int64 { return int64(time.Since(h.began)) }

// sent notes that a record is about to be sent.
func (h *history) sent(r record) {
	if h == nil {
		return
	}
	at := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sentAt[r] = at
}

// acked notes that a record was acknowledged at an offset.
func (h *history) acked(r record, offset int64) {
	if h == nil {
		return
	}
	at := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.lines[r.partition].cell(offset); c != nil && c.ackedAt == 0 {
		c.acked, c.ackedAt = r, at
	}
}

// took notes that a consumer was given a record. The first of several readings tells most.
func (h *history) took(partition int, offset int64, r record, epoch int32) {
	if h == nil {
		return
	}
	at := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.lines[partition]
	l.sign(epoch, at)
	if c := l.cell(offset); c != nil && c.readAt == 0 {
		c.read, c.readAt = r, at
	}
}

// ended notes that a leader told its end, between two times.
func (h *history) ended(partition int, call int64, end int64, epoch int32) {
	at := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.lines[partition]
	l.sign(epoch, at)
	l.ends = append(l.ends, endRead{call, at, end, epoch})
}

func (l *line) sign(epoch int32, at int64) {
	if _, known := l.epochs[epoch]; !known {
		l.epochs[epoch] = at
	}
}

// deposed reports whether a leader may have been so when it answered: there was a sign of a
// later one, soon enough.
func (l *line) deposed(e endRead) bool {
	for epoch, at := range l.epochs {
		if epoch > e.epoch && at <= e.ret+int64(electionSeen) {
			return true
		}
	}
	return false
}

// cell is an offset's, or nil where it has been checked.
func (l *line) cell(offset int64) *cell {
	i := offset - l.base
	if i < 0 {
		return nil
	}
	if missing := i + 1 - int64(len(l.cells)); missing > 0 {
		l.cells = append(l.cells, make([]cell, missing)...)
	}
	return &l.cells[i]
}

// run checks windows until ctx ends.
func (h *history) run(ctx context.Context) {
	every(ctx, checkEvery, func() { h.checkSettled(h.now() - int64(settled)) })
}

// finish checks what is left, when nothing happens any more.
func (h *history) finish() { h.checkSettled(forever) }

// checkSettled checks the windows that were read before a time.
func (h *history) checkSettled(before int64) {
	for p, l := range h.lines {
		for {
			h.mu.Lock()
			count := l.whole(before)
			if count == 0 {
				h.mu.Unlock()
				break
			}
			base := l.base
			ops := h.window(l, count)
			h.windows++
			h.mu.Unlock()
			switch check(base, ops) {
			case porcupine.Illegal:
				h.ledger.violate(disordered, "partition %d, offsets %d to %d: no order of these is one log's: %s", p, base, base+count-1, culprits(base, ops))
			case porcupine.Unknown:
				h.ledger.violate(undecided, "partition %d, offsets %d to %d: not decided within %s", p, base, base+count-1, decideMax)
			}
		}
	}
}

// whole is how many offsets can be checked. A last window may be shorter.
func (l *line) whole(before int64) int64 {
	var n int64
	for n < windowRecords && n < int64(len(l.cells)) && l.cells[n].readAt != 0 && l.cells[n].readAt < before {
		n++
	}
	if n < windowRecords && before != forever {
		return 0
	}
	return n
}

// window takes the operations of the first offsets of a line out of it.
func (h *history) window(l *line, count int64) []timed {
	from, to := l.base, l.base+count
	ops := []timed{
		{step{act: begins, offset: from}, l.latest, forever},
		{step{act: goesOn, offset: to}, 0, l.earliestFrom(count)},
	}
	for i, c := range l.cells[:count] {
		offset := from + int64(i)
		if c.ackedAt != 0 {
			ops = append(ops, timed{step{appends, offset, c.acked}, h.sentAt[c.acked], c.ackedAt})
			l.latest = max(l.latest, h.sentAt[c.acked])
		}
		call := h.sentAt[c.read]
		if c.ackedAt == 0 || c.acked != c.read {
			ops = append(ops, timed{step{appends, offset, c.read}, call, forever})
			l.latest = max(l.latest, call)
		}
		ops = append(ops, timed{step{reads, offset, c.read}, call, c.readAt})
	}
	for _, c := range l.cells[:count] {
		delete(h.sentAt, c.acked)
		delete(h.sentAt, c.read)
	}
	l.ends = slices.DeleteFunc(l.ends, func(e endRead) bool {
		switch {
		case e.end > to:
			return false
		case l.deposed(e):
			ops = append(ops, timed{step{act: endsLate, offset: e.end}, e.call, e.ret})
		default:
			ops = append(ops, timed{step{act: ends, offset: e.end}, e.call, e.ret})
			l.latest = max(l.latest, e.call)
		}
		return true
	})
	l.base, l.cells = to, slices.Clone(l.cells[count:])
	return ops
}

// earliestFrom is when the first operation returned for which the log had to be longer than
// so many of its cells.
func (l *line) earliestFrom(count int64) int64 {
	first := int64(forever)
	for _, c := range l.cells[count:] {
		if c.ackedAt != 0 {
			first = min(first, c.ackedAt)
		}
		if c.readAt != 0 {
			first = min(first, c.readAt)
		}
	}
	for _, e := range l.ends {
		if e.end > l.base+count {
			first = min(first, e.ret)
		}
	}
	return first
}

// culprits are operations without each of which the rest would be one log's; where there are
// none, it tells so.
func culprits(base int64, ops []timed) string {
	var out []string
	for i := range ops {
		if ops[i].act == appends {
			continue // without it nothing fits
		}
		rest := slices.Delete(slices.Clone(ops), i, i+1)
		if check(base, rest) == porcupine.Ok {
			if out = append(out, fmt.Sprintf("%v, called at %s, returned at %s", ops[i].step, time.Duration(ops[i].call), time.Duration(ops[i].ret))); len(out) == windowShown {
				break
			}
		}
	}
	if len(out) == 0 {
		return "several"
	}
	return strings.Join(out, "; ")
}

// watchEnds asks leaders for the ends of their logs until ctx ends.
func (h *history) watchEnds(ctx context.Context, addrs []string) {
	c, err := newClient(addrs, kgo.RequestRetries(2))
	if err != nil {
		h.ledger.violate(clientErr, "watch the ends of logs: %v", err)
		return
	}
	defer c.Close()
	admin := kadm.NewClient(c)
	every(ctx, endEvery, func() {
		call := h.now()
		one, cancel := context.WithTimeout(ctx, askTimeout)
		told, _ := admin.ListEndOffsets(one, topicName) // who is missing has told nothing
		cancel()
		told.Each(func(o kadm.ListedOffset) {
			if o.Err == nil && o.Offset >= 0 && o.LeaderEpoch >= 0 && int(o.Partition) < len(h.lines) {
				h.ended(int(o.Partition), call, o.Offset, o.LeaderEpoch)
			}
		})
	})
}

// checked is how many windows were.
func (h *history) checked() int {
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.windows
}
