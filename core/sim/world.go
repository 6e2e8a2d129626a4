package sim

import (
	"container/heap"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// epoch is when every world begins.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is virtual time and the events to come. Everything in a simulation runs
// on the one goroutine that calls run.
type world struct {
	rand   *rand.Rand
	now    time.Time
	events eventHeap
	seq    uint64
	trace  traceHash
	log    func(string) // nil: nobody listens
}

// event is something that happens at a time. Events of one time happen in the
// order in which they were scheduled.
type event struct {
	at  time.Time
	seq uint64
	do  func()
}

func newWorld(seed uint64, log func(string)) *world {
	return &world{rand: rand.New(rand.NewPCG(seed, 0x5eed)), now: epoch, trace: newTraceHash(), log: log}
}

// Now implements loop.Clock.
func (w *world) Now() time.Time { return w.now }

// NewTimer implements loop.Clock. Nothing in a simulation may wait.
func (w *world) NewTimer(time.Duration) (<-chan time.Time, func() bool) {
	panic("sim: somebody waits on the only goroutine")
}

// AfterFunc implements loop.Clock, likewise.
func (w *world) AfterFunc(time.Duration, func()) func() bool {
	panic("sim: somebody waits on the only goroutine")
}

// after schedules do.
func (w *world) after(d time.Duration, do func()) { w.at(w.now.Add(d), do) }

func (w *world) at(t time.Time, do func()) {
	w.seq++
	heap.Push(&w.events, event{at: t, seq: w.seq, do: do})
}

// over: nothing is to come.
func (w *world) over() bool { return len(w.events) == 0 }

// step runs the next event.
func (w *world) step() {
	e := heap.Pop(&w.events).(event)
	if e.at.After(w.now) {
		w.now = e.at
	}
	e.do()
}

// chance is true in one of n cases.
func (w *world) chance(n int) bool { return w.rand.IntN(n) == 0 }

// between draws a duration.
func (w *world) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.rand.Int64N(int64(most-least)+1))
}

// note adds to the trace: two runs of one seed have the same trace.
func (w *world) note(format string, args ...any) {
	line := fmt.Sprintf("%8.3f ", w.now.Sub(epoch).Seconds()*1000) + fmt.Sprintf(format, args...)
	w.trace.add(line)
	if w.log != nil {
		w.log(line)
	}
}

// traceHash is a digest of all that was noted.
type traceHash struct{ sum uint64 }

func newTraceHash() traceHash { return traceHash{sum: 14695981039346656037} }

func (t *traceHash) add(line string) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(line))
	t.sum = t.sum*1099511628211 ^ h.Sum64()
}

// eventHeap is a container/heap by time, then by order of scheduling.
type eventHeap []event

func (h eventHeap) Len() int { return len(h) }

func (h eventHeap) Less(i, j int) bool {
	if h[i].at.Equal(h[j].at) {
		return h[i].seq < h[j].seq
	}
	return h[i].at.Before(h[j].at)
}

func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *eventHeap) Push(x any) { *h = append(*h, x.(event)) }

func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return e
}
