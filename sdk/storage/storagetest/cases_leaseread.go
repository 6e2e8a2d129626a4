package storagetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

func leaseReaders(e *env) {
	r := e.lendable(0)
	var leo, start atomic.Int64
	var done atomic.Bool
	const readers = 3
	e.parallel(readers+1, func(e *env, i int) {
		if i > 0 {
			for !done.Load() {
				e.readLeased(r.handle, &start, &leo)
			}
			return
		}
		defer done.Store(true)
		g := e.host(storage.OpenResult{Handle: r.handle}, 1)
		for round := range 25 {
			g.epoch = int32(round + 1)
			for range 20 {
				g.work(1 + e.rng.IntN(2))
				leo.Store(g.leo)
			}
			g.drop()
			to := max(g.leo-1-e.rng.Int64N(12), start.Load())
			g.held, g.leo = e.truncate(g.handle, g.epoch, g.held, start.Load(), to)
			leo.Store(g.leo)
			if round%3 == 2 {
				at := g.held[len(g.held)*2/3].BaseOffset
				start.Store(max(at, start.Load()))
				e.trim(g.handle, start.Load(), start.Load())
				_, err := e.store.Retain(e.ctx, g.handle, storage.RetainPolicy{Ceiling: at, Now: e.start, MaxBytes: -1})
				e.must(err, "free what was trimmed")
			}
		}
		g.check("after readers by lease", start.Load())
	})
}

// readLeased takes a lease somewhere and checks that it holds whole batches in
// order, also a moment later. The log may be cut at both ends meanwhile.
func (e *env) readLeased(h storage.Handle, start, leo *atomic.Int64) {
	low, high := start.Load(), leo.Load()
	if high <= low {
		return
	}
	offset := low + e.rng.Int64N(high-low)
	lease, err := e.store.Files().Lease(e.ctx, h, offset)
	if errors.Is(err, storage.ErrInvalid) || errors.Is(err, storage.ErrRetry) {
		return // it was cut
	}
	e.must(err, "lease beside a writer")
	lent := &borrowed{Lease: lease, data: make([]byte, lease.Limit-lease.Pos)}
	_, err = lease.File.ReadAt(lent.data, lease.Pos)
	e.must(err, "read the stretch of a lease beside a writer")
	next, rest := int64(-1), lent.data
	for len(rest) > 0 {
		info, _, tail, err := recordbatch.Next(rest)
		e.must(err, fmt.Sprintf("a batch of a lease at %d beside a writer", offset))
		first := next < 0
		if first && (info.LastOffset < offset || info.BaseOffset < lease.First) || !first && info.BaseOffset != next {
			e.failf("a lease at %d beside a writer, with First %d, holds %s", offset, lease.First, describe(lent.data))
		}
		next, rest = info.LastOffset+1, tail
	}
	if lease.End < next {
		e.failf("a lease beside a writer ends at %d and says %d", next, lease.End)
	}
	pause := time.NewTimer(rand.N(2 * time.Millisecond))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-e.ctx.Done():
	}
	e.unchanged("a moment later", []*borrowed{lent})
	e.giveBack(lent)
}
