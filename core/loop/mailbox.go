package loop

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrClosed: the loop has ended, or was told to take no more.
var ErrClosed = errors.New("loop closed")

// mailbox is a queue with two doors. Post is for the outside and waits while
// the mailbox is full; complete is for answers to what the body itself asked
// for, whose number the body bounds, and never waits. One goroutine takes.
type mailbox[T any] struct {
	capacity int
	clock    Clock
	wake     chan struct{} // capacity 1; for the one who is parked

	mu     sync.Mutex
	queue  []T
	posted int             // of queue; at most capacity
	full   []chan struct{} // closed when there is room again
	parked bool            // nobody takes before wake
	since  time.Time       // of parked
	nudged bool            // the next who parks is not to
	closed bool
}

func newMailbox[T any](capacity int, clock Clock) *mailbox[T] {
	return &mailbox[T]{capacity: capacity, clock: clock, wake: make(chan struct{}, 1)}
}

// post waits for room until ctx ends. It wakes whoever is parked; but where he has been
// for lone, and lone is not 0, it takes his place instead, and reports that.
func (b *mailbox[T]) post(ctx context.Context, in T, lone time.Duration) (mine bool, err error) {
	for {
		b.mu.Lock()
		if b.closed {
			b.mu.Unlock()
			return false, ErrClosed
		}
		if b.posted < b.capacity {
			b.posted++
			b.queue = append(b.queue, in)
			if lone > 0 && b.parked && b.clock.Now().Sub(b.since) >= lone {
				b.parked = false
				b.mu.Unlock()
				return true, nil
			}
			b.wakeAndUnlock()
			return false, nil
		}
		room := make(chan struct{})
		b.full = append(b.full, room)
		b.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// complete never waits. It reports whether the input was taken. Where somebody is parked
// it wakes him, or with here takes his place, and reports that.
func (b *mailbox[T]) complete(in T, here bool) (mine, taken bool) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false, false
	}
	b.queue = append(b.queue, in)
	if here && b.parked {
		b.parked = false
		b.mu.Unlock()
		return true, true
	}
	b.wakeAndUnlock()
	return false, true
}

// wakeAndUnlock wakes whoever is parked. He is woken once, however much arrives before
// he takes it.
func (b *mailbox[T]) wakeAndUnlock() {
	parked := b.parked
	b.parked = false
	b.mu.Unlock()
	if parked {
		b.wake <- struct{}{}
	}
}

// giveBack is for one who has taken the place of who was parked: he is again, or is
// woken if there is something for him.
func (b *mailbox[T]) giveBack(wake bool) {
	b.mu.Lock()
	b.parked, b.since = true, b.clock.Now()
	if wake || b.nudged || len(b.queue) > 0 {
		b.wakeAndUnlock()
		return
	}
	b.mu.Unlock()
}

// take gives everything that has arrived, and takes room for what comes next.
func (b *mailbox[T]) take(room []T) []T {
	b.mu.Lock()
	got := b.queue
	b.queue, b.posted, b.nudged = room[:0], 0, false
	b.wakePostersAndUnlock()
	return got
}

// wakePostersAndUnlock lets all try again who found the mailbox full.
func (b *mailbox[T]) wakePostersAndUnlock() {
	full := b.full
	b.full = nil
	b.mu.Unlock()
	for _, room := range full {
		close(room)
	}
}

// park reports whether the mailbox is empty; then wake tells of the next input.
func (b *mailbox[T]) park() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parked, b.since = len(b.queue) == 0 && !b.nudged, b.clock.Now()
	return b.parked
}

// nudge wakes whoever is parked, or parks next, though nothing has arrived.
func (b *mailbox[T]) nudge() {
	b.mu.Lock()
	b.nudged = true
	b.wakeAndUnlock()
}

// len counts what waits.
func (b *mailbox[T]) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}

// close refuses everything from now on. What is in the queue stays to be taken.
func (b *mailbox[T]) close() {
	b.mu.Lock()
	b.closed = true
	b.wakePostersAndUnlock()
}
