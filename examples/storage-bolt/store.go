package main

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	bolt "go.etcd.io/bbolt"

	"github.com/brokerd/brokerd/sdk/storage"
)

// store is one opening of the file.
type store struct {
	db         *bolt.DB
	reserve    int64
	taken      int64 // of the room, by the transaction that is being made; the writer's
	device     func() (storage.Usage, error)
	lastHandle *atomic.Uint64
	// ended is closed when the writer has ended.
	ended chan struct{}

	mu      sync.Mutex
	queue   []op
	wake    sync.Cond
	dead    error // why there is no store any more
	handles map[storage.Handle]*handle
	logs    map[storage.LogID]*openLog
}

var _ storage.Store = (*store)(nil)

// openLog is what is known of a log beyond what is in the file.
type openLog struct {
	id      storage.LogID
	seen    int32          // the highest leader epoch
	current storage.Handle // the only one that is not fenced
}

// handle is one opening of a log.
type handle struct {
	log  *openLog
	lost error // why it cannot be used any more
}

// op is something that changes the store.
type op struct {
	// run makes the change in the transaction. An error that carries a class is
	// the answer to whoever asked, and then run has written nothing; any other is
	// bbolt's, and ends the store.
	run func(tx *bolt.Tx) error
	// done gets run's error once the transaction is on the disk.
	done func(error)
	// shares says that others of its kind may be in the same transaction. Only
	// appends share: bbolt's cursors are not to be trusted in a transaction that
	// has deleted keys.
	shares bool
	// last ends the writer.
	last bool
}

func newStore(db *bolt.DB, reserve int64, device func() (storage.Usage, error), lastHandle *atomic.Uint64) *store {
	s := &store{
		db:         db,
		reserve:    reserve,
		device:     device,
		lastHandle: lastHandle,
		ended:      make(chan struct{}),
		handles:    make(map[storage.Handle]*handle),
		logs:       make(map[storage.LogID]*openLog),
	}
	s.wake.L = &s.mu
	return s
}

// enqueue gives the writer something to do. The queue needs no bound of its own:
// whoever serves the store bounds what is in flight.
func (s *store) enqueue(o op) {
	s.mu.Lock()
	dead := s.dead
	if dead == nil {
		s.queue = append(s.queue, o)
		s.wake.Signal()
	}
	s.mu.Unlock()
	if dead != nil {
		o.done(dead)
	}
}

// change does run in the order in which it was asked for, and waits for its
// commit.
func (s *store) change(run func(tx *bolt.Tx) error) error {
	done := make(chan error, 1)
	s.enqueue(op{run: run, done: func(err error) { done <- err }})
	return <-done
}

// changeLog is change for a log that is open under a handle.
func (s *store) changeLog(id storage.Handle, run func(l logBucket, h *handle) error) error {
	return s.change(func(tx *bolt.Tx) error {
		h, err := s.lookup(id)
		if err != nil {
			return err
		}
		return run(findLog(tx, h.log.id), h)
	})
}

// view calls run with a log as it is committed now.
func (s *store) view(id storage.Handle, run func(l logBucket) error) error {
	h, err := s.lookup(id)
	if err != nil {
		return err
	}
	err = s.db.View(func(tx *bolt.Tx) error {
		l := findLog(tx, h.log.id)
		if l.Bucket == nil {
			return storage.Errorf(storage.ErrFenced, "the log was deleted")
		}
		return run(l)
	})
	if err != nil && !classed(err) {
		return storage.Errorf(storage.ErrGone, "read the store: %v", err)
	}
	return err
}

// write is the writer. It closes the file when it ends.
func (s *store) write() {
	defer close(s.ended)
	for {
		s.mu.Lock()
		for len(s.queue) == 0 {
			s.wake.Wait()
		}
		n := 1
		for s.queue[0].shares && n < len(s.queue) && s.queue[n].shares {
			n++
		}
		ops := s.queue[:n:n]
		s.queue = s.queue[n:]
		s.mu.Unlock()
		if s.commit(ops) {
			if err := s.db.Close(); err != nil {
				slog.Error("close the file", "err", err)
			}
			return
		}
	}
}

// commit makes one transaction of the ops, answers them, and says whether the
// store has ended.
func (s *store) commit(ops []op) (end bool) {
	s.taken = 0
	answers := make([]error, len(ops))
	err := s.db.Update(func(tx *bolt.Tx) error {
		for i, o := range ops {
			err := o.run(tx)
			if err != nil && !classed(err) {
				return err
			}
			answers[i] = err
			end = end || o.last
		}
		return nil
	})
	if err != nil {
		// Whether the transaction took effect is not known.
		end, err = true, storage.Errorf(storage.ErrGone,
			"write the store: %v; look after the disk and restart the broker", err)
	}
	for i, o := range ops {
		if err != nil {
			answers[i] = err
		}
		o.done(answers[i])
	}
	if end {
		s.die(err)
	}
	return end
}

// die refuses all that comes after the end, because of err if the store failed.
func (s *store) die(err error) {
	if err == nil {
		err = storage.Errorf(storage.ErrGone, "the store has ended")
	}
	s.mu.Lock()
	s.dead = err
	rest := s.queue
	s.queue = nil
	s.mu.Unlock()
	for _, o := range rest {
		o.done(err)
	}
}

// classed says whether an error is an answer of this store's.
func classed(err error) bool {
	var e *storage.Error
	return errors.As(err, &e)
}

// lookup returns the handle if it is current.
func (s *store) lookup(id storage.Handle) (*handle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead != nil {
		return nil, s.dead
	}
	h := s.handles[id]
	if h == nil {
		return nil, storage.Errorf(storage.ErrGone, "there is no handle %d", id)
	}
	return h, h.lost
}

// lose makes the current handle of a log unusable. The caller holds the lock.
func (s *store) lose(id storage.Handle, why error) {
	if h := s.handles[id]; h != nil && h.lost == nil {
		h.lost = why
	}
}

// Capabilities implements storage.Store.
func (s *store) Capabilities() storage.Capabilities {
	return storage.Capabilities{Survives: storage.SurvivesMachine}
}
