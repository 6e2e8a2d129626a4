package storagetest_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// scribbler is a store that writes over what it has lent: what was not returned yet,
// or what was. It knows leases by the file, over all lives.
type scribbler struct {
	returned bool

	mu     sync.Mutex
	leases map[storage.LeaseID]scribbled
	back   []scribbled
}

type scribbled struct {
	storage.Lease
	file *os.File // for writing
}

// scribbling makes a wrap of a function that says when the leases that are out are
// written over.
func scribbling(when func(h *hooked, scribble func())) func(storage.Store) storage.Store {
	return (&scribbler{leases: map[storage.LeaseID]scribbled{}}).wrap(when)
}

// scribblingReturned is scribbling over the leases that were returned.
func scribblingReturned(when func(h *hooked, scribble func())) func(storage.Store) storage.Store {
	return (&scribbler{returned: true, leases: map[storage.LeaseID]scribbled{}}).wrap(when)
}

func (s *scribbler) wrap(when func(h *hooked, scribble func())) func(storage.Store) storage.Store {
	return breaking(func(h *hooked) {
		lease, giveBack := h.lease, h.giveBack
		h.lease = func(ctx context.Context, id storage.Handle, offset int64) (storage.Lease, error) {
			l, err := lease(ctx, id, offset)
			if err != nil {
				return l, err
			}
			file, err := os.OpenFile(l.File.Name(), os.O_RDWR, 0)
			if err != nil {
				return l, storage.Errorf(storage.ErrRetry, "the file is gone: %v", errors.Join(err, l.File.Close()))
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.leases[l.ID] = scribbled{l, file}
			return l, nil
		}
		h.giveBack = func(ids []storage.LeaseID) {
			giveBack(ids)
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, id := range ids {
				l, known := s.leases[id]
				delete(s.leases, id)
				switch {
				case !known:
				case s.returned:
					s.back = append(s.back, l)
				default:
					l.file.Close()
				}
			}
		}
		when(h, s.scribble)
	})
}

// scribblingAtEnd makes a wrap of a store, all leases of which are written over by
// scribble.
func scribblingAtEnd() (wrap func(storage.Store) storage.Store, scribble func()) {
	var latest func()
	wrap = scribbling(func(_ *hooked, s func()) { latest = s })
	return wrap, func() { latest() }
}

// scribble writes over the last bytes of each stretch.
func (s *scribbler) scribble() {
	s.mu.Lock()
	defer s.mu.Unlock()
	over := s.back
	if !s.returned {
		over = slices.Collect(maps.Values(s.leases))
	}
	for _, l := range over {
		if _, err := l.file.WriteAt([]byte("scribble"), l.Limit-8); err != nil {
			panic(err)
		}
	}
}

// lending makes a wrap of a function that changes leases.
func lending(change func(l *storage.Lease, err *error)) func(storage.Store) storage.Store {
	return breaking(func(h *hooked) {
		lease := h.lease
		h.lease = func(ctx context.Context, id storage.Handle, offset int64) (storage.Lease, error) {
			l, err := lease(ctx, id, offset)
			change(&l, &err)
			return l, err
		}
	})
}

// granting makes a wrap of a function that changes grants.
func granting(change func(g *storage.Grant)) func(storage.Store) storage.Store {
	return breaking(func(h *hooked) {
		grant := h.grant
		h.grant = func(ctx context.Context, id storage.Handle, epoch int32, require storage.Survives) (storage.Grant, error) {
			g, err := grant(ctx, id, epoch, require)
			if err == nil {
				change(&g)
			}
			return g, err
		}
	})
}

// numberedForEver makes a wrap of a store that knows a file by the number that it has
// for the file system, whatever it holds.
func numberedForEver() func(storage.Store) storage.Store {
	number := func(f *os.File) uint64 {
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			panic(err)
		}
		return st.Ino
	}
	grants := granting(func(g *storage.Grant) { g.FileID = number(g.File) })
	leases := lending(func(l *storage.Lease, err *error) {
		if *err == nil {
			l.FileID = number(l.File)
		}
	})
	return func(inner storage.Store) storage.Store { return leases(grants(inner)) }
}

