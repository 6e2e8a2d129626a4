package logstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

// segmentBytesMax bounds the size at which segments are rolled.
const segmentBytesMax = segment.BytesMax

// noteEvery: flushes of a log that is appended to without syncs are noted in its
// checkpoint no more often, since each such note costs two checkpoints.
const noteEvery = 10 * time.Second

// Flush implements storage.Store.
func (s *Store) Flush(ctx context.Context, handles []storage.Handle) []storage.FlushResult {
	results := make([]storage.FlushResult, len(handles))
	durable := make([]int64, len(handles)) // written by completions
	waits := make([]<-chan error, len(handles))
	for i, h := range handles {
		l, err := s.lookup(h)
		if err != nil {
			results[i].Err = err
			continue
		}
		done := make(chan error, 1)
		waits[i] = done
		if !l.enqueue(op{run: func() {
			if err := l.check(h); err != nil {
				done <- err
				return
			}
			l.complete(completion{end: l.leo, sync: true, done: func(r storage.AppendResult, err error) {
				durable[i] = r.Durable
				done <- err
			}})
		}}) {
			waits[i], results[i].Err = nil, errClosed()
		}
	}
	for i, done := range waits {
		if done == nil {
			continue
		}
		if err := s.wait(ctx, done); err != nil {
			results[i].Err = err
			continue
		}
		results[i].Durable = durable[i]
		waits[i] = nil
		if l, err := s.lookup(handles[i]); err == nil {
			noted := make(chan error, 1)
			if l.enqueue(op{run: func() { noted <- l.notePoint(handles[i]) }}) {
				waits[i] = noted
			}
		}
	}
	for i, noted := range waits {
		if noted == nil || results[i].Err != nil {
			continue
		}
		if err := s.wait(ctx, noted); err != nil {
			results[i] = storage.FlushResult{Err: err}
		}
	}
	return results
}

// notePoint makes the recovery point durable, and notes that all acknowledged
// so far is synced, if it is.
func (l *log) notePoint(h storage.Handle) error {
	if err := l.check(h); err != nil {
		return err
	}
	if l.durableNow() > l.pointSynced {
		if err := l.hint.Pin(); err != nil {
			return l.writeError("note a flush", err)
		}
		defer l.hint.Unpin()
		if err := l.refreshHint(); err != nil {
			return err
		}
		if err := l.hint.Get().Sync(); err != nil {
			return l.fail(fmt.Errorf("sync hint: %w", err))
		}
		l.pointSynced = l.hinted
	}
	if l.ckpt.State != stateLoose || l.durableNow() != l.leo {
		return nil
	}
	// What is written under a grant may be acknowledged before it is told.
	if l.grant != nil && l.grant.loose {
		return nil
	}
	// Where appends go on that do not wait, the next one takes it back.
	now := l.store.now()
	if since := now.Sub(l.noted); l.loose && since >= 0 && since < noteEvery {
		return nil
	}
	if err := l.writeCheckpoint(stateSynced); err != nil {
		if vfs.Full(err) || vfs.NoDescriptors(err) {
			return nil // the recovery point is there, which is what was promised
		}
		return l.writeError("note a flush", err)
	}
	l.noted = now
	return nil
}

// forget retires a segment that is no longer part of the log.
func (l *log) forget(seg *segment.Segment) {
	l.mu.Lock()
	_, held := l.dirty[seg]
	delete(l.dirty, seg)
	l.mu.Unlock()
	if held {
		seg.Release()
	}
	seg.Retire()
}

// restartAt begins the log anew, empty, at an offset that the checkpoint has as
// log start.
func (l *log) restartAt(offset int64) error {
	next, err := segment.Create(l.store.fs, l.dir, offset)
	if err != nil {
		return err
	}
	next.Release()
	l.ahead = 0
	old := l.segs
	l.segs, l.index, l.leo = []*segment.Segment{next}, segment.NewIndex(offset), offset
	l.publish()
	for _, seg := range old {
		if err := seg.Remove(); err != nil {
			return err
		}
		l.forget(seg)
	}
	return l.store.fs.SyncDir(l.dir)
}

// Trim implements storage.Store.
func (s *Store) Trim(ctx context.Context, h storage.Handle, to int64) (int64, error) {
	l, err := s.lookup(h)
	if err != nil {
		return 0, err
	}
	var start int64
	err = l.doAs(ctx, h, func() error {
		if err := l.takeBack(false); err != nil {
			return err
		}
		if to > l.logStart {
			if err := l.trim(to); err != nil {
				return err
			}
		}
		start = l.logStart
		return nil
	})
	if err != nil {
		return 0, err
	}
	s.reserve.restore()
	return start, nil
}

