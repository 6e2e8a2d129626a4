package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/storage"
)

// reading is one partition of a fetch that is being read.
type reading struct {
	*fetching
	out  *model.Fetched
	view *view
	req  storage.ReadRequest
}

// readTail reads from memory. False: the store is to be asked.
func (c *fetch) readTail(ctx context.Context, r *reading) bool {
	got := &c.tailRead
	if !r.replica.tail.read(&r.req, got) {
		return false
	}
	if got.bytes == 0 {
		return true
	}
	if c.room.bounded() {
		least := min(got.bytes, max(leastRoom, len(got.parts[0])))
		left, ok := c.room.grow(ctx, c.answer.Memory, least, got.bytes)
		if !ok {
			got.drop()
			return true
		}
		if left < got.bytes {
			c.room.full = true
			if got.drop(); left <= 0 {
				return true
			}
			r.req.MaxBytes = min(r.req.MaxBytes, left)
			if !r.replica.tail.read(&r.req, got) {
				return false
			}
			if got.bytes == 0 {
				return true
			}
		}
	}
	if !c.room.bounded() || r.replica.shard.tails.crowded() {
		c.copyTail(r, got)
		return true
	}
	r.out.Data = append(r.out.Data, got.parts...)
	c.extents = append(c.extents, got.extents...)
	c.tookTail(r, got.bytes, got.bytes, got.next)
	got.empty()
	return true
}

// copyTail takes what was read from a tail into memory of the answer's own.
func (c *fetch) copyTail(r *reading, got *tailRead) {
	var data []byte
	if c.room.bounded() {
		data = c.m.deps.Buffers.Get(got.bytes)[:0]
		c.buffers = append(c.buffers, data)
	} else {
		data = make([]byte, 0, got.bytes)
	}
	for _, part := range got.parts {
		data = append(data, part...)
	}
	r.out.Data = append(r.out.Data, data)
	c.tookTail(r, len(data), cap(data), got.next)
	got.drop()
}

// tookTail counts what was read from a tail.
func (c *fetch) tookTail(r *reading, bytes, memory int, next int64) {
	r.replica.fromMemory.n.Add(int64(bytes))
	c.took(r.fetching, bytes, memory, next)
}

// took counts what was read.
func (c *fetch) took(p *fetching, bytes, memory int, next int64) {
	p.bytes += bytes
	c.bytes += bytes
	c.answer.Memory += memory
	p.next = max(p.next, next)
}

// readSection takes what memory does not have as a stretch of a file, if the store can
// say where it lies, and the fetch is answered with it: a section keeps its file open, and
// waits for nothing but its client. It comes before all that is read of the partition
// otherwise, and needs no room.
func (c *fetch) readSection(r *reading) bool {
	if !c.ask.Sections || r.bytes > 0 {
		return false
	}
	sections, ok := r.replica.dir.Store.(storage.Sections)
	if !ok {
		return false
	}
	s, ok := sections.ReadSection(r.req)
	if !ok {
		return false
	}
	if s.Bytes < c.missing() {
		s.Owner.Release(false)
		return false
	}
	r.section = s.Owner
	r.out.Section = model.Section{File: s.File, Pos: s.Pos, Bytes: s.Bytes, Owner: r.fetching}
	c.took(r.fetching, s.Bytes, 0, s.Next)
	return true
}

// Damaged implements the owner of a model.Section.
func (p *fetching) Damaged() { p.damaged = true }

// readStore reads what memory does not have. Where there is a Room, it reads no more
// than there is room for. A first batch that is larger than that, or than the client
// asked for, gets room of its own size first.
func (c *fetch) readStore(ctx context.Context, r *reading) {
	if !c.room.bounded() {
		c.askStore(ctx, r, nil)
		return
	}
	first := r.req.AtLeastOne
	r.req.AtLeastOne = false
	if asked := r.req.MaxBytes; asked > 0 {
		least, most := memory.BufferBytes(min(c.room.most, leastRoom)), memory.BufferBytes(c.room.most)
		left, ok := c.room.grow(ctx, c.answer.Memory, least, most)
		if !ok {
			return
		}
		if r.req.MaxBytes = min(asked, memory.BufferBytesWithin(left)); r.req.MaxBytes > 0 {
			c.askStore(ctx, r, c.m.deps.Buffers.Get(r.req.MaxBytes))
		}
		if r.req.MaxBytes < asked && r.next < r.req.UpTo {
			c.room.full = true
		}
	}
	if !first || c.bytes > 0 || r.done || r.held != nil {
		return
	}
	n := c.firstBatch(ctx, r)
	if n == 0 {
		return
	}
	if _, ok := c.room.grow(ctx, 0, memory.BufferBytes(n), memory.BufferBytes(n)); ok {
		r.req.MaxBytes, r.req.AtLeastOne = n, true
		c.askStore(ctx, r, c.m.deps.Buffers.Get(n))
	}
}

// firstBatch is the size of the first batch that is to be read; 0: there is none, or
// it cannot be known.
func (c *fetch) firstBatch(ctx context.Context, r *reading) int {
	limited, ok := c.storeCall(ctx, r)
	if !ok {
		return 0
	}
	infos, err := r.replica.dir.Store.Scan(limited, storage.ScanRequest{Handle: r.req.Handle, Offset: r.req.Offset, UpTo: r.req.UpTo, MaxBatches: 1})
	if err != nil {
		c.readFailed(ctx, r, err)
		return 0
	}
	if len(infos) == 0 {
		return 0
	}
	return int(infos[0].Bytes)
}

