package logstore

import (
	"fmt"
	"path"
	"time"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/openfiles"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/sealed"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

// completion is an append (or a flush) that waits for its turn to be answered.
type completion struct {
	done func(storage.AppendResult, error)
	end  int64
	sync bool // it waits until all below end is synced
	over bool // so is the grant
	err  error
}

// complete puts completions in line and answers those that are ready.
func (l *log) complete(cs ...completion) {
	l.mu.Lock()
	l.waiting = append(l.waiting, cs...)
	l.mu.Unlock()
	l.answer()
}

// answer calls the completions that are ready, in order; one goroutine at a
// time does so, and none waits for another. It asks for a sync if the first
// that is not ready needs one.
func (l *log) answer() {
	l.mu.Lock()
	if l.completing {
		l.mu.Unlock()
		return
	}
	l.completing = true
	for {
		ready, durable := l.takeReady()
		if len(ready) == 0 {
			break
		}
		l.mu.Unlock()
		for i := range ready {
			ready[i].answer(durable)
		}
		clear(ready)
		l.mu.Lock()
	}
	l.completing = false
	waits := len(l.waiting) > 0
	l.mu.Unlock()
	if waits {
		l.requestSync()
	}
}

// answer calls the completion, which is ready.
func (c *completion) answer(durable int64) {
	if c.err != nil {
		c.done(storage.AppendResult{}, c.err)
		return
	}
	result := storage.AppendResult{LEO: c.end, Survives: storage.SurvivesProcess, Durable: durable, GrantOver: c.over}
	if durable >= c.end {
		result.Survives = storage.SurvivesMachine
	}
	c.done(result, nil)
}

// takeReady takes the completions that are ready from the line, and says what is
// durable. mu is held.
func (l *log) takeReady() (ready []completion, durable int64) {
	n := 0
	for ; n < len(l.waiting); n++ {
		c := &l.waiting[n]
		if c.sync && c.err == nil && l.durable < c.end {
			if l.failed == nil {
				break
			}
			c.err = l.failed
		}
	}
	l.ready = append(l.ready[:0], l.waiting[:n]...)
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
	return l.ready, l.durable
}

// requestSync puts the log in line for the committer, once. Appends that come
// while it waits, or while it is synced, share the next sync.
func (l *log) requestSync() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.syncQueued || l.failed != nil {
		return
	}
	l.syncQueued = l.store.syncers.push(l.committer)
}

// commit is the committer's work on one log.
func (l *log) commit() {
	l.mu.Lock()
	l.syncQueued = false
	l.mu.Unlock()
	_ = l.sync() // its error reached the completions
	l.answer()
}

// sync makes all that is written durable. It may run beside the runner.
func (l *log) sync() error {
	err := l.syncFiles()
	if err != nil {
		l.answer()
	}
	return err
}

// syncFiles is sync without the answers. One at a time has the log's turn: the
// system tells a failure to one caller only, and the log must have failed
// before another asks.
func (l *log) syncFiles() error {
	l.syncTurn <- struct{}{}
	defer func() { <-l.syncTurn }()
	l.mu.Lock()
	if l.failed != nil {
		defer l.mu.Unlock()
		return l.failed
	}
	target, cuts, hints := l.written, l.cuts, l.hintsDue
	hintDirty := hints > l.hintsSynced
	taken := make(map[*segment.Segment]uint64, len(l.dirty))
	for seg, write := range l.dirty {
		if seg.Acquire() == nil { // else it is open, and not to be let go meanwhile
			taken[seg] = write
		}
	}
	l.mu.Unlock()

	var err error
	for seg := range taken {
		if err == nil {
			err = seg.File().Sync()
		}
		seg.Release()
	}
	if err == nil && hintDirty {
		err = syncHint(l.hint)
	}

	var clean []*segment.Segment
	l.mu.Lock()
	if err == nil && l.cuts == cuts {
		for seg, write := range taken {
			if l.dirty[seg] == write {
				delete(l.dirty, seg)
				clean = append(clean, seg)
			}
		}
		l.hintsSynced = max(l.hintsSynced, hints)
		l.durable = max(l.durable, target)
	}
	unpin := l.hintPinned && l.hintsSynced == l.hintsDue
	if unpin {
		l.hintPinned = false
	}
	l.mu.Unlock()
	for _, seg := range clean {
		seg.Release()
	}
	if unpin {
		l.hint.Unpin()
	}
	if err != nil {
		return l.failUnanswered(fmt.Errorf("sync: %w", err))
	}
	return nil
}

// syncHint syncs a hint, which is open already while one is due.
func syncHint(hint *openfiles.File) error {
	if err := hint.Pin(); err != nil {
		return err
	}
	defer hint.Unpin()
	return hint.Get().Sync()
}

// waitSync returns when no sync is under way: its files can be closed, and what
// it learned was noted.
func (l *log) waitSync() {
	l.syncTurn <- struct{}{}
	<-l.syncTurn
}

// fail ends the use of the log until it is opened again, and returns why. A
// failed sync is never tried again: the system may have forgotten what it did
// not write, and would call the next one good.
func (l *log) fail(err error) error {
	gone := l.failUnanswered(err)
	l.answer()
	return gone
}

