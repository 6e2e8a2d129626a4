package group

import (
	"container/heap"
	"time"
)

// alarm is one deadline of one owner. Putting it off costs nothing: it keeps its
// place in the heap, and is looked at again when that place comes up.
type alarm struct {
	due   time.Time // zero: not set
	at    time.Time // its place in the heap, not after due
	index int       // in the heap, from 1; 0: not there
	owner owner
}

// owner is what has an alarm.
type owner interface {
	ring(m *Machine, now time.Time, out *Effects)
}

// alarms is a heap of all deadlines of a machine, earliest first.
type alarms []*alarm

// set makes a due at the given time.
func (h *alarms) set(a *alarm, due time.Time) {
	a.due = due
	switch {
	case a.index == 0:
		a.at = due
		heap.Push(h, a)
	case due.Before(a.at):
		a.at = due
		heap.Fix(h, a.index-1)
	}
}

// cancel takes a out.
func (h *alarms) cancel(a *alarm) {
	a.due = time.Time{}
	if a.index > 0 {
		heap.Remove(h, a.index-1)
	}
}

// next takes out an alarm that is due, or returns nil.
func (h *alarms) next(now time.Time) *alarm {
	for len(*h) > 0 {
		a := (*h)[0]
		if a.at.After(now) {
			return nil
		}
		if a.due.After(a.at) { // put off since
			a.at = a.due
			heap.Fix(h, 0)
			continue
		}
		h.cancel(a)
		return a
	}
	return nil
}

// first is when next may have something; zero: never.
func (h alarms) first() time.Time {
	if len(h) == 0 {
		return time.Time{}
	}
	return h[0].at
}

// The methods of heap.Interface.
func (h alarms) Len() int           { return len(h) }
func (h alarms) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h alarms) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

// Push is for package heap alone.
func (h *alarms) Push(x any) {
	a := x.(*alarm)
	*h = append(*h, a)
	a.index = len(*h)
}

// Pop is for package heap alone.
func (h *alarms) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	a.index = 0
	return a
}
