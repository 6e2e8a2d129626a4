package logstore

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/sdk/storage"
)

// What was lent is lent for ever: the host may have handed it to a socket by
// reference, and returns the lease long before the peer has read it there. So it is
// the segment that remembers up to where it was lent, not the store which leases are
// out, and nothing ends with a lease.

// Return implements storage.Files.
func (f files) Return([]storage.LeaseID) {}

// Lease implements storage.Files.
func (f files) Lease(ctx context.Context, h storage.Handle, offset int64) (storage.Lease, error) {
	return f.s.lease(ctx, h, offset)
}

// lease is Lease; where the file system lends no descriptors, there is no file
// in it.
func (s *Store) lease(ctx context.Context, h storage.Handle, offset int64) (storage.Lease, error) {
	var lent storage.Lease
	giveUp := func() {
		if lent.File != nil {
			_ = lent.File.Close() // only read
		}
		lent = storage.Lease{}
	}
	err := s.viewed(ctx, h, func(l *log, v *view) error {
		giveUp() // what was lent of a view that is old
		return l.lendBytes(v, offset, &lent)
	})
	if err != nil {
		giveUp()
		return storage.Lease{}, err
	}
	lent.ID = storage.LeaseID(s.leases.Add(1))
	return lent, nil
}

// lendBytes lends the segment that the offset is in. It notes that while the segment
// is held, and before it looks whether the log is being cut, and before the view is
// compared with what the log is by then: so nobody takes the file for other bytes.
func (l *log) lendBytes(v *view, offset int64, lent *storage.Lease) error {
	if err := v.checkRange(offset); err != nil {
		return err
	}
	i := v.find(offset)
	end, bytes := v.end(i)
	if i < len(v.segs)-1 && v.segs[i].Summary().Next <= offset {
		// What is missing at the end of a segment is sought in the next.
		i++
		offset = max(offset, v.segs[i].Base())
		end, bytes = v.end(i)
	}
	if offset >= end || bytes == 0 {
		return storage.Errorf(storage.ErrRetry, "there is nothing to lend at offset %d", offset)
	}
	if hole, holed := holeIn(v.holes, offset, end); holed {
		return storage.Errorf(storage.ErrRetry, "the log is damaged at offset %d", hole.From)
	}
	seg := v.segs[i]
	if err := acquire(seg); err != nil {
		return err
	}
	defer seg.Release()
	lent.FileID, lent.Limit, lent.End = seg.ID(), bytes, end
	if err := l.place(v, i, offset, lent); err != nil {
		return err
	}
	seg.Lend(bytes)
	if l.isCutting() {
		return storage.Errorf(storage.ErrRetry, "the log is being cut")
	}
	return l.lendSegment(seg, lent)
}

// place finds where the batch begins that the offset is in.
func (l *log) place(v *view, i int, offset int64, lent *storage.Lease) error {
	x, err := l.indexOf(v, i)
	if err != nil {
		return err
	}
	lent.Gaps = x.Gapped
	lent.Pos, lent.First = x.At(offset)
	w := segment.NewWalk(v.segs[i].File(), lent.Pos, lent.Limit, segment.Chain{
		Next: lent.First, Gaps: x.Gapped, Epoch: epochNone,
		EpochOf: func(o int64) (int32, bool) { return epochAt(v.epochs, o) },
	})
	for {
		info, err := w.NextHeader()
		switch {
		case eof(err):
			return storage.Errorf(storage.ErrRetry, "there is no batch at offset %d", offset)
		case isDamage(err):
			return storage.Errorf(storage.ErrRetry, "%v", err) // a read says more
		case err != nil:
			return err
		case info.LastOffset >= offset:
			return nil
		}
		lent.Pos, lent.First = w.Pos(), info.LastOffset+1
	}
}

// lendSegment opens the segment's file once more, for reading only.
func (l *log) lendSegment(seg *segment.Segment, lent *storage.Lease) error {
	if l.store.lender == nil {
		return nil
	}
	err := l.store.fs.Retry(func() (err error) {
		lent.File, err = l.store.lender.LendBytes(seg.File(), seg.FileName())
		return err
	})
	if errors.Is(err, os.ErrNotExist) {
		return storage.Errorf(storage.ErrRetry, "segment %d was removed or replaced meanwhile", seg.Base())
	}
	if err != nil {
		return fmt.Errorf("lend segment %d: %w", seg.Base(), err)
	}
	return nil
}
