package logstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// Replace implements storage.Store. The new segments are written and synced
// under temporary names; then a journal says that they are to take the place of
// the old ones, which is the moment at which the log changes; then they are
// renamed. A crash before the journal leaves the old range, one after it is
// finished by recovery.
func (s *Store) Replace(ctx context.Context, req storage.ReplaceRequest) error {
	l, err := s.lookup(req.Handle)
	if err != nil {
		return err
	}
	if len(req.Batches) > 0 || len(req.Data) > 0 {
		if err := checkBatches(req.Batches, req.From, false, req.Data); err != nil {
			return err
		}
	}
	if n := len(req.Batches); n > 0 && req.Batches[n-1].LastOffset >= req.To {
		return storage.Errorf(storage.ErrInvalid, "the batches do not fit between %d and %d", req.From, req.To)
	}
	return l.doAs(ctx, req.Handle, func() error {
		if err := l.takeBack(false); err != nil {
			return err
		}
		return l.replace(&req)
	})
}

func (l *log) replace(req *storage.ReplaceRequest) error {
	if req.From > req.To || req.From < l.logStart || req.To > l.leo {
		return storage.Errorf(storage.ErrInvalid, "the log, from %d to %d, has no range from %d to %d", l.logStart, l.leo, req.From, req.To)
	}
	if req.From == req.To {
		return nil
	}
	if err := l.store.reserve.admit(); err != nil {
		return err
	}
	// A segment that grows is never replaced.
	if l.index.Bytes > 0 && req.To > l.index.Base {
		if err := l.roll(); err != nil {
			return l.writeError("roll the log", err)
		}
	}
	if err := l.sync(); err != nil {
		return err
	}
	l.answer()
	v := l.snapshot()
	first, last := v.find(req.From), v.find(req.To-1)
	b := rebuild{l: l, v: v, base: v.segs[first].Base()}
	err := b.write(req, first, last)
	if err != nil {
		b.abandon()
		if errors.Is(err, segment.ErrChain) || isDamage(err) {
			return storage.Errorf(storage.ErrCorrupt, "replace: %v", err)
		}
		if isClassed(err) {
			return err
		}
		return l.writeError("write the replacement", err)
	}
	return l.swapIn(&b, first, last)
}

// rebuild writes the segments of a replacement.
type rebuild struct {
	l    *log
	v    *view
	base int64

	segs    []*segment.Segment
	indexes []segment.Index
}

// abandon removes the new segments.
func (b *rebuild) abandon() {
	for _, seg := range b.segs {
		_ = b.l.store.fs.Remove(path.Join(b.l.dir, segment.Name(seg.Base(), segment.LogSuffix+segment.CleanedSuffix))) // else at the next opening
	}
	b.release()
}

// release closes the new segments, and leaves their files for the next opening.
func (b *rebuild) release() {
	for _, seg := range b.segs {
		seg.Release()
		seg.Retire()
	}
}

// write copies what stays of the segments first to last, with the new batches
// in their place.
func (b *rebuild) write(req *storage.ReplaceRequest, first, last int) error {
	if err := b.begin(b.base); err != nil {
		return err
	}
	for i := first; i <= last; i++ {
		if err := b.copySegment(i, req); err != nil {
			return err
		}
	}
	for i := range b.segs {
		if err := b.segs[i].File().Sync(); err != nil {
			return fmt.Errorf("sync the replacement: %w", err)
		}
	}
	return nil
}

// copySegment copies the batches of one segment that stay. Before the first
// that lies at or after From, and wherever the range ends, it puts the new ones.
func (b *rebuild) copySegment(i int, req *storage.ReplaceRequest) error {
	_, bytes := b.v.end(i)
	seg := b.v.segs[i]
	end, _ := b.v.end(i)
	if err := seg.Acquire(); err != nil {
		return err
	}
	defer seg.Release()
	written := seg.Summary().WrittenMillis
	w := segment.NewWalk(seg.File(), 0, bytes, segment.Chain{Next: seg.Base(), Gaps: true, Epoch: epochNone})
	for {
		info, data, err := w.Next()
		if eof(err) {
			break
		}
		if err != nil {
			return err
		}
		switch {
		case info.BaseOffset < req.From && info.LastOffset >= req.From, info.BaseOffset < req.To && info.LastOffset >= req.To:
			return storage.Errorf(storage.ErrInvalid, "the range from %d to %d cuts the batch from %d to %d", req.From, req.To, info.BaseOffset, info.LastOffset)
		case info.BaseOffset >= req.From && info.LastOffset < req.To:
			continue
		case info.BaseOffset >= req.To:
			if err := b.putNew(req, req.To, written); err != nil {
				return err
			}
		}
		if err := b.put(info, data, written); err != nil {
			return err
		}
	}
	return b.putNew(req, end, written)
}

// putNew writes the new batches that lie below upTo and were not written yet.
func (b *rebuild) putNew(req *storage.ReplaceRequest, upTo, written int64) error {
	for len(req.Batches) > 0 && req.Batches[0].LastOffset < upTo {
		info := req.Batches[0]
		if err := b.put(info, req.Data[:info.Bytes], written); err != nil {
			return err
		}
		req.Batches, req.Data = req.Batches[1:], req.Data[info.Bytes:]
	}
	return nil
}

