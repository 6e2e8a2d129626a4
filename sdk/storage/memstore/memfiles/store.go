package memfiles

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"

	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// Store is one opening of a Disk. It implements storage.Store and storage.Files.
type Store struct {
	inner *memstore.Store
	disk  *Disk
	opt   memstore.Options
	lock  *os.File

	// Guarded by disk.mu.
	logs      map[storage.LogID]*openLog
	owners    map[storage.Handle]*openLog
	lastGrant storage.GrantID
	lastLease storage.LeaseID
	asked     int      // grants
	done      []func() // completions that are to be told, in order
	telling   bool
}

var (
	_ storage.Store = (*Store)(nil)
	_ storage.Files = (*Store)(nil)
)

// openLog is what a process knows of a log that it has opened.
type openLog struct {
	id      storage.LogID
	layout  *layout
	current storage.Handle
	options storage.LogOptions
	seen    int32 // the highest leader epoch
	grant   *grant
	failed  error // why no append is taken before the log is opened again
}

// Capabilities implements storage.Store.
func (s *Store) Capabilities() storage.Capabilities {
	c := s.inner.Capabilities()
	c.Grants, c.Leases = true, true
	return c
}

// Files implements storage.Store.
func (s *Store) Files() storage.Files { return s }

// enter begins a call, and returns what ends it: what is to be told is told in
// order, with no lock held.
func (s *Store) enter() (leave func()) {
	s.disk.mu.Lock()
	return func() {
		defer s.disk.mu.Unlock()
		if s.telling {
			return
		}
		s.telling = true
		defer func() { s.telling = false }()
		for len(s.done) > 0 {
			next := s.done[0]
			s.done = s.done[1:]
			s.disk.mu.Unlock()
			next()
			s.disk.mu.Lock()
		}
	}
}

// change ends the grant of the log behind a handle, takes back what was not told,
// and returns the log, nil when the handle is not current: the memstore then says
// what is wrong with it.
func (s *Store) change(h storage.Handle) (*openLog, error) {
	log := s.owners[h]
	if log == nil || log.current != h {
		return nil, nil
	}
	return log, log.endGrant()
}

// endGrant takes back the end of the file.
func (log *openLog) endGrant() error {
	if log.grant == nil {
		return nil
	}
	log.grant = nil
	f := log.layout.last()
	if f == nil {
		return nil
	}
	return log.layout.keep(f.cut(f.size))
}

func (log *openLog) fileBytes(s *Store) int64 {
	if log.options.SegmentBytes > 0 {
		return log.options.SegmentBytes
	}
	return s.opt.SegmentBytes
}

// Open implements storage.Store.
func (s *Store) Open(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
	defer s.enter()()
	results := make([]storage.OpenResult, len(specs))
	for i, spec := range specs {
		result, err := s.open(ctx, spec)
		if err != nil {
			result = storage.OpenResult{Err: err}
		}
		results[i] = result
	}
	return results
}

func (s *Store) open(ctx context.Context, spec storage.OpenSpec) (storage.OpenResult, error) {
	l, log := s.disk.logs[spec.ID], s.logs[spec.ID]
	untold, err := l.untold()
	if err != nil {
		return storage.OpenResult{}, err
	}
	if n := len(untold.batches); n > 0 && untold.batches[n-1].LeaderEpoch > spec.LeaderEpoch {
		return storage.OpenResult{}, storage.Errorf(storage.ErrFenced,
			"leader epoch %d is lower than that of a batch in the log", spec.LeaderEpoch)
	}
	r, err := s.openInner(ctx, spec)
	if err != nil {
		return r, err
	}
	if len(untold.batches) > 0 && r.LEO == l.leo {
		cut := r.Cut
		if err := s.adopt(ctx, l, r, untold, spec.LeaderEpoch); err != nil {
			return r, err
		}
		if r, err = s.openInner(ctx, spec); err != nil {
			return r, err
		}
		r.Cut = cut
	}
	if l == nil {
		l = &layout{}
		s.disk.logs[spec.ID] = l
	}
	if log == nil {
		log = &openLog{id: spec.ID, layout: l}
		s.logs[spec.ID] = log
	}
	s.owners[r.Handle] = log
	log.current, log.options, log.seen, log.failed = r.Handle, spec.Options, spec.LeaderEpoch, nil
	l.leo = r.LEO
	if r.Cut == "" {
		r.Cut = untold.cut
	}
	l.suspect = l.suspect || untold.whole
	if l.suspect {
		r.Verdict = storage.VerdictMayHaveLostSuffix
	}
	if err := log.endGrant(); err != nil {
		return r, err
	}
	switch {
	case l.disturbed:
		err = s.layOut(ctx, log, r.LogStart)
	case len(l.files) > 0: // what is left of a torn write
		err = l.keep(l.last().cut(l.last().size))
	}
	l.lendAll()
	return r, err
}

func (s *Store) openInner(ctx context.Context, spec storage.OpenSpec) (storage.OpenResult, error) {
	r := s.inner.Open(ctx, []storage.OpenSpec{spec})[0]
	return r, r.Err
}

