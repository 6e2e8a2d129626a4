package main

import (
	"context"

	bolt "go.etcd.io/bbolt"

	"github.com/brokerd/brokerd/sdk/storage"
)

// Open implements storage.Store. All that was enqueued before has taken effect
// by the time an opening does, and what comes after under an earlier handle is
// refused: this is the fence.
func (s *store) Open(_ context.Context, specs []storage.OpenSpec) []storage.OpenResult {
	results := make([]storage.OpenResult, len(specs))
	for i, spec := range specs {
		err := s.change(func(tx *bolt.Tx) (err error) {
			results[i], err = s.openLog(tx, spec)
			return err
		})
		if err != nil {
			results[i] = storage.OpenResult{Err: err}
		}
	}
	return results
}

func (s *store) openLog(tx *bolt.Tx, spec storage.OpenSpec) (storage.OpenResult, error) {
	l := findLog(tx, spec.ID)
	if l.Bucket == nil {
		if !spec.Create {
			return storage.OpenResult{}, storage.Errorf(storage.ErrGone, "the store has no log of %q", spec.Label)
		}
		var err error
		if l, err = createLog(tx, spec.ID, spec.Label); err != nil {
			return storage.OpenResult{}, err
		}
	}
	m, err := l.meta()
	if err != nil {
		return storage.OpenResult{}, err
	}
	epochs, err := l.epochs(m)
	if err != nil {
		return storage.OpenResult{}, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.logs[spec.ID]
	if log == nil {
		log = &openLog{id: spec.ID, seen: lastEpoch(epochs)}
	}
	if spec.LeaderEpoch < log.seen {
		return storage.OpenResult{}, storage.Errorf(storage.ErrFenced,
			"leader epoch %d is lower than %d, which the log has seen", spec.LeaderEpoch, log.seen)
	}
	s.lose(log.current, storage.Errorf(storage.ErrFenced, "the log was opened again"))
	log.seen, log.current = spec.LeaderEpoch, storage.Handle(s.lastHandle.Add(1))
	s.logs[spec.ID] = log
	s.handles[log.current] = &handle{log: log}
	return storage.OpenResult{
		Handle:   log.current,
		LogStart: m.Start,
		LEO:      m.End,
		Durable:  m.End,
		Epochs:   epochs,
		Verdict:  storage.VerdictIntact,
	}, nil
}

// epochs walks the headers of a log, which also finds those that are damaged.
func (l logBucket) epochs(m meta) ([]storage.EpochStart, error) {
	var epochs []storage.EpochStart
	err := l.each(0, false, func(r row) (bool, error) {
		if lastEpoch(epochs) < r.LeaderEpoch {
			epochs = append(epochs, storage.EpochStart{Epoch: r.LeaderEpoch, Start: max(r.BaseOffset, m.Start)})
		}
		return true, nil
	})
	return epochs, err
}

// lastEpoch returns -1 when there is none.
func lastEpoch(epochs []storage.EpochStart) int32 {
	if len(epochs) == 0 {
		return -1
	}
	return epochs[len(epochs)-1].Epoch
}

// Close implements storage.Store.
func (s *store) Close(_ context.Context, handles []storage.Handle) []error {
	errs := make([]error, len(handles))
	for i, id := range handles {
		errs[i] = s.change(func(*bolt.Tx) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.lose(id, storage.Errorf(storage.ErrGone, "the handle is closed"))
			return nil
		})
	}
	return errs
}

// List implements storage.Store.
func (s *store) List(context.Context) ([]storage.LogInfo, error) {
	var infos []storage.LogInfo
	err := s.change(func(tx *bolt.Tx) error { // a change, so that it waits for those before it
		infos = nil
		return tx.Bucket(logsBucket).ForEachBucket(func(k []byte) error {
			m, err := findLog(tx, logOf(k)).meta()
			infos = append(infos, storage.LogInfo{ID: logOf(k), Label: m.Label, Bytes: m.Bytes})
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return infos, nil
}

// Delete implements storage.Store.
func (s *store) Delete(_ context.Context, id storage.LogID) error {
	return s.change(func(tx *bolt.Tx) error {
		s.mu.Lock()
		if log := s.logs[id]; log != nil {
			s.lose(log.current, storage.Errorf(storage.ErrFenced, "the log was deleted"))
			delete(s.logs, id)
		}
		s.mu.Unlock()
		if findLog(tx, id).Bucket == nil {
			return nil
		}
		return tx.Bucket(logsBucket).DeleteBucket(key(id))
	})
}

// Flush implements storage.Store. What was appended before is committed by the
// time this is answered, and what is committed is on the disk.
func (s *store) Flush(_ context.Context, handles []storage.Handle) []storage.FlushResult {
	results := make([]storage.FlushResult, len(handles))
	for i, id := range handles {
		results[i].Err = s.changeLog(id, func(l logBucket, _ *handle) error {
			m, err := l.meta()
			results[i].Durable = m.End
			return err
		})
	}
	return results
}

// Usage implements storage.Store.
func (s *store) Usage(context.Context) (storage.Usage, error) {
	var usage storage.Usage
	err := s.change(func(tx *bolt.Tx) (err error) {
		usage, err = s.free()
		return err
	})
	return usage, err
}

// free is what the device has, and bbolt's free pages, less the reserve.
func (s *store) free() (storage.Usage, error) {
	usage, err := s.device()
	if err != nil {
		return storage.Usage{}, err
	}
	stats := s.db.Stats()
	free := int64(stats.FreePageN+stats.PendingPageN) * int64(s.db.Info().PageSize)
	usage.Free = max(0, usage.Free+free-s.reserve-s.taken)
	return usage, nil
}

// Shutdown implements storage.Store.
func (s *store) Shutdown(context.Context) error {
	done := make(chan error, 1)
	s.enqueue(op{run: func(*bolt.Tx) error { return nil }, done: func(err error) { done <- err }, last: true})
	err := <-done
	<-s.ended
	return err
}

// Files implements storage.Store: there are none.
func (s *store) Files() storage.Files { return nil }
