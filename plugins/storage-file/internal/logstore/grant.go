package logstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// grantLeast is the room that a grant must have to be worth the while.
const grantLeast = 4 << 10

// grant is the end of the log, lent to the host. Its segment is the last, and
// acquired: the descriptor is open before the host writes, so that a sync through
// it hears of a write that failed.
type grant struct {
	id    storage.GrantID
	seg   *segment.Segment
	epoch int32
	limit int64 // of the file's bytes
	// newest is the greatest timestamp that it allows.
	newest int64
	// loose: what is written under it may be acknowledged before it is told.
	loose bool
	// noted has the epochs as the hint has them for it.
	noted []epochStart
}

// files implements storage.Files.
type files struct{ s *Store }

// Files implements storage.Store.
func (s *Store) Files() storage.Files {
	if s.lender == nil {
		return nil
	}
	return files{s}
}

// Lock implements storage.Files.
func (f files) Lock() (lock *os.File, err error) {
	if f.s.isClosing() {
		return nil, errShutdown()
	}
	err = f.s.fs.Retry(func() error {
		lock, err = f.s.lender.LendLock(f.s.lock)
		return err
	})
	if err != nil {
		return nil, f.s.class(fmt.Errorf("lend the lock: %w", err))
	}
	return lock, nil
}

// Grant implements storage.Files.
func (f files) Grant(ctx context.Context, h storage.Handle, leaderEpoch int32, require storage.Survives) (storage.Grant, error) {
	return f.s.grant(ctx, h, leaderEpoch, require)
}

// grant is Grant; where the file system lends no descriptors, there is no file
// in it.
func (s *Store) grant(ctx context.Context, h storage.Handle, leaderEpoch int32, require storage.Survives) (storage.Grant, error) {
	l, err := s.lookup(h)
	if err != nil {
		return storage.Grant{}, err
	}
	if require < storage.SurvivesUnset || require > storage.SurvivesMachine {
		return storage.Grant{}, storage.Errorf(storage.ErrInvalid, "a file cannot make an append survive level %d", require)
	}
	var lent storage.Grant
	err = l.doAs(ctx, h, func() (err error) {
		if leaderEpoch < l.seen {
			return errSeen(leaderEpoch, l.seen)
		}
		if ctx.Err() != nil {
			return storage.Errorf(storage.ErrRetry, "nobody waits for the grant any more")
		}
		lent, err = l.lend(leaderEpoch, require)
		if errors.Is(err, storage.ErrFull) {
			return storage.Errorf(storage.ErrRetry, "%v", err)
		}
		return err
	})
	if err != nil {
		return storage.Grant{}, err
	}
	return lent, nil
}

// End implements storage.Files.
func (f files) End(ctx context.Context, h storage.Handle, id storage.GrantID) error {
	l, err := f.s.lookup(h)
	if err != nil {
		return err
	}
	return l.doAs(ctx, h, func() error {
		if l.grant == nil || l.grant.id != id {
			return nil
		}
		return l.takeBack(false)
	})
}

