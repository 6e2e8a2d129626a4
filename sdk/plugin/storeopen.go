package plugin

import (
	"context"
	"fmt"
	"slices"

	storagev1 "github.com/brokerd/brokerd/sdk/proto/storage/v1"
	"github.com/brokerd/brokerd/sdk/storage"
)

// Open implements storage.Store.
func (s *Store) Open(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
	results := make([]storage.OpenResult, len(specs))
	fail := func(err error) []storage.OpenResult {
		for i := range results {
			results[i] = storage.OpenResult{Err: err}
		}
		return results
	}
	ctx, cancel, err := s.begin(ctx)
	defer cancel()
	if err != nil {
		return fail(err)
	}
	req := &storagev1.OpenRequest{}
	ids := make([]storage.LogID, 0, len(specs))
	for _, spec := range specs {
		req.Specs = append(req.Specs, openSpecToProto(spec))
		ids = append(ids, spec.ID)
	}
	release, err := s.only(ctx, ids)
	defer release()
	if err != nil {
		return fail(err)
	}
	m, err := s.rpc.Open(ctx, req)
	if err != nil {
		return fail(callError(ctx, "open logs", err))
	}
	if len(m.GetResults()) != len(specs) {
		return fail(countError("open logs", len(m.GetResults()), len(specs)))
	}
	for i, r := range m.GetResults() {
		results[i] = openResultFromProto(r)
	}
	s.opened(specs, results)
	return results
}

// only makes the caller the only one to open or delete logs until it calls release:
// an earlier opening that was answered late must not write under a grant when a
// later one has been served. Nothing of their handles is lent meanwhile.
func (s *Store) only(ctx context.Context, ids []storage.LogID) (release func(), err error) {
	mine := make(chan struct{})
	var taken []storage.LogID
	ends := []func(){}
	release = func() {
		for _, end := range slices.Backward(ends) {
			end()
		}
		s.mu.Lock()
		for _, id := range taken {
			delete(s.opening, id)
		}
		s.mu.Unlock()
		close(mine)
	}
	for {
		s.mu.Lock()
		other := s.busy(ids)
		if other == nil {
			break
		}
		s.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return release, fmt.Errorf("%w: wait for another opening of a log: %w", storage.ErrUnknown, ctx.Err())
		}
	}
	var handles []storage.Handle
	for _, id := range ids {
		s.opening[id] = mine
		taken = append(taken, id)
		if h, ok := s.handles[id]; ok && !slices.Contains(handles, h) {
			handles = append(handles, h)
		}
	}
	s.mu.Unlock()
	for i := 0; err == nil && s.files != nil && i < len(handles); i++ {
		var end func()
		end, err = s.files.settle(ctx, handles[i])
		ends = append(ends, end)
	}
	return release, err
}

// busy returns what is closed when one of the logs is not opened or deleted by
// somebody else any more, nil if none is. The caller holds mu.
func (s *Store) busy(ids []storage.LogID) <-chan struct{} {
	for _, id := range ids {
		if other, ok := s.opening[id]; ok {
			return other
		}
	}
	return nil
}

// opened remembers the handle of each log, and lets go of its earlier one.
func (s *Store) opened(specs []storage.OpenSpec, results []storage.OpenResult) {
	var old []storage.Handle
	s.mu.Lock()
	for i, r := range results {
		if r.Err != nil {
			continue
		}
		if h, ok := s.handles[specs[i].ID]; ok && h != r.Handle {
			old = append(old, h)
		}
		s.handles[specs[i].ID] = r.Handle
		if s.files != nil {
			s.files.opened(r)
		}
	}
	s.mu.Unlock()
	s.forget(old...)
}

// forget drops what is kept of handles that nobody will use again.
func (s *Store) forget(handles ...storage.Handle) {
	for _, h := range handles {
		if s.files != nil {
			s.files.forget(h)
		}
		s.lane.forget(h)
	}
}
