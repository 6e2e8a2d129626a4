package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/brokerd/brokerd/sdk/storage"
)

// Flush implements storage.Store.
func (s *Store) Flush(_ context.Context, handles []storage.Handle) []storage.FlushResult {
	results := make([]storage.FlushResult, len(handles))
	for i, id := range handles {
		err := s.change(s.op(OpFlush, id, 0, 0), func() error {
			h, err := s.lookup(id)
			if err != nil {
				return err
			}
			h.log.disk.durable = h.log.disk.end
			results[i].Durable = h.log.disk.durable
			return nil
		})
		if err != nil {
			results[i] = storage.FlushResult{Err: err}
		}
	}
	return results
}

// Truncate implements storage.Store.
func (s *Store) Truncate(_ context.Context, id storage.Handle, leaderEpoch int32, to int64) (int64, error) {
	leo := int64(0)
	err := s.change(s.op(OpTruncate, id, to, 0), func() error {
		h, err := s.lookup(id)
		if err != nil {
			return err
		}
		log := h.log.disk
		switch {
		case leaderEpoch < h.log.seen:
			return storage.Errorf(storage.ErrFenced,
				"leader epoch %d is lower than %d, which the log has seen", leaderEpoch, h.log.seen)
		case to < log.start:
			return storage.Errorf(storage.ErrInvalid, "truncating to %d, below the log start %d", to, log.start)
		}
		h.log.seen = leaderEpoch
		if to < log.end {
			log.cut(log.search(to))
		}
		leo = log.end
		return nil
	})
	return leo, err
}

// Trim implements storage.Store.
func (s *Store) Trim(_ context.Context, id storage.Handle, to int64) (int64, error) {
	start := int64(0)
	err := s.change(s.op(OpTrim, id, to, 0), func() error {
		h, err := s.lookup(id)
		if err != nil {
			return err
		}
		log := h.log.disk
		if to > log.start {
			log.dropBlobsAhead()
			log.start = to
			log.end = max(log.end, to)
			log.durable = max(log.durable, to)
			log.dropTrimmed()
		}
		start = log.start
		return nil
	})
	return start, err
}

// Retain implements storage.Store.
func (s *Store) Retain(_ context.Context, id storage.Handle, policy storage.RetainPolicy) (storage.RetainResult, error) {
	var result storage.RetainResult
	err := s.change(s.op(OpRetain, id, policy.Ceiling, 0), func() error {
		h, err := s.lookup(id)
		if err != nil {
			return err
		}
		log := h.log.disk
		before := log.bytes()
		log.dropTrimmed()
		result.LogBytes = log.bytes()
		for _, u := range log.unitList() {
			age, future := u.age(policy.Now)
			if future {
				result.FutureStamps++
			}
			old := policy.MaxAge > 0 && age > policy.MaxAge
			spare := policy.MaxBytes >= 0 && result.LogBytes-u.bytes >= policy.MaxBytes
			if u.last >= policy.Ceiling || (!old && !spare) {
				result.OldestAge = age
				break
			}
			log.start = max(log.start, u.last+1)
			result.LogBytes -= u.bytes
		}
		log.dropTrimmed()
		log.durable = max(log.durable, log.start)
		result.LogStart, result.FreedBytes = log.start, before-result.LogBytes
		return nil
	})
	return result, err
}

// age returns how old the unit's newest record is, and whether the time of
// writing had to stand in for its timestamp.
func (u *unit) age(now time.Time) (age time.Duration, future bool) {
	ms := now.UnixMilli()
	if u.maxTimestamp < 0 || u.maxTimestamp > ms {
		return now.Sub(time.UnixMilli(u.written)), u.maxTimestamp > ms
	}
	return time.Duration(ms-u.maxTimestamp) * time.Millisecond, false
}

// Replace implements storage.Store.
func (s *Store) Replace(_ context.Context, req storage.ReplaceRequest) error {
	return s.change(s.op(OpReplace, req.Handle, req.From, len(req.Data)), func() error {
		h, err := s.lookup(req.Handle)
		if err != nil {
			return err
		}
		log := h.log.disk
		batches, err := split(req.Batches, req.Data)
		if err != nil {
			return err
		}
		if req.From > req.To || req.To > log.end || log.inside(req.From) || log.inside(req.To) {
			return storage.Errorf(storage.ErrInvalid, "the log has no range of whole batches from %d to %d", req.From, req.To)
		}
		if n := len(batches); n > 0 && (batches[0].BaseOffset < req.From || batches[n-1].LastOffset >= req.To) {
			return storage.Errorf(storage.ErrInvalid, "the batches do not fit between %d and %d", req.From, req.To)
		}
		first, last := log.search(req.From), log.search(req.To)
		old := log.batches[first:last]
		more := int64(len(req.Data))
		for i := range old {
			more -= int64(old[i].Bytes)
		}
		if err := s.disk.room(more); err != nil {
			return err
		}
		// The new batches are one unit, written when the newest of the old was.
		written := time.Time{}
		for i := range old {
			if old[i].written.After(written) {
				written = old[i].written
			}
		}
		log.units++
		log.place(batches, written)
		log.batches = slices.Concat(log.batches[:first], batches, log.batches[last:])
		log.durable = max(log.durable, req.To)
		return nil
	})
}

// inside says whether offset lies inside a batch, not at its beginning.
func (l *diskLog) inside(offset int64) bool {
	i := l.search(offset)
	return i < len(l.batches) && l.batches[i].BaseOffset < offset
}
