package replica

import (
	"sort"
	"sync"

	"github.com/brokerd/brokerd/sdk/storage"
)

// tail is the end of one log in memory: what was appended last and is stored,
// so that consumers at the tail do not ask the store. It has no gap. The shard adds
// to it, tails drop from it, readers read.
type tail struct {
	mu      sync.Mutex
	extents []*extent // in offset order, adjacent
	block   int       // size of the last block
}

// tailRead is what was read from a tail: whole batches, in order, and what holds their
// memory. Whoever has it releases each extent once.
type tailRead struct {
	parts   [][]byte
	extents []*extent
	bytes   int
	next    int64 // offset after the last batch, or the one asked for
}

// drop lets go of what was read.
func (t *tailRead) drop() {
	for _, e := range t.extents {
		e.release()
	}
	t.empty()
}

// empty forgets what was read.
func (t *tailRead) empty() {
	clear(t.parts)
	clear(t.extents)
	*t = tailRead{parts: t.parts[:0], extents: t.extents[:0]}
}

// grow puts a batch behind the others in the last block, if it has room.
func (t *tail) grow(base, last int64, data []byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.newest()
	if e == nil || e.frame != nil || e.last+1 != base || last-e.base > offsetsMax ||
		len(e.data)+len(data) > cap(e.data) || len(e.ends) == cap(e.ends) {
		return false
	}
	e.data = append(e.data, data...)
	e.ends = append(e.ends, batchEnd{uint32(last - e.base), uint32(len(e.data))})
	e.last = last
	return true
}

// blockBytes is the size of the last block that this tail has had, until it was
// empty.
func (t *tail) blockBytes() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.block
}

// continues reports whether a batch at base leaves no gap.
func (t *tail) continues(base int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.newest()
	return e == nil || e.last+1 == base
}

// push puts an extent at the end.
func (t *tail) push(e *extent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.extents = append(t.extents, e)
	if e.frame == nil {
		t.block = cap(e.data)
	}
}

// first is the first extent, or nil.
func (t *tail) first() *extent {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.extents) == 0 {
		return nil
	}
	return t.extents[0]
}

// shift takes the first extent, which is e.
func (t *tail) shift(e *extent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.extents[0] != e {
		panic("replica: a tail lost an extent that is not its first")
	}
	t.extents[0] = nil
	if t.extents = t.extents[1:]; len(t.extents) == 0 {
		t.extents, t.block = nil, 0
	}
}

func (t *tail) newest() *extent {
	if len(t.extents) == 0 {
		return nil
	}
	return t.extents[len(t.extents)-1]
}

// read answers a read as a store would, adding to out, or reports that the tail does
// not reach back so far, or has ended before.
func (t *tail) read(req *storage.ReadRequest, out *tailRead) bool {
	out.next = req.Offset
	t.mu.Lock()
	defer t.mu.Unlock()
	i, ok := t.find(req.Offset)
	if !ok {
		return false
	}
	room, first := req.MaxBytes, req.AtLeastOne
	for _, e := range t.extents[i:] {
		from, to := e.batches(req, room, first)
		if to > from {
			begin, end := e.start(from), e.start(to)
			e.hold()
			out.parts = append(out.parts, e.data[begin:end:end])
			out.extents = append(out.extents, e)
			out.bytes += end - begin
			out.next = e.offset(to-1) + 1
			room -= end - begin
			first = false
		}
		if to < len(e.ends) {
			break
		}
	}
	return true
}

// size is how large the first batch is that a read from offset would begin with, 0
// where it reaches upTo, or reports that the tail does not hold it.
func (t *tail) size(offset, upTo int64) (int, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, ok := t.find(offset)
	if !ok {
		return 0, false
	}
	e := t.extents[i]
	at := e.index(offset)
	if e.offset(at) >= upTo {
		return 0, true
	}
	return e.start(at+1) - e.start(at), true
}

// find is the extent with the batch that a read from offset begins with.
func (t *tail) find(offset int64) (int, bool) {
	if len(t.extents) == 0 || offset < t.extents[0].base || offset > t.newest().last {
		return 0, false
	}
	return sort.Search(len(t.extents), func(i int) bool { return t.extents[i].last >= offset }), true
}

// batches are those that qualify, the first and the one after the last.
func (e *extent) batches(req *storage.ReadRequest, room int, first bool) (from, to int) {
	from = e.index(req.Offset)
	begin, n := e.start(from), len(e.ends)-from
	fit := sort.Search(n, func(i int) bool {
		return e.offset(from+i) >= req.UpTo || e.start(from+i+1)-begin > room
	})
	if fit == 0 && n > 0 && first && e.offset(from) < req.UpTo {
		fit = 1
	}
	return from, from + fit
}

// index is the first batch that ends at offset or after it.
func (e *extent) index(offset int64) int {
	if offset <= e.base {
		return 0
	}
	return sort.Search(len(e.ends), func(i int) bool { return e.offset(i) >= offset })
}

// offset is the last of a batch.
func (e *extent) offset(at int) int64 { return e.base + int64(e.ends[at].last) }

// start is where a batch begins in the extent's data, and the one before it ends.
func (e *extent) start(at int) int {
	if at == 0 {
		return 0
	}
	return int(e.ends[at-1].at)
}
