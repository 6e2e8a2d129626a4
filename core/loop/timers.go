package loop

import (
	"container/heap"
	"time"
)

// Timers is a set of deadlines by key, for a body to keep. It is not safe for
// concurrent use, reads no clock, and gives the same order every time: by
// deadline, then by when the timer was set.
type Timers[K comparable] struct {
	heap  timerHeap[K]
	byKey map[K]*timer[K]
	seq   uint64
}

type timer[K comparable] struct {
	key   K
	at    time.Time
	seq   uint64
	index int
}

// NewTimers returns an empty set.
func NewTimers[K comparable]() *Timers[K] {
	return &Timers[K]{byKey: make(map[K]*timer[K])}
}

// Set makes key due at the given time, in place of an earlier deadline of it.
func (t *Timers[K]) Set(key K, at time.Time) {
	t.seq++
	if old, ok := t.byKey[key]; ok {
		old.at, old.seq = at, t.seq
		heap.Fix(&t.heap, old.index)
		return
	}
	n := &timer[K]{key: key, at: at, seq: t.seq}
	t.byKey[key] = n
	heap.Push(&t.heap, n)
}

// Cancel forgets key. A key that is not set is not an error.
func (t *Timers[K]) Cancel(key K) {
	if old, ok := t.byKey[key]; ok {
		heap.Remove(&t.heap, old.index)
		delete(t.byKey, key)
	}
}

// Pop removes and returns the earliest key that is due at now.
func (t *Timers[K]) Pop(now time.Time) (key K, due bool) {
	if len(t.heap) == 0 || t.heap[0].at.After(now) {
		return key, false
	}
	n := heap.Pop(&t.heap).(*timer[K])
	delete(t.byKey, n.key)
	return n.key, true
}

// Next is the earliest deadline, or false when nothing is set.
func (t *Timers[K]) Next() (time.Time, bool) {
	if len(t.heap) == 0 {
		return time.Time{}, false
	}
	return t.heap[0].at, true
}

// Len counts the keys that are set.
func (t *Timers[K]) Len() int { return len(t.heap) }

// timerHeap is a container/heap of timers.
type timerHeap[K comparable] []*timer[K]

func (h timerHeap[K]) Len() int { return len(h) }

func (h timerHeap[K]) Less(i, j int) bool {
	if h[i].at.Equal(h[j].at) {
		return h[i].seq < h[j].seq
	}
	return h[i].at.Before(h[j].at)
}

func (h timerHeap[K]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *timerHeap[K]) Push(x any) {
	n := x.(*timer[K])
	n.index = len(*h)
	*h = append(*h, n)
}

func (h *timerHeap[K]) Pop() any {
	old := *h
	n := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return n
}
