package pluginhost

import (
	"context"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/storage"
)

// Capabilities implements storage.Store. They are zero before the store first
// served.
func (s *Store) Capabilities() storage.Capabilities {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.capabilities
}

// Open implements storage.Store.
func (s *Store) Open(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
	l, err := s.live()
	if err != nil {
		results := make([]storage.OpenResult, len(specs))
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	results := l.store.Open(ctx, specs)
	for i := range results {
		if results[i].Err == nil {
			results[i].Handle |= l.tag
		}
	}
	return results
}

// each calls fn with those handles that belong to the process that serves, and
// their places among handles; miss is called for each of the others.
func (s *Store) each(handles []storage.Handle, fn func(st *plugin.Store, own []storage.Handle, places []int), miss func(place int, err error)) {
	var l *storeLife
	own, places := make([]storage.Handle, 0, len(handles)), make([]int, 0, len(handles))
	for i, h := range handles {
		of, handle, err := s.resolve(h)
		if err == nil && l == nil {
			l = of
		}
		switch {
		case err != nil:
			miss(i, err)
		case of != l: // the process was replaced while we looked
			miss(i, storage.Errorf(storage.ErrGone, "plugin %s was started again", s.plugin))
		default:
			own, places = append(own, handle), append(places, i)
		}
	}
	if len(own) > 0 {
		fn(l.store, own, places)
	}
}

// Close implements storage.Store.
func (s *Store) Close(ctx context.Context, handles []storage.Handle) []error {
	errs := make([]error, len(handles))
	s.each(handles, func(st *plugin.Store, own []storage.Handle, places []int) {
		for i, err := range st.Close(ctx, own) {
			errs[places[i]] = err
		}
	}, func(place int, err error) { errs[place] = err })
	return errs
}

// Flush implements storage.Store.
func (s *Store) Flush(ctx context.Context, handles []storage.Handle) []storage.FlushResult {
	results := make([]storage.FlushResult, len(handles))
	s.each(handles, func(st *plugin.Store, own []storage.Handle, places []int) {
		for i, r := range st.Flush(ctx, own) {
			results[places[i]] = r
		}
	}, func(place int, err error) { results[place].Err = err })
	return results
}

// List implements storage.Store.
func (s *Store) List(ctx context.Context) ([]storage.LogInfo, error) {
	l, err := s.live()
	if err != nil {
		return nil, err
	}
	return l.store.List(ctx)
}

// Delete implements storage.Store.
func (s *Store) Delete(ctx context.Context, id storage.LogID) error {
	l, err := s.live()
	if err != nil {
		return err
	}
	return l.store.Delete(ctx, id)
}

// Append implements storage.Store.
func (s *Store) Append(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
	l, h, err := s.resolve(req.Handle)
	if err != nil {
		done(storage.AppendResult{}, err)
		return
	}
	req.Handle = h
	l.store.Append(ctx, req, done)
}

// Read implements storage.Store.
func (s *Store) Read(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
	l, h, err := s.resolve(req.Handle)
	if err != nil {
		return storage.ReadResult{}, err
	}
	req.Handle = h
	return l.store.Read(ctx, req)
}

var _ storage.Sections = (*Store)(nil)

// ReadSection implements storage.Sections.
func (s *Store) ReadSection(req storage.ReadRequest) (storage.Section, bool) {
	l, h, err := s.resolve(req.Handle)
	if err != nil {
		return storage.Section{}, false
	}
	req.Handle = h
	return l.store.ReadSection(req)
}

// Scan implements storage.Store.
func (s *Store) Scan(ctx context.Context, req storage.ScanRequest) ([]storage.BatchInfo, error) {
	l, h, err := s.resolve(req.Handle)
	if err != nil {
		return nil, err
	}
	req.Handle = h
	return l.store.Scan(ctx, req)
}

// Truncate implements storage.Store.
func (s *Store) Truncate(ctx context.Context, handle storage.Handle, leaderEpoch int32, to int64) (int64, error) {
	l, h, err := s.resolve(handle)
	if err != nil {
		return 0, err
	}
	return l.store.Truncate(ctx, h, leaderEpoch, to)
}

// Trim implements storage.Store.
func (s *Store) Trim(ctx context.Context, handle storage.Handle, to int64) (int64, error) {
	l, h, err := s.resolve(handle)
	if err != nil {
		return 0, err
	}
	return l.store.Trim(ctx, h, to)
}

// Retain implements storage.Store.
func (s *Store) Retain(ctx context.Context, handle storage.Handle, policy storage.RetainPolicy) (storage.RetainResult, error) {
	l, h, err := s.resolve(handle)
	if err != nil {
		return storage.RetainResult{}, err
	}
	return l.store.Retain(ctx, h, policy)
}

// Replace implements storage.Store.
func (s *Store) Replace(ctx context.Context, req storage.ReplaceRequest) error {
	l, h, err := s.resolve(req.Handle)
	if err != nil {
		return err
	}
	req.Handle = h
	return l.store.Replace(ctx, req)
}

// FindTimestamp implements storage.Store.
func (s *Store) FindTimestamp(ctx context.Context, q storage.TimestampQuery) (storage.BatchInfo, bool, error) {
	l, h, err := s.resolve(q.Handle)
	if err != nil {
		return storage.BatchInfo{}, false, err
	}
	q.Handle = h
	return l.store.FindTimestamp(ctx, q)
}

// PutBlob implements storage.Store.
func (s *Store) PutBlob(ctx context.Context, handle storage.Handle, name string, b storage.Blob) error {
	l, h, err := s.resolve(handle)
	if err != nil {
		return err
	}
	return l.store.PutBlob(ctx, h, name, b)
}

// GetBlob implements storage.Store.
func (s *Store) GetBlob(ctx context.Context, handle storage.Handle, name string) (storage.Blob, bool, error) {
	l, h, err := s.resolve(handle)
	if err != nil {
		return storage.Blob{}, false, err
	}
	return l.store.GetBlob(ctx, h, name)
}

// Usage implements storage.Store.
func (s *Store) Usage(ctx context.Context) (storage.Usage, error) {
	l, err := s.live()
	if err != nil {
		return storage.Usage{}, err
	}
	return l.store.Usage(ctx)
}

// Files implements storage.Store: there are none for the core, see sdk/plugin.
func (s *Store) Files() storage.Files { return nil }
