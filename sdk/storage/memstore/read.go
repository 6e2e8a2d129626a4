package memstore

import (
	"context"

	"github.com/brokerd/brokerd/sdk/storage"
)

// maxScan is the most headers that one Scan returns.
const maxScan = 10_000

// Read implements storage.Store.
func (s *Store) Read(_ context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
	result := storage.ReadResult{Next: req.Offset}
	err := s.do(s.op(OpRead, req.Handle, req.Offset, 0), func() error {
		batches, err := s.from(req.Handle, req.Offset, req.UpTo)
		if err != nil {
			return err
		}
		for i := range batches {
			b := &batches[i]
			if len(result.Data)+len(b.data) > req.MaxBytes && (len(result.Data) > 0 || !req.AtLeastOne) {
				break
			}
			if err := b.check(); err != nil {
				if len(result.Data) > 0 {
					break // the next read meets it
				}
				return storage.Errorf(storage.ErrCorrupt, "the batch at offset %d: %v", b.BaseOffset, err)
			}
			result.Data = append(result.Data, b.data...)
			result.Next = b.LastOffset + 1
		}
		return nil
	})
	if err != nil {
		return storage.ReadResult{}, err
	}
	return result, nil
}

// Scan implements storage.Store.
func (s *Store) Scan(_ context.Context, req storage.ScanRequest) ([]storage.BatchInfo, error) {
	var infos []storage.BatchInfo
	err := s.do(s.op(OpScan, req.Handle, req.Offset, 0), func() error {
		if req.MaxBatches < 0 {
			return storage.Errorf(storage.ErrInvalid, "a scan of at most %d batches", req.MaxBatches)
		}
		limit := min(req.MaxBatches, maxScan)
		if limit == 0 {
			limit = maxScan
		}
		batches, err := s.from(req.Handle, req.Offset, req.UpTo)
		for i := 0; i < len(batches) && i < limit; i++ {
			infos = append(infos, batches[i].BatchInfo)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return infos, nil
}

// FindTimestamp implements storage.Store.
func (s *Store) FindTimestamp(_ context.Context, q storage.TimestampQuery) (storage.BatchInfo, bool, error) {
	var best storage.BatchInfo
	found := false
	err := s.do(s.op(OpFindTimestamp, q.Handle, 0, 0), func() error {
		h, err := s.lookup(q.Handle)
		if err != nil {
			return err
		}
		if q.Kind != storage.FirstAtOrAfter && q.Kind != storage.Latest {
			return storage.Errorf(storage.ErrInvalid, "there is no timestamp query of kind %d", q.Kind)
		}
		batches, err := s.from(q.Handle, h.log.disk.start, q.UpTo)
		for i := range batches {
			b := &batches[i]
			if q.Kind == storage.FirstAtOrAfter && b.MaxTimestamp >= q.Timestamp {
				best, found = b.BatchInfo, true
				return nil
			}
			if q.Kind == storage.Latest && (!found || b.MaxTimestamp > best.MaxTimestamp) {
				best, found = b.BatchInfo, true
			}
		}
		return err
	})
	if err != nil {
		return storage.BatchInfo{}, false, err
	}
	return best, found, nil
}

// from returns the batches from the one that contains offset, or the first
// after it, that end below upTo. The caller holds the lock.
func (s *Store) from(id storage.Handle, offset, upTo int64) ([]storedBatch, error) {
	h, err := s.lookup(id)
	if err != nil {
		return nil, err
	}
	log := h.log.disk
	if offset < log.start || offset > log.end {
		return nil, storage.Errorf(storage.ErrInvalid, "offset %d is not between %d and %d", offset, log.start, log.end)
	}
	first, last := log.search(offset), log.search(upTo)
	if first >= last {
		return nil, nil
	}
	return log.batches[first:last], nil
}
