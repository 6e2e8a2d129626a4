package logstore

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/openfiles"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/sealed"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// recovery is the work of opening one log's directory. It reads and repairs,
// and leaves the log's fields filled in.
type recovery struct {
	l  *log
	fs *openfiles.Cache

	bases    []int64
	sizes    map[int64]int64
	hasCkpt  bool
	hint     hint
	hasHint  bool
	suspect  bool
	clean    bool  // the checkpoint says so and the files agree
	point    int64 // the recovery point
	scanFrom int64 // all from here on is verified

	segs    []*segment.Segment
	index   segment.Index // of the last of segs
	epochs  []epochStart
	holes   []span
	next    int64 // the offset after what was found so far
	scanned []*segment.Segment
	lost    bool
	cut     []string
	changed bool // the directory's names
	// tailDamaged: the last of segs has damage below the recovery point, and
	// cannot grow.
	tailDamaged bool
}

// recover opens the log's directory, which exists. On error nothing is open.
func (l *log) recover(dir string) (err error) {
	r := &recovery{l: l, fs: l.store.fs, sizes: map[int64]int64{}}
	l.setDir(dir)
	defer func() {
		if err != nil {
			r.release()
		}
	}()
	for _, step := range []func() error{
		r.load, r.dropTrimmed, r.openSegments, r.finishTail, r.rewriteSuspect, r.settle, r.dropBlobs,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return r.adopt()
}

func (r *recovery) release() {
	for _, seg := range r.segs {
		seg.Retire()
	}
	r.l.segs = nil
	r.l.letGoHint()
}

func (r *recovery) path(name string) string { return path.Join(r.l.dir, name) }

// load reads the directory and the small files, ends an unfinished
// replacement, and removes what a crash left over.
func (r *recovery) load() error {
	var err error
	if r.l.ckpt, err = readValue[checkpoint](r.fs, r.path(checkpointName), checkpointKind, checkpointMax); err == nil {
		r.hasCkpt = true
	} else if !missingOrDamaged(err) {
		return err
	}
	if err := r.finishSwap(); err != nil {
		return err
	}
	entries, err := r.fs.List(r.l.dir)
	if err != nil {
		return fmt.Errorf("list log: %w", err)
	}
	for _, e := range entries {
		switch base, isLog := segment.ParseName(e.Name, segment.LogSuffix); {
		case isLog:
			r.bases = append(r.bases, base)
			r.sizes[base] = e.Bytes
		case e.Name == suspectName:
			r.suspect = true
		case !e.Dir && (strings.HasSuffix(e.Name, sealed.TempSuffix) || strings.HasSuffix(e.Name, segment.CleanedSuffix)):
			if err := r.fs.Remove(r.path(e.Name)); err != nil {
				return fmt.Errorf("remove what a crash left: %w", err)
			}
		}
	}
	slices.Sort(r.bases)
	r.suspect = r.suspect || r.l.store.isSuspect(r.l.id)
	return r.openHint()
}

// missingOrDamaged: what was to be read can be done without.
func missingOrDamaged(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, sealed.ErrDamaged)
}

// openHint opens the hint, making it when it is missing.
func (r *recovery) openHint() error {
	r.l.hint = r.fs.Lazy(r.path(hintName))
	b, err := vfs.ReadAll(r.fs, r.path(hintName), smallFileMax)
	if errors.Is(err, os.ErrNotExist) {
		r.changed = true
		return r.l.store.reserve.control(func() error {
			return r.l.store.createFile(r.path(hintName), hint{}.encode())
		})
	}
	if err != nil {
		return fmt.Errorf("read hint: %w", err)
	}
	if r.hint, err = decodeHint(b); err == nil {
		r.hasHint = true
	} else if errors.Is(err, sealed.ErrVersion) {
		return err
	}
	return nil
}

