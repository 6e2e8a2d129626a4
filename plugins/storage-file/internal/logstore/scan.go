package logstore

import (
	"context"
	"errors"
	"math"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/sdk/storage"
)

// scanMax is the most headers that one Scan returns.
const scanMax = 10_000

// errEnough ends a walk over headers.
var errEnough = errors.New("enough")

// Scan implements storage.Store. Headers are checked against their neighbours.
// The CRC, which covers the records too, is computed only where that was not
// done in this life of the process.
func (s *Store) Scan(ctx context.Context, req storage.ScanRequest) ([]storage.BatchInfo, error) {
	if req.MaxBatches < 0 {
		return nil, storage.Errorf(storage.ErrInvalid, "a scan of at most %d batches", req.MaxBatches)
	}
	limit := min(req.MaxBatches, scanMax)
	if limit == 0 {
		limit = scanMax
	}
	var infos []storage.BatchInfo
	err := s.viewed(ctx, req.Handle, func(l *log, v *view) error {
		infos = nil
		if err := v.checkRange(req.Offset); err != nil {
			return err
		}
		err := l.each(v, req.Offset, req.UpTo, func(info storage.BatchInfo) error {
			infos = append(infos, info)
			if len(infos) == limit {
				return errEnough
			}
			return nil
		})
		if err != nil && len(infos) > 0 && errors.Is(err, storage.ErrCorrupt) {
			return nil // the next scan meets it
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return infos, nil
}

// each calls f for the header of each batch from the first that reaches offset,
// of those that end below upTo. errEnough from f ends it without error.
func (l *log) each(v *view, offset, upTo int64, f func(storage.BatchInfo) error) error {
	upTo = min(upTo, v.leo)
	for i := v.find(offset); i < len(v.segs) && offset < upTo; i++ {
		end, _ := v.end(i)
		stop := min(upTo, end)
		hole, holed := holeIn(v.holes, offset, stop)
		if holed {
			stop = hole.From
		}
		err := l.eachIn(v, i, offset, stop, f)
		if errors.Is(err, errEnough) {
			return nil
		}
		if err == nil && holed {
			err = corrupt(hole.From, errHole)
		}
		if err != nil {
			return err
		}
		offset = max(offset, end)
	}
	return nil
}

// eachIn is each for one segment.
func (l *log) eachIn(v *view, i int, offset, upTo int64, f func(storage.BatchInfo) error) error {
	seg := v.segs[i]
	if err := acquire(seg); err != nil {
		return err
	}
	defer seg.Release()
	end, bytes := v.end(i)
	x, err := l.indexOf(v, i)
	if err != nil {
		return err
	}
	from, first := x.At(offset)
	w := segment.NewWalk(seg.File(), from, bytes, segment.Chain{
		Next: first, Gaps: x.Gapped, Epoch: epochNone,
		EpochOf: func(o int64) (int32, bool) { return epochAt(v.epochs, o) },
	})
	defer l.store.lendBuffer(w)()
	for {
		pos := w.Pos()
		info, err := w.NextHeader()
		if err == nil && info.LastOffset >= offset && info.LastOffset < upTo {
			err = seg.Verify(pos, w.Pos(), info.BaseOffset)
		}
		var damage *segment.Damage
		switch {
		case eof(err):
			return nil
		case errors.As(err, &damage):
			return corrupt(damage.Offset, damage.Reason)
		case err != nil:
			return err
		case info.LastOffset >= end:
			return corrupt(info.BaseOffset, segment.ErrChain)
		case info.LastOffset < offset:
			continue
		case info.LastOffset >= upTo:
			return nil
		}
		if err := f(info); err != nil {
			return err
		}
	}
}

// FindTimestamp implements storage.Store.
func (s *Store) FindTimestamp(ctx context.Context, q storage.TimestampQuery) (storage.BatchInfo, bool, error) {
	if q.Kind != storage.FirstAtOrAfter && q.Kind != storage.Latest {
		return storage.BatchInfo{}, false, storage.Errorf(storage.ErrInvalid, "there is no timestamp query of kind %d", q.Kind)
	}
	var best storage.BatchInfo
	var found bool
	err := s.viewed(ctx, q.Handle, func(l *log, v *view) (err error) {
		ts := q.Timestamp
		if q.Kind == storage.Latest {
			if ts, err = l.greatest(v, q.UpTo); err != nil {
				return err
			}
		}
		best, found, err = l.firstAt(v, ts, q.UpTo)
		return err
	})
	if err != nil || !found {
		return storage.BatchInfo{}, false, err
	}
	return best, true, nil
}

// summary is that of the i-th segment.
func (v *view) summary(i int) segment.Summary {
	if i == len(v.segs)-1 {
		return v.active.Summary
	}
	return v.segs[i].Summary()
}

// firstAt finds the first batch with a max timestamp of at least ts.
func (l *log) firstAt(v *view, ts, upTo int64) (best storage.BatchInfo, found bool, err error) {
	for i := range v.segs {
		if v.segs[i].Base() >= upTo {
			break
		}
		if v.summary(i).MaxTimestamp < ts {
			continue
		}
		x, err := l.indexOf(v, i)
		if err != nil {
			return best, false, err
		}
		end, _ := v.end(i)
		from := max(x.Before(ts), v.logStart)
		err = l.each(v, from, min(upTo, end), func(info storage.BatchInfo) error {
			if info.MaxTimestamp < ts {
				return nil
			}
			best, found = info, true
			return errEnough
		})
		if err != nil || found {
			return best, found, err
		}
	}
	return best, false, nil
}

// greatest returns the greatest timestamp of the batches below upTo.
func (l *log) greatest(v *view, upTo int64) (int64, error) {
	best := int64(math.MinInt64)
	for i := range v.segs {
		end, _ := v.end(i)
		sum := v.summary(i)
		if sum.Base >= upTo || sum.Bytes == 0 {
			continue
		}
		if sum.Base >= v.logStart && end <= upTo {
			best = max(best, sum.MaxTimestamp)
			continue
		}
		from := max(sum.Base, v.logStart)
		if sum.Base >= v.logStart {
			x, err := l.indexOf(v, i)
			if err != nil {
				return 0, err
			}
			if ts, offset, ok := x.MaxUpTo(upTo); ok {
				best, from = max(best, ts), offset
			}
		}
		err := l.each(v, from, min(upTo, end), func(info storage.BatchInfo) error {
			best = max(best, info.MaxTimestamp)
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	if best == math.MinInt64 {
		return math.MaxInt64, nil // nothing qualifies
	}
	return best, nil
}
