package plugin

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"

	"github.com/brokerd/brokerd/sdk/storage"
)

// The window of a lane: what may be in flight, in bytes and in units. A unit
// costs its bytes, and at least its share of the window, so that the number of
// units is bounded too; together they stay below what a plugin of this package
// takes from a stream (unitsInFlightMax). One unit above the window passes
// alone. When the window is full, a call waits until its deadline.
const (
	writeWindowBytes = 64 << 20
	readWindowBytes  = 64 << 20
	writeUnitsMax    = 640
	readUnitsMax     = 256
	// outboxUnits is the room between callers and the sender; with it full, a
	// caller waits, within the window that it has taken.
	outboxUnits = 256
)

// call is one unit in flight.
type call struct {
	req    request
	queue  *queue              // of appends
	cost   int64               // before it is admitted: the bytes of its data
	window *semaphore.Weighted // what cost was taken from, once admitted
	// done is called once, with no lock held.
	done func(answer)
	// stop ends the timer and the watch of the context of an append.
	stop func()

	// Guarded by lane.mu.
	ended  bool
	answer answer
}

// queue is the appends of one handle that have not completed, oldest first, and
// barriers among them.
type queue struct {
	handle storage.Handle
	calls  []*call
	// busy: somebody is calling completions of this queue.
	busy bool
	// broken is what later appends fail with, after one had an unknown outcome.
	broken error
	// retired: nobody will use the handle again. The queue goes when it is empty.
	retired bool
}

// lane is the client's side of the stream Data. Any goroutine may submit.
type lane struct {
	outbox chan *call
	gone   chan struct{} // closed when the lane is dead
	// answered counts answers: while it moves, the plugin lives.
	answered atomic.Int64
	writes   *semaphore.Weighted
	reads    *semaphore.Weighted

	mu      sync.Mutex
	seq     uint64
	pending map[uint64]*call
	queues  map[storage.Handle]*queue
	dead    error
}

func newLane() *lane {
	return &lane{
		outbox:  make(chan *call, outboxUnits),
		gone:    make(chan struct{}),
		writes:  semaphore.NewWeighted(writeWindowBytes),
		reads:   semaphore.NewWeighted(readWindowBytes),
		pending: map[uint64]*call{},
		queues:  map[storage.Handle]*queue{},
	}
}

// run moves frames until the stream ends, then completes all that is in flight
// as lost.
func (l *lane) run(ctx context.Context, stream grpc.ClientStream) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { l.send(ctx, stream) })
	err := l.receive(stream)
	l.fail(fmt.Errorf("the connection to the plugin ended: %w", err))
	cancel()
	wg.Wait()
	return err
}

// receive completes calls by the answers that come.
func (l *lane) receive(stream grpc.ClientStream) error {
	for {
		var f frame
		if err := stream.RecvMsg(&f); err != nil {
			return err
		}
		err := splitUnits(f.value, func(unit []byte) error {
			a, err := parseAnswer(unit)
			if err != nil {
				return err
			}
			if 2*len(a.read.Data) < len(f.value) { // keep no large frame for a small read
				a.read.Data = append([]byte(nil), a.read.Data...)
			}
			l.answered.Add(1)
			l.complete(a)
			return nil
		})
		if err != nil {
			return err
		}
	}
}

// send sends calls until ctx ends or the stream breaks, as many in a frame as
// wait.
func (l *lane) send(ctx context.Context, stream grpc.ClientStream) {
	for {
		var c *call
		select {
		case c = <-l.outbox:
		case <-ctx.Done():
			return
		}
		var p packer
		for more := true; more; {
			if l.alive(c) {
				pack(&p, requestBytesMax(&c.req), appendRequest, &c.req)
			}
			if p.bytes >= coalesceBytes {
				break
			}
			select {
			case c = <-l.outbox:
			default:
				more = false
			}
		}
		if p.bytes == 0 {
			continue
		}
		if err := stream.SendMsg(&frame{parts: p.parts()}); err != nil {
			return // receive gets the stream's own error
		}
	}
}

// alive says whether the call is still waited for: one that has ended before it
// was sent is not sent.
func (l *lane) alive(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !c.ended
}

// submit takes the call's share of the window and queues it. An error means that
// nothing was done and that done is not called, except for appends: those always
// complete, in their place. limit, when not zero, ends an append (whose outcome
// is then unknown) as ctx does; whoever waits for another call ends it.
func (l *lane) submit(ctx context.Context, c *call, limit time.Duration) error {
	err := l.admit(ctx, c, limit)
	l.mu.Lock()
	if err == nil {
		err = l.dead
	}
	if c.req.kind == kindAppend {
		if c.queue = l.queues[c.req.handle]; c.queue == nil {
			c.queue = &queue{handle: c.req.handle}
			l.queues[c.req.handle] = c.queue
		}
		if err == nil {
			err = c.queue.broken
		}
		c.queue.calls = append(c.queue.calls, c)
	}
	if err != nil {
		c.ended, c.answer = true, answer{err: err}
		l.mu.Unlock()
		if c.queue != nil {
			l.drain(c.queue)
			return nil
		}
		c.release()
		return err
	}
	l.seq++
	c.req.seq = l.seq
	l.pending[c.req.seq] = c
	if c.queue != nil {
		c.stop = l.watch(ctx, c, limit)
	}
	l.mu.Unlock()

	select {
	case l.outbox <- c:
		return nil
	default:
	}
	ctx, cancel := withLimit(ctx, limit)
	defer cancel()
	select {
	case l.outbox <- c:
	case <-l.gone: // c was ended with all the others
	case <-ctx.Done():
		l.expire(c, ctx.Err())
	}
	return nil
}

