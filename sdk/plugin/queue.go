package plugin

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/brokerd/brokerd/sdk/storage"
)

// queue is the appends of one handle that have not completed, oldest first, and
// barriers among them. It is guarded by lane.mu.
type queue struct {
	handle storage.Handle
	calls  []*call // led by nil for those that complete just now
	// busy: somebody is calling completions of this queue.
	busy bool
	// broken is what later appends fail with, after one had an unknown outcome.
	broken error
	// spoiled says that broken is not nil, to whoever does not hold mu.
	spoiled atomic.Bool
	// retired: nobody will use the handle again. The queue goes when it is empty.
	retired bool
	// tells are the units that tell of what was written: what has been answered by us
	// does not wait for them. Their own tells are nil.
	tells *queue
}

// idle says that nothing of the queue is under way.
func (q *queue) idle() bool {
	return len(q.calls) == 0 && !q.busy && (q.tells == nil || q.tells.idle())
}

// queueOf returns the queue of a handle. The caller holds mu.
func (l *lane) queueOf(h storage.Handle) *queue {
	q := l.queues[h]
	if q == nil {
		q = &queue{handle: h, tells: &queue{handle: h}}
		l.queues[h] = q
	}
	return q
}

// drain calls the completions at the head of a queue, in order. One goroutine
// does so at a time; another that comes meanwhile leaves its part to it.
func (l *lane) drain(q *queue) {
	l.mu.Lock()
	if q.busy {
		l.mu.Unlock()
		return
	}
	q.busy = true
	head := 0
	for head < len(q.calls) && q.calls[head].ended {
		c := q.calls[head]
		q.calls[head] = nil
		if head++; head == len(q.calls) || head == drainMax {
			head = q.shift(head)
		}
		l.mu.Unlock()
		c.finish()
		l.mu.Lock()
	}
	q.shift(head)
	q.busy = false
	if of := l.queues[q.handle]; of != nil && (of == q || of.tells == q) && of.retired && of.idle() {
		delete(l.queues, q.handle)
	}
	l.mu.Unlock()
}

// drainMax is how many completed calls a queue holds room for, at most.
const drainMax = 256

// shift drops the first n calls, so that their room is used again.
func (q *queue) shift(n int) (head int) {
	rest := copy(q.calls, q.calls[n:])
	clear(q.calls[rest:])
	q.calls = q.calls[:rest]
	return 0
}

// ended puts a call that has ended already into its place among the appends of
// its handle, and returns the queue, which is to be drained.
func (l *lane) ended(c *call, a answer) *queue {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.refs.Store(1)
	c.ended, c.answer = true, a
	c.queue = l.queueOf(c.req.handle)
	c.queue.calls = append(c.queue.calls, c)
	return c.queue
}

// spoil makes every later append of a handle fail.
func (l *lane) spoil(h storage.Handle, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.queueOf(h); q.broken == nil {
		q.spoil(err)
	}
}

// spoil makes later appends fail. The caller holds mu.
func (q *queue) spoil(err error) {
	q.broken = err
	q.spoiled.Store(true)
}

// openQueue returns the queue of a handle that is being opened. It stays the
// handle's until that is forgotten.
func (l *lane) openQueue(h storage.Handle) *queue {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queueOf(h)
}

// barrier waits until every append of the handles that was submitted before has
// completed, one way or another.
func (l *lane) barrier(ctx context.Context, handles []storage.Handle) error {
	var waits []chan struct{}
	l.mu.Lock()
	for _, h := range handles {
		q := l.queues[h]
		for ; q != nil; q = q.tells {
			if len(q.calls) == 0 && !q.busy {
				continue
			}
			reached := make(chan struct{})
			waits = append(waits, reached)
			c := &call{ended: true, done: func(answer) { close(reached) }}
			c.refs.Store(1)
			q.calls = append(q.calls, c)
		}
	}
	l.mu.Unlock()
	for _, reached := range waits {
		select {
		case <-reached:
		case <-ctx.Done():
			return fmt.Errorf("%w: wait for appends in flight: %w", storage.ErrUnknown, ctx.Err())
		}
	}
	return nil
}

// handles returns every handle with appends in flight.
func (l *lane) handles() []storage.Handle {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []storage.Handle
	for h, q := range l.queues {
		if !q.idle() {
			out = append(out, h)
		}
	}
	return out
}

// forget drops what is kept of a handle that nobody will use again, once its
// appends in flight have completed.
func (l *lane) forget(h storage.Handle) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[h]
	switch {
	case q == nil:
	case q.idle():
		delete(l.queues, h)
	default:
		q.retired = true
	}
}
