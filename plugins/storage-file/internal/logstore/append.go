package logstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

const (
	// writeBytesMax bounds what one write takes of the queue.
	writeBytesMax = 8 << 20
	// syncAheadBytes: so many bytes that nobody asked to sync are synced, so that
	// the recovery point moves and a later sync has little to do.
	syncAheadBytes = 64 << 20
)

type pendingAppend struct {
	req  storage.AppendRequest
	done func(storage.AppendResult, error)
	// bytes is the length of the request's batches.
	bytes int64
	// behind is the failure of an append that this one was queued behind.
	behind error
}

// Append implements storage.Store.
func (s *Store) Append(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
	l, err := s.lookup(req.Handle)
	if err == nil {
		a := s.newPending()
		a.req, a.done, a.bytes = req, done, int64(recordbatch.TotalBytes(req.Data))
		if req.Granted != 0 {
			a.bytes = req.Bytes()
		}
		if err = l.enqueueAppend(ctx, a); err != nil {
			s.letPending(a)
		}
	}
	if err != nil {
		done(storage.AppendResult{}, err)
	}
}

// newPending returns an empty append, used before or new.
func (s *Store) newPending() *pendingAppend {
	if a, ok := s.pending.Get().(*pendingAppend); ok {
		return a
	}
	return new(pendingAppend)
}

// letPending takes an append whose completion is in line, or that was not queued.
func (s *Store) letPending(a *pendingAppend) {
	*a = pendingAppend{}
	s.pending.Put(a)
}

// group is appends that were checked and go into one write, or were written under
// one grant.
type group struct {
	appends []*pendingAppend
	granted storage.GrantID
	bytes   int64
	leo     int64 // after them
	epoch   int32 // of the last batch
	seen    int32 // the highest leader epoch of a request
	first   int64 // max timestamp of the first batch
	newest  int64 // the greatest timestamp
}

// beginGroup empties the group.
func (l *log) beginGroup(g *group) {
	clear(g.appends)
	if cap(g.appends) > roomKept {
		g.appends = nil
	}
	*g = group{appends: g.appends[:0], leo: l.leo, epoch: lastEpoch(l.epochs), seen: l.seen, newest: -1}
}

func (g *group) add(a *pendingAppend) {
	if len(g.appends) == 0 {
		g.granted, g.first = a.req.Granted, a.req.Batches[0].MaxTimestamp
	}
	g.appends = append(g.appends, a)
	g.bytes += a.bytes
	last := &a.req.Batches[len(a.req.Batches)-1]
	g.leo, g.epoch, g.seen = last.LastOffset+1, last.LeaderEpoch, a.req.LeaderEpoch
	for i := range a.req.Batches {
		g.newest = max(g.newest, a.req.Batches[i].MaxTimestamp)
	}
}

// fits reports whether the append can be in the group, which is not empty.
func (l *log) fits(g *group, a *pendingAppend) bool {
	if g.granted != a.req.Granted {
		return false
	}
	return g.granted != 0 || g.bytes+a.bytes <= writeBytesMax && !l.rollDue(g, a)
}

// appendAll runs queued appends in order; after is what else the runner took
// from the queue.
func (l *log) appendAll(ops []op, after []op) {
	g := &l.group
	l.beginGroup(g)
	for i, o := range ops {
		a := o.append
		if len(g.appends) > 0 && !l.fits(g, a) {
			l.writeGroup(g, ops[i:], after)
		}
		repeat, err := l.checkAppend(g, a)
		if (repeat || err != nil) && len(g.appends) > 0 {
			l.writeGroup(g, ops[i:], after)
			repeat, err = l.checkAppend(g, a)
		}
		if err == nil && !repeat {
			g.add(a)
			continue
		}
		if err == nil {
			err = l.checkRepeat(a)
		}
		c := completion{done: a.done, err: err, end: l.leo, sync: a.req.Require == storage.SurvivesMachine}
		if err != nil {
			l.failBehind(a.req.Handle, err, ops[i+1:], after)
			if a.req.Granted != 0 {
				l.astray = a.req.Handle
			}
		} else {
			l.seen = a.req.LeaderEpoch
		}
		l.store.letPending(a)
		l.complete(c)
		l.beginGroup(g)
	}
	l.writeGroup(g, nil, after)
}

