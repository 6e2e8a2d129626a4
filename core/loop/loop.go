package loop

import (
	"context"
	"runtime"
	"time"
)

// MailboxCapacity is the default bound of posted inputs that wait. When it is
// reached, Post waits, and with it the connection that the input came from.
const MailboxCapacity = 4096

// Body is what a loop runs. Its methods are called from one goroutine at a
// time. Step must not block.
type Body[T any] interface {
	// Step handles a burst of inputs, which may be empty, and whatever is due at
	// now. The slice is reused after Step returns.
	Step(now time.Time, burst []T)
	// Deadline is when Step wants to be called though nothing has arrived; false
	// for never.
	Deadline() (time.Time, bool)
	// Done reports that the body has finished and Run may return.
	Done() bool
}

// Loop runs a body. Post and Complete may be called concurrently; Run or Turn
// by one goroutine.
type Loop[T any] struct {
	body  Body[T]
	clock Clock
	box   *mailbox[T]
	spare []T // room for the next burst

	alarm alarm // of Run
}

// New makes a loop. A capacity of zero or less is MailboxCapacity. Nothing is
// started.
func New[T any](body Body[T], clock Clock, capacity int) *Loop[T] {
	if capacity <= 0 {
		capacity = MailboxCapacity
	}
	return &Loop[T]{body: body, clock: clock, box: newMailbox[T](capacity)}
}

// Post hands in an input from outside. It waits while the mailbox is full,
// until ctx ends. ErrClosed: the input was not taken and never will be.
func (l *Loop[T]) Post(ctx context.Context, in T) error { return l.box.post(ctx, in) }

// Complete hands in the answer to something that the body asked for. It never
// waits: the body bounds how much it asks for. It reports whether the input was
// taken; after Run has ended none is.
func (l *Loop[T]) Complete(in T) bool { return l.box.complete(in) }

// Pending counts the inputs that wait.
func (l *Loop[T]) Pending() int { return l.box.len() }

// Deadline is the body's.
func (l *Loop[T]) Deadline() (time.Time, bool) { return l.body.Deadline() }

// Turn steps the body once with what has arrived, at the time given. It is how
// a simulator runs a loop; Run uses it too.
func (l *Loop[T]) Turn(now time.Time) {
	burst := l.box.take(l.spare)
	l.body.Step(now, burst)
	clear(burst)
	l.spare = burst
}

// Run steps the body whenever something has arrived or is due, until the body
// is done or ctx ends, and returns nil or ctx's error. Nothing is taken
// afterwards; what had been taken by then is given to the body in a last turn.
func (l *Loop[T]) Run(ctx context.Context) error {
	l.alarm.ring = l.box.nudge
	release := context.AfterFunc(ctx, l.alarm.ring)
	whole := false // no turn has panicked, which may have left the body's locks taken
	defer func() {
		release()
		l.alarm.clear()
		l.box.close()
		if whole {
			l.Turn(l.clock.Now())
		}
	}()
	var err error
	for err == nil && !l.body.Done() {
		if err = ctx.Err(); err == nil {
			l.wait(ctx)
			l.Turn(l.clock.Now())
		}
	}
	whole = true
	return err
}

// wait returns when there is something to do. It waits for one thing, so that it costs
// little: whatever happens beside an input nudges the mailbox.
func (l *Loop[T]) wait(ctx context.Context) {
	if !l.box.park() {
		return
	}
	at, ok := l.body.Deadline()
	if ctx.Err() != nil || ok && !l.alarm.set(l.clock, at) { // before, so that no nudge is missed
		l.box.unpark()
		return
	}
	<-l.box.wake
	// Whoever woke the loop is about to wait, and the loop would run next, for one input
	// at a time. Let those run first who can: the burst becomes what they all bring.
	runtime.Gosched()
}
