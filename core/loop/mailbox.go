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
// for, whose number the body bounds, and never waits.
type mailbox[T any] struct {
	slots chan struct{} // one for each posted input that waits; its capacity is the bound
	wake  chan struct{} // capacity 1: a second wake-up adds nothing to the first

	mu     sync.Mutex
	queue  []letter[T]
	spare  []letter[T]
	closed bool
}

// letter is an input and the door it came through.
type letter[T any] struct {
	in     T
	posted bool
}

func newMailbox[T any](capacity int) *mailbox[T] {
	return &mailbox[T]{
		slots: make(chan struct{}, capacity),
		wake:  make(chan struct{}, 1),
	}
}

// post waits for room until ctx ends.
func (b *mailbox[T]) post(ctx context.Context, in T) error {
	select {
	case b.slots <- struct{}{}:
	default:
		select {
		case b.slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if !b.put(letter[T]{in: in, posted: true}) {
		<-b.slots
		return ErrClosed
	}
	return nil
}

// complete never waits. It reports whether the input was taken.
func (b *mailbox[T]) complete(in T) bool { return b.put(letter[T]{in: in}) }

func (b *mailbox[T]) put(l letter[T]) bool {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	b.queue = append(b.queue, l)
	first := len(b.queue) == 1
	b.mu.Unlock()
	if first {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
	return true
}

// take moves everything that has arrived to dst and frees its room.
func (b *mailbox[T]) take(dst []T) []T {
	b.mu.Lock()
	got := b.queue
	b.queue = b.spare[:0]
	b.mu.Unlock()
	for i := range got {
		dst = append(dst, got[i].in)
		if got[i].posted {
			<-b.slots
		}
	}
	clear(got)
	b.mu.Lock()
	b.spare = got[:0]
	b.mu.Unlock()
	return dst
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
	b.mu.Unlock()
}
