package plugin

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/sdk/storage"
)

const (
	// askAfterMin is after how many appends, or as many times askBytes, a log asks for
	// a grant: one that is written to once in a while needs none. After a refusal it
	// is twice as many, up to askAfterMax.
	askAfterMin = 8
	askAfterMax = 4096
	askBytes    = 8 << 10
	// askTimeout is how long appends wait for a grant at most.
	askTimeout = time.Second
	// heldMax is how many appends of a log wait for a grant. One more waits in Append.
	heldMax = 64
	// tellBatches is how many batches are told at the latest.
	tellBatches = 4096
)

// hostLog is one handle as the host sees it.
type hostLog struct {
	files  *hostFiles
	handle storage.Handle
	queue  *queue // of the lane

	// pending is how many batches were written under grants that the plugin has not
	// answered to know; if there are any, known is the offset where they begin.
	pending, known atomic.Int64
	durable        atomic.Int64  // everything below survives a loss of power
	over           atomic.Uint64 // the ID of the grant that the plugin has said to be over
	used           atomic.Int64  // when a grant was last used, by hostFiles.clock

	// mu is also the turn to write: it is held across a write under the grant, since
	// whoever wants it has to wait for that write in any case.
	mu    sync.Mutex
	grant *grant
	told  told // what was written and not told
	due   bool // the next tick tells
	// asking: a grant was asked for, and appends wait in held until asked is closed.
	asking bool
	asked  chan struct{}
	held   []*call
	// out: a grant that was asked for may still come, also when nobody waits for it.
	out bool
	// plain counts appends that are on their way to the lane, changes the calls under
	// way during which nothing of the log is lent.
	plain, changes int
	generation     uint64 // counts changes
	count          int    // appends without a grant, since it was last asked for
	askAfter       int
	undrained      [2]*queue // of the lane, to be drained once mu is free: appends, and tells
}

// told is appends under a grant that lie next to each other, to be told as one.
type told struct {
	pos, base int64
	infos     []byte // the batch infos, encoded
	batches   int
	bytes     int64
}

// unlock frees mu and calls the completions that have come due.
func (l *hostLog) unlock() {
	undrained := l.undrained
	l.undrained = [2]*queue{}
	l.mu.Unlock()
	for _, q := range undrained {
		if q != nil {
			l.files.lane.drain(q)
		}
	}
}

// drainLater notes a queue that is to be drained. The caller holds mu.
func (l *hostLog) drainLater(q *queue) {
	switch q {
	case nil:
	case l.queue:
		l.undrained[0] = q
	default:
		l.undrained[1] = q
	}
}

// append takes an append the way that is open: into the file, to the lane, or into
// the row of those that wait for a grant.
func (l *hostLog) append(ctx context.Context, c *call) {
	l.mu.Lock()
	for l.asking {
		if len(l.held) < heldMax {
			l.held = append(l.held, c)
			l.unlock()
			return
		}
		asked := l.asked
		l.unlock()
		<-asked // no longer than askTimeout
		l.mu.Lock()
	}
	if l.granted(c) {
		l.unlock()
		return
	}
	epoch, require := c.req.append.LeaderEpoch, max(c.req.append.Require, storage.SurvivesProcess)
	bytes := int(c.cost)
	l.plain++
	l.unlock()
	l.submit(ctx, c)
	l.mu.Lock()
	l.plain--
	if l.count += 1 + bytes/askBytes; l.count >= l.askAfter {
		l.ask(epoch, require)
	}
	l.unlock()
}

// submit gives an append to the plugin, once that knows of all that was written. Had it
// refused to hear of it, the append must not come to it: what is in the file is open then,
// and only an opening finds it. The caller does not hold mu.
func (l *hostLog) submit(ctx context.Context, c *call) {
	if l.pending.Load() > 0 {
		_ = l.files.lane.barrier(ctx, []storage.Handle{l.handle}) // if it fails, so does what follows
	}
	_ = l.files.lane.submit(ctx, c) // appends always complete
}

