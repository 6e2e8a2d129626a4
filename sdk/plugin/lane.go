package plugin

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/brokerd/brokerd/sdk/storage"
)

// The window of a lane: what may be in flight, in bytes and in units. A unit
// costs its bytes, and at least its share of the window, so that the number of
// units is bounded too; together they stay below what a plugin of this package
// takes from a lane (unitsInFlightMax). One unit above the window passes alone.
// When the window is full, a call waits until its deadline. Units that are about
// files pass beside it: there are few of them, by bounds of their own.
const (
	writeWindowBytes = 64 << 20
	readWindowBytes  = 64 << 20
	writeUnitsMax    = 640
	readUnitsMax     = 256
)

// call is one unit in flight. Those of appends are used again: refs counts who
// may look at one.
type call struct {
	req   request
	queue *queue // of appends
	// telling: it tells of appends that have completed.
	telling bool
	cost    int64               // before it is admitted: the bytes of its data
	sent    int64               // bytes of the unit; the sender's
	window  *semaphore.Weighted // what cost was taken from, once admitted

	// One of these is called once, with no lock held.
	appended func(storage.AppendResult, error)
	done     func(answer)

	// The watch of the lane ends an append at its deadline, or when cancelled is
	// closed.
	deadline  time.Time
	cancelled <-chan struct{}

	refs atomic.Int32
	pool *sync.Pool // nil: it is used once

	// Guarded by lane.mu.
	ended  bool
	answer answer
}

// unref gives a reference back.
func (c *call) unref() {
	if c.refs.Add(-1) > 0 || c.pool == nil {
		return
	}
	pool := c.pool
	c.req, c.answer, c.ended = request{}, answer{}, false
	c.queue, c.cost, c.window = nil, 0, nil
	c.appended, c.done, c.deadline, c.cancelled, c.telling = nil, nil, time.Time{}, nil, false
	pool.Put(c)
}

// lane is the client's side of a lane. Any goroutine may submit.
type lane struct {
	gone chan struct{} // closed when the lane is dead
	// wake tells the sender that the outbox is not empty, awake the watch that an
	// append is in flight.
	wake, awake chan struct{}
	// answered counts answers: while it moves, the plugin lives.
	answered atomic.Int64
	writes   *semaphore.Weighted
	reads    *semaphore.Weighted
	calls    sync.Pool // of *call, for appends
	counters *Counters // of the store
	// tick is called by the watch some time after wantTick.
	tick func()

	mu       sync.Mutex
	seq      uint64
	outbox   requests // in the order of their sequence; the window bounds it
	pending  map[uint64]*call
	queues   map[storage.Handle]*queue
	watching bool // the watch does not sleep
	wanted   bool // tick is to be called
	dead     error
}

func newLane(counters *Counters) *lane {
	return &lane{
		counters: counters,
		gone:     make(chan struct{}),
		tick:     func() {},
		wake:     make(chan struct{}, 1),
		awake:    make(chan struct{}, 1),
		writes:   semaphore.NewWeighted(writeWindowBytes),
		reads:    semaphore.NewWeighted(readWindowBytes),
		pending:  map[uint64]*call{},
		queues:   map[storage.Handle]*queue{},
	}
}

// newAppend returns a call that is used again once nobody refers to it.
func (l *lane) newAppend() *call {
	c, ok := l.calls.Get().(*call)
	if !ok {
		c = &call{pool: &l.calls}
	}
	return c
}

// run moves units until the link ends, then completes all that is in flight as
// lost.
func (l *lane) run(ctx context.Context, to link) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { l.send(ctx, to) })
	wg.Go(func() { l.watch(ctx) })
	err := to.receive(l.receive)
	l.fail(fmt.Errorf("the connection to the plugin ended: %w", err))
	cancel()
	wg.Wait()
	return err
}

