package memory

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrTooMuch: more was asked for than there can ever be.
var ErrTooMuch = errors.New("more than the whole memory budget")

// Budget is a number of bytes that can be acquired and released. All methods
// may be called concurrently.
type Budget struct {
	total int64

	mu      sync.Mutex
	used    int64
	waiters list.List // of *waiter, the longest waiting first
}

type waiter struct {
	bytes   int64
	granted chan struct{} // closed under the budget's lock
}

// New returns a budget of total bytes, all of them free.
func New(total int64) *Budget { return &Budget{total: max(total, 0)} }

// Total is the whole budget in bytes.
func (b *Budget) Total() int64 { return b.total }

// Used is what is acquired now, in bytes.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Acquire takes n bytes, waiting in line until they are free. It fails with
// ErrTooMuch at once when n is above the total, or with the context's error;
// then nothing is taken.
func (b *Budget) Acquire(ctx context.Context, n int64) error {
	mustNotBeNegative(n)
	if n > b.total {
		return fmt.Errorf("acquire %d bytes of %d: %w", n, b.total, ErrTooMuch)
	}
	b.mu.Lock()
	if b.takeLocked(n) {
		b.mu.Unlock()
		return nil
	}
	w := &waiter{bytes: n, granted: make(chan struct{})}
	at := b.waiters.PushBack(w)
	b.mu.Unlock()

	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.granted: // both happened: the bytes go to whoever is next
		b.used -= n
	default:
		b.waiters.Remove(at)
	}
	b.grantLocked()
	return fmt.Errorf("acquire %d bytes: %w", n, context.Cause(ctx))
}

// TryAcquire takes n bytes if they are free and nobody waits for any.
func (b *Budget) TryAcquire(n int64) bool {
	mustNotBeNegative(n)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.takeLocked(n)
}

// Release gives n bytes back. Releasing more than is acquired is a broken
// invariant of the caller's, and panics.
func (b *Budget) Release(n int64) {
	mustNotBeNegative(n)
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.used {
		panic(fmt.Sprintf("memory: released %d bytes of %d", n, b.used))
	}
	b.used -= n
	b.grantLocked()
}

func (b *Budget) takeLocked(n int64) bool {
	if n == 0 {
		return true
	}
	if b.waiters.Len() > 0 || n > b.total-b.used {
		return false
	}
	b.used += n
	return true
}

func (b *Budget) grantLocked() {
	for at := b.waiters.Front(); at != nil; at = b.waiters.Front() {
		w := at.Value.(*waiter)
		if w.bytes > b.total-b.used {
			return
		}
		b.used += w.bytes
		b.waiters.Remove(at)
		close(w.granted)
	}
}

func mustNotBeNegative(n int64) {
	if n < 0 {
		panic(fmt.Sprintf("memory: %d bytes", n))
	}
}