// dropTrimmed finds the recovery point, and removes segments that lie wholly
// below the log start.
func (r *recovery) dropTrimmed() error {
	c := &r.l.ckpt
	if !r.hasCkpt && len(r.bases) > 0 {
		c.LogStart = r.bases[0]
	}
	r.point, r.scanFrom = c.LogStart, c.LogStart
	if r.hasCkpt {
		r.point = max(r.point, c.RecoveryPoint)
		r.scanFrom = r.point
	}
	if r.hasHint {
		r.point = max(r.point, r.hint.Recovery)
	}
	for len(r.bases) > 1 && r.bases[1] <= c.LogStart {
		seg := r.bases[0]
		for _, suffix := range []string{segment.IndexSuffix, segment.TimeSuffix, segment.LogSuffix} {
			if err := r.fs.Remove(r.path(segment.Name(seg, suffix))); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("remove trimmed segment: %w", err)
			}
		}
		r.bases, r.changed = r.bases[1:], true
	}
	n := len(r.bases)
	r.clean = r.hasCkpt && c.State == stateClean && n == c.Segments && n > 0 && !r.suspect &&
		r.bases[n-1] == c.ActiveBase && r.sizes[c.ActiveBase] == c.ActiveBytes
	for _, e := range c.Epochs {
		if e.Start < r.scanFrom || r.clean {
			r.epochs = append(r.epochs, e)
		}
	}
	r.holes = slices.Clone(c.Holes)
	r.next = c.LogStart
	if n > 0 {
		r.next = r.bases[0]
		if r.next > c.LogStart {
			r.hole(c.LogStart, r.next)
		}
	}
	return nil
}

// openSegments opens each segment: trusting it, by its index, or verified batch
// by batch.
func (r *recovery) openSegments() error {
	for i, base := range r.bases {
		if base != r.next {
			if done, err := r.jump(i, base); done || err != nil {
				return err
			}
		}
		seg := segment.Existing(r.fs, r.l.dir, base)
		r.segs = append(r.segs, seg)
		last := i == len(r.bases)-1
		if !last && r.bases[i+1] <= r.scanFrom || last && r.clean {
			if err := r.trust(seg, last); err != nil {
				return err
			}
			continue
		}
		if done, err := r.verify(seg, i); done || err != nil {
			return err
		}
	}
	return nil
}

// jump deals with a segment that does not begin where the one before it ends.
// done: the segment and those after it were cut.
func (r *recovery) jump(i int, base int64) (done bool, err error) {
	// Appends begin a segment where the one before it ends. Only a replacement
	// leaves a gap between two, and it lies below the recovery point.
	gapsAllowed := base <= r.point && (r.index.Gapped || r.l.ckpt.Gaps) || !r.hasCkpt
	switch {
	case base > r.next && (gapsAllowed || base <= r.l.ckpt.LogStart):
	case base > r.next && base <= r.point:
		r.hole(r.next, base)
	case base < r.next && base < r.point:
		return false, storage.Errorf(storage.ErrCorrupt, "log %s: segment %d begins inside the one before it", r.l.dir, base)
	default:
		r.lost = true
		r.note("segments from offset %d on, which do not follow the offset %d", base, r.next)
		return true, r.removeFrom(i)
	}
	r.next = base
	return false, nil
}

// trust takes a segment as it was left, with its index from the files, or built
// again from the headers. Its bytes are checked when they are read.
func (r *recovery) trust(seg *segment.Segment, last bool) error {
	bytes := r.sizes[seg.Base()]
	interval := r.l.interval()
	if !last {
		sum, err := seg.ReadSummary(bytes)
		if vfs.NoDescriptors(err) {
			return err
		}
		if err != nil {
			x, buildErr := seg.Build(bytes, interval, segment.Chain{Next: seg.Base(), Gaps: true, Epoch: epochNone})
			if buildErr != nil && !isDamage(buildErr) {
				return buildErr
			}
			sum = x.Summary
			if buildErr != nil {
				// Readers meet the damage; what follows it is not known.
				sum.Bytes, sum.Gapped = bytes, true
			} else if err := seg.WriteIndex(&x); err != nil {
				r.l.store.logger.Warn("index not written, it will be built again", "path", r.l.dir, "err", err)
			}
		}
		seg.Seal(sum, nil)
		r.index = segment.Index{Summary: sum}
		r.next = sum.Next
		return nil
	}
	x, err := seg.ReadIndex(bytes)
	if vfs.NoDescriptors(err) {
		return err
	}
	if err != nil {
		if x, err = seg.Build(bytes, interval, segment.Chain{Next: seg.Base(), Gaps: true, Epoch: epochNone}); err != nil && !isDamage(err) {
			return err
		}
		if err != nil {
			// Damage below the recovery point: it stays, and a new segment follows.
			sum := x.Summary
			sum.Bytes, sum.Gapped = bytes, true
			seg.Seal(sum, nil)
			r.hole(x.Next, r.point)
			r.tailDamaged = true
			r.index = segment.Index{Summary: sum}
			r.next = r.point
			return nil
		}
	}
	seg.Trust(bytes) // what is appended from here on
	r.index, r.next = x, x.Next
	return nil
}

