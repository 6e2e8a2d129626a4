package world

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// Epoch is when every world begins.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// World is virtual time and the events to come. Everything in a simulation runs
// on the one goroutine that calls Step.
type World struct {
	Rand   *rand.Rand
	now    time.Time
	events eventHeap
	seq    uint64
	trace  traceHash
	log    func(string) // nil: nobody listens
}

// event is something that happens at a time. Events of one time happen in the
// order in which they were scheduled.
type event struct {
	at  time.Duration // since Epoch
	seq uint64
	do  func()
}

// New makes a world of a seed. Every event that is noted is given to log, unless that is nil.
func New(seed uint64, log func(string)) *World {
	return &World{Rand: rand.New(rand.NewPCG(seed, 0x5eed)), now: Epoch, trace: newTraceHash(), log: log}
}

// Now implements loop.Clock.
func (w *World) Now() time.Time { return w.now }

// NewTimer implements loop.Clock. Nothing in a simulation may wait.
func (w *World) NewTimer(time.Duration) (<-chan time.Time, func() bool) {
	panic("world: somebody waits on the only goroutine")
}

// AfterFunc implements loop.Clock, likewise.
func (w *World) AfterFunc(time.Duration, func()) func() bool {
	panic("world: somebody waits on the only goroutine")
}

// After schedules do.
func (w *World) After(d time.Duration, do func()) { w.At(w.now.Add(d), do) }

// At schedules do for a time; one that is over counts as now.
func (w *World) At(t time.Time, do func()) {
	w.seq++
	w.events.push(event{at: t.Sub(Epoch), seq: w.seq, do: do})
}

// Over reports that nothing is to come.
func (w *World) Over() bool { return len(w.events) == 0 }

// Step runs the next event.
func (w *World) Step() {
	e := w.events.pop()
	if at := Epoch.Add(e.at); at.After(w.now) {
		w.now = at
	}
	e.do()
}

// Chance is true in one of n cases.
func (w *World) Chance(n int) bool { return w.Rand.IntN(n) == 0 }

// Between draws a duration.
func (w *World) Between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.Rand.Int64N(int64(most-least)+1))
}

// Note adds to the trace: two runs of one seed have the same trace.
func (w *World) Note(format string, args ...any) {
	line := fmt.Sprintf("%8.3f ", w.now.Sub(Epoch).Seconds()*1000) + fmt.Sprintf(format, args...)
	w.trace.add(line)
	if w.log != nil {
		w.log(line)
	}
}

// Tell is Note for what is not a part of the trace.
func (w *World) Tell(format string, args ...any) {
	if w.log != nil {
		w.log(fmt.Sprintf("%8.3f ", w.now.Sub(Epoch).Seconds()*1000) + fmt.Sprintf(format, args...))
	}
}

// Trace is a digest of all that was noted.
func (w *World) Trace() uint64 { return w.trace.sum }

// traceHash is a digest of all that was noted.
type traceHash struct{ sum uint64 }

func newTraceHash() traceHash { return traceHash{sum: 14695981039346656037} }

func (t *traceHash) add(line string) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(line))
	t.sum = t.sum*1099511628211 ^ h.Sum64()
}

// eventHeap is a heap by time, then by order of scheduling. It is that of container/heap, but
// for the memory that an interface takes for each event.
type eventHeap []event

func (e *event) before(o *event) bool {
	if e.at == o.at {
		return e.seq < o.seq
	}
	return e.at < o.at
}

func (h *eventHeap) push(e event) {
	all := append(*h, e)
	*h = all
	at := len(all) - 1
	for at > 0 {
		parent := (at - 1) / 2
		if !e.before(&all[parent]) {
			break
		}
		all[at] = all[parent]
		at = parent
	}
	all[at] = e
}

// pop takes the first, of which there is one.
func (h *eventHeap) pop() event {
	all := *h
	first, last := all[0], all[len(all)-1]
	all[len(all)-1] = event{}
	all = all[:len(all)-1]
	*h = all
	if len(all) == 0 {
		return first
	}
	at := 0
	for {
		child := 2*at + 1
		if child >= len(all) {
			break
		}
		if right := child + 1; right < len(all) && all[right].before(&all[child]) {
			child = right
		}
		if !all[child].before(&last) {
			break
		}
		all[at] = all[child]
		at = child
	}
	all[at] = last
	return first
}
