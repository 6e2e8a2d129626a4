package main

import (
	"context"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/brokerd/brokerd/sdk/storage"
)

// Truncate implements storage.Store.
func (s *store) Truncate(_ context.Context, id storage.Handle, leaderEpoch int32, to int64) (leo int64, err error) {
	err = s.changeLog(id, func(l logBucket, h *handle) error {
		if leaderEpoch < h.log.seen {
			return fencedEpoch(leaderEpoch, h.log.seen)
		}
		m, err := l.meta()
		if err != nil {
			return err
		}
		if to < m.Start {
			return storage.Errorf(storage.ErrInvalid, "truncating to %d, below the log start %d", to, m.Start)
		}
		if to < m.End {
			if err := l.truncate(&m, to); err != nil {
				return err
			}
		}
		h.log.seen, leo = leaderEpoch, m.End
		return nil
	})
	return leo, err
}

// truncate drops the batches that reach `to`, and the blobs that describe more
// than what is left.
func (l logBucket) truncate(m *meta, to int64) error {
	rows, err := l.rows(to, m.End)
	if err != nil {
		return err
	}
	if len(rows) > 0 {
		to = rows[0].BaseOffset
	}
	last, err := l.before(to)
	if err != nil {
		return err
	}
	if err := l.drop(m, rows); err != nil {
		return err
	}
	m.End = max(m.Start, last.LastOffset+1)
	if err := l.dropBlobsAhead(m.End); err != nil {
		return err
	}
	return l.setMeta(*m)
}

// Trim implements storage.Store.
func (s *store) Trim(_ context.Context, id storage.Handle, to int64) (start int64, err error) {
	err = s.changeLog(id, func(l logBucket, _ *handle) error {
		m, err := l.meta()
		if err != nil {
			return err
		}
		if to > m.Start {
			rows, err := l.rows(0, to)
			if err != nil {
				return err
			}
			if n := len(rows); n > 0 && rows[n-1].LastOffset >= to {
				rows = rows[:n-1] // `to` is inside of it
			}
			if err := l.drop(&m, rows); err != nil {
				return err
			}
			m.Start, m.End = to, max(m.End, to)
			if err := l.setMeta(m); err != nil {
				return err
			}
		}
		start = m.Start
		return nil
	})
	return start, err
}

// Retain implements storage.Store. The unit in which this store frees room is a
// batch.
func (s *store) Retain(_ context.Context, id storage.Handle, policy storage.RetainPolicy) (result storage.RetainResult, err error) {
	err = s.changeLog(id, func(l logBucket, _ *handle) error {
		m, err := l.meta()
		if err != nil {
			return err
		}
		var gone []row
		left := m.Bytes
		result = storage.RetainResult{}
		err = l.each(0, false, func(r row) (bool, error) {
			age, future := r.age(policy.Now)
			if future {
				result.FutureStamps++
			}
			old := policy.MaxAge > 0 && age > policy.MaxAge
			spare := policy.MaxBytes >= 0 && left-int64(r.Bytes) >= policy.MaxBytes
			if r.LastOffset >= policy.Ceiling || !old && !spare {
				result.OldestAge = age
				return false, nil
			}
			gone = append(gone, r)
			left -= int64(r.Bytes)
			return true, nil
		})
		if err != nil {
			return err
		}
		result.FreedBytes = m.Bytes - left
		if n := len(gone); n > 0 {
			m.Start = max(m.Start, gone[n-1].LastOffset+1)
			if err := l.drop(&m, gone); err != nil {
				return err
			}
			if err := l.setMeta(m); err != nil {
				return err
			}
		}
		result.LogStart, result.LogBytes = m.Start, m.Bytes
		return nil
	})
	return result, err
}

// age returns how old a batch is, and whether the time of writing had to stand
// in for its timestamp.
func (r row) age(now time.Time) (age time.Duration, future bool) {
	if r.MaxTimestamp < 0 || r.MaxTimestamp > now.UnixMilli() {
		return now.Sub(time.UnixMilli(r.written)), r.MaxTimestamp > now.UnixMilli()
	}
	return now.Sub(time.UnixMilli(r.MaxTimestamp)), false
}

// Replace implements storage.Store.
func (s *store) Replace(_ context.Context, req storage.ReplaceRequest) error {
	return s.change(func(tx *bolt.Tx) error {
		h, err := s.lookup(req.Handle)
		if err != nil {
			return err
		}
		rows, err := split(req.Batches, req.Data)
		if err != nil {
			return err
		}
		l := findLog(tx, h.log.id)
		m, err := l.meta()
		if err != nil {
			return err
		}
		old, err := l.replaced(&m, req.From, req.To, rows)
		if err != nil {
			return err
		}
		for i := range rows { // they are no newer than what they stand for
			for j := range old {
				if j == 0 || old[j].written > rows[i].written {
					rows[i].written = old[j].written
				}
			}
		}
		if err := s.take(rows); err != nil {
			return err
		}
		if err := l.drop(&m, old); err != nil {
			return err
		}
		if err := l.put(&m, rows); err != nil {
			return err
		}
		return l.setMeta(m)
	})
}

// replaced returns the batches of a range that others are to replace, and checks
// that they can.
func (l logBucket) replaced(m *meta, from, to int64, rows []row) ([]row, error) {
	if from > to || from < 0 || to > m.End {
		return nil, storage.Errorf(storage.ErrInvalid, "the log has no range from %d to %d", from, to)
	}
	old, err := l.rows(from, to)
	if err != nil {
		return nil, err
	}
	if n := len(old); n > 0 && (old[0].BaseOffset < from || old[n-1].LastOffset >= to) {
		return nil, storage.Errorf(storage.ErrInvalid, "%d or %d lies inside a batch", from, to)
	}
	if n := len(rows); n > 0 && (rows[0].BaseOffset < from || rows[n-1].LastOffset >= to) {
		return nil, storage.Errorf(storage.ErrInvalid, "the batches do not fit between %d and %d", from, to)
	}
	return old, nil
}
