package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/brokerd/brokerd/sdk/storage"
)

// DefaultSegmentBytes is the size of a unit of retention when nobody says.
const DefaultSegmentBytes = 1 << 20

// Options are the settings of a Store. The zero value is a plain store. The
// functions are called without any lock held, from the goroutine that called
// the store.
type Options struct {
	// SegmentBytes is the size of a unit of retention in logs whose own options
	// do not say. Zero means DefaultSegmentBytes.
	SegmentBytes int64
	// Now stamps batches with their writing time, which matters to Retain alone,
	// for records from the future. Nil means time.Now.
	Now func() time.Time
	// Survives is the most that an append may ask to survive, and what the
	// store claims. Unset means SurvivesMachine.
	Survives storage.Survives
	// Defer takes over the work of appends: it is given a step to run later,
	// once, and twice for each append (the effect, then the completion). A step
	// does the next thing that is due for its log, so that the order in which
	// steps run does not matter to the order of the log. A step that never runs
	// is a stalled disk. Nil runs each step before Append returns.
	Defer func(run func())
	// Before is asked before each operation: an error is the operation's, which
	// then has no effect. Nil never fails.
	Before func(Op) error
	// After is asked after each operation that succeeded: an error is the
	// operation's, though its effect has happened. Nil never fails.
	After func(Op) error
}

// Store is one opening of a Disk. It implements storage.Store. Contexts are not
// looked at, since nothing here waits.
type Store struct {
	disk *Disk
	opt  Options

	// Guarded by disk.mu.
	dead    bool
	handles map[storage.Handle]*handle
	logs    map[storage.LogID]*openLog
}

var _ storage.Store = (*Store)(nil)

// openLog is what a process knows of a log that it has opened.
type openLog struct {
	id      storage.LogID
	disk    *diskLog
	seen    int32 // the highest leader epoch
	options storage.LogOptions
	current storage.Handle

	queue   []*appendOp // in the order of the calls; completed from the front
	lastSeq uint64
	pumping bool
}

// handle is one opening of a log.
type handle struct {
	id   storage.Handle
	log  *openLog
	lost error // why it cannot be used any more
	// failed is the unknown outcome after which appends fail until the log is
	// opened again.
	failed error
}