// begin begins a new segment.
func (b *rebuild) begin(base int64) error {
	seg, err := segment.CreateCleaned(b.l.store.fs, b.l.dir, base)
	if err != nil {
		return err
	}
	b.segs = append(b.segs, seg)
	b.indexes = append(b.indexes, segment.NewIndex(base))
	return nil
}

func (b *rebuild) put(info recordbatch.Info, data []byte, written int64) error {
	x := &b.indexes[len(b.indexes)-1]
	if x.Bytes > 0 && (x.Bytes+int64(len(data)) > b.l.options.SegmentBytes || info.LastOffset-x.Base > 1<<31-1 || x.Full()) {
		if err := b.begin(info.BaseOffset); err != nil {
			return err
		}
		x = &b.indexes[len(b.indexes)-1]
	}
	seg := b.segs[len(b.segs)-1]
	if _, err := seg.File().WriteVecAt([][]byte{data}, x.Bytes); err != nil {
		return fmt.Errorf("write the replacement: %w", err)
	}
	x.Add(info, b.l.interval(), written)
	return nil
}

// swapIn puts the new segments in place.
func (l *log) swapIn(b *rebuild, first, last int) error {
	j := swap{}
	for _, seg := range l.segs[first : last+1] {
		j.Old = append(j.Old, seg.Base())
	}
	for _, seg := range b.segs {
		j.New = append(j.New, seg.Base())
	}
	// Offsets may be missing from now on, and a checkpoint that counts the old
	// segments as clean would not fit.
	oldGaps := l.gaps
	l.gaps = true
	st := l.ckpt.State
	if st == stateClean {
		st = stateSynced
	}
	if err := l.writeCheckpoint(st); err != nil {
		l.gaps = oldGaps
		b.abandon()
		return l.writeError("replace", err)
	}
	if err := writeValue(l.store.fs, path.Join(l.dir, swapName), swapKind, j); err != nil {
		err = fmt.Errorf("write the journal of the replacement: %w", err)
		// Where the journal may be there, the new segments are needed.
		if missing, _ := l.isMissing(swapName); missing && (vfs.Full(err) || vfs.NoDescriptors(err)) {
			b.abandon()
			return l.writeError("replace", err)
		}
		b.release()
		return l.fail(err)
	}
	for i, seg := range b.segs {
		end := b.v.leo
		if i+1 < len(b.segs) {
			end = b.segs[i+1].Base()
		} else if last+1 < len(b.v.segs) {
			end = b.v.segs[last+1].Base()
		}
		x := &b.indexes[i]
		x.Gapped = x.Gapped || x.Next != end
		seg.Seal(x.Summary, nil)
	}
	old := l.segs[first : last+1]
	l.segs = slices.Concat(l.segs[:first], b.segs, l.segs[last+1:])
	l.publish()
	// Their names go to the new ones, which are open till they have them.
	for _, seg := range old {
		l.forget(seg)
	}
	if err := l.applySwap(j); err != nil {
		b.release()
		return l.fail(fmt.Errorf("replace: %w", err))
	}
	for _, seg := range b.segs {
		seg.Renamed()
		seg.Release()
	}
	for i, seg := range b.segs {
		if err := seg.WriteIndex(&b.indexes[i]); err != nil {
			l.store.logger.Warn("index not written, it will be built again", "path", l.dir, "err", err)
		}
	}
	return nil
}

// isMissing reports whether the log's directory surely has no such file. It
// fails when it cannot tell.
func (l *log) isMissing(name string) (bool, error) {
	f, err := l.store.fs.Open(path.Join(l.dir, name), vfs.Existing)
	if err == nil {
		return false, f.Close() // only looked for
	}
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	return false, fmt.Errorf("look for %s: %w", name, err)
}

// applySwap makes the renames of a journal, as often as it takes, and removes
// the journal. Nothing is removed unless all that replaces it is there.
func (l *log) applySwap(j swap) error {
	fs := l.store.fs
	name := func(base int64, suffix string) string { return path.Join(l.dir, segment.Name(base, suffix)) }
	remove := func(name string) error {
		if err := fs.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove a replaced file: %w", err)
		}
		return nil
	}
	for _, base := range j.New {
		log := segment.Name(base, segment.LogSuffix)
		cleaned, err := l.isMissing(log + segment.CleanedSuffix)
		renamed, errToo := l.isMissing(log)
		if err := errors.Join(err, errToo); err != nil {
			return err
		}
		if cleaned && renamed {
			return storage.Errorf(storage.ErrCorrupt, "log %s: segment %d of a replacement under way is missing", l.dir, base)
		}
	}
	for _, base := range j.Old {
		if err := errors.Join(remove(name(base, segment.IndexSuffix)), remove(name(base, segment.TimeSuffix))); err != nil {
			return err
		}
	}
	for _, base := range j.New {
		log := name(base, segment.LogSuffix)
		if err := fs.Rename(log+segment.CleanedSuffix, log); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("rename a replacing segment: %w", err)
		}
	}
	for _, base := range j.Old {
		if !slices.Contains(j.New, base) {
			if err := remove(name(base, segment.LogSuffix)); err != nil {
				return err
			}
		}
	}
	if err := fs.SyncDir(l.dir); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	if err := remove(path.Join(l.dir, swapName)); err != nil {
		return err
	}
	return fs.SyncDir(l.dir)
}
