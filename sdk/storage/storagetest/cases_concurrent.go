package storagetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

func concurrencyCases() []Case {
	return []Case{
		{Name: "concurrent-logs", About: "many logs can be worked on from many goroutines, and stay apart", run: concurrentLogs},
		{Name: "concurrent-readers", About: "readers beside appends, truncations and trims see whole batches only", run: concurrentReaders},
		{Name: "concurrent-openers", About: "with many openers of one log, each acknowledged append is there once", run: concurrentOpeners},
	}
}

// parallel runs n functions in goroutines, each with its own env on the same
// store, and fails the case with the first one's failure.
func (e *env) parallel(n int, run func(e *env, i int)) {
	failures := make([]string, n)
	var group sync.WaitGroup
	for i := range n {
		own := *e
		own.rng = rand.New(rand.NewPCG(e.rng.Uint64(), uint64(i)))
		group.Go(func() {
			defer func() {
				switch p := recover().(type) {
				case nil:
				case failure:
					failures[i] = string(p)
				default:
					failures[i] = fmt.Sprintf("panic: %v\n%s", p, debug.Stack())
				}
			}()
			run(&own, i)
		})
	}
	e.waitFor(&group, "goroutines")
	for _, message := range failures {
		if message != "" {
			e.failf("%s", message)
		}
	}
}

func concurrentLogs(e *env) {
	const logs = 16
	held := make([][]made, logs)
	starts := make([]int64, logs)
	e.parallel(logs, func(e *env, i int) {
		r := e.log(i)
		var b []made
		start := int64(0)
		for round := range 6 {
			epoch := int32(round + 1)
			b = append(b, e.fill(r.Handle, endOf(b, 0), 8, epoch)...)
			b, _ = e.truncate(r.Handle, epoch, b, start, b[len(b)-2].BaseOffset)
			e.put(r.Handle, "state", start, []byte(fmt.Sprintf("%d-%d", i, round)))
			e.must(e.store.Flush(e.ctx, []storage.Handle{r.Handle})[0].Err, "flush")
			start = b[round].LastOffset
			e.trim(r.Handle, start, start)
			e.checkLog(r.Handle, "beside other logs", start, endOf(b, 0), trimmed(b, start))
			if _, err := e.store.List(e.ctx); err != nil {
				e.failf("list: %v", err)
			}
		}
		held[i], starts[i] = b, start
	})
	e.restart()
	for i := range logs {
		r := e.logAt(i, 6)
		e.checkOpened(r, "after concurrent work and a restart", starts[i], endOf(held[i], 0), trimmed(held[i], starts[i]))
		e.wantBlob(r.Handle, "after concurrent work", "state", held[i][4].LastOffset, []byte(fmt.Sprintf("%d-5", i)))
	}
}

func concurrentReaders(e *env) {
	r := e.log(0)
	var leo, start atomic.Int64
	var done atomic.Bool
	const readers = 4
	e.parallel(readers+1, func(e *env, i int) {
		if i > 0 {
			for !done.Load() {
				e.readSome(r.Handle, &start, &leo)
			}
			return
		}
		defer done.Store(true)
		var b []made
		for round := range 25 {
			epoch := int32(round + 1)
			for _, m := range e.batches(endOf(b, 0), 10, epoch) {
				e.append(r.Handle, m.BaseOffset, m)
				b = append(b, m)
				leo.Store(m.end())
			}
			to := endOf(b, 0) - 1 - e.rng.Int64N(12)
			to = max(to, start.Load())
			b, _ = e.truncate(r.Handle, epoch, b, start.Load(), to)
			leo.Store(max(endOf(b, 0), start.Load()))
			if round%5 == 4 {
				at := b[round].BaseOffset
				start.Store(at)
				e.trim(r.Handle, at, at)
			}
		}
		e.checkLog(r.Handle, "after readers", start.Load(), endOf(b, 0), trimmed(b, start.Load()))
	})
}

// readSome reads somewhere and checks that it gets whole batches, in order.
// The log may be cut at both ends meanwhile.
func (e *env) readSome(h storage.Handle, start, leo *atomic.Int64) {
	low, high := start.Load(), leo.Load()
	if high < low {
		return
	}
	offset := low + e.rng.Int64N(high-low+1)
	result, err := e.store.Read(e.ctx, storage.ReadRequest{Handle: h, Offset: offset, UpTo: high, MaxBytes: 3000, AtLeastOne: true})
	if errors.Is(err, storage.ErrInvalid) {
		return // it was cut
	}
	e.must(err, "read beside a writer")
	next, rest := offset, result.Data
	for len(rest) > 0 {
		info, _, tail, err := recordbatch.Next(rest)
		e.must(err, fmt.Sprintf("a batch read at %d beside a writer", offset))
		if info.LastOffset < next || info.BaseOffset > next || info.LastOffset >= high {
			e.failf("a read at %d up to %d beside a writer returns %s", offset, high, describe(result.Data))
		}
		next, rest = info.LastOffset+1, tail
	}
	if result.Next != next {
		e.failf("a read at %d beside a writer ends at %d and says next is %d", offset, next, result.Next)
	}
}

func concurrentOpeners(e *env) {
	const openers, rounds = 6, 15
	e.log(0)
	var mu sync.Mutex
	var acked []made
	e.parallel(openers, func(e *env, _ int) {
		for range rounds {
			r := e.log(0)
			b := e.batches(r.LEO, 5, 1)
			var flights []*pending
			for _, m := range b {
				flights = append(flights, e.begin(request(r.Handle, 1, m.BaseOffset, m)))
			}
			for i, p := range flights {
				_, err := p.wait(e.ctx)
				if err != nil {
					e.wantClass(err, "append beside other openers", storage.ErrFenced, storage.ErrInvalid, storage.ErrGone, storage.ErrUnknown)
					continue
				}
				mu.Lock()
				acked = append(acked, b[i])
				mu.Unlock()
			}
		}
	})
	r := e.log(0)
	data, err := e.readAll(r.Handle, 0, r.LEO)
	e.must(err, "read")
	slices.SortFunc(acked, func(a, b made) int { return int(a.BaseOffset - b.BaseOffset) })
	there := map[string]int{}
	for rest := data; len(rest) > 0; {
		_, batch, tail, err := recordbatch.Next(rest)
		e.must(err, "parse what was read")
		there[string(batch)]++
		rest = tail
	}
	for _, m := range acked {
		if n := there[string(m.data)]; n != 1 {
			e.failf("an append at %d was acknowledged to one of many openers and is in the log %d times", m.BaseOffset, n)
		}
	}
}