// receive completes the call that a unit answers.
func (l *lane) receive(in incoming) error {
	a, err := parseAnswer(in.unit)
	if err != nil {
		closeFile(in.file)
		return err
	}
	a.file = in.file
	if a.err == nil && a.file == nil && in.unit[7]&flagFile != 0 {
		a.err = storage.Errorf(storage.ErrRetry, "the descriptor that the plugin passed was lost, as when too many files are open")
	}
	if len(a.read.Data) > 0 {
		in.mem.Ref()
		a.mem, a.memSize = in.mem, in.size
	}
	l.answered.Add(1)
	l.counters.received.add(1, int64(len(in.unit)))
	l.complete(a)
	return nil
}

// send sends what is in the outbox, until ctx ends or the link breaks.
func (l *lane) send(ctx context.Context, to link) {
	var batch requests
	for {
		select {
		case <-l.wake:
		case <-ctx.Done():
			return
		}
		runtime.Gosched() // so that those who are about to submit share a system call
		for l.take(&batch) {
			err := to.send(&batch)
			units, bytes := int64(len(batch)), int64(0)
			for i, c := range batch {
				bytes += c.sent
				c.unref()
				batch[i] = nil
			}
			l.counters.sent.add(units, bytes)
			batch = batch[:0]
			if err != nil {
				return // receive gets the link's own error
			}
		}
	}
}

// take moves the outbox into batch, without the calls that ended before they were
// sent, and says whether there is anything.
func (l *lane) take(batch *requests) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, c := range l.outbox {
		l.outbox[i] = nil
		if c.ended {
			c.unref()
			continue
		}
		*batch = append(*batch, c)
	}
	l.outbox = l.outbox[:0]
	return len(*batch) > 0
}

// submit takes the call's share of the window and queues it. An error means that
// nothing was done and that done is not called, except for appends: those always
// complete, in their place. ctx and the call's deadline, if it has one, bound the
// waiting, and end an append, whose outcome is then unknown; whoever waits for
// another call ends it.
func (l *lane) submit(ctx context.Context, c *call) error {
	err := l.admit(ctx, c)
	l.mu.Lock()
	queue, err := l.start(c, err)
	l.mu.Unlock()
	switch {
	case err == nil:
		nudge(l.wake)
	case queue != nil:
		l.drain(queue)
		return nil
	default:
		c.release()
	}
	return err
}

// post queues a call beside the window. It never waits, and the call always
// completes, also when the lane is dead. It calls no completion of an append: the
// caller drains the queue that is returned, if one is, once it holds no lock.
func (l *lane) post(c *call) *queue {
	l.mu.Lock()
	queue, err := l.start(c, nil)
	l.mu.Unlock()
	switch {
	case err == nil:
		nudge(l.wake)
		return nil
	case queue == nil && c.done != nil:
		c.done(answer{err: err})
	}
	return queue
}

// start puts a call into its queue, if it is an append, and into the outbox, unless
// err or something else forbids it, which it returns. The caller holds mu, and
// then wakes the sender. The call may have completed when it has let go of mu.
func (l *lane) start(c *call, err error) (*queue, error) {
	if err == nil {
		err = l.dead
	}
	c.refs.Store(1)
	if c.req.kind == kindAppend || c.req.kind == kindTold {
		c.queue = l.queueOf(c.req.handle)
		if err == nil {
			err = c.queue.broken
		}
		if c.telling {
			c.queue = c.queue.tells
		}
		c.queue.calls = append(c.queue.calls, c)
	}
	if err != nil {
		c.ended, c.answer = true, answer{err: err}
		return c.queue, err
	}
	l.seq++
	c.req.seq = l.seq
	if c.done != nil || c.appended != nil {
		l.pending[c.req.seq] = c
	}
	c.refs.Add(1)
	l.outbox = append(l.outbox, c)
	if c.queue != nil && !l.watching {
		l.watching = true
		nudge(l.awake)
	}
	return c.queue, nil
}

// nudge leaves a token in a channel of one.
func nudge(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// admit waits for room in the window.
func (l *lane) admit(ctx context.Context, c *call) error {
	window, floor, ceiling := l.writes, int64(writeWindowBytes/writeUnitsMax), int64(writeWindowBytes)
	if c.req.kind == kindRead {
		window, floor, ceiling = l.reads, readWindowBytes/readUnitsMax, readWindowBytes
	}
	cost := min(max(c.cost, floor), ceiling)
	if !window.TryAcquire(cost) {
		l.counters.waits.Add(1)
		if !c.deadline.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, c.deadline)
			defer cancel()
		}
		if err := window.Acquire(ctx, cost); err != nil {
			return storage.Errorf(storage.ErrRetry, "the lane to the plugin is full")
		}
	}
	c.window, c.cost = window, cost
	return nil
}

