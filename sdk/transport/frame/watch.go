package frame

import (
	"context"
	"sync"
	"time"
)

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// watch ends what waits in one direction of a connection, by its deadline, when a call's
// context ends. A context stays watched after its call, until one with another comes or
// the link ends: calls that follow one another with the same cost nothing.
type watch struct {
	deadline func(time.Time) error // of the connection, for one direction

	mu     sync.Mutex
	done   <-chan struct{} // of the context that is watched; nil: none is
	unhook func() bool
	fired  bool // the deadline is past
	closed bool
}

// begin watches a context until further notice. One that has ended is the caller's to see.
func (w *watch) begin(ctx context.Context) {
	done := ctx.Done()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || done == w.done && !w.fired {
		return
	}
	w.forget()
	if done == nil {
		return
	}
	w.done = done
	w.unhook = context.AfterFunc(ctx, func() { w.fire(done) })
}

// fire ends what waits, if the context is still the one that is watched.
func (w *watch) fire(done <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed && w.done == done {
		w.fired = true
		_ = w.deadline(past) // fails where the connection has ended, and nothing waits
	}
}

// interrupt ends what waits, whose end done tells, and leaves the deadline as it was.
func (w *watch) interrupt(done <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		_ = w.deadline(past) // as in fire
	}
	<-done
	if !w.closed && !w.fired {
		_ = w.deadline(time.Time{})
	}
}

// close ends the watching for good.
func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.forget()
}

// forget lets go of the context that is watched. The lock is held.
func (w *watch) forget() {
	if w.unhook != nil {
		w.unhook()
	}
	if w.fired && !w.closed {
		_ = w.deadline(time.Time{}) // as in fire
	}
	w.done, w.unhook, w.fired = nil, nil, false
}
