package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/sdk/storage"
)

const (
	// grantsMax is how many logs of a store are lent at a time: each costs a
	// descriptor in both processes.
	grantsMax = 1024
	// grantIdleMax is after how long without an append a grant is given back.
	grantIdleMax = 5 * time.Second
	// untoldMax is how many batches of a store may have been written without the
	// plugin having answered that it knows of them. Beyond it appends go to the plugin,
	// so that one that falls behind is felt.
	untoldMax = 1 << 17
)

// hostFiles is the host's side of the files that a plugin's store lends: which logs
// it may write, which stretches it may read, and what the plugin has not been told
// yet.
//
// Locks are taken in this order, and none is held while a completion is called:
//
//	hostLog.mu    one log's grant, and the turn to write under it
//	hostFiles.use held for reading across each write and each read of a lent file
//	hostFiles.mu, leaseCache.mu, lane.mu    never two of them at once
//	checked.mu    of one file
//	marks.mu      of all
type hostFiles struct {
	lane    *lane
	timeout time.Duration // of a unit that nobody's context bounds
	offers  storage.Capabilities
	leases  *leaseCache

	untold atomic.Int64
	clock  atomic.Int64 // milliseconds since 1970, moved by tick

	use     sync.RWMutex
	revoked bool
	lock    *os.File // of the store; closed when revoked

	mu     sync.Mutex
	logs   map[storage.Handle]*hostLog
	due    []*hostLog            // that have something to tell
	lent   map[*hostLog]struct{} // that have a grant, or have asked for one
	asks   sync.WaitGroup
	closed bool // no more asks
}

// newHostFiles takes the lock of a store that lends files and returns the host's side
// of them.
func newHostFiles(ctx context.Context, l *lane, offers storage.Capabilities, timeout time.Duration) (*hostFiles, error) {
	a, err := l.do(ctx, request{head: head{kind: kindLock}}, 0)
	if err != nil || a.file == nil {
		a.drop()
		if err == nil {
			err = storage.Errorf(storage.ErrGone, "the plugin lends files without a lock")
		}
		return nil, fmt.Errorf("lock the store: %w", err)
	}
	// Answers go one after the other, and with the next the plugin has closed its copy
	// of this one's file: the lock is ours alone to let go once the store has ended.
	if next, err := l.do(ctx, request{head: head{kind: kindEnd}}, 0); err == nil {
		next.drop() // there is no such log; what matters is that it was answered
	}
	f := &hostFiles{
		lane:    l,
		timeout: timeout,
		offers:  offers,
		lock:    a.file,
		logs:    map[storage.Handle]*hostLog{},
		lent:    map[*hostLog]struct{}{},
	}
	f.leases = &leaseCache{files: f, marks: marks{left: marksMax}, logs: map[storage.Handle]*leasedLog{}}
	f.clock.Store(time.Now().UnixMilli())
	l.mu.Lock()
	l.tick = f.tick
	l.mu.Unlock()
	return f, nil
}

// log returns what is known of a handle, nil if it is not open.
func (f *hostFiles) log(h storage.Handle) *hostLog {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.logs[h]
}

// opened begins with a handle that an Open gave.
func (f *hostFiles) opened(r storage.OpenResult) {
	l := &hostLog{files: f, handle: r.Handle, queue: f.lane.openQueue(r.Handle), askAfter: askAfterMin}
	l.durable.Store(r.Durable)
	f.leases.opened(r.Handle)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.logs[r.Handle] = l
}

// forget ends with a handle. Nothing of it is lent, see hostLog.settle.
func (f *hostFiles) forget(h storage.Handle) {
	f.mu.Lock()
	delete(f.logs, h)
	f.mu.Unlock()
	f.leases.forget(h)
}

// all returns every log.
func (f *hostFiles) all() []*hostLog {
	f.mu.Lock()
	defer f.mu.Unlock()
	logs := make([]*hostLog, 0, len(f.logs))
	for _, l := range f.logs {
		logs = append(logs, l)
	}
	return logs
}

// mayAsk notes that l asks for a grant, and says whether there is one more to be had.
// Those that are not used are given back, so that the logs in use get them.
func (f *hostFiles) mayAsk(l *hostLog) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || len(f.lent) >= grantsMax {
		return false
	}
	f.lent[l] = struct{}{}
	f.asks.Add(1)
	return true
}

