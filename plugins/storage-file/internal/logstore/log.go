package logstore

import (
	"context"
	"sync"
	"time"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/openfiles"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/sdk/storage"
)

const (
	// queuedAppendsMax and queuedBytesMax bound what waits for a log's writer.
	// When either is reached, Append blocks.
	queuedAppendsMax = 4096
	queuedBytesMax   = 64 << 20
	// roomKept is the length up to which lists of appends are kept for the next.
	roomKept = 512
)

// view is what readers see of a log. It never changes; the next one is published.
type view struct {
	logStart, leo int64
	// segs rise in base offset; the last one grows.
	segs []*segment.Segment
	// active is the index of the last segment as far as leo.
	active segment.Index
	epochs []epochStart
	holes  []span
	// cuts counts truncations: bytes read under one count are what they were.
	cuts uint64
	// seq counts publications.
	seq uint64
}

// op is something that a log's runner does: an append, or anything else.
type op struct {
	append *pendingAppend
	run    func()
}

// log is one log of the store. Everything that changes it is an op in its
// queue, and one goroutine at a time runs them (the runner), so that nothing
// is locked while files are written.
type log struct {
	store *Store
	id    storage.LogID
	label string
	// runner and committer are the methods run and commit.
	runner, committer func()

	// syncTurn holds a token while a sync is under way.
	syncTurn chan struct{}

	// mu guards what follows; it is never held while a file is touched or a
	// completion is called.
	mu         sync.Mutex
	published  view // what readers see
	queue      []op
	taken      []op          // room of a queue that was run
	appends    int           // in queue
	bytes      int           // in queue
	room       chan struct{} // closed when the queue is taken; made by who waits
	scheduled  bool
	dead       bool // closed or deleted: no op runs any more
	handle     storage.Handle
	gone       error // why the log's handle has ended, with the log
	failed     error // why nothing can be appended or read until the log is opened again
	waiting    []completion
	completing bool
	ready      []completion // being answered
	durable    int64
	written    int64 // the LEO, as synced files may claim it
	cuts       uint64
	cutting    bool // a truncation is under way, and has looked at what is lent
	// dirty has the last write to each segment that is not known to be synced.
	// They are acquired, so that their descriptors hear of a failed write.
	dirty      map[*segment.Segment]uint64
	writes     uint64
	syncQueued bool
	// hintsDue counts hints that must be synced before anything newer counts as
	// durable; hintsSynced of them were.
	hintsDue, hintsSynced uint64
	hintPinned            bool // while hints are due

	// What follows belongs to the runner.
	dir      string // set once, before the first sync; others may then read it
	open     bool
	options  storage.LogOptions
	seen     int32
	leo      int64
	logStart int64
	segs     []*segment.Segment
	index    segment.Index // of the last segment
	epochs   []epochStart
	holes    []span
	ckpt     checkpoint // as it is on disk
	lost     bool       // the verdict, until the log is closed
	gaps     bool       // offsets may be missing past the recovery point
	cut      string
	hint     *openfiles.File
	hinted   int64     // recovery point in the hint
	hintedAt time.Time // when an append last looked at it
	// recovered: the checkpoint is that of an earlier life, and says loose.
	recovered bool
	// pointSynced is the recovery point that the disk has.
	pointSynced int64
	unsynced    int64     // bytes appended since the last sync was asked for
	loose       bool      // the last append did not wait for a sync
	noted       time.Time // when a flush was last noted in the checkpoint
	vec         [][]byte
	group       group // room for appendAll
	grant       *grant
	// astray is the handle whose host has written under a grant what the log does
	// not hold.
	astray storage.Handle
	// ahead is how long the file of the last segment is, where that is longer than
	// the log; zeros are between. The checkpoint says so of the segment aheadIn.
	ahead   int64
	aheadIn *int64
	typical int64 // bytes written at once, of late
	spare   *spare
}

func newLog(s *Store, id storage.LogID, label string) *log {
	l := &log{store: s, id: id, label: label, dirty: map[*segment.Segment]uint64{}, syncTurn: make(chan struct{}, 1)}
	l.runner, l.committer = l.run, l.commit
	return l
}

// enqueue adds an op. It reports false when the log is dead.
func (l *log) enqueue(o op) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.enqueueLocked(o)
}

func (l *log) enqueueLocked(o op) bool {
	if l.dead {
		return false
	}
	l.queue = append(l.queue, o)
	if !l.scheduled {
		l.scheduled = l.store.runners.push(l.runner)
		if !l.scheduled {
			l.queue = l.queue[:len(l.queue)-1]
			return false
		}
	}
	return true
}

