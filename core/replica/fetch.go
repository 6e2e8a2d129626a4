package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/storage"
)

// fetching is one partition of a fetch on its way.
type fetching struct {
	ask     *model.FetchPartition
	replica *replica
	out     model.Fetched
	next    int64 // where to read on
	// held: nothing can be read now, and that may pass.
	held error
	done bool // an error, or a divergence, is to be told
}

// fetch is one Fetch on its way.
type fetch struct {
	m     *Manager
	ask   model.Fetch
	parts []fetching
	limit int
	bytes int
	room  room
	until time.Time    // no store is asked after it
	hung  []*Directory // they left a read unanswered, and are not asked again
	told  bool         // something is to be told at once
	retry bool         // a read is worth repeating after a while, without a wake-up
}

// otherStores is what a fetch has left for other stores when one of them has held
// it for all of Config.StoreTimeout.
const otherStores = time.Second

// Fetch implements model.Partitions. It reads on the caller's goroutine. A
// partition that is being opened is waited for like records are. All reads of one
// fetch together wait for their stores for Config.StoreTimeout and a second, on
// top of MaxWait; what was not read by then is answered without records.
func (m *Manager) Fetch(ctx context.Context, f model.Fetch) []model.Fetched {
	c := m.newFetch(f)
	deadline := m.deps.Clock.Now().Add(f.MaxWait)
	c.until = deadline.Add(m.cfg.StoreTimeout + otherStores)
	c.read(ctx)
	if !c.satisfied() && f.MaxWait > 0 {
		w := newWatcher()
		for i := range c.parts {
			if r := c.parts[i].replica; r != nil {
				r.watch(w)
				defer r.unwatch(w)
			}
		}
		for {
			c.read(ctx) // once more, since nobody woke us before we watched
			if c.satisfied() || !c.wait(ctx, w, deadline) {
				break
			}
		}
	}
	return c.answers()
}

func (m *Manager) newFetch(f model.Fetch) *fetch {
	c := &fetch{m: m, ask: f, parts: make([]fetching, len(f.Partitions)), limit: min(f.MaxBytes, m.cfg.FetchBytes)}
	c.room = newRoom(f, c.limit)
	for i := range c.parts {
		p := &c.parts[i]
		p.ask = &f.Partitions[i]
		p.next = p.ask.Offset
		p.out = model.Fetched{Partition: p.ask.Partition, HighWatermark: -1, LastStable: -1, LogStart: -1, LeaderEpoch: model.NoEpoch}
		r, err := m.find(p.ask.Partition)
		if err != nil {
			c.fail(p, err)
			continue
		}
		p.replica = r
	}
	return c
}

// satisfied reports whether there is nothing left to wait for.
func (c *fetch) satisfied() bool {
	return c.told || (c.room.full && c.bytes > 0) || c.bytes >= max(c.ask.MinBytes, 1) || c.bytes >= c.limit || (c.bytes == 0 && c.ask.MinBytes <= 0)
}

// retryEvery is the wait before a read that the store asked to repeat.
const retryEvery = 20 * time.Millisecond

// wait returns true when it is worth reading again.
func (c *fetch) wait(ctx context.Context, w *watcher, deadline time.Time) bool {
	left := deadline.Sub(c.m.deps.Clock.Now())
	if left <= 0 || !c.room.trim(ctx, c.bytes) {
		return false
	}
	var short <-chan struct{}
	if c.bytes > 0 {
		short = c.room.short()
	}
	if c.retry {
		left = min(left, retryEvery)
	}
	fire, stop := c.m.deps.Clock.NewTimer(left)
	defer stop()
	select {
	case <-w.wake:
		return true
	case <-fire:
		return c.retry
	case <-short: // others need the memory that the records take
		return false
	case <-ctx.Done():
		return false
	}
}

// read reads on in every partition, as far as the limits go.
func (c *fetch) read(ctx context.Context) {
	c.retry, c.room.full = false, false
	for i := range c.parts {
		if p := &c.parts[i]; !p.done {
			c.readOne(ctx, p)
		}
	}
}

