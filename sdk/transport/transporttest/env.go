package transporttest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"go.uber.org/goleak"

	"github.com/brokerd/brokerd/sdk/transport"
)

// env is what one case works with. Its methods fail the case by panicking with a failure:
// they are called from the case's own goroutine, or from a task's, whose end the case
// waits for.
type env struct {
	ctx      context.Context
	target   Target
	has      transport.Capabilities
	rng      *rand.Rand
	patience time.Duration

	mu    sync.Mutex
	nodes []*node // all that were opened, and not closed or killed since
}

// failure is what a failed case panics with.
type failure string

// lacking is what a case panics with that finds out that it is not applicable.
type lacking string

// failf fails the case because a sentence of the contract was broken.
func (e *env) failf(said sentence, format string, args ...any) {
	panic(broken(said, format, args...))
}

// broken tells that a sentence of the contract was broken, and how.
func broken(said sentence, format string, args ...any) failure {
	return failure(fmt.Sprintf("%s\nThe contract says: %q", fmt.Sprintf(format, args...), string(said)))
}

// must fails the case on an error.
func (e *env) must(said sentence, err error, act string) {
	if err != nil {
		e.failf(said, "%s: %v", act, err)
	}
}

// wantClass fails the case unless err is of one of the classes.
func (e *env) wantClass(said sentence, err error, act string, classes ...error) {
	for _, class := range classes {
		if errors.Is(err, class) {
			return
		}
	}
	if err == nil {
		e.failf(said, "%s succeeded; want an error of class %v", act, classes)
	}
	e.failf(said, "%s: got %q (class %q); want class %v", act, err, transport.Class(err), classes)
}

// runOn runs the case and says how it went.
func (c Case) runOn(ctx context.Context, target Target, has transport.Capabilities, opt Options) Result {
	result := Result{Name: c.Name, About: c.About}
	if why := c.Needs.lacking(target, has); why != "" {
		result.Status, result.Message = NotApplicable, why
		return result
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, opt.CaseTimeout)
	defer cancel()
	type outcome struct {
		status  Status
		message string
	}
	ended := make(chan outcome, 1)
	go func() {
		status, message := c.attempt(ctx, target, has, opt)
		ended <- outcome{status, message}
	}()
	stuck := time.NewTimer(opt.CaseTimeout + opt.Patience + stuckGrace)
	defer stuck.Stop()
	select {
	case o := <-ended:
		result.Status, result.Message = o.status, o.message
	case <-stuck.C:
		result.Status = Failed
		result.Message = string(broken(saidContexts, "the case did not end within %v: a call of the transport hangs", opt.CaseTimeout))
	}
	result.Duration = time.Since(began)
	return result
}

// attempt runs the case, ends what it has opened, and returns how it went, and why.
func (c Case) attempt(ctx context.Context, target Target, has transport.Capabilities, opt Options) (Status, string) {
	name := fnv.New64a()
	_, _ = name.Write([]byte(c.Name)) // a hash never fails
	e := &env{
		ctx: ctx, target: target, has: has, patience: opt.Patience,
		rng: rand.New(rand.NewPCG(opt.Seed, name.Sum64())),
	}
	before := goleak.IgnoreCurrent()
	status, message := caught(func() { c.run(e) })
	closed, why := caught(e.closeAll)
	if status == Failed || status == NotApplicable {
		return status, message
	}
	if closed != Passed {
		return closed, why
	}
	if err := goleak.Find(before); err != nil {
		return Failed, string(broken(saidTransportClose, "every transport was closed, and goroutines are left: %v", err))
	}
	return Passed, ""
}

// caught runs work, and says how it ended, and why.
func caught(work func()) (status Status, message string) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			status, message = Failed, string(p)
		case lacking:
			status, message = NotApplicable, string(p)
		default:
			status, message = Failed, string(broken(saidPanics, "panic: %v\n%s", p, debug.Stack()))
		}
	}()
	work()
	return Passed, ""
}

