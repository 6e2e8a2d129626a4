package filestore

import (
	"context"
	"math"
	"os"
	"sort"

	"golang.org/x/sys/unix"

	"github.com/brokerd/brokerd/sdk/storage"
)

// Truncate implements storage.Store.
func (s *Store) Truncate(ctx context.Context, h storage.Handle, leaderEpoch int32, to int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	leo, err := s.Store.Truncate(ctx, h, leaderEpoch, to)
	if l := s.handles[h]; l != nil && err == nil {
		l.leo = leo
		err = s.rewrite(ctx, h)
	}
	return leo, err
}

// Trim implements storage.Store.
func (s *Store) Trim(ctx context.Context, h storage.Handle, to int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	start, err := s.Store.Trim(ctx, h, to)
	if l := s.handles[h]; l != nil && err == nil {
		l.start, l.leo = start, max(l.leo, start)
		err = s.rewrite(ctx, h)
	}
	return start, err
}

// Retain implements storage.Store.
func (s *Store) Retain(ctx context.Context, h storage.Handle, p storage.RetainPolicy) (storage.RetainResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.Store.Retain(ctx, h, p)
	if l := s.handles[h]; l != nil && err == nil {
		l.start = r.LogStart
		err = s.rewrite(ctx, h)
	}
	return r, err
}

// Replace implements storage.Store.
func (s *Store) Replace(ctx context.Context, req storage.ReplaceRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.Store.Replace(ctx, req)
	if err == nil {
		err = s.rewrite(ctx, req.Handle)
	}
	return err
}

// Delete implements storage.Store.
func (s *Store) Delete(ctx context.Context, id storage.LogID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Store.Delete(ctx, id); err != nil {
		return err
	}
	if l := s.logs[id]; l != nil {
		delete(s.logs, id)
		delete(s.handles, l.handle)
		_ = l.file.Close()
		return os.Remove(l.path)
	}
	return nil
}

// Close implements storage.Store.
func (s *Store) Close(ctx context.Context, handles []storage.Handle) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range handles {
		if l := s.handles[h]; l != nil {
			l.grant, l.handle = 0, 0
			delete(s.handles, h)
		}
	}
	return s.Store.Close(ctx, handles)
}

// Shutdown implements storage.Store.
func (s *Store) Shutdown(ctx context.Context) error {
	err := s.Store.Shutdown(ctx)
	s.LetGo()
	return err
}

// LetGo closes the store's files, as the end of a process does.
func (s *Store) LetGo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.logs {
		_ = l.file.Close()
	}
	_ = s.lock.Close()
}

// Grant implements storage.Files.
func (s *Store) Grant(_ context.Context, h storage.Handle, leaderEpoch int32, _ storage.Survives) (storage.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.handles[h]
	if l == nil {
		return storage.Grant{}, s.noHandle(h)
	}
	if leaderEpoch < l.epoch {
		return storage.Grant{}, storage.Errorf(storage.ErrFenced, "leader epoch %d is lower than %d", leaderEpoch, l.epoch)
	}
	if l.grant != 0 { // what was written and not told is not the log's
		_ = l.file.Truncate(l.size)
	}
	s.lastID++
	g := storage.Grant{
		ID: storage.GrantID(s.lastID), FileID: l.fileID, Pos: l.size, Limit: l.size + s.opt.GrantBytes, LEO: l.leo, LeaderEpoch: leaderEpoch,
		MaxTimestamp: math.MaxInt64, MaxOffset: math.MaxInt64 / 2, Gaps: true, EndMark: s.opt.EndMark,
	}
	if s.opt.Granted != nil {
		s.mu.Unlock()
		err := s.opt.Granted(&g)
		s.mu.Lock()
		if err != nil {
			return storage.Grant{}, err
		}
	}
	if g.File == nil {
		file, err := os.OpenFile(l.path, os.O_RDWR, 0)
		if err != nil {
			return storage.Grant{}, storage.Errorf(storage.ErrRetry, "%v", err)
		}
		g.File = file
	}
	l.grant, l.limit, l.appends, l.over = g.ID, g.Limit, 0, false
	return g, nil
}

// noHandle says why a handle has no log. The caller holds mu.
func (s *Store) noHandle(h storage.Handle) error {
	if _, superseded := s.handles[h]; superseded {
		return storage.Errorf(storage.ErrFenced, "handle %d was superseded", h)
	}
	return storage.Errorf(storage.ErrGone, "there is no handle %d", h)
}

// End implements storage.Files.
func (s *Store) End(_ context.Context, h storage.Handle, id storage.GrantID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.handles[h]; l != nil && l.grant == id {
		l.grant = 0
		_ = l.file.Truncate(l.size) // what was written and not told is not the log's
	}
	return nil
}

// Grants is how many logs are lent.
func (s *Store) Grants() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, l := range s.logs {
		if l.grant != 0 {
			n++
		}
	}
	return n
}

// Lease implements storage.Files.
func (s *Store) Lease(_ context.Context, h storage.Handle, offset int64) (storage.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.handles[h]
	switch {
	case l == nil:
		return storage.Lease{}, s.noHandle(h)
	case offset < l.start || offset > l.leo:
		return storage.Lease{}, storage.Errorf(storage.ErrInvalid, "offset %d of a log from %d to %d", offset, l.start, l.leo)
	}
	i := sort.Search(len(l.places), func(i int) bool { return l.places[i].last >= offset })
	if i == len(l.places) {
		return storage.Lease{}, storage.Errorf(storage.ErrRetry, "nothing is behind offset %d", offset)
	}
	file, err := os.Open(l.path)
	if err != nil {
		return storage.Lease{}, storage.Errorf(storage.ErrRetry, "%v", err)
	}
	s.lastID++
	le := storage.Lease{
		ID: storage.LeaseID(s.lastID), File: file, FileID: l.fileID, Pos: l.places[i].pos, Limit: l.size,
		First: l.places[i].first, End: l.leo, Gaps: true,
	}
	if s.opt.Leased != nil {
		if err := s.opt.Leased(&le); err != nil {
			_ = le.File.Close()
			return storage.Lease{}, err
		}
	}
	return le, nil
}

// Return implements storage.Files: nothing is used again here, or cut, but what was
// not told.
func (s *Store) Return([]storage.LeaseID) {}

// Lock implements storage.Files.
func (s *Store) Lock() (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fd, err := unix.FcntlInt(s.lock.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, storage.Errorf(storage.ErrRetry, "share the lock: %v", err)
	}
	return os.NewFile(uintptr(fd), "lock"), nil
}