// admit waits for room in the window.
func (l *lane) admit(ctx context.Context, c *call, limit time.Duration) error {
	window, floor, ceiling := l.writes, int64(writeWindowBytes/writeUnitsMax), int64(writeWindowBytes)
	if c.req.kind == kindRead {
		window, floor, ceiling = l.reads, readWindowBytes/readUnitsMax, readWindowBytes
	}
	cost := min(max(c.cost, floor), ceiling)
	if !window.TryAcquire(cost) {
		ctx, cancel := withLimit(ctx, limit)
		defer cancel()
		if err := window.Acquire(ctx, cost); err != nil {
			return storage.Errorf(storage.ErrRetry, "the lane to the plugin is full")
		}
	}
	c.window, c.cost = window, cost
	return nil
}

// withLimit ends ctx after limit, if that is not zero.
func withLimit(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, limit)
}

// watch ends the append c when ctx does, or after limit.
func (l *lane) watch(ctx context.Context, c *call, limit time.Duration) (stop func()) {
	unwatch := func() bool { return true }
	if ctx.Done() != nil {
		unwatch = context.AfterFunc(ctx, func() { l.expire(c, ctx.Err()) })
	}
	if limit == 0 {
		return func() { unwatch() }
	}
	timer := time.AfterFunc(limit, func() { l.expire(c, context.DeadlineExceeded) })
	return func() {
		timer.Stop()
		unwatch()
	}
}

// complete ends the call that a answers. An answer that nobody waits for is
// dropped: its call ended at its deadline.
func (l *lane) complete(a answer) {
	l.mu.Lock()
	c := l.pending[a.seq]
	if c == nil || c.req.kind|kindAnswer != a.kind {
		l.mu.Unlock()
		return
	}
	l.end(c, a)
	l.mu.Unlock()
	l.finish(c)
}

// expire ends a call whose context ended. What an append did is then unknown,
// and so it is of those behind it; its handle takes no more.
func (l *lane) expire(c *call, cause error) {
	l.mu.Lock()
	if c.ended {
		l.mu.Unlock()
		return
	}
	err := fmt.Errorf("%w: no answer from the plugin in time: %w", storage.ErrUnknown, cause)
	if q := c.queue; q == nil {
		l.end(c, answer{err: err})
	} else {
		q.broken = storage.Errorf(storage.ErrGone, "an append had no answer in time; the log must be opened again")
		for _, behind := range q.calls {
			if !behind.ended {
				l.end(behind, answer{err: err})
			}
		}
	}
	l.mu.Unlock()
	l.finish(c)
}

// fail declares the lane dead and ends everything in flight.
func (l *lane) fail(cause error) {
	l.mu.Lock()
	if l.dead != nil {
		l.mu.Unlock()
		return
	}
	l.dead = storage.Errorf(storage.ErrGone, "%v", cause)
	var others []*call
	for _, c := range l.pending {
		if c.req.kind == kindAppend {
			l.end(c, answer{err: storage.Errorf(storage.ErrUnknown, "%v", cause)})
			continue
		}
		l.end(c, answer{err: l.dead})
		others = append(others, c)
	}
	queues := make([]*queue, 0, len(l.queues))
	for _, q := range l.queues {
		queues = append(queues, q)
	}
	close(l.gone)
	l.mu.Unlock()

	for _, c := range others {
		l.finish(c)
	}
	for _, q := range queues {
		l.drain(q)
	}
}

// end records how a call ended. The caller holds mu, and calls finish later.
func (l *lane) end(c *call, a answer) {
	c.ended, c.answer = true, a
	delete(l.pending, c.req.seq)
}

// finish calls the completions that are due after c ended.
func (l *lane) finish(c *call) {
	if c.queue != nil {
		l.drain(c.queue)
		return
	}
	c.release()
	c.done(c.answer)
}

// release gives back what the call holds. Barriers hold nothing.
func (c *call) release() {
	if c.stop != nil {
		c.stop()
	}
	if c.window != nil {
		c.window.Release(c.cost)
	}
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
	for len(q.calls) > 0 && q.calls[0].ended {
		c := q.calls[0]
		q.calls[0] = nil
		q.calls = q.calls[1:]
		l.mu.Unlock()
		c.release()
		c.done(c.answer)
		l.mu.Lock()
	}
	q.busy = false
	if len(q.calls) == 0 {
		q.calls = nil
		if q.retired {
			delete(l.queues, q.handle)
		}
	}
	l.mu.Unlock()
}

// barrier waits until every append of the handles that was submitted before has
// completed, one way or another.
func (l *lane) barrier(ctx context.Context, handles []storage.Handle) error {
	var waits []chan struct{}
	l.mu.Lock()
	for _, h := range handles {
		q := l.queues[h]
		if q == nil || len(q.calls) == 0 && !q.busy {
			continue
		}
		reached := make(chan struct{})
		waits = append(waits, reached)
		q.calls = append(q.calls, &call{ended: true, done: func(answer) { close(reached) }})
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
		if len(q.calls) > 0 {
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
	case len(q.calls) == 0 && !q.busy:
		delete(l.queues, h)
	default:
		q.retired = true
	}
}

// died returns why the lane is dead, nil while it lives.
func (l *lane) died() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// do submits a call that is not an append and waits for its answer. ctx has a
// deadline.
func (l *lane) do(ctx context.Context, req request, bytes int64) (answer, error) {
	answered := make(chan answer, 1)
	c := &call{req: req, cost: bytes, done: func(a answer) { answered <- a }}
	if err := l.submit(ctx, c, 0); err != nil {
		return answer{}, err
	}
	select {
	case a := <-answered:
		return a, a.err
	case <-ctx.Done():
		l.expire(c, ctx.Err())
		a := <-answered // expire's, or one that came just before
		return a, a.err
	}
}