// failUnanswered is fail before the appends that wait are told.
func (l *log) failUnanswered(err error) error {
	gone := storage.Errorf(storage.ErrGone, "log %s: %v; it must be opened again", path.Base(l.dir), err)
	// Whoever sees that the log failed, and opens it again, must know this.
	l.store.noteSuspect(l.id)
	l.mu.Lock()
	first := l.failed == nil
	if first {
		l.failed = gone
	}
	gone = l.failed
	l.mu.Unlock()
	if first {
		l.store.logger.Error("log failed", "path", l.dir, "err", err)
		// The page cache may now hold what the disk does not; the next opening
		// writes it again. After a loss of power the disk is what counts, so that
		// this needs no sync.
		if err := l.store.createFile(path.Join(l.dir, suspectName), sealed.Encode(suspectKind, nil)); err != nil {
			l.store.logger.Warn("not noted on the disk that a log failed", "path", l.dir, "err", err)
		}
	}
	return gone
}

// checkpointAs is what the runner knows.
func (l *log) checkpointAs(st state) checkpoint {
	return checkpoint{
		LogStart: l.logStart, RecoveryPoint: min(l.durableNow(), l.leo), State: st, BootID: l.store.bootID,
		Lost: l.lost, Gaps: l.gaps, Epochs: l.epochs, Holes: l.holes,
		Segments: l.segsFrom(l.logStart), ActiveBase: l.last().Base(), ActiveBytes: l.index.Bytes,
		Ahead: l.aheadIn,
	}
}

// writeCheckpoint replaces the checkpoint by what the runner knows, durably.
func (l *log) writeCheckpoint(st state) error {
	c := l.checkpointAs(st)
	if err := writeValue(l.store.fs, path.Join(l.dir, checkpointName), checkpointKind, c); err != nil {
		return err
	}
	l.ckpt, l.recovered = c, false
	l.pointSynced = max(l.pointSynced, c.RecoveryPoint)
	return nil
}

// segsFrom counts the segments that are not wholly below an offset.
func (l *log) segsFrom(offset int64) int {
	n := len(l.segs)
	for i := 1; i < len(l.segs) && l.segs[i].Base() <= offset; i++ {
		n--
	}
	return n
}

// writeControl is writeCheckpoint for what must work on a full disk.
func (l *log) writeControl(st state) error {
	return l.store.reserve.control(func() error { return l.writeCheckpoint(st) })
}

func (l *log) durableNow() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.durable
}

// writeHint rewrites the hint in place. When must is set, it is synced before
// anything newer counts as durable, and stays open till then. An error that is
// vfs.NoDescriptors left it as it was.
func (l *log) writeHint(epochs []epochStart, must bool) error {
	h := hint{Recovery: l.durableNow(), Epochs: epochs}
	if err := l.hint.Pin(); err != nil {
		return fmt.Errorf("open hint: %w", err)
	}
	if _, err := l.hint.Get().WriteVecAt([][]byte{h.encode()}, 0); err != nil {
		l.hint.Unpin()
		return fmt.Errorf("write hint: %w", err)
	}
	l.hinted = h.Recovery
	l.mu.Lock()
	if must {
		l.hintsDue++
	}
	keep := l.hintsDue > l.hintsSynced && !l.hintPinned
	l.hintPinned = l.hintPinned || keep
	l.mu.Unlock()
	if !keep {
		l.hint.Unpin()
	}
	return nil
}

// refreshHint moves the recovery point in the hint, if it has moved.
func (l *log) refreshHint() error {
	if l.durableNow() == l.hinted {
		return nil
	}
	if err := l.writeHint(l.hintEpochs(), false); err != nil {
		return l.failUnlessRetry(err)
	}
	return nil
}

// hintEvery is how often appends move the recovery point in the hint, at most:
// damage above it is taken for a write that was under way, and cut.
const hintEvery = 200 * time.Millisecond

// refreshHintSometimes moves the recovery point in the hint, unless that was done
// a moment ago. It is not needed: where it fails, the point stays where it was.
func (l *log) refreshHintSometimes() {
	now := l.store.now()
	if since := now.Sub(l.hintedAt); since >= 0 && since < hintEvery || l.durableNow() == l.hinted {
		return
	}
	l.hintedAt = now
	if err := l.writeHint(l.hintEpochs(), false); err != nil {
		l.store.logger.Debug("recovery point not noted", "path", l.dir, "err", err)
	}
}

// failUnlessRetry is fail, except where a file could not be opened for want of
// a descriptor: nothing was done, and the log is sound.
func (l *log) failUnlessRetry(err error) error {
	if vfs.NoDescriptors(err) {
		return l.store.class(err)
	}
	return l.fail(err)
}

// cutTo takes note that the log now ends at leo, at most: syncs under way claim
// nothing, and reads under way begin again.
func (l *log) cutTo(leo int64) {
	l.mu.Lock()
	l.cuts++
	l.durable, l.written = min(l.durable, leo), leo
	l.mu.Unlock()
	l.pointSynced = min(l.pointSynced, leo)
}
