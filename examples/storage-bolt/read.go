package main

import (
	"context"

	"github.com/brokerd/brokerd/sdk/storage"
)

// maxScan is the most headers that one Scan returns.
const maxScan = 10_000

// Read implements storage.Store. It checks every CRC, since pages may have been
// damaged since they were written.
func (s *store) Read(_ context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
	result := storage.ReadResult{Next: req.Offset}
	err := s.from(req.Handle, req.Offset, func(l logBucket) error {
		err := l.each(req.Offset, true, func(r row) (bool, error) {
			fits := len(result.Data)+len(r.batch) <= req.MaxBytes || req.AtLeastOne && len(result.Data) == 0
			if r.LastOffset >= req.UpTo || !fits {
				return false, nil
			}
			result.Data = append(result.Data, r.batch...)
			result.Next = r.LastOffset + 1
			return true, nil
		})
		if len(result.Data) > 0 {
			return nil // damage behind it is for the next read
		}
		return err
	})
	if err != nil {
		return storage.ReadResult{}, err
	}
	return result, nil
}

// Scan implements storage.Store.
func (s *store) Scan(_ context.Context, req storage.ScanRequest) ([]storage.BatchInfo, error) {
	if req.MaxBatches < 0 {
		return nil, storage.Errorf(storage.ErrInvalid, "a scan of at most %d batches", req.MaxBatches)
	}
	limit := req.MaxBatches
	if limit == 0 || limit > maxScan {
		limit = maxScan
	}
	var infos []storage.BatchInfo
	err := s.from(req.Handle, req.Offset, func(l logBucket) error {
		return l.each(req.Offset, false, func(r row) (bool, error) {
			if r.LastOffset >= req.UpTo {
				return false, nil
			}
			infos = append(infos, r.BatchInfo)
			return len(infos) < limit, nil
		})
	})
	if err != nil {
		return nil, err
	}
	return infos, nil
}

// from is view for an offset that must be between the log's start and its end.
func (s *store) from(id storage.Handle, offset int64, run func(l logBucket) error) error {
	return s.view(id, func(l logBucket) error {
		m, err := l.meta()
		if err != nil {
			return err
		}
		if offset < m.Start || offset > m.End {
			return storage.Errorf(storage.ErrInvalid, "offset %d is not between %d and %d", offset, m.Start, m.End)
		}
		return run(l)
	})
}

// FindTimestamp implements storage.Store. There is no index of time: it walks.
func (s *store) FindTimestamp(_ context.Context, q storage.TimestampQuery) (storage.BatchInfo, bool, error) {
	if q.Kind != storage.FirstAtOrAfter && q.Kind != storage.Latest {
		return storage.BatchInfo{}, false, storage.Errorf(storage.ErrInvalid, "there is no timestamp query of kind %d", q.Kind)
	}
	var best storage.BatchInfo
	found := false
	err := s.view(q.Handle, func(l logBucket) error {
		return l.each(0, false, func(r row) (bool, error) {
			if r.LastOffset >= q.UpTo {
				return false, nil
			}
			switch {
			case q.Kind == storage.FirstAtOrAfter && r.MaxTimestamp >= q.Timestamp:
				best, found = r.BatchInfo, true
				return false, nil
			case q.Kind == storage.Latest && (!found || r.MaxTimestamp > best.MaxTimestamp):
				best, found = r.BatchInfo, true
			}
			return true, nil
		})
	})
	if err != nil {
		return storage.BatchInfo{}, false, err
	}
	return best, found, nil
}