func brokenLeases() []broken {
	truncates := func(h *hooked, scribble func()) {
		h.truncate = func(ctx context.Context, id storage.Handle, epoch int32, to int64) (int64, error) {
			defer scribble()
			return h.tracker.Truncate(ctx, id, epoch, to)
		}
	}
	retains := func(h *hooked, scribble func()) {
		h.retain = func(ctx context.Context, id storage.Handle, p storage.RetainPolicy) (storage.RetainResult, error) {
			defer scribble()
			return h.tracker.Retain(ctx, id, p)
		}
	}
	opened := 0
	truncatesOld := func(h *hooked, scribble func()) {
		h.open = func(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
			opened++
			return h.tracker.Open(ctx, specs)
		}
		h.truncate = func(ctx context.Context, id storage.Handle, epoch int32, to int64) (int64, error) {
			if opened > 1 {
				scribble()
			}
			return h.tracker.Truncate(ctx, id, epoch, to)
		}
	}
	forget, forgetAll := scribblingAtEnd()
	return []broken{
		{name: "lends files for writing", caughtBy: "lease", files: true, wrap: lending(func(l *storage.Lease, err *error) {
			if *err == nil {
				name := l.File.Name()
				l.File.Close()
				l.File, *err = os.OpenFile(name, os.O_RDWR, 0)
			}
		})},
		{name: "lends from the head of the file", caughtBy: "lease", files: true, wrap: lending(func(l *storage.Lease, _ *error) { l.Pos = 0 })},
		{name: "does not say which file it lends", caughtBy: "lease", files: true, wrap: lending(func(l *storage.Lease, _ *error) { l.FileID = 0 })},
		{name: "lends nothing, ever", caughtBy: "lease", files: true, wrap: lending(func(_ *storage.Lease, err *error) {
			*err = storage.Errorf(storage.ErrRetry, "not now")
		})},
		{name: "leaves out what comes before the next file", caughtBy: "lease", files: true, wrap: lending(func(l *storage.Lease, _ *error) { l.End++ })},
		{name: "says that there are no gaps", caughtBy: "lease-gaps", files: true, wrap: lending(func(l *storage.Lease, _ *error) { l.Gaps = false })},
		{name: "has an error of its own at the end", caughtBy: "lease-refused", files: true, wrap: lending(func(_ *storage.Lease, err *error) {
			if errors.Is(*err, storage.ErrRetry) {
				*err = storage.Errorf(storage.ErrInvalid, "there is nothing")
			}
		})},
		{name: "takes each lease for a file of its own", caughtBy: "lease-files", files: true, wrap: lending(func(l *storage.Lease, _ *error) { l.FileID = uint64(l.ID) })},
		{name: "takes all leases for one file", caughtBy: "lease-files", files: true, wrap: lending(func(l *storage.Lease, _ *error) { l.FileID = 7 })},
		{name: "lends nothing that was granted", caughtBy: "lease-granted", files: true, wrap: watching(func(h *hooked, l lender) {
			lease := h.lease
			h.lease = func(ctx context.Context, id storage.Handle, offset int64) (storage.Lease, error) {
				if l.of(h, id) != nil {
					return storage.Lease{}, storage.Errorf(storage.ErrRetry, "it was granted")
				}
				return lease(ctx, id, offset)
			}
		})},
		{name: "truncates what is lent", caughtBy: "lease-truncate", files: true, wrap: scribbling(truncates)},
		{name: "truncates what is lent when it is truncated again", caughtBy: "lease-truncate-again", files: true, wrap: scribbling(func(h *hooked, scribble func()) {
			last := int64(-1)
			h.truncate = func(ctx context.Context, id storage.Handle, epoch int32, to int64) (int64, error) {
				if to == last {
					scribble()
				}
				last = to
				return h.tracker.Truncate(ctx, id, epoch, to)
			}
		})},
		{name: "trims what is lent", caughtBy: "lease-trim", files: true, wrap: scribbling(func(h *hooked, scribble func()) {
			h.trim = func(ctx context.Context, id storage.Handle, to int64) (int64, error) {
				defer scribble()
				return h.tracker.Trim(ctx, id, to)
			}
		})},
		{name: "replaces what is lent in its place", caughtBy: "lease-replace", files: true, wrap: scribbling(func(h *hooked, scribble func()) {
			h.replace = func(ctx context.Context, req storage.ReplaceRequest) error {
				defer scribble()
				return h.tracker.Replace(ctx, req)
			}
		})},
		{name: "deletes what is lent", caughtBy: "lease-delete", files: true, wrap: scribbling(func(h *hooked, scribble func()) {
			h.delete = func(ctx context.Context, id storage.LogID) error {
				defer scribble()
				return h.tracker.Delete(ctx, id)
			}
		})},
		{name: "uses what is lent again", caughtBy: "lease-recycled", files: true, wrap: scribbling(retains)},
		{name: "forgets what is lent when it is killed", caughtBy: "lease-kill", files: true, wrap: forget,
			killed: func(*memstore.Disk, []storage.Store) { forgetAll() }},
		{name: "forgets no lease", caughtBy: "lease-return", files: true, wrap: breaking(func(h *hooked) {
			const most = 1000
			lease, given := h.lease, 0
			h.giveBack = func([]storage.LeaseID) {}
			h.lease = func(ctx context.Context, id storage.Handle, offset int64) (storage.Lease, error) {
				if given++; given > most {
					return storage.Lease{}, storage.Errorf(storage.ErrRetry, "%d leases are out", most)
				}
				return lease(ctx, id, offset)
			}
		})},
		{name: "truncates what was returned", caughtBy: "lease-returned-truncate", files: true, wrap: scribblingReturned(truncates)},
		{name: "uses what was returned again", caughtBy: "lease-returned-recycled", files: true, wrap: scribblingReturned(retains)},
		{name: "truncates what an earlier opening has lent", caughtBy: "lease-reopened", files: true, wrap: scribblingReturned(truncatesOld)},
		{name: "takes each grant for a file of its own", caughtBy: "lease-grant-files", files: true, wrap: granting(func(g *storage.Grant) { g.FileID = uint64(g.ID) << 32 })},
		{name: "takes all grants for one file", caughtBy: "lease-grant-files", files: true, wrap: granting(func(g *storage.Grant) { g.FileID = 7 })},
		{name: "has other numbers for grants than for leases", caughtBy: "lease-grant-files", files: true, wrap: granting(func(g *storage.Grant) { g.FileID += 1 << 32 })},
		{name: "knows a file that is used again by its old number", caughtBy: "lease-grant-files", files: true, wrap: numberedForEver()},
		{name: "truncates under readers", caughtBy: "lease-readers", files: true, wrap: scribbling(truncates)},
	}
}
