package storagetest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/brokerd/brokerd/sdk/storage"
)

func pipelineCases() []Case {
	return []Case{
		{Name: "pipeline", About: "hundreds of appends in flight take effect in the order of the calls", run: pipeline},
		{Name: "pipeline-order", About: "appends of one handle complete in the order of the calls, each once", run: pipelineOrder},
		{Name: "pipeline-failure", About: "appends queued behind one that failed fail too, and nothing of them is stored", run: pipelineFailure},
		{Name: "pipeline-change", About: "a flush, trim or truncation comes after the appends that were in flight when it was called", run: pipelineChange},
	}
}

func pipeline(e *env) {
	r := e.log(0)
	b := e.batches(0, 600, 1)
	var flights []*pending
	for _, m := range b {
		flights = append(flights, e.begin(request(r.Handle, 1, m.BaseOffset, m)))
	}
	for i, p := range flights {
		result, err := p.wait(e.ctx)
		e.must(err, fmt.Sprintf("append %d of %d in flight", i, len(b)))
		if result.LEO != b[i].end() {
			e.failf("append %d of %d in flight is acknowledged with LEO %d, not its own end %d", i, len(b), result.LEO, b[i].end())
		}
	}
	e.checkLog(r.Handle, "after a pipeline", 0, endOf(b, 0), b)
}

func pipelineOrder(e *env) {
	const logs, each = 4, 200
	var mu sync.Mutex
	var order [logs][]int
	var failed error
	var left sync.WaitGroup
	var handles [logs]storage.Handle
	var lists [logs][]made
	for n := range logs {
		handles[n], lists[n] = e.log(n).Handle, e.batches(0, each, 1)
	}
	for i := range each {
		for n := range logs {
			m := lists[n][i]
			left.Add(1)
			var calls atomic.Int64
			e.store.Append(e.ctx, request(handles[n], 1, m.BaseOffset, m), func(_ storage.AppendResult, err error) {
				if calls.Add(1) > 1 {
					e.twice.Add(1)
					return
				}
				defer left.Done()
				mu.Lock()
				defer mu.Unlock()
				order[n] = append(order[n], i)
				if failed == nil {
					failed = err
				}
			})
		}
	}
	e.waitFor(&left, "completions")
	mu.Lock()
	defer mu.Unlock()
	e.must(failed, "append in a pipeline")
	for n := range logs {
		if !slices.IsSorted(order[n]) {
			e.failf("appends of one handle completed in the order %v", order[n])
		}
	}
}

// waitFor waits for a group, or fails the case when its time is over.
func (e *env) waitFor(group *sync.WaitGroup, what string) {
	all := make(chan struct{})
	go func() {
		group.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-e.ctx.Done():
		e.failf("waited for %s: %v", what, e.ctx.Err())
	}
}

func pipelineFailure(e *env) {
	spoil := map[string]func(*storage.AppendRequest){
		"a damaged batch":      func(req *storage.AppendRequest) { req.Data[0][len(req.Data[0])-1] ^= 1 },
		"a wrong base offset":  func(req *storage.AppendRequest) { req.BaseOffset++ },
		"a lower leader epoch": func(req *storage.AppendRequest) { req.LeaderEpoch-- },
	}
	n := 0
	for _, what := range []string{"a damaged batch", "a wrong base offset", "a lower leader epoch"} {
		r := e.log(n)
		n++
		b := e.batches(0, 60, 1)
		const bad = 20
		var flights []*pending
		for i, m := range b {
			req := request(r.Handle, 1, m.BaseOffset, m)
			if i == bad {
				spoil[what](&req)
			}
			flights = append(flights, e.begin(req))
		}
		for i, p := range flights {
			_, err := p.wait(e.ctx)
			act := fmt.Sprintf("append %d of a pipeline with %s at %d", i, what, bad)
			switch {
			case i < bad:
				e.must(err, act)
			case err == nil:
				e.failf("%s succeeded", act)
			}
		}
		held := b[:bad]
		leo := endOf(held, 0)
		e.checkLog(r.Handle, "after a pipeline with "+what, 0, leo, held)
		e.append(r.Handle, leo, b[bad])
		e.checkLog(r.Handle, "continued after a pipeline with "+what, 0, b[bad].end(), b[:bad+1])
	}
}

func pipelineChange(e *env) {
	r := e.log(0)
	b := e.batches(0, 200, 1)
	var flights []*pending
	for i, m := range b {
		flights = append(flights, e.begin(request(r.Handle, 1, m.BaseOffset, m)))
		if i == 99 {
			flushed := e.store.Flush(e.ctx, []storage.Handle{r.Handle})
			e.must(flushed[0].Err, "flush with appends in flight")
			if flushed[0].Durable < m.end() {
				e.failf("a flush called after the append at %d is durable up to %d", m.BaseOffset, flushed[0].Durable)
			}
		}
	}
	// The appends come first: else the log ends below, and begins anew there.
	start := b[110].BaseOffset
	e.trim(r.Handle, start, start)
	cut := b[120].BaseOffset
	leo, err := e.store.Truncate(e.ctx, r.Handle, 1, cut)
	e.must(err, "truncate with appends in flight")
	for i, p := range flights {
		if _, err := p.wait(e.ctx); err != nil && i < 100 {
			e.failf("append %d, flushed before the truncation, failed: %v", i, err)
		}
	}
	// Those in flight were completed first, or fenced: what is left is a prefix.
	if leo > cut {
		e.failf("truncating to %d leaves the LEO at %d", cut, leo)
	}
	held := b[:countBelow(b, leo)]
	e.checkLog(r.Handle, "trimmed and truncated with appends in flight", start, endOf(held, 0), trimmed(held, start))
	if endOf(held, 0) != leo {
		e.failf("truncating gives LEO %d, but the log holds batches up to %d", leo, endOf(held, 0))
	}
	next := e.batch(leo, 3, 1)
	e.append(r.Handle, leo, next)
}