// notLent notes that l has no grant.
func (f *hostFiles) notLent(l *hostLog) {
	f.mu.Lock()
	delete(f.lent, l)
	f.mu.Unlock()
}

// toTell notes that l has something to tell.
func (f *hostFiles) toTell(l *hostLog) {
	f.mu.Lock()
	first := len(f.due) == 0
	f.due = append(f.due, l)
	f.mu.Unlock()
	if first {
		f.lane.wantTick()
	}
}

// tick tells the plugin what was written since the last tick, and gives back grants
// that were not used for a while. It waits for nobody: a log that is just written to
// has its turn at the next tick.
func (f *hostFiles) tick() {
	now := time.Now().UnixMilli()
	f.clock.Store(now)
	var idle []*hostLog
	f.mu.Lock()
	due := f.due
	f.due = nil
	for l := range f.lent {
		if now-l.used.Load() > grantIdleMax.Milliseconds() {
			idle = append(idle, l)
		}
	}
	more := len(f.lent) > 0
	f.mu.Unlock()
	for _, l := range due {
		if !l.mu.TryLock() {
			f.toTell(l)
			continue
		}
		l.due = false
		l.tell()
		l.unlock()
	}
	for _, l := range idle {
		if l.mu.TryLock() {
			l.giveBack(now - grantIdleMax.Milliseconds())
			l.unlock()
		}
	}
	if more {
		f.lane.wantTick()
	}
}

// settle ends what is lent of a log and waits until the plugin has been told of all
// that was written, before a call that changes the log. Until the function that it
// returns is called, nothing of the log is lent again.
func (f *hostFiles) settle(ctx context.Context, h storage.Handle) (release func(), err error) {
	l := f.log(h)
	if l == nil {
		return func() {}, nil
	}
	f.leases.suspend(h)
	release = func() {
		l.resume()
		f.leases.resume(h)
	}
	err = l.suspend(ctx)
	if err == nil && l.pending.Load() > 0 {
		err = f.lane.barrier(ctx, []storage.Handle{h})
	}
	if err != nil {
		release()
		return func() {}, err
	}
	return release, nil
}

// settleAll is settle for every log.
func (f *hostFiles) settleAll(ctx context.Context) (release func(), err error) {
	var releases []func()
	release = func() {
		for _, r := range releases {
			r()
		}
	}
	for _, l := range f.all() {
		r, err := f.settle(ctx, l.handle)
		if err != nil {
			return release, err
		}
		releases = append(releases, r)
	}
	return release, nil
}

// tellFor makes the plugin know of what a read is to begin with.
func (f *hostFiles) tellFor(ctx context.Context, req *storage.ReadRequest) error {
	l := f.log(req.Handle)
	if l == nil || l.pending.Load() == 0 || req.Offset < l.known.Load() || req.Offset >= req.UpTo {
		return nil
	}
	return f.tellAll(ctx, req.Handle)
}

// tellAll makes the plugin know of all that was written in a log, before a call that
// must see it.
func (f *hostFiles) tellAll(ctx context.Context, h storage.Handle) error {
	l := f.log(h)
	if l == nil || l.pending.Load() == 0 {
		return nil
	}
	l.mu.Lock()
	l.tell()
	l.unlock()
	return f.lane.barrier(ctx, []storage.Handle{h})
}

// errRevoked is what a file gives that is not lent any more.
var errRevoked = errors.New("the plugin has ended")

// using calls fn, which writes or reads a lent file, unless the files were revoked.
func (f *hostFiles) using(fn func() error) error {
	f.use.RLock()
	defer f.use.RUnlock()
	if f.revoked {
		return errRevoked
	}
	return fn()
}

// revoke ends all writing and reading, having waited for what is under way, closes
// the files, and lets go of the store's lock: now another process may open it. The
// lane is dead.
func (f *hostFiles) revoke() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.asks.Wait()
	f.use.Lock()
	first := !f.revoked
	f.revoked = true
	f.use.Unlock()
	if !first {
		return
	}
	for _, l := range f.all() {
		l.mu.Lock()
		l.drop(GrantLost)
		l.unlock()
	}
	f.leases.closeAll()
	closeFile(f.lock)
}