// granted writes an append under the grant, if there is one that it fits, and
// completes it, or leaves that to the plugin's answer when it must survive more than
// this. Otherwise the grant is over. The caller holds mu.
func (l *hostLog) granted(c *call) bool {
	g := l.grant
	if g == nil {
		return false
	}
	req := &c.req.append
	switch {
	case l.over.Load() == uint64(g.ID):
		l.end(GrantOver)
		return false
	case l.queue.spoiled.Load():
		l.end(GrantFailed)
		return false
	case l.files.untold.Load() > untoldMax:
		l.end(GrantBehind)
		return false
	case req.Require > l.files.offers.Survives, !g.fits(req):
		l.end(GrantUnfit)
		return false
	}
	pos, base := g.pos, g.leo
	if err := l.files.using(func() error { return g.write(req) }); err != nil {
		l.end(GrantFailed)
		return false
	}
	l.used.Store(l.files.clock.Load())
	l.note(req, pos, base)
	l.wrote(req, pos, base)
	l.told.bytes += g.pos - pos
	if req.Require > storage.SurvivesProcess {
		l.tellFor(c)
		return true
	}
	l.drainLater(l.files.lane.ended(c, answer{append: storage.AppendResult{
		LEO: g.leo, Survives: storage.SurvivesProcess, Durable: min(l.durable.Load(), g.leo),
	}}))
	if l.told.batches >= tellBatches {
		l.tell()
	} else if !l.due {
		l.due = true
		l.files.toTell(l)
	}
	return true
}

// note remembers what is to be told of an append that was written.
func (l *hostLog) note(req *storage.AppendRequest, pos, base int64) {
	if l.told.batches == 0 {
		l.told.pos, l.told.base = pos, base
	}
	if l.pending.Load() == 0 {
		l.known.Store(base)
	}
	l.pending.Add(int64(len(req.Batches)))
	l.told.infos = appendEach(l.told.infos, req.Batches)
	l.told.batches += len(req.Batches)
	l.files.untold.Add(int64(len(req.Batches)))
}

// wrote remembers that what was written was checked.
func (l *hostLog) wrote(req *storage.AppendRequest, pos, base int64) {
	g := l.grant
	if g.FileID == 0 {
		return
	}
	if g.checked == nil || g.checked.expired(l.used.Load()) {
		if g.checked = l.files.leases.checkedOf(l.handle, g.FileID, g.info); g.checked == nil {
			return
		}
	}
	g.checked.wrote(pos, base, req.Batches)
}

// tell tells the plugin what was written. The caller holds mu.
func (l *hostLog) tell() {
	if l.told.batches == 0 {
		return
	}
	l.tellAs(&call{telling: true}, storage.SurvivesProcess, nil)
}

// tellFor tells the plugin of c, and of what was written before, and leaves the
// completion of c to the answer. The caller holds mu.
func (l *hostLog) tellFor(c *call) {
	appended, require := c.appended, c.req.append.Require
	c.appended = nil
	l.tellAs(c, require, appended)
}

// tellAs makes c the unit that tells.
func (l *hostLog) tellAs(c *call, require storage.Survives, appended func(storage.AppendResult, error)) {
	g, t := l.grant, l.told
	l.files.lane.counters.granted.add(int64(t.batches), t.bytes)
	l.told = told{infos: make([]byte, 0, min(len(t.infos), tellBatches*infoBytes))}
	if c.deadline.IsZero() {
		c.deadline = time.Now().Add(l.files.timeout)
		c.req.timeout = l.files.timeout
	}
	c.req.kind, c.req.handle = kindTold, l.handle
	c.req.append = storage.AppendRequest{
		Handle: l.handle, LeaderEpoch: g.LeaderEpoch, BaseOffset: t.base, Granted: g.ID, Pos: t.pos, Require: require,
	}
	c.req.infos = t.infos
	id, n := uint64(g.ID), int64(t.batches)
	c.done = func(a answer) { l.heard(a, id, n, appended) }
	l.drainLater(l.files.lane.post(c))
}