// layOut writes the log's batches to files of their own. A log that cannot be read
// to its end is not lent.
func (s *Store) layOut(ctx context.Context, log *openLog, start int64) error {
	l := log.layout
	l.forget()
	l.disturbed, l.lost = false, false
	for offset := start; offset < l.leo; {
		r, err := s.inner.Read(ctx, storage.ReadRequest{
			Handle: log.current, Offset: offset, UpTo: math.MaxInt64, MaxBytes: int(log.fileBytes(s)), AtLeastOne: true,
		})
		if err != nil {
			l.forget()
			l.lost = true
			return nil
		}
		if len(r.Data) == 0 {
			break
		}
		batches, _ := wholeBatches(r.Data, 0, math.MinInt32, true)
		if err := s.disk.put(l, batches, r.Data, log.fileBytes(s)); err != nil {
			return l.keep(err)
		}
		offset = r.Next
	}
	return nil
}

// Append implements storage.Store.
func (s *Store) Append(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
	defer s.enter()()
	var result storage.AppendResult
	var err error
	if req.Granted != 0 {
		result, err = s.told(ctx, req)
	} else {
		result, err = s.append(ctx, req)
	}
	s.done = append(s.done, func() { done(result, err) })
}

// inMemory appends to the memstore, which ends before it returns.
func (s *Store) inMemory(ctx context.Context, req storage.AppendRequest) (result storage.AppendResult, err error) {
	s.inner.Append(ctx, req, func(r storage.AppendResult, e error) { result, err = r, e })
	return result, err
}

// append is an append without a grant.
func (s *Store) append(ctx context.Context, req storage.AppendRequest) (storage.AppendResult, error) {
	log, err := s.change(req.Handle)
	if err != nil {
		return storage.AppendResult{}, err
	}
	if log != nil && log.failed != nil {
		return storage.AppendResult{}, log.failed
	}
	result, err := s.inMemory(ctx, req)
	if err != nil || log == nil {
		return result, err
	}
	log.seen = req.LeaderEpoch
	l := log.layout
	if result.LEO == l.leo { // it was a repeat
		return result, nil
	}
	l.leo = result.LEO
	return result, l.keep(s.disk.put(l, req.Batches, bytes.Join(req.Data, nil), log.fileBytes(s)))
}

// Close implements storage.Store.
func (s *Store) Close(ctx context.Context, handles []storage.Handle) []error {
	defer s.enter()()
	errs := s.inner.Close(ctx, handles)
	for i, h := range handles {
		log, err := s.change(h)
		if err != nil && errs[i] == nil {
			errs[i] = err
		}
		if log != nil && errs[i] == nil {
			log.current, log.layout.loose, log.layout.suspect = 0, false, false
		}
	}
	return errs
}

// Flush implements storage.Store. A grant outlasts it.
func (s *Store) Flush(ctx context.Context, handles []storage.Handle) []storage.FlushResult {
	defer s.enter()()
	return s.inner.Flush(ctx, handles)
}

// Delete implements storage.Store.
func (s *Store) Delete(ctx context.Context, id storage.LogID) error {
	defer s.enter()()
	if err := s.inner.Delete(ctx, id); err != nil {
		return err
	}
	if l := s.disk.logs[id]; l != nil {
		l.forget()
		delete(s.disk.logs, id)
	}
	if log := s.logs[id]; log != nil {
		log.grant, log.current = nil, 0
		delete(s.logs, id)
	}
	return nil
}

// Truncate implements storage.Store.
func (s *Store) Truncate(ctx context.Context, h storage.Handle, leaderEpoch int32, to int64) (int64, error) {
	defer s.enter()()
	log, err := s.change(h)
	if err != nil {
		return 0, err
	}
	leo, err := s.inner.Truncate(ctx, h, leaderEpoch, to)
	if err != nil || log == nil {
		return leo, err
	}
	log.seen = leaderEpoch
	if leo < log.layout.leo {
		log.layout.leo = leo
		err = log.layout.keep(s.disk.truncate(log.layout, to))
	}
	return leo, err
}

// Trim implements storage.Store.
func (s *Store) Trim(ctx context.Context, h storage.Handle, to int64) (int64, error) {
	defer s.enter()()
	log, err := s.change(h)
	if err != nil {
		return 0, err
	}
	start, err := s.inner.Trim(ctx, h, to)
	if err == nil && log != nil {
		log.layout.leo = max(log.layout.leo, start)
		s.disk.trim(log.layout, start)
	}
	return start, err
}

// Retain implements storage.Store.
func (s *Store) Retain(ctx context.Context, h storage.Handle, policy storage.RetainPolicy) (storage.RetainResult, error) {
	defer s.enter()()
	log, err := s.change(h)
	if err != nil {
		return storage.RetainResult{}, err
	}
	result, err := s.inner.Retain(ctx, h, policy)
	if err == nil && log != nil {
		s.disk.trim(log.layout, result.LogStart)
	}
	return result, err
}

// Replace implements storage.Store. The log goes on in other files.
func (s *Store) Replace(ctx context.Context, req storage.ReplaceRequest) error {
	defer s.enter()()
	log, err := s.change(req.Handle)
	if err != nil {
		return err
	}
	if err := s.inner.Replace(ctx, req); err != nil || log == nil {
		return err
	}
	start, err := s.inner.Trim(ctx, req.Handle, 0) // which only tells it
	if err != nil {
		return fmt.Errorf("find the start of a log: %w", err)
	}
	return s.layOut(ctx, log, start)
}

// Shutdown implements storage.Store. A host's lock stays.
func (s *Store) Shutdown(ctx context.Context) error {
	defer s.enter()()
	if err := s.inner.Shutdown(ctx); err != nil {
		return err
	}
	for _, log := range s.logs {
		if err := log.endGrant(); err != nil {
			return err
		}
		log.layout.loose, log.layout.suspect = false, false
	}
	s.disk.letGo()
	return nil
}