// verify checks every batch of the segment, the i-th, and cuts or marks what is
// damaged. done: the segments after it were cut.
func (r *recovery) verify(seg *segment.Segment, i int) (done bool, err error) {
	if err := seg.Acquire(); err != nil {
		return false, err
	}
	defer seg.Release()
	chain := segment.Chain{
		Next: seg.Base(), Gaps: r.l.ckpt.Gaps || !r.hasCkpt, Epoch: lastEpoch(r.epochs), EpochOf: r.epochOf,
	}
	if len(r.epochs) > 0 && r.epochs[len(r.epochs)-1].Start > seg.Base() {
		chain.Epoch = epochNone
	}
	if sum, err := seg.ReadSummary(r.sizes[seg.Base()]); err == nil && sum.Gapped {
		chain.Gaps = true
	}
	x := segment.NewIndex(seg.Base())
	_, modified, err := seg.File().Stat()
	if err != nil {
		return false, fmt.Errorf("stat segment %d: %w", seg.Base(), err)
	}
	w := segment.NewWalk(seg.File(), 0, r.sizes[seg.Base()], chain)
	defer r.l.store.lendBuffer(w)()
	skipped := false
	for {
		var info recordbatch.Info
		if info, _, err = w.Next(); isDamage(err) && x.Next < r.point {
			if passed, ok := r.pass(w, err); ok {
				info, err, skipped = passed, nil, true
				info.MaxTimestamp = x.MaxTimestamp // its own is not to be believed
			}
		}
		if err != nil {
			break
		}
		x.Add(info, r.l.interval(), modified.UnixMilli())
		r.epochs = extendEpochs(r.epochs, info)
	}
	r.scanned = append(r.scanned, seg)
	r.index, r.next = x, x.Next
	var damage *segment.Damage
	if errors.As(err, &damage) && i < len(r.bases)-1 && x.Next == r.bases[i+1] {
		// The next begins where it ends: what follows is zeros that were to be cut.
		ends, err := r.cutZeros(seg, damage.Pos, recordbatch.HeaderBytes)
		if err != nil {
			return false, err
		}
		if ends {
			seg.Trust(0)
			r.sealScanned(seg, &x)
			return false, nil
		}
	}
	switch {
	case eof(err):
		if !skipped { // otherwise each read checks
			seg.Trust(0)
		}
		if i < len(r.bases)-1 {
			r.sealScanned(seg, &x)
		}
		return false, nil
	case !errors.As(err, &damage):
		return false, err
	case x.Next >= r.point:
		return true, r.cutAt(seg, i, damage)
	}
	return r.keepDamage(seg, i, damage)
}

// pass goes past a batch below the recovery point whose records are damaged: its
// header is whole, follows what is before it, and is followed by a whole batch.
// It becomes a hole, and nothing behind it is touched.
func (r *recovery) pass(w *segment.Walk, damage error) (recordbatch.Info, bool) {
	info, ok := w.Pass()
	if !ok {
		return info, false
	}
	r.hole(info.BaseOffset, info.LastOffset+1)
	r.l.store.logger.Error("damage below the recovery point", "path", r.l.dir, "offset", info.BaseOffset, "up_to", info.LastOffset+1, "err", damage)
	return info, true
}

func (r *recovery) sealScanned(seg *segment.Segment, x *segment.Index) {
	if err := seg.WriteIndex(x); err != nil {
		r.l.store.logger.Warn("index not written, it will be built again", "path", r.l.dir, "err", err)
	}
	seg.Seal(x.Summary, nil)
}

// epochOf is what the leader epoch at an offset must be, as far as it was noted
// before the batch was written.
func (r *recovery) epochOf(offset int64) (epoch int32, known bool) {
	if r.hasCkpt && offset < r.scanFrom {
		return epochAt(r.l.ckpt.Epochs, offset)
	}
	return epochAt(r.hint.Epochs, offset)
}