func (c *fetch) fail(p *fetching, err error) {
	p.out.Err, p.out.Data = err, nil
	p.done, c.told = true, true
}

func (c *fetch) readOne(ctx context.Context, p *fetching) {
	v := p.replica.view.Load()
	p.held = nil
	if err := v.Serving(); err != nil {
		if v.Status == partition.StatusOpening {
			p.held = err
			return
		}
		c.fail(p, err)
		return
	}
	p.out.HighWatermark, p.out.LastStable = v.HighWater, v.LastStable
	p.out.LogStart, p.out.LeaderEpoch = v.LogStart, v.Epoch
	if len(p.out.Data) == 0 {
		diverging, err := v.CheckFetch(p.ask.Offset, p.ask.CurrentEpoch, p.ask.LastFetchedEpoch)
		if err != nil {
			c.fail(p, err)
			return
		}
		if diverging != nil {
			p.out.Diverging, p.done, c.told = diverging, true, true
			return
		}
	}
	upTo := v.ReadLimit(c.ask.Isolation)
	room := min(p.ask.MaxBytes-len(p.out.Data), c.limit-c.bytes)
	atLeastOne := c.bytes == 0
	if p.next >= upTo || (room <= 0 && !atLeastOne) || v.Status != partition.StatusServing {
		return
	}
	req := storage.ReadRequest{Handle: v.handle, Offset: p.next, UpTo: upTo, MaxBytes: max(room, 0), AtLeastOne: atLeastOne}
	if c.room.bounded() {
		c.readBounded(ctx, p, v, req)
		return
	}
	c.readStore(ctx, p, v, req)
}

// readBounded reads no more than there is room for. A first batch that is larger
// than that, or than the client asked for, gets room of its own size first.
func (c *fetch) readBounded(ctx context.Context, p *fetching, v *view, req storage.ReadRequest) {
	first := req.AtLeastOne
	req.AtLeastOne = false
	if req.MaxBytes > 0 {
		room, ok := c.room.grow(ctx, c.bytes, 0)
		if !ok {
			return
		}
		asked := req.MaxBytes
		if req.MaxBytes = min(asked, room-c.bytes); req.MaxBytes > 0 {
			c.readStore(ctx, p, v, req)
		}
		if req.MaxBytes < asked && p.next < req.UpTo {
			c.room.full = true
		}
	}
	if !first || c.bytes > 0 || p.done || p.held != nil {
		return
	}
	n := c.firstBatch(ctx, p, v, req)
	if n == 0 {
		return
	}
	if _, ok := c.room.grow(ctx, 0, n); ok {
		req.MaxBytes, req.AtLeastOne = n, true
		c.readStore(ctx, p, v, req)
	}
}

// firstBatch is the size of the first batch that req would read; 0: there is
// none, or it cannot be known.
func (c *fetch) firstBatch(ctx context.Context, p *fetching, v *view, req storage.ReadRequest) int {
	if n, ok := p.replica.tail.size(req.Offset, req.UpTo); ok {
		return n
	}
	limited, cancel, ok := c.storeCall(ctx, p)
	if !ok {
		return 0
	}
	defer cancel()
	infos, err := p.replica.dir.Store.Scan(limited, storage.ScanRequest{Handle: req.Handle, Offset: req.Offset, UpTo: req.UpTo, MaxBatches: 1})
	if err != nil {
		c.unanswered(limited, p)
		c.readFailed(ctx, p, v, err)
		return 0
	}
	if len(infos) == 0 {
		return 0
	}
	return int(infos[0].Bytes)
}

func (c *fetch) readStore(ctx context.Context, p *fetching, v *view, req storage.ReadRequest) {
	var got tailRead
	if p.replica.tail.read(&req, &got) {
		data := slices.Concat(got.parts...)
		for _, e := range got.extents {
			e.release()
		}
		c.took(p, storage.ReadResult{Data: data, Next: got.next})
		return
	}
	limited, cancel, ok := c.storeCall(ctx, p)
	if !ok {
		return
	}
	defer cancel()
	res, err := p.replica.dir.Store.Read(limited, req)
	if err != nil {
		c.unanswered(limited, p)
		c.readFailed(ctx, p, v, err)
		return
	}
	c.took(p, res)
}

