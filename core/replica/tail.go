package replica

import (
	"slices"
	"sort"
	"sync"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// tail is the end of one log in memory: what was appended last and is stored,
// so that consumers at the tail do not ask the store. It has no gap. The shard
// adds and drops; readers read.
type tail struct {
	mu     sync.Mutex
	chunks []chunk // in offset order, adjacent
}

// chunk is the batches of one append, back to back. Nothing changes them.
type chunk struct {
	base    int64
	last    int64
	batches []recordbatch.Info
	data    []byte
}

// size is what the chunk takes in memory, in bytes, with what is known of it.
func (c *chunk) size() int64 {
	const own, each = 160, 80 // a chunk with its entry in the budget, a batch's Info
	return own + each*int64(len(c.batches)) + int64(len(c.data))
}

// add puts a chunk at the end. One that is not adjacent begins anew.
func (t *tail) add(c chunk) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.chunks); n > 0 && t.chunks[n-1].last+1 != c.base {
		t.chunks = nil
	}
	t.chunks = append(t.chunks, c)
}

// dropBelow drops the chunks at the front, up to the one that ends at last.
func (t *tail) dropBelow(last int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for n < len(t.chunks) && t.chunks[n].last <= last {
		n++
	}
	t.chunks = slices.Delete(t.chunks, 0, n)
}

// reset drops everything.
func (t *tail) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.chunks = nil
}

// read answers a read as a store would, or reports that the tail does not
// reach back so far. The bytes are the caller's.
func (t *tail) read(req storage.ReadRequest) (storage.ReadResult, bool) {
	res := storage.ReadResult{Next: req.Offset}
	parts := t.parts(req, &res)
	if len(parts) == 0 {
		return res, false
	}
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	res.Data = make([]byte, 0, size)
	for _, p := range parts {
		res.Data = append(res.Data, p...)
	}
	return res, true
}

// first is the size of the batch that a read from offset would begin with, or
// reports that the tail does not hold it.
func (t *tail) first(offset, upTo int64) (int, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.chunks) == 0 || offset < t.chunks[0].base {
		return 0, false
	}
	i := sort.Search(len(t.chunks), func(i int) bool { return t.chunks[i].last >= offset })
	if i == len(t.chunks) {
		return 0, false
	}
	for _, b := range t.chunks[i].batches {
		if b.LastOffset >= offset {
			return int(b.Bytes), b.LastOffset < upTo
		}
	}
	return 0, false
}

// parts collects the bytes to read; they are copied without the lock.
func (t *tail) parts(req storage.ReadRequest, res *storage.ReadResult) [][]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.chunks) == 0 || req.Offset < t.chunks[0].base {
		return nil
	}
	i := sort.Search(len(t.chunks), func(i int) bool { return t.chunks[i].last >= req.Offset })
	var parts [][]byte
	room := req.MaxBytes
	for ; i < len(t.chunks); i++ {
		part, whole := t.chunks[i].from(req, res, &room, len(parts) == 0)
		if len(part) > 0 {
			parts = append(parts, part)
		}
		if !whole {
			break
		}
	}
	return parts
}

// from is the batches of a chunk that qualify, and whether all from the offset
// on did.
func (c *chunk) from(req storage.ReadRequest, res *storage.ReadResult, room *int, first bool) (part []byte, whole bool) {
	begin, end := 0, 0
	whole = true
	for i := range c.batches {
		b := &c.batches[i]
		n := int(b.Bytes)
		if b.LastOffset < req.Offset {
			begin += n
			end = begin
			continue
		}
		fits := n <= *room || (first && end == begin && req.AtLeastOne)
		if b.LastOffset >= req.UpTo || !fits {
			whole = false
			break
		}
		end += n
		*room -= n
		res.Next = b.LastOffset + 1
	}
	return c.data[begin:end], whole
}

// tailBudget bounds the tails of one shard together: the oldest bytes go first,
// whosever they are. The shard owns it.
type tailBudget struct {
	limit int64
	used  int64
	queue []tailEntry
}

type tailEntry struct {
	tail *tail
	last int64
	size int64
}

// add keeps a chunk within the budget.
func (b *tailBudget) add(t *tail, c chunk) {
	size := c.size()
	if size > b.limit/4 {
		t.reset() // one log must not drive out all others
		return
	}
	t.add(c)
	b.queue = append(b.queue, tailEntry{t, c.last, size})
	b.used += size
	n := 0
	for b.used > b.limit {
		old := b.queue[n]
		old.tail.dropBelow(old.last)
		b.used -= old.size
		b.queue[n] = tailEntry{}
		n++
	}
	b.queue = b.queue[n:]
}