// writeGroup writes the group and completes it or puts it in line for a sync,
// and empties it. When it fails, nothing of it is in the log, or the log is
// failed.
func (l *log) writeGroup(g *group, behind, after []op) {
	if len(g.appends) == 0 {
		return
	}
	var err error
	if g.granted != 0 {
		err = l.take(g)
	} else {
		err = l.write(g)
	}
	if err != nil {
		l.failBehind(g.appends[0].req.Handle, err, behind, after)
		if g.granted != 0 {
			l.astray = g.appends[0].req.Handle
		}
	}
	over := g.granted != 0 && l.grantOver()
	l.mu.Lock()
	for _, a := range g.appends {
		l.waiting = append(l.waiting, completion{
			done: a.done, end: a.req.Batches[len(a.req.Batches)-1].LastOffset + 1, err: err,
			sync: a.req.Require == storage.SurvivesMachine, over: over,
		})
	}
	l.mu.Unlock()
	for _, a := range g.appends {
		l.store.letPending(a)
	}
	l.answer()
	l.beginGroup(g)
}

// take adds the group, which the host has written under the grant.
func (l *log) take(g *group) error {
	if err := l.markDirty(g); err != nil {
		return l.writeError("mark the log as written", err)
	}
	l.refreshHintSometimes()
	for _, a := range g.appends {
		l.epochs = extendEpochs(l.epochs, a.req.Batches...) // the hint has it
	}
	l.grant.seg.Distrust(l.index.Bytes)
	return l.added(g, l.grant.seg)
}

// write appends the group to the segment that grows, rolling before it if due.
func (l *log) write(g *group) error {
	if err := l.takeBack(false); err != nil {
		return err
	}
	if err := l.markDirty(g); err != nil {
		return l.writeError("mark the log as written", err)
	}
	l.refreshHintSometimes()
	if l.rollDue(&group{leo: l.leo, newest: -1}, g.appends[0]) {
		if err := l.roll(); err != nil {
			return l.writeError("roll the log", err)
		}
	}
	last := l.last()
	if err := last.Acquire(); err != nil {
		return l.writeError("append", err)
	}
	defer last.Release()
	before := l.epochs
	if err := l.noteEpochs(g); err != nil {
		return l.writeError("note a leader epoch", err)
	}
	ahead := l.aheadDue(g)
	err := l.writeData(g, last, ahead)
	if ahead > 0 && vfs.Full(err) {
		err = l.writeData(g, last, 0)
	}
	if err != nil {
		if cutErr := last.File().Truncate(l.index.Bytes); cutErr != nil {
			err = fmt.Errorf("%w; cutting the unfinished write back: %w", err, cutErr)
			return l.fail(fmt.Errorf("append: %w", err))
		}
		l.ahead = 0
		if len(l.epochs) > len(before) {
			l.epochs = before
			if hintErr := l.writeHint(before, true); hintErr != nil {
				return l.fail(fmt.Errorf("append: %w; %w", err, hintErr))
			}
		}
		return l.writeError("append", err)
	}
	return l.added(g, last)
}

// writeData writes the group's batches at the log's end, and so many zeros behind
// them.
func (l *log) writeData(g *group, last *segment.Segment, ahead int64) error {
	l.vec = l.vec[:0]
	for _, a := range g.appends {
		l.vec = append(l.vec, a.req.Data...)
	}
	l.vec = appendZeros(l.vec, ahead)
	n, err := last.File().WriteVecAt(l.vec, l.index.Bytes)
	clear(l.vec)
	if err == nil && ahead > 0 {
		l.ahead = l.index.Bytes + int64(n)
	}
	return err
}

// added takes note of a group that was written at the end of the segment, which
// is acquired.
func (l *log) added(g *group, last *segment.Segment) error {
	now := l.store.now().UnixMilli()
	for _, a := range g.appends {
		for i := range a.req.Batches {
			l.index.Add(a.req.Batches[i], l.interval(), now)
		}
	}
	l.leo, l.seen = g.leo, g.seen
	l.typical += (g.bytes - l.typical) / 8
	l.unsynced += g.bytes
	l.touch(last)
	l.publish()
	if l.store.fs.Tight() {
		// The segment stays open till it is synced.
		l.store.tellTight()
		return l.sync()
	}
	if l.unsynced >= syncAheadBytes {
		l.unsynced = 0
		l.requestSync()
		if err := l.refreshHint(); err != nil && !errors.Is(err, storage.ErrRetry) {
			return err
		}
	}
	return nil
}

// touch notes that the segment, which is acquired, has bytes that are not
// synced, and keeps it open till they are.
func (l *log) touch(seg *segment.Segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, held := l.dirty[seg]; !held {
		_ = seg.Acquire() // it is open
	}
	l.writes++
	l.dirty[seg] = l.writes
}

// writeError gives an error of a write its class. A full disk, and the want of
// a descriptor, leave the log sound; anything else does not.
func (l *log) writeError(act string, err error) error {
	if vfs.Full(err) {
		return storage.Errorf(storage.ErrFull, "%s: %v", act, err)
	}
	if vfs.NoDescriptors(err) {
		return l.store.class(fmt.Errorf("%s: %w", act, err))
	}
	return l.fail(fmt.Errorf("%s: %w", act, err))
}

