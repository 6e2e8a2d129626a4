package replica

import (
	"context"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/storage"
)

// fetching is one partition of a fetch on its way.
type fetching struct {
	replica *replica
	bytes   int   // that were read
	next    int64 // where to read on
	// held: nothing can be read now, and that may pass.
	held  error
	done  bool // an error, or a divergence, is to be told
	watch watch
	// section is who gave Fetched.Section, and damaged what is to be told him.
	section storage.SectionOwner
	damaged bool
}

// fetch is one Fetch on its way, and then what its answer holds. It is used again
// after the answer was released.
type fetch struct {
	m      *Manager
	ask    model.Fetch
	parts  []fetching
	answer model.FetchAnswer
	limit  int
	bytes  int
	room   room
	since  time.Time
	hung   []*Directory // they left a read unanswered, and are not asked again
	told   bool         // something is to be told at once
	retry  bool         // a read is worth repeating after a while, without a wake-up

	call     storeCall
	tailRead tailRead  // of the partition that is being read
	extents  []*extent // what the answer has of tails
	buffers  [][]byte  // what was read from stores
	watcher  *watcher
	answered bool
}

// partsKept bounds what a fetch that is used again may have grown to.
const partsKept = 4096

// otherStores is what a fetch has left for other stores when one of them has held
// it for all of Config.StoreTimeout.
const otherStores = time.Second

// Fetch implements model.Partitions. It reads on the caller's goroutine. A
// partition that is being opened is waited for like records are. All reads of one
// fetch together wait for their stores for Config.StoreTimeout and a second, on
// top of MaxWait; what was not read by then is answered without records.
func (m *Manager) Fetch(ctx context.Context, f model.Fetch) *model.FetchAnswer {
	c := m.newFetch(f)
	c.read(ctx)
	if !c.satisfied() && f.MaxWait > 0 {
		c.readOn(ctx)
	}
	c.finish()
	return &c.answer
}

func (m *Manager) newFetch(f model.Fetch) *fetch {
	c, ok := m.idle.Get().(*fetch)
	if !ok {
		c = &fetch{m: m, watcher: newWatcher()}
		c.answer.Owner = c
	}
	c.ask, c.limit, c.since = f, min(f.MaxBytes, m.cfg.FetchBytes), m.deps.Clock.Now()
	c.room = newRoom(f, c.limit)
	c.size(len(f.Partitions))
	replicas := *m.replicas.Load()
	for i := range c.parts {
		p, out, ask := &c.parts[i], &c.answer.Partitions[i], &f.Partitions[i]
		p.next, p.watch.watcher = ask.Offset, c.watcher
		*out = model.Fetched{Partition: ask.Partition, Data: out.Data[:0], HighWatermark: -1, LastStable: -1, LogStart: -1, LeaderEpoch: model.NoEpoch}
		if p.replica, ok = replicas[ask.Partition]; !ok {
			c.fail(p, out, noReplica(ask.Partition))
		}
	}
	return c
}

// size makes room for n partitions.
func (c *fetch) size(n int) {
	if n > cap(c.parts) {
		c.parts = make([]fetching, n)
	}
	c.parts = c.parts[:n]
	if have := c.answer.Partitions; n > cap(have) {
		c.answer.Partitions = make([]model.Fetched, n)
		copy(c.answer.Partitions, have[:cap(have)]) // for the room of their Data
	}
	c.answer.Partitions = c.answer.Partitions[:n]
}

// readOn waits for news and reads, until there is enough or the time is up.
func (c *fetch) readOn(ctx context.Context) {
	c.watcher.arm(c.missing())
	c.watch()
	defer c.unwatch()
	deadline := c.since.Add(c.ask.MaxWait)
	for {
		before := c.bytes
		c.read(ctx) // the first time because nobody woke us before we watched
		if c.satisfied() {
			return
		}
		// What was read may have been told too; then there is more to look for.
		enough := c.watcher.missing.Add(int64(before-c.bytes)) <= 0
		if !enough && !c.wait(ctx, deadline) {
			return
		}
		c.watcher.arm(c.missing())
	}
}

func (c *fetch) watch() {
	for i := range c.parts {
		if p := &c.parts[i]; p.replica != nil {
			p.replica.watch(&p.watch)
		}
	}
}

func (c *fetch) unwatch() {
	for i := range c.parts {
		if p := &c.parts[i]; p.replica != nil {
			p.replica.unwatch(&p.watch)
		}
	}
}

// missing is how many bytes there are too few.
func (c *fetch) missing() int { return max(c.ask.MinBytes, 1) - c.bytes }

// satisfied reports whether there is nothing left to wait for.
func (c *fetch) satisfied() bool {
	return c.told || (c.room.full && c.bytes > 0) || c.missing() <= 0 || c.bytes >= c.limit || (c.bytes == 0 && c.ask.MinBytes <= 0)
}

