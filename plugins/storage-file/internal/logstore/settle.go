package logstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/sealed"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

// finishTail decides where the log ends, and that a segment is there to grow.
func (r *recovery) finishTail() error {
	end := max(r.next, r.l.ckpt.LogStart)
	if r.next < r.point {
		// The log ends below its recovery point. What is missing was durable.
		r.hole(end, r.point)
		if r.point > end {
			r.lost = true
			r.note("nothing, but the log ended at %d, below its recovery point %d", r.next, r.point)
		}
		end = r.point
	}
	r.next = end
	n := len(r.segs)
	if n > 0 && !r.tailDamaged && r.index.Next == end {
		return nil
	}
	if n > 0 && !r.tailDamaged && end <= r.l.ckpt.LogStart {
		// The log start is above all that there is: begin there.
		for _, seg := range r.segs {
			if err := seg.Remove(); err != nil {
				return err
			}
			seg.Retire()
		}
		r.segs, r.scanned = nil, nil
	}
	if n := len(r.segs); n > 0 {
		if r.segs[n-1].Base() == end {
			return storage.Errorf(storage.ErrCorrupt, "log %s: segment %d is damaged from its start", r.l.dir, end)
		}
		if !r.tailDamaged {
			r.segs[n-1].Seal(r.index.Summary, nil)
		}
	}
	seg, err := segment.Create(r.fs, r.l.dir, end)
	if err != nil {
		return err
	}
	seg.Release()
	r.segs, r.index, r.changed = append(r.segs, seg), segment.NewIndex(end), true
	return nil
}

// rewriteSuspect writes again what a failed sync may have left in the page
// cache alone: a new file has new pages, which the next sync does write.
func (r *recovery) rewriteSuspect() error {
	if !r.suspect {
		return nil
	}
	for i, seg := range r.segs {
		if i+1 < len(r.segs) && r.segs[i+1].Base() <= r.point {
			continue
		}
		fresh, err := r.rewrite(seg)
		if err != nil {
			return fmt.Errorf("write segment %d again: %w", seg.Base(), err)
		}
		if fresh == seg {
			continue
		}
		fresh.Seal(seg.Summary(), nil)
		if !slices.Contains(r.scanned, seg) {
			fresh.Trust(segment.BytesMax + 1)
		}
		r.segs[i] = fresh
		r.changed = true
	}
	return nil
}

// rewrite copies a segment into a new file, which takes its name; on a full disk it
// writes the segment's bytes over themselves, and returns the segment. That changes none
// of them, needs no room where a file system writes in place, and has the next sync write
// them as well; but where the disk has failed a block it is that block again.
func (r *recovery) rewrite(seg *segment.Segment) (*segment.Segment, error) {
	if err := seg.Acquire(); err != nil {
		return nil, err
	}
	defer seg.Release()
	f := seg.File()
	bytes, _, err := f.Stat()
	if err != nil {
		return nil, err
	}
	fresh, err := copySegment(r.fs, r.l.dir, seg, bytes)
	if vfs.Full(err) {
		r.l.store.logger.Warn("no room to write a segment again in a new file, it is written in place", "path", r.l.dir, "offset", seg.Base(), "err", err)
		return seg, r.l.store.reserve.control(func() error {
			if err := copyFile(f, f, bytes); err != nil {
				return err
			}
			return f.Sync()
		})
	}
	if err != nil {
		return nil, err
	}
	seg.Retire()
	fresh.Release()
	return fresh, nil
}

// settle makes all that was found durable.
func (r *recovery) settle() error {
	if !r.clean {
		for _, seg := range r.segs {
			if seg == r.segs[len(r.segs)-1] || slices.Contains(r.scanned, seg) {
				if err := seg.Acquire(); err != nil {
					return err
				}
				err := seg.File().Sync()
				seg.Release()
				if err != nil {
					r.l.store.noteSuspect(r.l.id)
					return fmt.Errorf("sync segment %d: %w", seg.Base(), err)
				}
			}
		}
	}
	if r.suspect {
		if err := r.fs.Remove(r.path(suspectName)); err == nil {
			r.changed = true
		}
	}
	if r.changed || !r.clean {
		if err := r.fs.SyncDir(r.l.dir); err != nil {
			return fmt.Errorf("sync directory: %w", err)
		}
	}
	r.l.store.clearSuspect(r.l.id)
	return nil
}

// dropBlobs removes blobs that describe more than the log holds.
func (r *recovery) dropBlobs() error {
	return r.l.dropBlobsAbove(r.next)
}