// markDirty tells the next opening what kind of appends there were, before the
// first of that kind.
func (l *log) markDirty(g *group) error {
	loose, gaps := false, l.gaps
	next := l.leo
	for _, a := range g.appends {
		loose = loose || a.req.Require != storage.SurvivesMachine
		for i := range a.req.Batches {
			b := &a.req.Batches[i]
			gaps = gaps || b.BaseOffset != next
			next = b.LastOffset + 1
		}
	}
	l.loose = loose
	return l.markState(loose, gaps)
}

// markState makes the checkpoint say that appends that are not clean, or loose, or
// leave gaps, may follow.
func (l *log) markState(loose, gaps bool) error {
	want := stateSynced
	if loose || l.ckpt.State == stateLoose {
		want = stateLoose
	}
	if l.ckpt.State == want && l.ckpt.Gaps == gaps {
		return nil
	}
	l.gaps = gaps
	if !loose {
		base := l.last().Base()
		l.aheadIn = &base // there may soon be zeros
	}
	return l.writeCheckpoint(want)
}

// rollDue says whether the append must begin a new segment, once the group is
// written.
func (l *log) rollDue(g *group, a *pendingAppend) bool {
	x := &l.index
	bytes, first := x.Bytes+g.bytes, x.FirstTimestamp
	if bytes == 0 {
		return false
	}
	if x.Bytes == 0 {
		first = g.first
	}
	newest, end := g.newest, g.leo
	for i := range a.req.Batches {
		b := &a.req.Batches[i]
		newest, end = max(newest, b.MaxTimestamp), max(end, b.LastOffset)
	}
	age := l.options.SegmentAge.Milliseconds()
	return bytes+a.bytes > l.options.SegmentBytes ||
		age > 0 && first >= 0 && newest-first > age ||
		x.Full() || end-x.Base > math.MaxInt32
}

// roll seals the segment that grows and begins the next at the LEO. The old
// one's bytes are synced later: the recovery point stays behind them till then.
func (l *log) roll() error {
	last := l.last()
	if l.ahead > l.index.Bytes {
		// Before another segment begins where this one ends.
		if err := last.Acquire(); err != nil {
			return err
		}
		err := l.cutAhead(last)
		last.Release()
		if err != nil {
			return err
		}
	}
	next, ahead, err := l.nextSegment()
	if err != nil {
		return err
	}
	if err := l.store.fs.SyncDir(l.dir); err != nil {
		// Left there, it would lie in the midst of what is appended later.
		err = errors.Join(err, next.Remove())
		next.Release()
		next.Retire()
		return fmt.Errorf("sync directory: %w", err)
	}
	next.Release()
	sealed := l.last()
	index := l.index
	sealed.Seal(index.Summary, &index)
	if err := sealed.WriteIndex(&index); err != nil {
		l.store.logger.Warn("index not written, it will be built again", "path", l.dir, "err", err)
	}
	l.store.indexes.loaded(sealed, index.SizeInMemory())
	l.segs = append(l.segs[:len(l.segs):len(l.segs)], next)
	l.index = segment.NewIndex(l.leo)
	l.ahead = ahead
	l.publish()
	l.requestSync()
	// It only saves the next opening some work.
	if err := l.writeCheckpoint(l.ckpt.State); err != nil && !vfs.Full(err) && !vfs.NoDescriptors(err) {
		return err
	}
	return nil
}

// noteEpochs extends the epochs by those of the batches, and puts the newest
// into the hint before a batch of it is written.
func (l *log) noteEpochs(g *group) error {
	epochs := l.epochs
	for _, a := range g.appends {
		epochs = extendEpochs(epochs, a.req.Batches...)
	}
	if len(epochs) == len(l.epochs) {
		return nil
	}
	if err := l.writeHint(epochs, true); err != nil {
		return err
	}
	l.epochs = epochs
	return nil
}

// extendEpochs returns epochs with those of the batches that follow. It does
// not change what readers of the old slice see.
func extendEpochs(epochs []epochStart, infos ...storage.BatchInfo) []epochStart {
	for i := range infos {
		if b := &infos[i]; b.LeaderEpoch > lastEpoch(epochs) {
			epochs = append(epochs[:len(epochs):len(epochs)], epochStart{b.LeaderEpoch, b.BaseOffset})
		}
	}
	return epochs
}

// eof reports the regular end of a walk.
func eof(err error) bool { return errors.Is(err, io.EOF) }