// complete ends the call that a answers. An answer that nobody waits for is
// dropped: its call ended at its deadline.
func (l *lane) complete(a answer) {
	l.mu.Lock()
	c := l.pending[a.seq]
	if c == nil || c.req.kind|kindAnswer != a.kind {
		l.mu.Unlock()
		a.drop()
		return
	}
	l.count(c, &a)
	l.end(c, a)
	queue := c.queue
	l.mu.Unlock()
	if queue != nil { // c may be another's already
		l.drain(queue)
		return
	}
	c.finish()
}

// count counts what an answer says was appended, or brings. Only the receiver calls it.
func (l *lane) count(c *call, a *answer) {
	switch {
	case a.err != nil:
	case c.req.kind == kindAppend:
		bytes := int64(0)
		for i := range c.req.append.Batches {
			bytes += int64(c.req.append.Batches[i].Bytes)
		}
		l.counters.called.add(int64(len(c.req.append.Batches)), bytes)
	case c.req.kind == kindRead:
		l.counters.calledBytes.Add(int64(len(a.read.Data)))
	}
}

// drop gives back what an answer holds that nobody gets.
func (a *answer) drop() {
	if a.mem != nil {
		a.mem.Free()
	}
	closeFile(a.file)
}

// expire ends a call whose time is over. What an append did is then unknown, and
// so it is of those behind it; its handle takes no more.
func (l *lane) expire(c *call, cause error) {
	l.mu.Lock()
	if c.ended {
		l.mu.Unlock()
		return
	}
	err := fmt.Errorf("%w: no answer from the plugin in time: %w", storage.ErrUnknown, cause)
	queue := c.queue
	if queue == nil {
		l.end(c, answer{err: err})
		l.mu.Unlock()
		c.finish()
		return
	}
	queue.spoil(storage.Errorf(storage.ErrGone, "an append had no answer in time; the log must be opened again"))
	for _, behind := range queue.calls {
		if behind != nil && !behind.ended {
			l.end(behind, answer{err: err})
		}
	}
	l.mu.Unlock()
	l.drain(queue)
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
		if c.queue != nil {
			l.end(c, answer{err: storage.Errorf(storage.ErrUnknown, "%v", cause)})
			continue
		}
		l.end(c, answer{err: l.dead})
		others = append(others, c)
	}
	queues := make([]*queue, 0, 2*len(l.queues))
	for _, q := range l.queues {
		queues = append(queues, q, q.tells)
	}
	close(l.gone)
	l.mu.Unlock()

	for _, c := range others {
		c.finish()
	}
	for _, q := range queues {
		l.drain(q)
	}
}

// end records how a call ended. The caller holds mu, and then finishes the call
// or drains its queue.
func (l *lane) end(c *call, a answer) {
	c.ended, c.answer = true, a
	delete(l.pending, c.req.seq)
}

// finish completes a call that has ended. The call is not the caller's any more.
func (c *call) finish() {
	c.release()
	a := c.answer
	if c.appended != nil {
		appended := c.appended
		c.unref()
		appended(a.append, a.err)
		return
	}
	done := c.done
	c.unref()
	if done != nil {
		done(a)
	}
}

// release gives the call's share of the window back. Barriers have none.
func (c *call) release() {
	if c.window != nil {
		c.window.Release(c.cost)
		c.window = nil
	}
}

// died returns why the lane is dead, nil while it lives.
func (l *lane) died() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// do submits a call that is not an append and waits for its answer. ctx has a
// deadline. The answer's memory and file are the caller's.
func (l *lane) do(ctx context.Context, req request, bytes int64) (answer, error) {
	answered := make(chan answer, 1)
	c := &call{req: req, cost: bytes, done: func(a answer) { answered <- a }}
	if err := l.submit(ctx, c); err != nil {
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