// adopt hands what was found to the log and writes it down.
func (r *recovery) adopt() error {
	l := r.l
	l.segs, l.index, l.epochs = r.segs, r.index, r.epochs
	r.lend()
	l.leo, l.logStart = r.next, l.ckpt.LogStart
	l.holes = clipHoles(r.holes, l.logStart, l.leo)
	l.lost = l.ckpt.Lost || r.verdict()
	l.gaps = l.ckpt.Gaps || l.index.Gapped
	l.cut = strings.Join(r.cut, "; ")
	if l.cut != "" {
		l.cut = "recovery dropped " + l.cut
		l.store.logger.Warn(l.cut, "path", l.dir)
	}
	l.unsynced, l.ahead, l.aheadIn = 0, 0, l.ckpt.Ahead
	l.mu.Lock()
	l.failed, l.durable = nil, l.leo
	l.dirty = map[*segment.Segment]uint64{}
	l.cuts++
	l.mu.Unlock()
	if r.clean && l.lost == l.ckpt.Lost && !r.changed {
		l.publish()
		return nil
	}
	// An epoch that was noted for batches that were not written must not come back:
	// what is written there next may have another.
	ahead := lastEpoch(r.hint.Epochs) > lastEpoch(l.epochs)
	if err := l.writeHint(l.epochs, ahead); err != nil {
		return err
	}
	if r.stands() && r.keepCheckpoint() == nil {
		l.publish()
		return nil
	}
	// On a disk without any room the old checkpoint stays, and the next opening
	// does this work again.
	if err := l.writeControl(stateClean); err != nil && !vfs.Full(err) {
		return err
	}
	l.publish()
	return nil
}

// lend says of all batches that an earlier life may have lent them.
func (r *recovery) lend() {
	for _, seg := range r.segs[:len(r.segs)-1] {
		seg.Lend(seg.Summary().Bytes)
	}
	r.segs[len(r.segs)-1].Lend(r.index.Bytes)
}

// verdict says whether acknowledged records may be missing at the end.
func (r *recovery) verdict() bool {
	c := &r.l.ckpt
	switch {
	case r.clean:
		return false
	case !r.hasCkpt:
		// A log that was never written to has nothing to lose.
		return r.lost || r.next > 0
	case c.State == stateLoose && c.BootID != r.l.store.bootID:
		return true
	case c.State == stateSynced && c.BootID != r.l.store.bootID:
		// Whatever was acknowledged had been synced: what is damaged was not.
		return len(r.holes) > len(c.Holes) || r.next < r.point
	}
	return r.lost
}

// finishSwap ends a replacement that a crash interrupted after its journal was
// there: its renames are made again.
func (r *recovery) finishSwap() error {
	j, err := readValue[swap](r.fs, r.path(swapName), swapKind, checkpointMax)
	if missingOrDamaged(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return r.l.applySwap(j)
}

// createFile makes a small file that need not be durable.
func (s *Store) createFile(name string, content []byte) error {
	f, err := s.fs.Open(name, vfs.Empty)
	if err != nil {
		return fmt.Errorf("create %s: %w", path.Base(name), err)
	}
	_, err = f.WriteVecAt([][]byte{content}, 0)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("create %s: %w", path.Base(name), err)
	}
	return nil
}

// create makes a new log's directory. Nothing of it is durable: a crash leaves
// no log, or a directory that recovers as an empty one, which it is until the
// first append has written a checkpoint in order.
// After an error the caller lets go of what is open.
func (l *log) create(dir string) error {
	fs := l.store.fs
	if err := fs.Mkdir(dir); err != nil {
		return fmt.Errorf("make directory of log: %w", err)
	}
	l.setDir(dir)
	m, err := encodeMeta(l.id, l.label)
	if err != nil {
		return err
	}
	// The directory's name says the same, but for a label that was cleaned.
	if err := l.store.createFile(path.Join(dir, metaName), sealed.Encode(metaKind, m)); err != nil {
		return err
	}
	seg, err := segment.Create(fs, dir, 0)
	if err != nil {
		return err
	}
	seg.Release()
	l.segs, l.index = []*segment.Segment{seg}, segment.NewIndex(0)
	l.hint = fs.Lazy(path.Join(dir, hintName))
	if err = l.store.createFile(path.Join(dir, hintName), hint{}.encode()); err == nil {
		l.ckpt = l.checkpointAs(stateClean)
		var b []byte
		if b, err = json.Marshal(l.ckpt); err == nil {
			err = l.store.createFile(path.Join(dir, checkpointName), sealed.Encode(checkpointKind, b))
		}
	}
	if err != nil {
		return fmt.Errorf("make log: %w", err)
	}
	l.publish()
	return nil
}