// lend lends the end of the segment that grows, having noted what a crash must
// find: that there may be appends that were not synced, and their epoch.
func (l *log) lend(epoch int32, require storage.Survives) (storage.Grant, error) {
	none := storage.Grant{}
	if err := l.takeBack(false); err != nil {
		return none, err
	}
	if err := l.store.reserve.admit(); err != nil {
		return none, err
	}
	loose := require != storage.SurvivesMachine
	g := &grant{seg: l.last(), epoch: epoch, loose: loose, limit: l.grantLimit()}
	g.newest = l.newestAllowed()
	switch {
	case l.astray == l.handleNow():
		return none, errAstray()
	case g.limit-l.index.Bytes < min(grantLeast, l.options.SegmentBytes/8), l.index.MaxTimestamp > g.newest,
		l.leo-l.index.Base > math.MaxInt32/2:
		return none, storage.Errorf(storage.ErrRetry, "the segment that grows is almost full")
	case l.index.Bytes == 0 && l.options.SegmentAge > 0:
		return none, storage.Errorf(storage.ErrRetry, "the segment that grows is empty, so that its age is not known")
	case l.store.fs.Tight():
		return none, storage.Errorf(storage.ErrRetry, "file descriptors are scarce")
	}
	if err := l.markState(loose, l.gaps); err != nil {
		return none, l.writeError("mark the log as written", err)
	}
	l.loose = l.loose || loose
	if err := g.seg.Acquire(); err != nil {
		return none, l.writeError("lend the segment", err)
	}
	if !loose {
		g.limit = l.lendAhead(g.seg, g.limit)
	}
	lent := storage.Grant{
		FileID: g.seg.ID(), Pos: l.index.Bytes, Limit: g.limit, LEO: l.leo, LeaderEpoch: epoch, Gaps: l.gaps,
		MaxTimestamp: g.newest, MaxOffset: l.index.Base + math.MaxInt32,
	}
	err := l.lendFile(g, &lent)
	if err == nil {
		g.noted = l.epochs
		if epoch > lastEpoch(l.epochs) {
			g.noted = append(slices.Clip(l.epochs), epochStart{epoch, l.leo})
			err = l.writeHint(g.noted, true)
		}
	}
	if err != nil {
		if lent.File != nil {
			_ = lent.File.Close() // nothing was written
		}
		g.seg.Release()
		return none, l.writeError("lend the segment", err)
	}
	l.store.mu.Lock()
	l.store.grants++
	g.id = l.store.grants
	l.store.mu.Unlock()
	lent.ID = g.id
	l.seen, l.grant = epoch, g
	return lent, nil
}

// lendFile duplicates the segment's descriptor.
func (l *log) lendFile(g *grant, lent *storage.Grant) error {
	if l.store.lender == nil {
		return nil
	}
	return l.store.fs.Retry(func() (err error) {
		lent.File, err = l.store.lender.LendEnd(g.seg.File())
		return err
	})
}

// grantLimit is where the segment that grows ends at the latest: at its size, or
// when its index is full.
func (l *log) grantLimit() int64 {
	return min(l.options.SegmentBytes, l.index.Bytes+l.index.Left()*l.interval())
}

// newestAllowed is the greatest timestamp that the segment takes before it is too
// old.
func (l *log) newestAllowed() int64 {
	age, first := l.options.SegmentAge.Milliseconds(), l.index.FirstTimestamp
	if age <= 0 || first < 0 || first > math.MaxInt64-age {
		return math.MaxInt64
	}
	return first + age
}

// hintEpochs are the epochs that the hint must have.
func (l *log) hintEpochs() []epochStart {
	if g := l.grant; g != nil && len(g.noted) > 0 && lastEpoch(l.epochs) < g.epoch {
		return g.noted
	}
	return l.epochs
}

// letGoGrant ends the grant of a log whose files are let go.
func (l *log) letGoGrant() {
	if l.grant != nil {
		l.grant.seg.Release()
		l.grant = nil
	}
}

// takeBack ends the grant, if there is one. What lies behind the last batch that
// was told is adopted, as far as it is whole batches that follow, or it is what a
// write that failed has left, and goes.
func (l *log) takeBack(adopt bool) error {
	g := l.grant
	if g == nil {
		return nil
	}
	unused := len(g.noted) > len(l.epochs) && lastEpoch(l.epochs) < g.epoch
	l.grant = nil
	defer g.seg.Release()
	if err := l.failure(); err != nil {
		return nil //nolint:nilerr // what was written is found when the log is opened again
	}
	size, _, err := g.seg.File().Stat()
	if err != nil {
		return l.fail(fmt.Errorf("take back the end of the log: %w", err))
	}
	if adopt && size > l.index.Bytes {
		if err := l.adoptUntold(g, size); err != nil {
			return l.fail(fmt.Errorf("take back the end of the log: %w", err))
		}
		unused = unused && lastEpoch(l.epochs) < g.epoch
	}
	if err := l.cutUntold(g, size); err != nil {
		return l.fail(fmt.Errorf("take back the end of the log: %w", err))
	}
	if unused {
		// The epoch that was noted does not begin where the hint says.
		if err := l.writeHint(l.epochs, true); err != nil {
			return l.failUnlessRetry(err)
		}
	}
	return nil
}

