package replica

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/model"
)

const (
	// keepBytes is how large a batch is that stays where its client's request lies;
	// smaller ones are copied together, since each costs its readers a part.
	keepBytes = 8 << 10
	// blockBytes is how much small batches share at most. A log begins with
	// blockBytesMin, since most logs get little.
	blockBytes    = 64 << 10
	blockBytesMin = 4 << 10
	// batchBytesMin is about the least size of a batch in a block.
	batchBytesMin = 96
	// keptShare is the largest part of the budget that one frame or batch may take:
	// one log must not drive out all others.
	keptShare = 4
	// sentShare is the part of the budget that may be held by answers, each of which may
	// take long to send; past that, readers copy.
	sentShare = 2
)

// tails are the ends of all logs of the broker in memory, under one budget: the
// oldest bytes go first, whosever they are. What is counted is the memory that is kept
// from being freed: whole frames, and blocks as they were made, until no tail has a
// part of it and no answer either, whose client may take its time. So it is never more
// than the limit.
//
// Its lock is taken before that of a tail.
type tails struct {
	limit   int64
	buffers Buffers

	sent atomic.Int64 // what answers have parts of

	mu     sync.Mutex
	used   int64
	frames map[*model.Frame]*keptFrame
	oldest *extent // the first of all that are in tails, by age
	newest *extent
}

func newTails(limit int64, buffers Buffers) *tails {
	return &tails{limit: limit, buffers: buffers, frames: make(map[*model.Frame]*keptFrame)}
}

// extent is memory with one or more batches of one log, back to back. What is in
// data does not change; a block's data grows, by the tail's lock.
type extent struct {
	all  *tails
	tail *tail
	base int64
	last int64
	data []byte
	ends []batchEnd // of each batch
	one  [1]batchEnd

	frame *keptFrame // that data is in; nil: it is a block of ours
	cost  int64      // in bytes, but for the frame
	older *extent
	newer *extent

	holders atomic.Int64 // ofTail, while it is, and one for each part of an answer
}

// ofTail among an extent's holders is its tail.
const ofTail = 1 << 40

// keptFrame is a frame of which something is kept.
type keptFrame struct {
	frame   *model.Frame
	bytes   int64
	extents int          // that are in it; guarded by the lock of tails
	sent    atomic.Int64 // extents that answers have parts of
}

// batchEnd is where a batch ends: its last offset, from the extent's base on, and its
// end in the extent's data.
type batchEnd struct{ last, at uint32 }

const (
	extentBytes   = int64(unsafe.Sizeof(extent{})) + 64 // with what refers to it
	batchEndBytes = int64(unsafe.Sizeof(batchEnd{}))
	offsetsMax    = 1<<32 - 1 // of one extent
)

// add keeps a batch that was stored, at the end of a log's tail. Of a frame it keeps
// the batch where it lies, if it is large enough; otherwise it copies.
func (s *tails) add(t *tail, base, last int64, data []byte, frame *model.Frame) {
	if s.limit == 0 {
		return
	}
	keep := frame != nil && len(data) >= keepBytes && int64(frame.Bytes) <= s.limit/keptShare
	if !keep && t.grow(base, last, data) {
		return
	}
	if int64(len(data)) > s.limit/keptShare || last-base > offsetsMax {
		s.reset(t)
		return
	}
	e := &extent{all: s, tail: t, base: base, last: last, cost: extentBytes}
	if keep {
		e.data = data[:len(data):len(data)]
		e.one[0] = batchEnd{uint32(last - base), uint32(len(data))}
		e.ends = e.one[:]
	} else {
		size := s.blockSize(t, len(data))
		e.data = s.buffers.Get(size)[:len(data)]
		copy(e.data, data)
		e.ends = append(make([]batchEnd, 0, max(1, size/batchBytesMin)), batchEnd{uint32(last - base), uint32(len(data))})
		e.cost += int64(cap(e.data)) + batchEndBytes*int64(cap(e.ends))
	}
	if !keep {
		frame = nil
	}
	if !s.enter(e, frame) && !keep {
		s.buffers.Put(e.data)
	}
}

