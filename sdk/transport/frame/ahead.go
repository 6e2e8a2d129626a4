package frame

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

// aheadAfter is how long a Room waits before the connection is read beside it.
const aheadAfter = 5 * time.Millisecond

var errRoomEnded = transport.Errorf(transport.ErrClosed, "the link has ended while a room was waited for")

// ahead sees to the waiting of a Room: its context ends with the link too, and while it
// waits, the connection is read into the receiver's buffer, since that is how the end of a
// link is seen. What lies behind a buffer that is full is not seen.
type ahead struct {
	link *Link

	mu      sync.Mutex
	of      context.Context // the call's, for which ctx was made
	ctx     context.Context // kept for calls with the same
	cancel  context.CancelCauseFunc
	closed  bool
	waiting bool          // a Room is asked
	reading chan struct{} // closed when the reading has ended; nil: nobody reads
	timer   *time.Timer
}

// ask asks a room.
func (a *ahead) ask(ctx context.Context, room transport.Room, n int) ([]byte, error) {
	inner := a.begin(ctx)
	defer a.end()
	return room(inner, n)
}

// begin returns the context for a Room.
func (a *ahead) begin(ctx context.Context) context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !same(a.of, ctx) {
		if a.cancel != nil {
			a.cancel(nil)
		}
		a.of = ctx
		a.ctx, a.cancel = context.WithCancelCause(ctx)
	}
	if a.closed {
		a.cancel(errRoomEnded)
		return a.ctx
	}
	a.waiting = true
	if a.timer == nil {
		a.timer = time.AfterFunc(aheadAfter, a.read)
	} else {
		a.timer.Reset(aheadAfter)
	}
	return a.ctx
}

// end lets the receiver have its buffer again.
func (a *ahead) end() {
	a.mu.Lock()
	a.waiting = false
	if a.timer != nil {
		a.timer.Stop()
	}
	reading := a.reading
	a.reading = nil
	a.mu.Unlock()
	if reading != nil {
		a.link.in.interrupt(reading)
	}
}

// read reads while the Room waits.
func (a *ahead) read() {
	a.mu.Lock()
	if !a.waiting || a.closed || a.reading != nil {
		a.mu.Unlock()
		return
	}
	done := make(chan struct{})
	a.reading = done
	a.mu.Unlock()
	defer close(done)
	r := &a.link.receiver
	for r.failed == nil && r.to < len(r.buf) {
		n, err := r.conn.Read(r.buf[r.to:])
		r.to += n
		if errors.Is(err, errDeadline) {
			return
		}
		r.failed = err
	}
	if r.failed != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.cancel(errRoomEnded)
	}
}

// close ends the context of a Room that waits, and of those that are asked later.
func (a *ahead) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	if a.cancel != nil {
		a.cancel(errRoomEnded)
	}
}

// same says whether two contexts are certainly one: pointers, and values that hold nothing,
// can be compared without a panic.
func same(a, b context.Context) bool {
	t := reflect.TypeOf(a)
	return a != nil && t == reflect.TypeOf(b) && t.Comparable() && (t.Kind() == reflect.Pointer || t.Size() == 0) && a == b
}
