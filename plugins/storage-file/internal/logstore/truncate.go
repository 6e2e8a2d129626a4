package logstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// Truncate implements storage.Store.
func (s *Store) Truncate(ctx context.Context, h storage.Handle, leaderEpoch int32, to int64) (int64, error) {
	l, err := s.lookup(h)
	if err != nil {
		return 0, err
	}
	var leo int64
	err = l.doAs(ctx, h, func() error {
		switch {
		case leaderEpoch < l.seen:
			return errSeen(leaderEpoch, l.seen)
		case to < l.logStart:
			return storage.Errorf(storage.ErrInvalid, "truncating to %d, below the log start %d", to, l.logStart)
		}
		if err := l.takeBack(false); err != nil {
			return err
		}
		l.seen = leaderEpoch
		if to < l.leo {
			if err := l.truncate(to); err != nil {
				return err
			}
		}
		leo = l.leo
		return nil
	})
	if err != nil {
		return 0, err
	}
	return leo, nil
}

// truncate cuts the log to at most `to`, which is below the LEO. First what needs room
// is written, under a temporary name; then the recovery point goes down, so that no
// crash in between looks like damage; then segments go, the last first.
func (l *log) truncate(to int64) error {
	// Appends that wait for a sync are answered before what they wrote can go.
	if err := l.sync(); err != nil {
		return err
	}
	l.settleCompletions()
	i, x, err := l.findCut(to)
	if err != nil {
		return err
	}
	// What the cut needs is opened before anything is changed.
	old := l.segs
	keep := old[i]
	if err := keep.Acquire(); err != nil {
		return l.writeError("truncate", err)
	}
	defer keep.Release()
	if err := l.hint.Pin(); err != nil {
		return l.writeError("truncate", err)
	}
	defer l.hint.Unpin()
	leo := max(x.Next, l.logStart)
	l.setCutting(true)
	defer l.setCutting(false)
	fresh, err := l.copyLent(keep, x.Bytes)
	if err != nil {
		return l.writeError("truncate", err)
	}
	if err := l.lowerPoint(leo); err != nil {
		if fresh != nil {
			dropCopy(l.store.fs, fresh)
		}
		return err
	}
	l.segs = slices.Clone(old[:i+1])
	l.index = x
	l.leo = leo
	l.holes = clipHoles(l.holes, l.logStart, leo)
	l.publish()
	keep.Regrow(x.Bytes)
	if err := l.dropTail(keep, fresh, old[i+1:], x.Bytes); err != nil {
		if fresh != nil && l.last() != fresh {
			dropCopy(l.store.fs, fresh)
		}
		return l.fail(fmt.Errorf("truncate: %w", err))
	}
	if x.Next < leo {
		// The log start lies in a gap: the log goes on there.
		if err := l.restartAt(leo); err != nil {
			return l.fail(fmt.Errorf("truncate: %w", err))
		}
	}
	if err := l.dropBlobsAbove(leo); err != nil {
		return l.fail(fmt.Errorf("truncate: %w", err))
	}
	if err := l.writeHint(l.epochs, true); err != nil {
		return l.fail(fmt.Errorf("truncate: %w", err))
	}
	return nil
}

// findCut returns the last segment that keeps something below `to`, and its
// index as it will be. The headers on both sides of the cut decide where it is,
// so that those are checked.
func (l *log) findCut(to int64) (int, segment.Index, error) {
	i := len(l.segs) - 1
	for i > 0 && l.segs[i].Base() >= to {
		i--
	}
	seg := l.segs[i]
	bytes := l.index.Bytes
	if i < len(l.segs)-1 {
		bytes = seg.Summary().Bytes
	}
	if err := seg.Acquire(); err != nil {
		return 0, segment.Index{}, l.writeError("truncate", err)
	}
	defer seg.Release()
	known, err := l.indexOf(l.snapshot(), i)
	if err != nil {
		return 0, segment.Index{}, l.writeError("truncate", err)
	}
	begin, ok := known.CutBefore(to)
	x, err := l.walkToCut(seg, begin, bytes, to)
	if ok && isDamage(err) {
		// The index may be what is wrong: go from the start.
		x, err = l.walkToCut(seg, segment.NewIndex(seg.Base()), bytes, to)
	}
	switch {
	case err == nil:
		return i, x, nil
	case isDamage(err):
		return 0, x, storage.Errorf(storage.ErrCorrupt, "truncate to %d: %v", to, err)
	}
	return 0, x, l.fail(fmt.Errorf("truncate: %w", err))
}