// blockSize is that of a log's next block: twice the one before.
func (s *tails) blockSize(t *tail, least int) int {
	most := int(min(blockBytes, s.limit/16))
	if least > most/2 {
		return least
	}
	return max(least, min(most, max(blockBytesMin, 2*t.blockBytes())))
}

// enter counts an extent and puts it at the end of its tail; what is oldest makes
// room for it. False: answers that are being sent leave no room.
func (s *tails) enter(e *extent, frame *model.Frame) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !e.tail.continues(e.base) {
		s.resetLocked(e.tail)
	}
	for s.used+s.costLocked(e, frame) > s.limit {
		if s.oldest == nil {
			return false
		}
		s.dropLocked(s.oldest)
	}
	s.used += s.costLocked(e, frame)
	if frame != nil {
		e.frame = s.keepLocked(frame)
	}
	e.holders.Store(ofTail)
	if e.older = s.newest; e.older != nil {
		e.older.newer = e
	} else {
		s.oldest = e
	}
	s.newest = e
	e.tail.push(e)
	return true
}

// costLocked is what an extent adds to what is used: a frame counts once.
func (s *tails) costLocked(e *extent, frame *model.Frame) int64 {
	if frame == nil || s.frames[frame] != nil {
		return e.cost
	}
	return e.cost + int64(frame.Bytes)
}

func (s *tails) keepLocked(frame *model.Frame) *keptFrame {
	f := s.frames[frame]
	if f == nil {
		f = &keptFrame{frame: frame, bytes: int64(frame.Bytes)}
		s.frames[frame] = f
		frame.Keep()
	}
	f.extents++
	return f
}

// reset forgets the tail of a log.
func (s *tails) reset(t *tail) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resetLocked(t)
}

func (s *tails) resetLocked(t *tail) {
	for e := t.first(); e != nil; e = t.first() {
		s.dropLocked(e)
	}
}

// dropLocked takes an extent, the first of its tail, from it.
func (s *tails) dropLocked(e *extent) {
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		s.oldest = e.newer
	}
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		s.newest = e.older
	}
	e.older, e.newer = nil, nil
	e.tail.shift(e)
	if e.holders.Add(-ofTail) == 0 {
		s.freeLocked(e)
	}
}

// hold is for a part of an extent that becomes an answer's. The extent's tail is
// locked.
func (e *extent) hold() {
	if e.holders.Add(1) != ofTail+1 {
		return
	}
	e.all.sent.Add(e.cost)
	if f := e.frame; f != nil && f.sent.Add(1) == 1 {
		e.all.sent.Add(f.bytes)
	}
}

// release is for a part that was sent, or will not be.
func (e *extent) release() {
	left := e.holders.Add(-1)
	if left != 0 && left != ofTail {
		return
	}
	s := e.all
	s.sent.Add(-e.cost)
	if f := e.frame; f != nil && f.sent.Add(-1) == 0 {
		s.sent.Add(-f.bytes)
	}
	if left == 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.freeLocked(e)
	}
}

// freeLocked lets go of an extent that nobody has any more.
func (s *tails) freeLocked(e *extent) {
	s.used -= e.cost
	if f := e.frame; f == nil {
		s.buffers.Put(e.data)
	} else if f.extents--; f.extents == 0 {
		delete(s.frames, f.frame)
		s.used -= f.bytes
		f.frame.Drop()
	}
	e.data = nil
}

// crowded: answers hold so much that readers copy what they read, lest those who do
// not take their answers leave no room for tails.
func (s *tails) crowded() bool { return s.sent.Load() > s.limit/sentShare }

// Buffers lends bytes. Its methods may be called concurrently.
type Buffers interface {
	// Get returns n bytes of any content, the caller's until Put.
	Get(n int) []byte
	// Put gives a buffer back. Nobody uses it any more.
	Put(b []byte)
}

var _ Buffers = (*memory.Buffers)(nil)