// cutAt drops what follows the last good batch, past the recovery point.
func (r *recovery) cutAt(seg *segment.Segment, i int, d *segment.Damage) error {
	after := int64(0)
	for _, base := range r.bases[i+1:] {
		after += r.sizes[base]
	}
	dropped := r.sizes[seg.Base()] - d.Pos
	if ahead := r.l.ckpt.Ahead; ahead != nil && *ahead == seg.Base() && i == len(r.bases)-1 {
		if ends, err := r.cutZeros(seg, d.Pos, aheadLooked); ends || err != nil {
			seg.Trust(0)
			return err
		}
		short, err := cutShort(seg.File(), d.Pos, r.sizes[seg.Base()])
		if err != nil {
			return fmt.Errorf("read segment %d at %d: %w", seg.Base(), d.Pos, err)
		}
		d.Torn = d.Torn || short
	}
	whole := !d.Torn || after > 0 // it was, once
	r.lost = r.lost || whole
	r.note("%d bytes from offset %d on (%v)", dropped+after, d.Offset, d.Reason)
	if err := r.removeFrom(i + 1); err != nil {
		return err
	}
	if err := seg.RemoveIndex(); err != nil {
		return err
	}
	r.changed = true
	if whole && r.sameBoot() {
		err := r.goOnElsewhere(seg, d)
		if !vfs.Full(err) {
			return err
		}
		// The last resort, since the alternative is a log that does not open: a client
		// that is still sent what lies behind the damage, by reference, may get other
		// bytes, which the CRC of the batch tells it.
		r.l.store.logger.Error("no room to leave damaged batches as they are, the log is cut in place; clients that read them just now may get a damaged batch",
			"path", r.l.dir, "offset", d.Offset, "err", err)
	}
	if err := seg.File().Truncate(d.Pos); err != nil {
		return fmt.Errorf("cut segment %d: %w", seg.Base(), err)
	}
	seg.Trust(0)
	return nil
}

// sameBoot reports whether somebody may still read what an earlier life has lent:
// not when the machine has started since.
func (r *recovery) sameBoot() bool {
	c := &r.l.ckpt
	return !r.hasCkpt || c.State == stateClean || c.BootID == r.l.store.bootID
}

// goOnElsewhere puts a copy of what is good of the last segment in its place. Behind
// the damage may be batches that were lent, and must not change. What a write has
// left that was cut short was never lent. An error that is vfs.Full has changed
// nothing.
func (r *recovery) goOnElsewhere(seg *segment.Segment, d *segment.Damage) error {
	err := r.l.store.reserve.large(d.Pos, func() error {
		fresh, err := copySegment(r.fs, r.l.dir, seg, d.Pos)
		if err != nil {
			return err
		}
		fresh.Release()
		fresh.Trust(0)
		r.segs[len(r.segs)-1], r.scanned[len(r.scanned)-1] = fresh, fresh
		return nil
	})
	if err != nil {
		return fmt.Errorf("cut segment %d: %w", seg.Base(), err)
	}
	seg.Retire()
	return nil
}

// keepDamage leaves damage below the recovery point in place. The log goes on
// in the next segment, or in a new one at the recovery point.
func (r *recovery) keepDamage(seg *segment.Segment, i int, d *segment.Damage) (done bool, err error) {
	r.l.store.logger.Error("damage below the recovery point", "path", r.l.dir, "offset", d.Offset, "err", d.Reason)
	sum := r.index.Summary
	sum.Bytes, sum.Gapped = r.sizes[seg.Base()], true
	seg.Seal(sum, nil)
	r.index.Summary = sum
	if i+1 < len(r.bases) && r.bases[i+1] <= r.point {
		r.hole(d.Offset, r.bases[i+1])
		r.next = r.bases[i+1]
		return false, nil
	}
	r.lost, r.tailDamaged = true, true
	r.hole(d.Offset, r.point)
	r.next = r.point
	r.note("nothing, but the offsets from %d to %d are damaged (%v)", d.Offset, r.point, d.Reason)
	return true, r.removeFrom(i + 1)
}

// removeFrom removes the segments from the i-th on, the last first, so that a
// crash leaves no gap.
func (r *recovery) removeFrom(i int) error {
	for _, base := range slices.Backward(r.bases[i:]) {
		for _, suffix := range []string{segment.IndexSuffix, segment.TimeSuffix, segment.LogSuffix} {
			if err := r.fs.Remove(r.path(segment.Name(base, suffix))); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("remove segment past the cut: %w", err)
			}
		}
		r.changed = true
	}
	r.bases = r.bases[:i]
	return nil
}

// cutZeros cuts the segment at the position if there are zeros, written ahead of
// the log.
func (r *recovery) cutZeros(seg *segment.Segment, pos, look int64) (ends bool, err error) {
	if ends, err = endsAt(seg.File(), pos, look); !ends || err != nil {
		return false, err
	}
	if err := seg.File().Truncate(pos); err != nil {
		return false, fmt.Errorf("cut the zeros behind segment %d: %w", seg.Base(), err)
	}
	r.sizes[seg.Base()] = pos
	return true, nil
}

func (r *recovery) hole(from, to int64) {
	if from < to {
		r.holes = addHole(r.holes, span{from, to})
	}
}

func (r *recovery) note(format string, args ...any) {
	r.cut = append(r.cut, fmt.Sprintf(format, args...))
}

func isDamage(err error) bool {
	var d *segment.Damage
	return errors.As(err, &d)
}
