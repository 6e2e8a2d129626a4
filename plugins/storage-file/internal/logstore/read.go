package logstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/openfiles"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

const (
	// readBytesMax bounds one read, whatever it asks for; a batch that is larger
	// is still returned alone.
	readBytesMax = 64 << 20
	// readAheadBytes is read beyond what is asked for, since the index points
	// some way before the batch.
	readAheadBytes = 4 << 10
)

// errMoved: a segment went before it could be read; the view is old, unless
// somebody else removed the file.
var errMoved = errors.New("segment is gone")

// acquire is a reader's Acquire.
func acquire(seg *segment.Segment) error {
	err := seg.Acquire()
	if errors.Is(err, openfiles.ErrRetired) || errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %w", errMoved, err)
	}
	return err
}

// viewed runs f on the log's view until nothing was truncated meanwhile, so
// that what f read is what the view describes.
func (s *Store) viewed(ctx context.Context, h storage.Handle, f func(l *log, v *view) error) error {
	l, err := s.lookup(h)
	if err != nil {
		return err
	}
	for {
		if err := l.check(h); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return storage.Errorf(storage.ErrUnknown, "the call was given up: %v", err)
		}
		v := l.snapshot()
		err := f(l, v)
		if cut, changed := l.moved(v); cut || changed && errors.Is(err, errMoved) {
			continue
		}
		if errors.Is(err, openfiles.ErrRetired) {
			return errClosed()
		}
		if err != nil {
			return s.class(err)
		}
		return l.check(h)
	}
}

// Read implements storage.Store.
func (s *Store) Read(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
	var result storage.ReadResult
	err := s.viewed(ctx, req.Handle, func(l *log, v *view) (err error) {
		result, err = l.read(v, req)
		return err
	})
	if err != nil {
		return storage.ReadResult{}, err
	}
	return result, nil
}

// checkRange checks the offset that a reader begins at.
func (v *view) checkRange(offset int64) error {
	if offset < v.logStart || offset > v.leo {
		return storage.Errorf(storage.ErrInvalid, "offset %d is not between %d and %d", offset, v.logStart, v.leo)
	}
	return nil
}

// find returns the segment in which an offset would be.
func (v *view) find(offset int64) int {
	i := sort.Search(len(v.segs), func(i int) bool { return v.segs[i].Base() > offset })
	return max(0, i-1)
}

// end is the offset at which the i-th segment ends, and how many bytes it has.
func (v *view) end(i int) (offset, bytes int64) {
	if i == len(v.segs)-1 {
		return v.leo, v.active.Bytes
	}
	return v.segs[i+1].Base(), v.segs[i].Summary().Bytes
}

// indexOf returns the index of the i-th segment, which was acquired.
func (l *log) indexOf(v *view, i int) (*segment.Index, error) {
	if i == len(v.segs)-1 {
		return &v.active, nil
	}
	x, fresh, err := v.segs[i].Index(l.store.options.IndexIntervalBytes)
	if errors.Is(err, openfiles.ErrRetired) {
		return nil, fmt.Errorf("%w: %w", errMoved, err)
	}
	if err != nil {
		return nil, err
	}
	if fresh {
		l.store.indexes.loaded(v.segs[i], x.SizeInMemory())
	}
	return x, nil
}

// corrupt is the error of a reader that meets damage.
func corrupt(offset int64, why error) error {
	return storage.Errorf(storage.ErrCorrupt, "the log is damaged at offset %d: %v", offset, why)
}

var errHole = errors.New("batches that were durable are missing or damaged")

func (l *log) read(v *view, req storage.ReadRequest) (storage.ReadResult, error) {
	result := storage.ReadResult{Next: req.Offset}
	if err := v.checkRange(req.Offset); err != nil {
		return result, err
	}
	room, atLeastOne := min(max(req.MaxBytes, 0), readBytesMax), req.AtLeastOne
	at := req.Offset
	for i := v.find(at); i < len(v.segs) && at < min(req.UpTo, v.leo); i++ {
		end, _ := v.end(i)
		upTo := min(req.UpTo, end)
		hole, holed := holeIn(v.holes, at, upTo)
		if holed {
			upTo = hole.From
		}
		data, next, full, err := l.readSegment(v, i, at, upTo, room, atLeastOne)
		if len(data) > 0 {
			if result.Data == nil {
				result.Data = data
			} else {
				result.Data = append(result.Data, data...)
			}
			result.Next, atLeastOne = next, false
			room -= len(data)
		}
		if err == nil && holed && !full {
			err = corrupt(hole.From, errHole)
		}
		if err != nil && len(result.Data) == 0 {
			return storage.ReadResult{}, err
		}
		if full || err != nil {
			break
		}
		at = max(at, end)
	}
	return result, nil
}

// readSegment returns batches of one segment from the first that reaches
// offset, whose last offsets are below upTo. full: there are more, which did
// not fit.
func (l *log) readSegment(v *view, i int, offset, upTo int64, room int, atLeastOne bool) (data []byte, next int64, full bool, err error) {
	seg := v.segs[i]
	if err := acquire(seg); err != nil {
		return nil, 0, false, err
	}
	defer seg.Release()
	end, bytes := v.end(i)
	r := segmentRead{l: l, v: v, seg: seg, bytes: bytes, end: end, offset: offset, upTo: upTo, room: room, atLeastOne: atLeastOne}
	x, err := l.indexOf(v, i)
	if err != nil {
		return nil, 0, false, err
	}
	pos, first := x.At(offset)
	err = r.run(pos, first, x.Gapped)
	if isDamage(err) && len(r.data) == 0 && pos > 0 {
		// The index may be what is wrong: go from the start.
		r.data = nil
		err = r.run(0, seg.Base(), x.Gapped)
		if err == nil && i < len(v.segs)-1 {
			l.store.indexes.loaded(seg, seg.Rebuild(l.store.options.IndexIntervalBytes).SizeInMemory())
		}
	}
	var damage *segment.Damage
	if errors.As(err, &damage) {
		err = corrupt(damage.Offset, damage.Reason)
	}
	return r.data, r.next, r.full, err
}