// storeCall gives the context of one call of the store of p. False: the store is
// not to be asked, because it hangs or the fetch has no time left.
func (c *fetch) storeCall(ctx context.Context, p *fetching) (context.Context, context.CancelFunc, bool) {
	left := min(c.m.cfg.StoreTimeout, c.until.Sub(c.m.deps.Clock.Now()))
	if left <= 0 || slices.Contains(c.hung, p.replica.dir) {
		p.held = fmt.Errorf("the store has not answered other reads of this fetch: %w", model.ErrStorage)
		return nil, nil, false
	}
	limited, cancel := context.WithTimeout(ctx, left)
	return limited, cancel, true
}

// unanswered notes a store that let a call's time run out: the next partition
// there would only wait as long.
func (c *fetch) unanswered(call context.Context, p *fetching) {
	if errors.Is(call.Err(), context.DeadlineExceeded) {
		c.hung = append(c.hung, p.replica.dir)
	}
}

// took adds what was read.
func (c *fetch) took(p *fetching, res storage.ReadResult) {
	if len(p.out.Data) == 0 {
		p.out.Data = res.Data
	} else {
		p.out.Data = slices.Concat(p.out.Data, res.Data) // of just that size
	}
	c.bytes += len(res.Data)
	p.next = max(p.next, res.Next)
}

// readFailed tells the client, or waits with it while the log is opened again.
func (c *fetch) readFailed(ctx context.Context, p *fetching, v *view, err error) {
	switch {
	case ctx.Err() != nil:
		return // nobody waits for the answer
	case errors.Is(err, storage.ErrCorrupt):
		c.m.deps.Events.Damaged(p.replica.topic, p.replica.id.Index, p.next, err)
		if len(p.out.Data) == 0 {
			c.fail(p, fmt.Errorf("read at offset %d: %w: %w", p.next, err, model.ErrCorruptMessage))
		}
		p.done, c.told = true, true // what came before the damage is answered first
	case errors.Is(err, storage.ErrInvalid):
		c.outOfRange(p, v, err)
	case errors.Is(err, storage.ErrRetry):
		p.held, c.retry = storageError(err), true
	default:
		p.held, c.retry = storageError(err), true
		_ = p.replica.shard.loop.Post(ctx, Input{kind: inputMachine, replica: p.replica, in: &partition.ReadFailed{
			Gen: v.Gen, Fault: faultOf(err), Err: err,
		}})
	}
}

// outOfRange handles a store that refuses an offset that the view allowed: the
// log has been trimmed, or opened again, since.
func (c *fetch) outOfRange(p *fetching, v *view, err error) {
	now := p.replica.view.Load()
	switch {
	case len(p.out.Data) > 0:
		p.done = true
	case p.next < now.LogStart:
		c.fail(p, fmt.Errorf("offset %d is below %d: %w", p.next, now.LogStart, model.ErrOffsetOutOfRange))
	case now.handle != v.handle:
		p.held, c.retry = storageError(err), true
	default:
		c.fail(p, storageError(err))
	}
}

func storageError(err error) error {
	return fmt.Errorf("read: %w: %w", err, model.ErrStorage)
}

// answers are the results in the order of the question. What could not be read
// in all that time is told as an error when nothing else is known of the
// partition; where only the records are out of reach for a moment, an empty
// answer makes the client ask again.
func (c *fetch) answers() []model.Fetched {
	out := make([]model.Fetched, len(c.parts))
	for i := range c.parts {
		p := &c.parts[i]
		if p.held != nil && len(p.out.Data) == 0 && p.out.Err == nil && p.out.HighWatermark < 0 {
			p.out.Err = p.held
		}
		out[i] = p.out
	}
	return out
}