// walkToCut extends x, the index of a segment's first batches, by those that
// follow and lie below `to`.
func (l *log) walkToCut(seg *segment.Segment, x segment.Index, bytes, to int64) (segment.Index, error) {
	_, modified, err := seg.File().Stat()
	if err != nil {
		return x, fmt.Errorf("stat segment %d: %w", seg.Base(), err)
	}
	w := segment.NewWalk(seg.File(), x.Bytes, bytes, segment.Chain{Next: x.Next, Gaps: true, Epoch: epochNone})
	var kept recordbatch.Info
	for err == nil && x.Next < to {
		var info recordbatch.Info
		info, err = w.NextHeader()
		if err == nil && info.LastOffset >= to {
			// The first that goes.
			err = seg.Verify(x.Bytes, w.Pos(), info.BaseOffset)
			break
		}
		if err == nil {
			x.Add(info, l.interval(), modified.UnixMilli())
			kept = info
		}
	}
	if (err == nil || eof(err)) && x.Bytes > 0 {
		// The last that stays. A walk that began where it should meets it.
		if kept.Bytes == 0 {
			return x, &segment.Damage{Pos: x.Bytes, Offset: x.Next, Reason: segment.ErrIndex}
		}
		err = seg.Verify(x.Bytes-int64(kept.Bytes), x.Bytes, kept.BaseOffset)
	}
	if eof(err) {
		err = nil
	}
	return x, err
}

// lowerPoint writes down, durably, that nothing at or above leo is known any
// more. The hint is pinned.
func (l *log) lowerPoint(leo int64) error {
	l.cutTo(leo)
	epochs := l.epochs
	for len(epochs) > 0 && epochs[len(epochs)-1].Start >= leo {
		epochs = epochs[:len(epochs)-1]
	}
	if err := l.writeHint(nil, false); err != nil {
		return l.fail(err)
	}
	if err := l.hint.Get().Sync(); err != nil {
		return l.fail(fmt.Errorf("sync hint: %w", err))
	}
	old := l.epochs
	l.epochs = slices.Clip(epochs)
	st := l.ckpt.State
	if st == stateClean {
		st = stateSynced
	}
	if err := l.writeControl(st); err != nil {
		// The log stays as it is: what is written may be called durable again.
		l.epochs = old
		l.publish()
		if hintErr := l.writeHint(old, true); hintErr != nil {
			return l.fail(hintErr)
		}
		return l.writeError("truncate", err)
	}
	return nil
}

// setCutting says that the log is being cut: nothing of it is leased meanwhile.
func (l *log) setCutting(cutting bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cutting = cutting
}

func (l *log) isCutting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cutting
}

// copyLent copies what stays of a segment that is to be cut, where something that goes
// was lent: others may still read it, and it must not change. The log is being cut, so
// that no more of it is lent. Without a copy it returns nil; an error leaves all as it
// was.
func (l *log) copyLent(keep *segment.Segment, bytes int64) (fresh *segment.Segment, err error) {
	if keep.Lent() <= bytes {
		return nil, nil
	}
	err = l.store.reserve.large(bytes, func() (err error) {
		fresh, err = writeCopy(l.store.fs, l.dir, keep, bytes)
		return err
	})
	return fresh, err
}

// dropTail removes segments and cuts the one that is kept, which is the log's last
// by now, or puts its copy in its place, durably.
func (l *log) dropTail(keep, fresh *segment.Segment, drop []*segment.Segment, bytes int64) error {
	for _, seg := range slices.Backward(drop) {
		if err := seg.Remove(); err != nil {
			return err
		}
		l.forget(seg)
	}
	if err := keep.RemoveIndex(); err != nil {
		return err
	}
	l.ahead = 0
	if fresh != nil {
		if err := l.goOnElsewhere(keep, fresh, bytes); err != nil {
			return err
		}
		return l.store.fs.SyncDir(l.dir)
	}
	if err := keep.File().Truncate(bytes); err != nil {
		return err
	}
	if err := keep.File().Sync(); err != nil {
		return err
	}
	return l.store.fs.SyncDir(l.dir)
}

// goOnElsewhere puts the copy of the first bytes of the last segment in its place.
func (l *log) goOnElsewhere(seg, fresh *segment.Segment, bytes int64) error {
	if err := placeCopy(l.store.fs, l.dir, fresh); err != nil {
		return err
	}
	defer fresh.Release()
	fresh.Trust(bytes)
	l.segs = append(slices.Clone(l.segs[:len(l.segs)-1]), fresh)
	l.publish()
	l.forget(seg)
	return nil
}