// segmentRead is one read of one segment.
type segmentRead struct {
	l            *log
	v            *view
	seg          *segment.Segment
	bytes, end   int64 // of the segment
	offset, upTo int64
	room         int
	atLeastOne   bool

	data    []byte // batches that follow each other in the file
	next    int64
	full    bool // the next batch did not fit
	reached bool // the next batch reaches upTo
}

// run reads from pos on, where the batch of at least the offset first starts.
func (r *segmentRead) run(pos, first int64, gapped bool) error {
	chain := segment.Chain{Next: first, Gaps: gapped, Epoch: epochNone, EpochOf: func(offset int64) (int32, bool) {
		return epochAt(r.v.epochs, offset)
	}}
	want := r.room + readAheadBytes
	for pos < r.bytes {
		buf := make([]byte, min(int64(max(want, recordbatch.HeaderBytes)), r.bytes-pos))
		if err := readFull(r.seg, buf, pos); err != nil {
			return err
		}
		used, more, err := r.take(buf, pos, &chain)
		pos += int64(used)
		if len(r.data) > 0 && pos < r.bytes && !r.reached {
			r.full = true // as much as was read; the next read goes on
		}
		if err != nil || r.full || r.reached || len(r.data) > 0 {
			return err
		}
		want = max(more, r.room+readAheadBytes)
	}
	return nil
}

func readFull(seg *segment.Segment, buf []byte, pos int64) error {
	n, err := seg.File().ReadAt(buf, pos)
	if n == len(buf) {
		return nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read segment %d at %d: %w", seg.Base(), pos, err)
	}
	return &segment.Damage{Pos: pos, Offset: seg.Base(), Torn: true, Reason: io.ErrUnexpectedEOF}
}

// take goes over the batches in buf, which was read at pos, and keeps those
// that are wanted. used is what it is done with; more is how many bytes the
// batch after that needs, if buf ends in it.
func (r *segmentRead) take(buf []byte, pos int64, chain *segment.Chain) (used, more int, err error) {
	from, to := -1, 0
	for {
		info, err := r.batch(buf[used:], pos+int64(used), chain)
		if err != nil || info.Bytes == 0 {
			r.keep(buf, from, to)
			return used, 0, err
		}
		start, size := used, int(info.Bytes)
		before := *chain
		if err := r.follows(chain, info); err != nil {
			r.keep(buf, from, to)
			return used, 0, r.damage(pos+int64(start), chain, err)
		}
		if info.LastOffset >= r.offset {
			r.reached = info.LastOffset >= r.upTo
			r.full = !r.reached && to-max(from, 0)+size > r.room && (from >= 0 || !r.atLeastOne)
			if r.reached || r.full {
				r.keep(buf, from, to)
				return used, 0, nil
			}
			if start+size > len(buf) {
				*chain = before // it is read again
				r.keep(buf, from, to)
				return used, size, nil
			}
			if err := r.verify(buf[start:start+size], pos+int64(start), info.BaseOffset); err != nil {
				r.keep(buf, from, to)
				return used, 0, err
			}
			if from < 0 {
				from = start
			}
			to, r.next = start+size, info.LastOffset+1
		}
		used = start + size
		if used >= len(buf) {
			r.keep(buf, from, to)
			return used, 0, nil
		}
	}
}

// keep makes buf[from:to] what was read.
func (r *segmentRead) keep(buf []byte, from, to int) {
	if from >= 0 && to > from {
		r.data = buf[from:to:to]
	}
}

// batch parses the header at the head of b. Bytes is 0 when b ends in it.
func (r *segmentRead) batch(b []byte, pos int64, chain *segment.Chain) (recordbatch.Info, error) {
	left := r.bytes - pos
	info, err := recordbatch.Parse(b)
	if errors.Is(err, recordbatch.ErrIncomplete) && int64(len(b)) < left {
		return recordbatch.Info{}, nil
	}
	if err == nil && int64(info.Bytes) > left {
		err = recordbatch.ErrIncomplete
	}
	if err != nil {
		return info, r.damage(pos, chain, err)
	}
	return info, nil
}

// follows checks the batch against its neighbours and the segment's end.
func (r *segmentRead) follows(chain *segment.Chain, info recordbatch.Info) error {
	if info.LastOffset >= r.end {
		return fmt.Errorf("%w: last offset %d in a segment that ends at %d", segment.ErrChain, info.LastOffset, r.end)
	}
	return chain.Check(info)
}

// verify checks a batch that was not checked in this life of the process.
func (r *segmentRead) verify(b []byte, pos, offset int64) error {
	end := pos + int64(len(b))
	if r.seg.Trusted(pos, end) {
		return nil
	}
	if err := recordbatch.CheckCRC(b); err != nil {
		return &segment.Damage{Pos: pos, Offset: offset, Reason: err}
	}
	r.seg.Checked(pos, end)
	return nil
}

func (r *segmentRead) damage(pos int64, chain *segment.Chain, reason error) error {
	return &segment.Damage{Pos: pos, Offset: chain.Next, Reason: reason}
}