// askStore reads from the store, into a buffer where there is one. A buffer of a read
// that failed is not used again: the store may not have heard of the end.
func (c *fetch) askStore(ctx context.Context, r *reading, buf []byte) {
	limited, ok := c.storeCall(ctx, r)
	if !ok {
		if buf != nil {
			c.m.deps.Buffers.Put(buf)
		}
		return
	}
	r.req.Buf = buf
	res, err := r.replica.dir.Store.Read(limited, r.req)
	r.req.Buf = nil
	if err != nil {
		c.readFailed(ctx, r, err)
		return
	}
	data, took := res.Data, cap(res.Data)
	if buf != nil {
		data, took = c.keep(buf, data)
	}
	if len(data) > 0 {
		r.out.Data = append(r.out.Data, data)
	}
	c.took(r.fetching, len(data), took, res.Next)
}

// keep makes a buffer that was read into the answer's. Where little was read, it is
// copied into one that is smaller. It returns the records and what they take of memory.
func (c *fetch) keep(buf, data []byte) ([]byte, int) {
	buffers := c.m.deps.Buffers
	inside := unsafe.SliceData(data) == unsafe.SliceData(buf)
	switch {
	case len(data) == 0:
		buffers.Put(buf)
		return nil, 0
	case !inside: // the store has passed it over
		buffers.Put(buf)
		return data, cap(data)
	case cap(buf) > 2*memory.BufferBytes(len(data)):
		less := buffers.Get(len(data))
		copy(less, data)
		buffers.Put(buf)
		buf, data = less, less
	}
	c.buffers = append(c.buffers, buf)
	return data[:len(data):len(data)], cap(buf)
}

// storeCall is the deadline of calls of one store. Calls that follow each other soon
// have the same.
type storeCall struct {
	dir    *Directory
	until  time.Time // from then on another is made
	ctx    context.Context
	cancel context.CancelFunc
}

func (s *storeCall) end() {
	if s.cancel != nil {
		s.cancel()
	}
	*s = storeCall{}
}

// storeCallShare is the part of Config.StoreTimeout that a deadline may be older than
// its call.
const storeCallShare = 16

// storeCall gives the context of one call of the store that is read. False: the store
// is not to be asked, because it hangs or the fetch has no time left.
func (c *fetch) storeCall(ctx context.Context, r *reading) (context.Context, bool) {
	now, dir := c.m.deps.Clock.Now(), r.replica.dir
	if c.call.dir == dir && now.Before(c.call.until) && c.call.ctx.Err() == nil {
		return c.call.ctx, true
	}
	c.call.end()
	until := c.since.Add(c.ask.MaxWait + c.m.cfg.StoreTimeout + otherStores)
	left := min(c.m.cfg.StoreTimeout, until.Sub(now))
	if left <= 0 || slices.Contains(c.hung, dir) {
		r.held = fmt.Errorf("the store has not answered other reads of this fetch: %w", model.ErrStorage)
		return nil, false
	}
	c.call.dir, c.call.until = dir, now.Add(left/storeCallShare)
	c.call.ctx, c.call.cancel = context.WithTimeout(ctx, left)
	return c.call.ctx, true
}

// readFailed tells the client, or waits with it while the log is opened again. A store
// that let a call's time run out is noted: the next partition there would only wait as
// long.
func (c *fetch) readFailed(ctx context.Context, r *reading, err error) {
	if errors.Is(c.call.ctx.Err(), context.DeadlineExceeded) {
		c.hung = append(c.hung, r.replica.dir)
	}
	switch {
	case ctx.Err() != nil:
		return // nobody waits for the answer
	case errors.Is(err, storage.ErrCorrupt):
		c.m.deps.Events.Damaged(r.replica.topic, r.replica.id.Index, r.next, err)
		_ = r.replica.shard.loop.Post(ctx, Input{kind: inputMachine, replica: r.replica, rare: &rare{in: &partition.Corrupt{Gen: r.view.Gen, Offset: r.next}}})
		if r.bytes == 0 {
			c.fail(r.fetching, r.out, fmt.Errorf("read at offset %d: %w: %w", r.next, err, r.view.Unreadable()))
		}
		r.done, c.told = true, true // what came before the damage is answered first
	case errors.Is(err, storage.ErrInvalid):
		c.outOfRange(r, err)
	case errors.Is(err, storage.ErrRetry):
		r.held, c.retry = storageError(err), true
	default:
		r.held, c.retry = storageError(err), true
		_ = r.replica.shard.loop.Post(ctx, Input{kind: inputMachine, replica: r.replica, rare: &rare{in: &partition.ReadFailed{
			Gen: r.view.Gen, Fault: faultOf(err), Err: err,
		}}})
	}
}

// outOfRange handles a store that refuses an offset that the view allowed: the
// log has been trimmed, or opened again, since.
func (c *fetch) outOfRange(r *reading, err error) {
	now := r.replica.view.Load()
	switch {
	case r.bytes > 0:
		r.done = true
	case r.next < now.LogStart:
		c.fail(r.fetching, r.out, fmt.Errorf("offset %d is below %d: %w", r.next, now.LogStart, model.ErrOffsetOutOfRange))
	case now.handle != r.view.handle:
		r.held, c.retry = storageError(err), true
	default:
		c.fail(r.fetching, r.out, storageError(err))
	}
}

func storageError(err error) error {
	return fmt.Errorf("read: %w: %w", err, model.ErrStorage)
}
