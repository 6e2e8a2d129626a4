package replica

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
)

// laneQueue is the work of one lane, with one runner, which takes all that is there at
// once and is woken only where it waits. Somebody else may take its place while it waits
// (help), so that nobody need be woken.
type laneQueue struct {
	wake chan struct{} // capacity 1

	mu     sync.Mutex
	queue  []func(context.Context)
	parked bool // the runner waits
	ending bool // it does not wait any more

	// Below is of whoever runs work: the runner, or one in its place.
	do     func(work func(context.Context)) // with the context of all work
	spare  []func(context.Context)          // room for the next queue
	broken error                            // what a helper's work panicked with; the runner does too
}

func newLaneQueue() *laneQueue { return &laneQueue{wake: make(chan struct{}, 1)} }

func (q *laneQueue) put(work func(context.Context), wake bool) {
	q.mu.Lock()
	q.queue = append(q.queue, work)
	if wake {
		q.wakeAndUnlock()
		return
	}
	q.mu.Unlock()
}

func (q *laneQueue) end() {
	q.mu.Lock()
	q.ending = true
	q.wakeAndUnlock()
}

func (q *laneQueue) wakeAndUnlock() {
	parked := q.parked
	q.parked = false
	q.mu.Unlock()
	if parked {
		q.wake <- struct{}{}
	}
}

// take gives all that is there. Where there is nothing, the runner is to wait, unless it
// is to end.
func (q *laneQueue) take() (all []func(context.Context), ending bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, q.queue = q.queue, q.spare[:0]
	q.parked = len(all) == 0 && !q.ending
	q.spare = all[:0]
	return all, q.ending
}

func (q *laneQueue) work(all []func(context.Context)) {
	for i, work := range all {
		all[i] = nil
		q.do(work)
	}
}

func (q *laneQueue) run(ctx context.Context) {
	q.do = func(work func(context.Context)) { work(ctx) }
	release := context.AfterFunc(ctx, q.end)
	defer release()
	for {
		all, ending := q.take()
		q.work(all)
		switch {
		case len(all) > 0:
		case ending:
			return
		default:
			<-q.wake
		}
		if q.broken != nil {
			panic(q.broken)
		}
	}
}

// help does what there is to do in the place of the runner, if it waits. A panic of the
// work is the runner's in the end, whoever else recovers it.
func (q *laneQueue) help() {
	q.mu.Lock()
	if !q.parked || len(q.queue) == 0 {
		q.mu.Unlock()
		return
	}
	q.parked = false
	all := q.queue
	q.queue = q.spare[:0]
	q.spare = all[:0]
	q.mu.Unlock()
	ended := false
	defer func() {
		if !ended {
			q.broken = fmt.Errorf("a call of a store panicked: %v\n%s", recover(), debug.Stack())
		}
		q.mu.Lock()
		q.parked = true
		if q.ending || !ended || len(q.queue) > 0 {
			q.wakeAndUnlock()
			return
		}
		q.mu.Unlock()
	}()
	q.work(all)
	ended = true
}
