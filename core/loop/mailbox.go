package loop

import (
	"context"
	"errors"
	"sync"
)

// ErrClosed: the loop has ended, or was told to take no more.
var ErrClosed = errors.New("loop closed")

// mailbox is a queue with two doors. Post is for the outside and waits while
// the mailbox is full; complete is for answers to what the body itself asked
// for, whose number the body bounds, and never waits. One goroutine takes.
type mailbox[T any] struct {
	capacity int
	wake     chan struct{} // capacity 1; for the one who is parked

	mu     sync.Mutex
	queue  []T
	posted int             // of queue; at most capacity
	full   []chan struct{} // closed when there is room again
	parked bool            // nobody takes before wake
	closed bool
}

func newMailbox[T any](capacity int) *mailbox[T] {
	return &mailbox[T]{capacity: capacity, wake: make(chan struct{}, 1)}
}

// post waits for room until ctx ends.
func (b *mailbox[T]) post(ctx context.Context, in T) error {
	for {
		b.mu.Lock()
		if b.closed {
			b.mu.Unlock()
			return ErrClosed
		}
		if b.posted < b.capacity {
			b.posted++
			b.putAndUnlock(in)
			return nil
		}
		room := make(chan struct{})
		b.full = append(b.full, room)
		b.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// complete never waits. It reports whether the input was taken.
func (b *mailbox[T]) complete(in T) bool {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	b.putAndUnlock(in)
	return true
}

func (b *mailbox[T]) putAndUnlock(in T) {
	b.queue = append(b.queue, in)
	b.wakeAndUnlock()
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

// take gives everything that has arrived, and takes room for what comes next.
func (b *mailbox[T]) take(room []T) []T {
	b.mu.Lock()
	got := b.queue
	b.queue, b.posted = room[:0], 0
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
	b.parked = len(b.queue) == 0
	return b.parked
}

// unpark is for one who is parked and does not wait.
func (b *mailbox[T]) unpark() {
	b.mu.Lock()
	parked := b.parked
	b.parked = false
	b.mu.Unlock()
	if !parked {
		<-b.wake // it has come, or is about to
	}
}

// nudge wakes whoever is parked, though nothing has arrived.
func (b *mailbox[T]) nudge() {
	b.mu.Lock()
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