// Open opens a store on the disk. It refuses, storage.ErrFenced, a disk that
// another store holds or that belongs to somebody else. The returned store
// holds the disk until Shutdown, Kill or Disk.LosePower.
func Open(disk *Disk, cfg storage.Config, opt Options) (*Store, storage.DirectoryID, error) {
	if opt.SegmentBytes <= 0 {
		opt.SegmentBytes = DefaultSegmentBytes
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Survives == storage.SurvivesUnset {
		opt.Survives = storage.SurvivesMachine
	}
	s := &Store{
		disk:    disk,
		opt:     opt,
		handles: make(map[storage.Handle]*handle),
		logs:    make(map[storage.LogID]*openLog),
	}
	disk.mu.Lock()
	defer disk.mu.Unlock()
	switch {
	case disk.holder != nil:
		return nil, storage.DirectoryID{}, storage.Errorf(storage.ErrFenced,
			"the store is open already; shut down the broker that uses it")
	case disk.owned && disk.owner != cfg.Identity:
		return nil, storage.DirectoryID{}, storage.Errorf(storage.ErrFenced,
			"the store belongs to node %d of cluster %q, not to node %d of cluster %q; configure another store, or delete this one if its records are not needed",
			disk.owner.NodeID, disk.owner.ClusterID, cfg.Identity.NodeID, cfg.Identity.ClusterID)
	}
	if !disk.owned {
		disk.owned, disk.owner, disk.directory = true, cfg.Identity, cfg.ProposedDirectoryID
		disk.logs = make(map[storage.LogID]*diskLog)
	}
	disk.holder = s
	return s, disk.directory, nil
}

// Kill ends the store as kill -9 ends a process: the disk keeps what was
// written, appends in flight fail with ErrGone when their steps run, and every
// later call fails so.
func (s *Store) Kill() {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	if s.disk.holder == s {
		s.disk.letGo()
	}
}

// Capabilities implements storage.Store.
func (s *Store) Capabilities() storage.Capabilities {
	return storage.Capabilities{Survives: s.opt.Survives}
}

// Open implements storage.Store.
func (s *Store) Open(_ context.Context, specs []storage.OpenSpec) []storage.OpenResult {
	results := make([]storage.OpenResult, len(specs))
	for i, spec := range specs {
		op := Op{Kind: OpOpen, Log: spec.ID}
		err := s.before(op)
		if err == nil {
			results[i], err = s.openLog(spec)
		}
		if err == nil {
			err = s.after(op)
		}
		if err != nil {
			results[i] = storage.OpenResult{Err: err}
		}
	}
	return results
}

func (s *Store) openLog(spec storage.OpenSpec) (storage.OpenResult, error) {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	if s.dead {
		return storage.OpenResult{}, errDead()
	}
	onDisk := s.disk.logs[spec.ID]
	if onDisk == nil && !spec.Create {
		return storage.OpenResult{}, storage.Errorf(storage.ErrGone, "the store has no log %v of %q", spec.ID, spec.Label)
	}
	if onDisk == nil {
		onDisk = &diskLog{label: spec.Label, blobs: make(map[string]storage.Blob)}
		s.disk.logs[spec.ID] = onDisk
	}
	cut := ""
	log := s.logs[spec.ID]
	if log == nil {
		var err error
		if cut, err = onDisk.recover(); err != nil {
			return storage.OpenResult{}, err
		}
		log = &openLog{id: spec.ID, disk: onDisk, seen: onDisk.lastEpoch()}
		s.logs[spec.ID] = log
	}
	if spec.LeaderEpoch < log.seen {
		return storage.OpenResult{}, storage.Errorf(storage.ErrFenced,
			"leader epoch %d is lower than %d, which the log has seen", spec.LeaderEpoch, log.seen)
	}
	if earlier := s.handles[log.current]; earlier != nil {
		earlier.lose(storage.Errorf(storage.ErrFenced, "the log was opened again"))
	}
	s.disk.lastHandle++
	h := &handle{id: s.disk.lastHandle, log: log}
	s.handles[h.id] = h
	log.seen, log.options, log.current = spec.LeaderEpoch, spec.Options, h.id
	verdict := storage.VerdictIntact
	if onDisk.suspect {
		verdict = storage.VerdictMayHaveLostSuffix
	}
	return storage.OpenResult{
		Handle:   h.id,
		LogStart: onDisk.start,
		LEO:      onDisk.end,
		Durable:  onDisk.durable,
		Epochs:   onDisk.epochs(),
		Verdict:  verdict,
		Cut:      cut,
	}, nil
}

// Close implements storage.Store.
func (s *Store) Close(_ context.Context, handles []storage.Handle) []error {
	errs := make([]error, len(handles))
	for i, id := range handles {
		errs[i] = s.change(s.op(OpClose, id, 0, 0), func() error {
			if s.dead {
				return errDead()
			}
			if h, err := s.lookup(id); err == nil {
				h.close()
			}
			return nil
		})
	}
	return errs
}

// List implements storage.Store.
func (s *Store) List(context.Context) ([]storage.LogInfo, error) {
	var infos []storage.LogInfo
	err := s.do(Op{Kind: OpList}, func() error {
		if s.dead {
			return errDead()
		}
		for _, id := range s.disk.ids() {
			log := s.disk.logs[id]
			infos = append(infos, storage.LogInfo{ID: id, Label: log.label, Bytes: log.bytes()})
		}
		return nil
	})
	return infos, err
}

// Delete implements storage.Store.
func (s *Store) Delete(_ context.Context, id storage.LogID) error {
	return s.do(Op{Kind: OpDelete, Log: id}, func() error {
		if s.dead {
			return errDead()
		}
		if log := s.logs[id]; log != nil {
			if h := s.handles[log.current]; h != nil {
				h.lose(storage.Errorf(storage.ErrFenced, "the log was deleted"))
			}
			delete(s.logs, id)
		}
		delete(s.disk.logs, id)
		return nil
	})
}

// Usage implements storage.Store.
func (s *Store) Usage(context.Context) (storage.Usage, error) {
	var usage storage.Usage
	err := s.do(Op{Kind: OpUsage}, func() error {
		if s.dead {
			return errDead()
		}
		if total := s.disk.capacity; total > 0 {
			usage = storage.Usage{Total: total, Free: max(0, total-s.disk.used())}
		}
		return nil
	})
	return usage, err
}

// Shutdown implements storage.Store.
func (s *Store) Shutdown(ctx context.Context) error {
	s.disk.mu.Lock()
	var open []storage.Handle
	for _, log := range s.logs {
		open = append(open, log.current)
	}
	slices.Sort(open)
	s.disk.mu.Unlock()
	s.Close(ctx, open)

	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	if s.dead {
		return errDead()
	}
	s.disk.letGo()
	return nil
}

// lose makes the handle unusable, for the first reason given.
func (h *handle) lose(why error) {
	if h.lost == nil {
		h.lost = why
	}
}

// close flushes the log and marks it as closed in order.
func (h *handle) close() {
	disk := h.log.disk
	disk.durable = disk.end
	disk.suspect = false
	h.lose(storage.Errorf(storage.ErrGone, "the handle is closed"))
}

// lookup returns the handle if it is current. The caller holds the lock.
func (s *Store) lookup(id storage.Handle) (*handle, error) {
	if s.dead {
		return nil, errDead()
	}
	h := s.handles[id]
	if h == nil {
		return nil, storage.Errorf(storage.ErrGone, "there is no handle %d", id)
	}
	return h, h.lost
}

// op describes an operation on a handle to the hooks.
func (s *Store) op(kind OpKind, id storage.Handle, offset int64, size int) Op {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	op := Op{Kind: kind, Handle: id, Offset: offset, Bytes: size}
	if h := s.handles[id]; h != nil {
		op.Log = h.log.id
	}
	return op
}

// do runs an operation between its hooks, under the lock.
func (s *Store) do(op Op, effect func() error) error {
	if err := s.before(op); err != nil {
		return err
	}
	s.disk.mu.Lock()
	err := effect()
	s.disk.mu.Unlock()
	if err != nil {
		return err
	}
	return s.after(op)
}

// change is do for an operation that appends in flight must not overtake: they
// are completed first.
func (s *Store) change(op Op, effect func() error) error {
	s.settle(op.Handle)
	return s.do(op, effect)
}

func (s *Store) before(op Op) error {
	if s.opt.Before == nil {
		return nil
	}
	return s.opt.Before(op)
}

func (s *Store) after(op Op) error {
	if s.opt.After == nil {
		return nil
	}
	return s.opt.After(op)
}

func errDead() error {
	return storage.Errorf(storage.ErrGone, "the store has ended")
}

// Files implements storage.Store: there are none.
func (s *Store) Files() storage.Files { return nil }