// trim raises the log start: first in the checkpoint, then segments go.
func (l *log) trim(to int64) error {
	// What lies below the log start must not end below it after a crash.
	if err := l.sync(); err != nil {
		return err
	}
	l.answer()
	oldStart, oldHoles := l.logStart, l.holes
	l.logStart = to
	l.holes = clipHoles(l.holes, to, l.leo)
	st := l.ckpt.State
	if st == stateClean && to > l.leo {
		st = stateSynced
	}
	if err := l.writeControl(st); err != nil {
		l.logStart, l.holes = oldStart, oldHoles
		return l.writeError("trim", err)
	}
	if to > l.leo {
		l.mu.Lock()
		l.cuts++
		l.durable = to
		l.mu.Unlock()
		if err := l.restartAt(to); err != nil {
			return l.fail(fmt.Errorf("trim: %w", err))
		}
		return nil
	}
	_, err := l.dropHead()
	return err
}

// dropHead removes the segments that lie wholly below the log start, and
// returns their bytes.
func (l *log) dropHead() (freed int64, err error) {
	n := 0
	for n < len(l.segs)-1 && l.segs[n+1].Base() <= l.logStart {
		n++
	}
	drop := l.segs[:n]
	l.segs = slices.Clone(l.segs[n:])
	l.publish()
	for _, seg := range drop {
		freed += seg.Summary().Bytes
		if err := l.dropSegment(seg); err != nil {
			return freed, l.fail(fmt.Errorf("remove segment: %w", err))
		}
	}
	return freed, nil
}

// Retain implements storage.Store.
func (s *Store) Retain(ctx context.Context, h storage.Handle, policy storage.RetainPolicy) (storage.RetainResult, error) {
	l, err := s.lookup(h)
	if err != nil {
		return storage.RetainResult{}, err
	}
	var result storage.RetainResult
	err = l.doAs(ctx, h, func() (err error) {
		if err := l.takeBack(false); err != nil {
			return err
		}
		result, err = l.retain(policy)
		return err
	})
	if err != nil {
		return storage.RetainResult{}, err
	}
	if result.FreedBytes > 0 {
		s.reserve.restore()
	}
	return result, nil
}

func (l *log) retain(policy storage.RetainPolicy) (storage.RetainResult, error) {
	var result storage.RetainResult
	freed, err := l.dropHead()
	if err != nil {
		return result, err
	}
	sums := l.summaries()
	for _, sum := range sums {
		result.LogBytes += sum.Bytes
	}
	start := l.logStart
	for i, sum := range sums {
		if sum.Bytes == 0 {
			break
		}
		end := l.leo
		if i+1 < len(sums) {
			end = sums[i+1].Base
		}
		age, future := segmentAge(sum, policy.Now)
		if future {
			result.FutureStamps++
		}
		old := policy.MaxAge > 0 && age > policy.MaxAge
		spare := policy.MaxBytes >= 0 && result.LogBytes-sum.Bytes >= policy.MaxBytes
		if end > policy.Ceiling || !old && !spare {
			result.OldestAge = age
			break
		}
		if i == len(sums)-1 {
			// The segment that grows goes too, once it does not grow any more.
			if err := l.roll(); err != nil {
				if vfs.Full(err) {
					break
				}
				return result, l.writeError("roll", err)
			}
		}
		start = max(start, end)
		result.LogBytes -= sum.Bytes
	}
	if start > l.logStart {
		if err := l.trim(start); err != nil {
			return result, err
		}
		for _, sum := range sums {
			freed += sum.Bytes
		}
		freed -= result.LogBytes
	}
	result.LogStart, result.FreedBytes = l.logStart, freed
	return result, nil
}

// summaries are those of all segments, the one that grows included.
func (l *log) summaries() []segment.Summary {
	sums := make([]segment.Summary, 0, len(l.segs))
	for _, seg := range l.segs[:len(l.segs)-1] {
		sums = append(sums, seg.Summary())
	}
	return append(sums, l.index.Summary)
}

// segmentAge is how old the newest record is, by the time of writing where it
// has no timestamp or, which future says, one that is yet to come.
func segmentAge(sum segment.Summary, now time.Time) (age time.Duration, future bool) {
	ms := now.UnixMilli()
	if sum.MaxTimestamp < 0 || sum.MaxTimestamp > ms {
		return time.Duration(ms-sum.WrittenMillis) * time.Millisecond, sum.MaxTimestamp > ms
	}
	return time.Duration(ms-sum.MaxTimestamp) * time.Millisecond, false
}
