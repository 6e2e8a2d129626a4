package loop

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"
)

// MailboxCapacity is the default bound of posted inputs that wait. When it is
// reached, Post waits, and with it the connection that the input came from.
const MailboxCapacity = 4096

// loneMin is how long a loop has waited when PostHere steps its body: long enough that
// more inputs are not likely to be about to come, which a burst would serve at once.
const loneMin = 20 * time.Microsecond

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

	alarm  alarm // of Run
	here   bool  // a poster runs the turn under way
	broken error // what a poster's turn panicked with; Run does too
}

// New makes a loop. A capacity of zero or less is MailboxCapacity. Nothing is
// started.
func New[T any](body Body[T], clock Clock, capacity int) *Loop[T] {
	if capacity <= 0 {
		capacity = MailboxCapacity
	}
	return &Loop[T]{body: body, clock: clock, box: newMailbox[T](capacity, clock)}
}

// Post hands in an input from outside. It waits while the mailbox is full,
// until ctx ends. ErrClosed: the input was not taken and never will be.
func (l *Loop[T]) Post(ctx context.Context, in T) error {
	_, err := l.box.post(ctx, in, 0)
	return err
}

// PostHere is Post, but where the loop has waited for a while it steps the body on the
// caller's goroutine, and reports that it did. The caller holds nothing that the body, or
// whoever it answers, may wait for.
func (l *Loop[T]) PostHere(ctx context.Context, in T) (here bool, err error) {
	here, err = l.box.post(ctx, in, loneMin)
	if here {
		l.turnHere()
	}
	return here, err
}

// Complete hands in the answer to something that the body asked for. It never
// waits: the body bounds how much it asks for. It reports whether the input was
// taken; after Run has ended none is.
func (l *Loop[T]) Complete(in T) bool {
	_, taken := l.box.complete(in, false)
	return taken
}

// CompleteHere is Complete, but where the loop waits it steps the body on the caller's
// goroutine, as PostHere does.
func (l *Loop[T]) CompleteHere(in T) bool {
	here, taken := l.box.complete(in, true)
	if here {
		l.turnHere()
	}
	return taken
}

// Here reports, to the body while it is stepped, whether a caller of PostHere or
// CompleteHere steps it.
func (l *Loop[T]) Here() bool { return l.here }

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

// turnHere is a turn in the place of Run, which waits meanwhile. A panic of the body is
// Run's in the end, whoever else recovers it: the body is not to be used any more.
func (l *Loop[T]) turnHere() {
	ended := false
	defer func() {
		if !ended {
			l.broken = fmt.Errorf("a turn panicked: %v\n%s", recover(), debug.Stack())
			l.box.giveBack(true)
		}
	}()
	l.here = true
	l.Turn(l.clock.Now())
	l.here = false
	wake := l.body.Done() || !l.armed()
	ended = true
	l.box.giveBack(wake)
}

// Run steps the body whenever something has arrived or is due, until the body
// is done or ctx ends, and returns nil or ctx's error. Nothing is taken
// afterwards; what had been taken by then is given to the body in a last turn.
func (l *Loop[T]) Run(ctx context.Context) error {
	l.alarm.ring = l.box.nudge
	release := context.AfterFunc(ctx, l.alarm.ring)
	defer func() {
		release()
		l.alarm.clear()
		l.box.close()
		l.Turn(l.clock.Now())
	}()
	for !l.body.Done() {
		if err := ctx.Err(); err != nil {
			return err
		}
		l.wait()
		l.Turn(l.clock.Now())
	}
	return nil
}

// wait returns when there is something to do. It waits for one thing, so that it costs
// little: whatever happens beside an input nudges the mailbox.
func (l *Loop[T]) wait() {
	if !l.armed() || !l.box.park() {
		return
	}
	<-l.box.wake
	if l.broken != nil {
		panic(l.broken)
	}
	// Whoever woke the loop is about to wait, and the loop would run next, for one input
	// at a time. Let those run first who can: the burst becomes what they all bring.
	runtime.Gosched()
}

// armed sees to it that the mailbox is nudged when the body is due, or reports false
// where it is due already.
func (l *Loop[T]) armed() bool {
	at, ok := l.body.Deadline()
	return !ok || l.alarm.set(l.clock, at)
}