// heard takes the plugin's answer to what it was told.
func (l *hostLog) heard(a answer, id uint64, batches int64, appended func(storage.AppendResult, error)) {
	l.files.untold.Add(-batches)
	if a.err != nil {
		l.files.lane.spoil(l.handle, storage.Errorf(storage.ErrGone,
			"the plugin refused what was written in its file (%v); the log must be opened again", a.err))
	} else {
		l.known.Store(a.append.LEO)
		raise(&l.durable, a.append.Durable)
	}
	l.pending.Add(-batches)
	if appended != nil {
		if a.err != nil { // an opening finds what it is of, whatever the plugin says: full, or not now
			a.err = storage.Errorf(storage.ErrUnknown, "the plugin refused what was written in its file: %v", a.err)
		}
		appended(a.append, a.err)
	}
	if a.append.GrantOver {
		l.over.Store(id)
		if l.mu.TryLock() { // otherwise the next append sees it
			l.renew()
			l.unlock()
		}
	}
}

// raise moves v up to n.
func raise(v *atomic.Int64, n int64) {
	for {
		old := v.Load()
		if old >= n || v.CompareAndSwap(old, n) {
			return
		}
	}
}

// renew asks for another grant when the one at hand is over. The caller holds mu.
func (l *hostLog) renew() {
	if g := l.grant; g != nil && l.over.Load() == uint64(g.ID) {
		epoch, require := g.LeaderEpoch, g.require
		l.end(GrantOver)
		l.ask(epoch, require)
	}
}

// end tells what was written and does not use the grant any more, which ends with
// the next call in the log; another is asked for after the next append. The caller
// holds mu.
func (l *hostLog) end(why GrantEnd) {
	if l.grant == nil {
		return
	}
	l.tell()
	l.drop(why)
	l.count = l.askAfter
}

// drop lets go of the grant. The caller holds mu.
func (l *hostLog) drop(why GrantEnd) {
	if l.grant != nil {
		l.files.lane.counters.granted.add(int64(l.told.batches), l.told.bytes)
		l.files.lane.counters.grantsEnded[why].Add(1)
		l.files.untold.Add(-int64(l.told.batches))
		l.pending.Add(-int64(l.told.batches))
		l.told = told{}
		closeFile(l.grant.File)
		l.grant = nil
		l.files.notLent(l)
	}
}

// giveBack gives the grant back to the plugin if it was not used since. The caller
// holds mu.
func (l *hostLog) giveBack(since int64) {
	if l.grant == nil || l.used.Load() >= since {
		return
	}
	id := l.grant.ID
	l.end(GrantIdle)
	l.count = 0
	l.files.lane.post(&call{req: request{head: head{kind: kindEnd, handle: l.handle}, end: id}, done: func(answer) {}})
}

// suspend ends the grant, and lends nothing until resume. It waits for an answer to
// one that was asked for, as long as appends do. With an error, too, resume is to be
// called.
func (l *hostLog) suspend(ctx context.Context) error {
	l.mu.Lock()
	l.changes++
	l.generation++
	err := l.settled(ctx)
	l.end(GrantChange)
	l.unlock()
	return err
}

// settled waits until no append waits for a grant. The caller holds mu, which is
// free meanwhile.
func (l *hostLog) settled(ctx context.Context) error {
	for l.asking {
		asked := l.asked
		l.unlock()
		select {
		case <-asked:
		case <-ctx.Done():
			l.mu.Lock()
			return fmt.Errorf("%w: wait for appends in flight: %w", storage.ErrUnknown, ctx.Err())
		}
		l.mu.Lock()
	}
	return nil
}

// resume undoes suspend.
func (l *hostLog) resume() {
	l.mu.Lock()
	l.changes--
	l.unlock()
}

// flush tells the plugin of all that was appended, before it is to flush, and
// returns what the answer is to be taken with.
func (l *hostLog) flush(ctx context.Context) (generation uint64, err error) {
	l.mu.Lock()
	err = l.settled(ctx)
	l.tell()
	generation = l.generation
	l.unlock()
	return generation, err
}

// flushed notes that everything below durable survives a loss of power, unless the
// log was changed since the flush began.
func (l *hostLog) flushed(generation uint64, durable int64) {
	l.mu.Lock()
	if generation == l.generation {
		raise(&l.durable, durable)
	}
	l.unlock()
}

// truncated notes that nothing at or above leo is left.
func (l *hostLog) truncated(leo int64) {
	l.mu.Lock()
	l.durable.Store(min(l.durable.Load(), leo))
	l.unlock()
}