// retryEvery is the wait before a read that the store asked to repeat.
const retryEvery = 20 * time.Millisecond

// wait returns true when it is worth reading again.
func (c *fetch) wait(ctx context.Context, deadline time.Time) bool {
	left := deadline.Sub(c.m.deps.Clock.Now())
	if left <= 0 || !c.room.trim(ctx, c.answer.Memory) {
		return false
	}
	var short <-chan struct{}
	if c.bytes > 0 {
		short = c.room.short()
	}
	if c.retry {
		left = min(left, retryEvery)
	}
	fire := c.watcher.after(c.m.deps.Clock, left)
	defer c.watcher.disarm()
	select {
	case <-c.watcher.wake:
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
			c.readOne(ctx, p, &c.answer.Partitions[i], &c.ask.Partitions[i])
		}
	}
}

func (c *fetch) fail(p *fetching, out *model.Fetched, err error) {
	out.Err, out.Section, out.Data = err, model.Section{}, out.Data[:0]
	p.done, c.told = true, true
}

func (c *fetch) readOne(ctx context.Context, p *fetching, out *model.Fetched, ask *model.FetchPartition) {
	v := p.replica.view.Load()
	p.held = nil
	if err := serving(v, ask); err != nil {
		if v.Status == partition.StatusOpening {
			p.held = err
			return
		}
		c.fail(p, out, err)
		return
	}
	out.HighWatermark, out.LastStable = v.HighWater, v.LastStable
	out.LogStart, out.LeaderEpoch = v.LogStart, v.Epoch
	if p.bytes == 0 {
		diverging, err := v.CheckFetch(ask.Offset, ask.CurrentEpoch, ask.LastFetchedEpoch)
		if err != nil {
			c.fail(p, out, err)
			return
		}
		if diverging != nil {
			out.Diverging, p.done, c.told = diverging, true, true
			return
		}
	}
	if ask.Elsewhere && !v.Follows && p.bytes == 0 && v.HasCommitted(ask.Offset) {
		out.Elsewhere, p.done, c.told = true, true, true
		return
	}
	upTo := v.ReadLimit(c.ask.Isolation)
	left := min(ask.MaxBytes-p.bytes, c.limit-c.bytes)
	if p.next >= upTo || (left <= 0 && c.bytes > 0) || !v.Open() {
		return
	}
	r := reading{fetching: p, out: out, view: v, req: storage.ReadRequest{
		Handle: v.handle, Offset: p.next, UpTo: upTo, MaxBytes: max(left, 0), AtLeastOne: c.bytes == 0,
	}}
	if !c.readTail(ctx, &r) && !c.readSection(&r) {
		c.readStore(ctx, &r)
	}
}

// serving is why a partition cannot be read here, or nil.
func serving(v *view, ask *model.FetchPartition) error {
	if ask.Nearby {
		return v.ServingReads()
	}
	return v.Serving()
}

// finish makes the answer. What could not be read in all that time is told as an
// error when nothing else is known of the partition; where only the records are out
// of reach for a moment, an empty answer makes the client ask again.
func (c *fetch) finish() {
	c.call.end()
	for i := range c.parts {
		p, out := &c.parts[i], &c.answer.Partitions[i]
		if p.held != nil && p.bytes == 0 && out.Err == nil && out.HighWatermark < 0 {
			out.Err = p.held
		}
	}
	c.answered = true
}

// Release gives back what the answer holds, and the answer itself.
func (c *fetch) Release() {
	if !c.answered {
		panic("replica: the answer to a fetch was released twice")
	}
	for _, e := range c.extents {
		e.release()
	}
	for _, b := range c.buffers {
		c.m.deps.Buffers.Put(b)
	}
	for i := range c.parts {
		if p := &c.parts[i]; p.section != nil {
			p.section.Release(p.damaged)
		}
	}
	for i := range c.answer.Partitions {
		out := &c.answer.Partitions[i]
		data := out.Data
		clear(data)
		*out = model.Fetched{Data: data[:0]}
	}
	if cap(c.parts) > partsKept || cap(c.extents) > partsKept {
		c.answer.Partitions, c.answered = nil, false
		return
	}
	clear(c.parts)
	clear(c.extents)
	clear(c.buffers)
	clear(c.hung)
	*c = fetch{
		m: c.m, parts: c.parts[:0], answer: model.FetchAnswer{Partitions: c.answer.Partitions[:0], Owner: c},
		hung: c.hung[:0], tailRead: c.tailRead, extents: c.extents[:0], buffers: c.buffers[:0], watcher: c.watcher,
	}
	c.m.idle.Put(c)
}

func noReplica(p model.Partition) error {
	return fmt.Errorf("partition %s has no replica here: %w", p, model.ErrNotLeaderOrFollower)
}