// adoptUntold takes in the batches that the host has written and not told of.
func (l *log) adoptUntold(g *grant, size int64) error {
	before := l.leo
	w := segment.NewWalk(g.seg.File(), l.index.Bytes, min(size, g.limit), segment.Chain{Next: l.leo, Gaps: l.gaps, Epoch: g.epoch})
	now := l.store.now().UnixMilli()
	for {
		info, _, err := w.Next()
		if eof(err) || isDamage(err) {
			break
		}
		if err != nil {
			return err
		}
		if info.LeaderEpoch != g.epoch {
			break
		}
		l.index.Add(info, l.interval(), now)
		l.epochs = extendEpochs(l.epochs, info)
		l.leo = info.LastOffset + 1
	}
	if l.leo > before {
		l.touch(g.seg)
		l.publish()
		l.store.logger.Info("found batches that were written under a grant and not told of", "path", l.dir, "from", before, "to", l.leo)
	}
	return nil
}

// cutUntold makes the file end with the log, or with the zeros that were written
// ahead of it.
func (l *log) cutUntold(g *grant, size int64) error {
	if size <= l.index.Bytes {
		return nil
	}
	if size == l.ahead {
		ends, err := endsAt(g.seg.File(), l.index.Bytes, recordbatch.HeaderBytes)
		if ends || err != nil {
			return err
		}
	}
	l.ahead = 0
	return g.seg.File().Truncate(l.index.Bytes)
}

// errAstray answers appends of a handle after one under a grant was wrong: what
// the host has written, and what the log holds, differ.
func errAstray() error {
	return storage.Errorf(storage.ErrUnknown, "an append under a grant before this one was refused; the log must be opened again")
}

// checkTold checks an append of what the host has written, as far as its
// description goes: the host has checked the bytes.
func (l *log) checkTold(g *group, a *pendingAppend) error {
	req, lent := &a.req, l.grant
	if lent == nil || lent.id != req.Granted {
		return storage.Errorf(storage.ErrUnknown, "grant %d is over", req.Granted)
	}
	if len(req.Batches) == 0 || len(req.Data) > 0 {
		return storage.Errorf(storage.ErrInvalid, "an append under a grant has %d batches, and %d parts of data", len(req.Batches), len(req.Data))
	}
	if pos := l.index.Bytes + g.bytes; req.Pos != pos || a.bytes > lent.limit-pos {
		return storage.Errorf(storage.ErrUnknown, "%d bytes were written at %d; the log ends at %d, and the grant at %d", a.bytes, req.Pos, pos, lent.limit)
	}
	if req.BaseOffset != g.leo {
		return storage.Errorf(storage.ErrUnknown, "batches were written at offset %d but the log ends at %d", req.BaseOffset, g.leo)
	}
	next := req.BaseOffset
	for i := range req.Batches {
		b := &req.Batches[i]
		gap := b.BaseOffset != next && (b.BaseOffset < next || !l.gaps)
		if gap || b.MaxTimestamp > lent.newest || b.LastOffset < b.BaseOffset || b.LastOffset-l.index.Base > math.MaxInt32 ||
			b.LeaderEpoch != lent.epoch || b.Bytes < recordbatch.HeaderBytes {
			return storage.Errorf(storage.ErrUnknown, "batch %d, of %d bytes from offset %d to %d in leader epoch %d, is not within the grant",
				i, b.Bytes, b.BaseOffset, b.LastOffset, b.LeaderEpoch)
		}
		next = b.LastOffset + 1
	}
	return nil
}

// grantOver says whether the host must be told to append without the grant.
func (l *log) grantOver() bool {
	return l.grant != nil && (l.store.fs.Tight() || !l.store.reserve.there())
}
