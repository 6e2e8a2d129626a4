package memfiles

import (
	"context"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// grant is the end of a log, lent.
type grant struct {
	storage.Grant
	file    *file
	require storage.Survives
}

const (
	// refuseEvery grants, one is refused: a host has to live with that.
	refuseEvery = 5
	// roomBytesMin is the least that a grant is given for.
	roomBytesMin = 1024
)

// Grant implements storage.Files.
func (s *Store) Grant(ctx context.Context, h storage.Handle, leaderEpoch int32, require storage.Survives) (storage.Grant, error) {
	defer s.enter()()
	log, err := s.change(h)
	if err != nil {
		return storage.Grant{}, err
	}
	if require < storage.SurvivesUnset || require > s.inner.Capabilities().Survives {
		return storage.Grant{}, storage.Errorf(storage.ErrInvalid, "the store cannot make an append survive level %d", require)
	}
	leo := int64(math.MaxInt64)
	if log != nil {
		leo = log.layout.leo
	}
	// Truncating at the end changes nothing, and checks and notes the epoch.
	if _, err := s.inner.Truncate(ctx, h, leaderEpoch, leo); err != nil {
		return storage.Grant{}, err
	}
	log.seen = leaderEpoch
	if log.failed != nil {
		return storage.Grant{}, log.failed
	}
	if s.asked++; s.asked%refuseEvery == 0 {
		return storage.Grant{}, storage.Errorf(storage.ErrRetry, "not this time")
	}
	return s.lendEnd(ctx, log, leaderEpoch, require)
}

// End implements storage.Files.
func (s *Store) End(ctx context.Context, h storage.Handle, id storage.GrantID) error {
	defer s.enter()()
	log := s.owners[h]
	if log == nil || log.current != h {
		_, err := s.inner.Trim(ctx, h, 0) // which changes nothing, and knows the handle
		return err
	}
	if log.grant == nil || log.grant.ID != id {
		return nil
	}
	return log.endGrant()
}

func (s *Store) lendEnd(ctx context.Context, log *openLog, leaderEpoch int32, require storage.Survives) (storage.Grant, error) {
	l := log.layout
	if l.lost {
		return storage.Grant{}, storage.Errorf(storage.ErrRetry, "the log does not lie in files")
	}
	if l.last() == nil {
		if err := l.keep(s.disk.roll(l)); err != nil {
			return storage.Grant{}, err
		}
	}
	f := l.last()
	limit := log.fileBytes(s)
	if u, err := s.inner.Usage(ctx); err == nil && u.Total > 0 {
		limit = min(limit, f.size+u.Free)
	}
	if limit-f.size < roomBytesMin {
		return storage.Grant{}, storage.Errorf(storage.ErrRetry, "there is room for %d bytes", max(0, limit-f.size))
	}
	lent, err := os.OpenFile(f.f.Name(), os.O_RDWR, 0)
	if err != nil {
		return storage.Grant{}, storage.Errorf(storage.ErrRetry, "open a file of the log: %v", err)
	}
	s.lastGrant++
	log.grant = &grant{
		Grant: storage.Grant{
			ID: s.lastGrant, File: lent, FileID: f.id, Pos: f.size, Limit: limit, LEO: l.leo, LeaderEpoch: leaderEpoch,
			MaxTimestamp: math.MaxInt64, MaxOffset: l.leo + math.MaxInt32,
			// What is left of other batches is told from the log's by its offsets alone.
			EndMark: f.mark(), Gaps: f.mark() == 0,
		},
		file:    f,
		require: require,
	}
	f.gaps = log.grant.Gaps
	l.loose = l.loose || require < storage.SurvivesMachine
	if age := log.options.SegmentAge.Milliseconds(); age > 0 && len(f.batches) > 0 {
		log.grant.MaxTimestamp = f.batches[0].MaxTimestamp + age
	}
	return log.grant.Grant, nil
}

// told is an append of batches that the host has written.
func (s *Store) told(ctx context.Context, req storage.AppendRequest) (storage.AppendResult, error) {
	log := s.owners[req.Handle]
	if log == nil || log.current != req.Handle {
		return s.inMemory(ctx, req) // which knows why the handle is none
	}
	if log.failed != nil {
		return storage.AppendResult{}, log.failed
	}
	result, err := s.takeTold(ctx, log, req)
	if err != nil {
		log.failed = storage.Errorf(storage.ErrGone, "an append under a grant failed (%v); open the log again", err)
		return storage.AppendResult{}, err
	}
	log.layout.leo = result.LEO
	return result, nil
}

func (s *Store) takeTold(ctx context.Context, log *openLog, req storage.AppendRequest) (storage.AppendResult, error) {
	g := log.grant
	if g == nil || g.ID != req.Granted {
		return storage.AppendResult{}, storage.Errorf(storage.ErrInvalid, "the log has no grant %d", req.Granted)
	}
	if err := g.check(&req); err != nil {
		return storage.AppendResult{}, storage.Errorf(storage.ErrInvalid, "an append under a grant: %v", err)
	}
	data := make([]byte, req.Bytes())
	if _, err := g.file.f.ReadAt(data, req.Pos); err != nil {
		return storage.AppendResult{}, storage.Errorf(storage.ErrInvalid, "read what was written under a grant: %v", err)
	}
	// A repeat is none under a grant: its bytes would lie in the file twice.
	if leo := log.layout.leo; req.BaseOffset != leo {
		return storage.AppendResult{}, storage.Errorf(storage.ErrInvalid, "the base offset is %d but the log ends at %d", req.BaseOffset, leo)
	}
	plain := req
	plain.Granted, plain.Pos, plain.Data = 0, 0, [][]byte{data}
	result, err := s.inMemory(ctx, plain)
	if err != nil {
		return result, err
	}
	g.file.place(req.Batches)
	g.file.dirty = max(g.file.dirty, g.file.size+int64(g.EndMark))
	result.GrantOver = g.file.size-g.Pos > (g.Limit-g.Pos)/2
	return result, nil
}

// check holds the request against the grant.
func (g *grant) check(req *storage.AppendRequest) error {
	end := req.Pos + req.Bytes() + int64(g.EndMark)
	switch {
	case len(req.Data) > 0:
		return fmt.Errorf("it carries data")
	case req.Pos != g.file.size:
		return fmt.Errorf("it says position %d, and the one before ended at %d", req.Pos, g.file.size)
	case req.LeaderEpoch != g.LeaderEpoch:
		return fmt.Errorf("it is of leader epoch %d, the grant of %d", req.LeaderEpoch, g.LeaderEpoch)
	case req.Require < g.require:
		return fmt.Errorf("it requires level %d, the grant at least %d", req.Require, g.require)
	case end > g.Limit:
		return fmt.Errorf("it ends at %d, the grant at %d", end, g.Limit)
	}
	next := req.BaseOffset
	for i := range req.Batches {
		b := &req.Batches[i]
		if b.Bytes < recordbatch.MinBytes || b.MaxTimestamp > g.MaxTimestamp || b.LastOffset > g.MaxOffset || b.LeaderEpoch != g.LeaderEpoch {
			return fmt.Errorf("batch %d is outside of the grant's limits", i)
		}
		if !g.Gaps && b.BaseOffset != next {
			return fmt.Errorf("batch %d begins at %d and not at %d", i, b.BaseOffset, next)
		}
		next = b.LastOffset + 1
	}
	return nil
}

// Lease implements storage.Files.
func (s *Store) Lease(ctx context.Context, h storage.Handle, offset int64) (storage.Lease, error) {
	defer s.enter()()
	if _, err := s.inner.Read(ctx, storage.ReadRequest{Handle: h, Offset: offset, UpTo: math.MaxInt64}); err != nil {
		return storage.Lease{}, err
	}
	files := s.owners[h].layout.files
	for i, f := range files {
		if f.end() <= offset {
			continue
		}
		lease, err := s.lend(f, offset)
		if err == nil && i+1 < len(files) && len(files[i+1].batches) > 0 {
			lease.End = files[i+1].batches[0].BaseOffset
		}
		return lease, err
	}
	return storage.Lease{}, storage.Errorf(storage.ErrRetry, "no file holds a batch at %d or above", offset)
}

// lend lends a file from the batch that reaches offset on.
func (s *Store) lend(f *file, offset int64) (storage.Lease, error) {
	lent, err := os.Open(f.f.Name())
	if err != nil {
		return storage.Lease{}, storage.Errorf(storage.ErrRetry, "open a file of the log: %v", err)
	}
	first := 0
	for f.batches[first].LastOffset < offset {
		first++
	}
	s.lastLease++
	lease := storage.Lease{
		ID: s.lastLease, File: lent, FileID: f.id, Pos: f.batches[first].pos, Limit: f.size,
		First: f.batches[first].BaseOffset, End: f.end(),
	}
	next := lease.First
	for _, b := range f.batches[first:] {
		lease.Gaps = lease.Gaps || b.BaseOffset != next
		next = b.LastOffset + 1
	}
	f.lent = max(f.lent, f.size)
	return lease, nil
}

// Return implements storage.Files: what was leased stays as it is for ever.
func (s *Store) Return([]storage.LeaseID) {}

// Lock implements storage.Files.
func (s *Store) Lock() (*os.File, error) {
	defer s.enter()()
	if s.disk.holder != s {
		return nil, storage.Errorf(storage.ErrGone, "the store has ended")
	}
	fd, err := unix.FcntlInt(s.lock.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, storage.Errorf(storage.ErrRetry, "copy the descriptor of the lock: %v", err)
	}
	return os.NewFile(uintptr(fd), s.lock.Name()), nil
}

// found is what lies in a file behind the batches that are known.
type found struct {
	batches []storage.BatchInfo
	data    []byte
	// cut says what follows and is not of the log, if anything; whole, that it was
	// written whole once.
	cut   string
	whole bool
}

// untold returns what was written under a grant and not told.
func (l *layout) untold() (found, error) {
	if l == nil || l.disturbed || l.last() == nil {
		return found{}, nil
	}
	f := l.last()
	rest, err := f.behind()
	if err != nil {
		return found{}, err
	}
	epoch := int32(math.MinInt32)
	if n := len(f.batches); n > 0 {
		epoch = f.batches[n-1].LeaderEpoch
	}
	batches, size := wholeBatches(rest, l.leo, epoch, f.gaps)
	u := found{batches: batches, data: rest[:size]}
	if rest = rest[size:]; f.mark() == 0 && len(rest) > 0 { // nothing else was ever there
		u.cut = fmt.Sprintf("%d bytes that were written under a grant", len(rest))
		n, err := recordbatch.Size(rest)
		u.whole = err == nil && n <= len(rest)
	}
	return u, nil
}

// wholeBatches returns the batches at the head of data that may follow in a log
// that ends at leo with an epoch, with gaps between them or without, and their length.
func wholeBatches(data []byte, leo int64, epoch int32, gaps bool) (batches []storage.BatchInfo, size int) {
	for rest := data; ; {
		info, batch, tail, err := recordbatch.Next(rest)
		if err != nil || info.BaseOffset < leo || info.LeaderEpoch < epoch || !gaps && info.BaseOffset != leo {
			return batches, size
		}
		batches, size = append(batches, info), size+len(batch)
		leo, epoch, rest = info.LastOffset+1, info.LeaderEpoch, tail
	}
}

// adopt brings what was not told into the log.
func (s *Store) adopt(ctx context.Context, l *layout, r storage.OpenResult, untold found, epoch int32) error {
	if r.LEO > untold.batches[0].BaseOffset {
		return storage.Errorf(storage.ErrGone, "the log ends at %d, and a batch at %d is behind it in its file", r.LEO, untold.batches[0].BaseOffset)
	}
	_, err := s.inMemory(ctx, storage.AppendRequest{
		Handle: r.Handle, LeaderEpoch: epoch, BaseOffset: r.LEO, Batches: untold.batches, Data: [][]byte{untold.data},
	})
	if err != nil {
		return fmt.Errorf("take over what was written under a grant: %w", err)
	}
	l.last().place(untold.batches)
	return nil
}