// enqueueAppend adds an append, waiting for room until ctx ends.
func (l *log) enqueueAppend(ctx context.Context, a *pendingAppend) error {
	for {
		l.mu.Lock()
		if l.appends == 0 || l.appends < queuedAppendsMax && l.bytes+int(a.bytes) <= queuedBytesMax {
			queued := l.enqueueLocked(op{append: a})
			if queued {
				l.appends++
				l.bytes += int(a.bytes)
			}
			l.mu.Unlock()
			if !queued {
				return errClosed()
			}
			return nil
		}
		if l.room == nil {
			l.room = make(chan struct{})
		}
		room := l.room
		l.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return storage.Errorf(storage.ErrRetry, "the log's queue of appends is full: %v", ctx.Err())
		}
	}
}

// run executes what is queued. It is the runner: the pool has it once at most.
func (l *log) run() {
	l.mu.Lock()
	ops := l.queue
	all := ops
	l.queue, l.taken, l.appends, l.bytes = l.taken, nil, 0, 0
	if l.room != nil {
		close(l.room)
		l.room = nil
	}
	l.mu.Unlock()

	for len(ops) > 0 {
		n := 0
		for n < len(ops) && ops[n].append != nil {
			n++
		}
		if n > 0 {
			l.appendAll(ops[:n], ops[n:])
		} else {
			ops[0].run()
			n = 1
		}
		ops = ops[n:]
	}

	l.mu.Lock()
	clear(all)
	if cap(all) <= roomKept {
		l.taken = all[:0]
	}
	l.scheduled = len(l.queue) > 0 && l.store.runners.push(l.runner)
	var orphans []op
	if !l.scheduled {
		// The store ended: nobody will come for what is queued.
		orphans, l.queue = l.queue, nil
	}
	l.mu.Unlock()
	for _, o := range orphans {
		if o.append != nil {
			l.complete(completion{done: o.append.done, err: errClosed()})
		}
	}
}

// do runs f as the log's runner and waits for it. When ctx ends first, f may
// still run.
func (l *log) do(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	if !l.enqueue(op{run: func() { done <- f() }}) {
		return errClosed()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return storage.Errorf(storage.ErrUnknown, "the call was given up: %v", ctx.Err())
	case <-l.store.ended:
		select {
		case err := <-done:
			return err
		default:
			return errClosed()
		}
	}
}

// doAs is do for a holder of a handle, which must be current when f runs, and
// the log sound.
func (l *log) doAs(ctx context.Context, h storage.Handle, f func() error) error {
	return l.do(ctx, func() error {
		if err := l.check(h); err != nil {
			return err
		}
		return f()
	})
}

// check says why the handle cannot be used.
func (l *log) check(h storage.Handle) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.gone != nil:
		return l.gone
	case l.handle != h:
		return storage.Errorf(storage.ErrFenced, "the log was opened again")
	}
	return l.failed
}

// failure says why the log can be used no more until it is opened again.
func (l *log) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

func (l *log) handleNow() storage.Handle {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.handle
}

func errClosed() error {
	return storage.Errorf(storage.ErrGone, "the log is closed")
}

// publish shows readers what the runner has.
func (l *log) publish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written = l.leo
	l.published = view{
		logStart: l.logStart, leo: l.leo, segs: l.segs, active: l.index,
		epochs: l.epochs, holes: l.holes, cuts: l.cuts, seq: l.published.seq + 1,
	}
}

// snapshot is the view that was published last.
func (l *log) snapshot() *view {
	v := new(view)
	l.mu.Lock()
	defer l.mu.Unlock()
	*v = l.published
	return v
}

// moved says whether the log was cut since the view was published, and whether
// anything else of it changed.
func (l *log) moved(v *view) (cut, changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.published.cuts != v.cuts, l.published.seq != v.seq
}

// setDir sets the log's directory, which never changes.
func (l *log) setDir(dir string) {
	if l.dir == "" {
		l.dir = dir
	}
}

// last is the segment that grows.
func (l *log) last() *segment.Segment { return l.segs[len(l.segs)-1] }

// interval is the bytes between entries of the indexes.
func (l *log) interval() int64 { return l.options.IndexIntervalBytes }

// epochAt returns the leader epoch that holds at an offset.
func epochAt(epochs []epochStart, offset int64) (epoch int32, known bool) {
	for i := len(epochs) - 1; i >= 0; i-- {
		if epochs[i].Start <= offset {
			return epochs[i].Epoch, true
		}
	}
	return 0, false
}

// lastEpoch is the newest leader epoch of the log's batches, and lower than any
// when there are none.
func lastEpoch(epochs []epochStart) int32 {
	if len(epochs) == 0 {
		return epochNone
	}
	return epochs[len(epochs)-1].Epoch
}

// epochNone is below every leader epoch.
const epochNone = -1 << 31