// closeAll closes every node that is open.
func (e *env) closeAll() {
	e.mu.Lock()
	nodes := e.nodes
	e.nodes = nil
	e.mu.Unlock()
	for _, n := range nodes {
		e.must(saidTransportClose, e.soon(saidTransportClose, "close the transport", n.Close), "close the transport")
	}
}

// errBeside ends the calls that would wait in vain for a task that has failed.
var errBeside = errors.New("another call has failed")

// task is a call that is under way.
type task struct {
	e     *env
	act   string
	done  chan struct{}
	err   error
	panic any // what it panicked with
	// ctx ends when the call has failed, or the case has ended.
	ctx context.Context
}

// start begins a call in a goroutine of its own.
func (e *env) start(act string, call func() error) *task {
	ctx, fail := context.WithCancelCause(e.ctx)
	t := &task{e: e, act: act, done: make(chan struct{}), ctx: ctx}
	go func() {
		defer close(t.done)
		defer func() {
			if t.err != nil || t.panic != nil {
				fail(errBeside)
			}
		}()
		defer func() {
			switch p := recover().(type) {
			case nil:
			case failure, lacking:
				t.panic = p
			default:
				t.panic = broken(saidPanics, "%s panics: %v\n%s", act, p, debug.Stack())
			}
		}()
		t.err = call()
	}()
	return t
}

// wait returns the error that the call ended with. A call that does not end fails the case:
// it breaks what is said.
func (t *task) wait(said sentence) error {
	patience := time.NewTimer(t.e.patience)
	defer patience.Stop()
	select {
	case <-t.done:
	case <-patience.C:
		t.e.failf(said, "%s has not returned after %v", t.act, t.e.patience)
	}
	return t.outcome()
}

// end is wait for work of many calls, which may take as long as the case.
func (t *task) end(said sentence) error {
	select {
	case <-t.done:
	case <-t.e.ctx.Done():
		return t.wait(said)
	}
	return t.outcome()
}

// receive gives the next message on a link, which the task sends or lets arrive.
func (t *task) receive(link transport.Link) []byte {
	ctx, cancel := context.WithTimeout(t.ctx, t.e.patience)
	defer cancel()
	got, err := link.Receive(ctx, room)
	if err != nil && errors.Is(context.Cause(t.ctx), errBeside) {
		t.e.must(saidTaken, t.wait(saidTaken), t.act)
	}
	t.e.must(saidBeginning, err, "receive a message that was sent")
	return got
}

// receiveTag receives the message of the tag, and nothing else.
func (t *task) receiveTag(link transport.Link, tag uint64, n int) {
	if wrong := differs(t.receive(link), tag, n); wrong != "" {
		t.e.failf(saidBeginning, "%s", wrong)
	}
}

func (t *task) outcome() error {
	if t.panic != nil {
		panic(t.panic)
	}
	return t.err
}

// waits says whether the call goes on waiting for a moment.
func (t *task) waits(moment time.Duration) bool {
	timer := time.NewTimer(moment)
	defer timer.Stop()
	select {
	case <-t.done:
		return false
	case <-timer.C:
		return true
	}
}

// soon makes a call that is said to return soon, whatever its context, and gives its error.
func (e *env) soon(said sentence, act string, call func() error) error {
	return e.start(act, call).wait(said)
}

// all runs n calls at one time, and fails the case with the first that fails.
func (e *env) all(said sentence, act string, n int, call func(i int) error) {
	ended := make(chan *task, n)
	for i := range n {
		var t *task
		begun := make(chan struct{})
		t = e.start(fmt.Sprintf("%s %d", act, i), func() error {
			<-begun
			defer func() { ended <- t }()
			return call(i)
		})
		close(begun)
	}
	over := time.NewTimer(time.Until(e.deadline()) + e.patience)
	defer over.Stop()
	for range n {
		select {
		case t := <-ended:
			e.must(said, t.wait(said), t.act)
		case <-over.C:
			e.failf(said, "%s: not all of %d have returned at the end of the case", act, n)
		}
	}
}

// deadline is when the case has to end.
func (e *env) deadline() time.Time {
	at, _ := e.ctx.Deadline() // every case has one
	return at
}

// within returns a context for calls that return soon.
func (e *env) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(e.ctx, e.patience)
}
