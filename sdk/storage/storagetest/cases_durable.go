package storagetest

import (
	"fmt"
	"slices"

	"github.com/brokerd/brokerd/sdk/storage"
)

func repeatCases() []Case {
	return []Case{
		{Name: "append-repeat", About: "an append of batches that are in the log at those offsets succeeds without a second copy", run: appendRepeat},
		{Name: "append-repeat-in-flight", About: "so does the repeat of an append that is still in flight", run: appendRepeatInFlight},
		{Name: "append-repeat-other", About: "other bytes at offsets that are taken are ErrInvalid, and so is a repeat of which only a part is there", run: appendRepeatOther},
	}
}

func appendRepeat(e *env) {
	r := e.log(0)
	b := e.batches(0, 12, 1)
	e.append(r.Handle, 0, b[:3]...)
	for _, m := range b[3:] {
		e.append(r.Handle, m.BaseOffset, m)
	}
	leo := endOf(b, 0)
	again := func(when string, list ...made) {
		result, err := e.tryAppend(request(r.Handle, 1, list[0].BaseOffset, list...))
		e.must(err, fmt.Sprintf("repeat the append at %d%s", list[0].BaseOffset, when))
		if result.LEO < endOf(list, 0) || result.LEO > leo {
			e.failf("a repeat of offsets up to %d in a log that ends at %d is acknowledged with LEO %d", endOf(list, 0), leo, result.LEO)
		}
		e.checkLog(r.Handle, "after a repeat"+when, 0, leo, b)
	}
	again("", b[11])
	again("", b[5])
	again(" of several batches", b[:3]...)
	again(" of one batch of several", b[1])
	again(" of several appends as one", b[4:9]...)
	again(" of everything", b...)
	e.restart()
	r = e.log(0)
	again(" after a restart", b[11])
	again(" after a restart", b[2:6]...)
	e.restart()
	e.checkOpened(e.log(0), "after repeats and a restart", 0, leo, b)
}

func appendRepeatInFlight(e *env) {
	r := e.log(0)
	b := e.batches(0, 100, 1)
	var flights []*pending
	for _, m := range b {
		flights = append(flights,
			e.begin(request(r.Handle, 1, m.BaseOffset, m)),
			e.begin(request(r.Handle, 1, m.BaseOffset, m)))
	}
	for i, p := range flights {
		_, err := p.wait(e.ctx)
		e.must(err, fmt.Sprintf("append %d of a pipeline with each one twice", i))
	}
	e.checkLog(r.Handle, "after a pipeline with each append twice", 0, endOf(b, 0), b)
}

func appendRepeatOther(e *env) {
	r := e.log(0)
	b := e.fill(r.Handle, 0, 6, 1)
	leo := endOf(b, 0)
	for i, m := range b {
		n := int(m.LastOffset-m.BaseOffset) + 1
		e.refuse(fmt.Sprintf("append other bytes at the offsets of batch %d", i),
			request(r.Handle, 1, m.BaseOffset, e.batch(m.BaseOffset, n, 1)))
	}
	next := e.batch(leo, 2, 1)
	e.refuse("append a batch that is there with one that is not", request(r.Handle, 1, b[5].BaseOffset, b[5], next))
	e.checkLog(r.Handle, "after appends at taken offsets", 0, leo, b)
	e.append(r.Handle, leo, next)
	_, err := e.store.Truncate(e.ctx, r.Handle, 1, leo)
	e.must(err, "truncate")
	e.append(r.Handle, leo, next) // not a repeat, since the first is gone
	e.checkLog(r.Handle, "appended again after truncation", 0, next.end(), append(slices.Clone(b), next))
}

func durabilityCases() []Case {
	kill, power := Abilities{Kill: true}, Abilities{LosePower: true}
	return []Case{
		{Name: "kill-append", About: "every acknowledged append survives kill -9 of the process, and the verdict is intact", Needs: kill, run: killAppend},
		{Name: "kill-in-flight", About: "after a kill with appends in flight the log holds a prefix of them, with all that were acknowledged", Needs: kill, run: killInFlight},
		{Name: "kill-repeat", About: "appends of unknown outcome can be repeated after a kill, and nothing is stored twice", Needs: kill, run: killRepeat},
		{Name: "kill-calls", About: "calls to a store that was killed fail, with a class that says so, and end", Needs: kill, run: killCalls},
		{Name: "flush", About: "Flush moves the recovery point to all that was appended before, for many logs at once", run: flush},
		{Name: "power-flush", About: "what was flushed, or appended requiring it, survives loss of power", Needs: power, run: powerFlush},
		{Name: "power-suffix", About: "loss of power leaves whole batches, a prefix of the log, and is told by the verdict", Needs: power, run: powerSuffix},
		{Name: "power-verdict", About: "the verdict that a suffix may be lost is repeated, also after a kill, until the log was closed in order",
			Needs: Abilities{LosePower: true, Kill: true}, run: powerVerdict},
	}
}

func killAppend(e *env) {
	var b []made
	for round := range 4 {
		r := e.log(0)
		e.checkOpened(r, fmt.Sprintf("after kill %d", round), 0, endOf(b, 0), b)
		if r.Verdict != storage.VerdictIntact {
			e.failf("after kill %d the verdict is %d, though the machine stayed up", round, r.Verdict)
		}
		b = append(b, e.fill(r.Handle, endOf(b, 0), 10+round, 1)...)
		if round == 2 {
			e.must(e.store.Flush(e.ctx, []storage.Handle{r.Handle})[0].Err, "flush")
		}
		e.kill()
	}
	e.checkOpened(e.log(0), "after the last kill", 0, endOf(b, 0), b)
}

// launch queues an append for each batch and waits for the first few. It
// returns how many were acknowledged when it stopped looking.
func (e *env) launch(h storage.Handle, b []made, awaited int) (flights []*pending) {
	for _, m := range b {
		flights = append(flights, e.begin(request(h, m.LeaderEpoch, m.BaseOffset, m)))
	}
	for _, p := range flights[:awaited] {
		_, err := p.wait(e.ctx)
		e.must(err, "append")
	}
	return flights
}

// acknowledged returns how many of the flights, from the first, are known to
// have succeeded.
func acknowledged(flights []*pending) int {
	for i, p := range flights {
		select {
		case <-p.done:
			if p.err != nil {
				return i
			}
		default:
			return i
		}
	}
	return len(flights)
}

func killInFlight(e *env) {
	var b []made
	for round := range 5 {
		r := e.log(0)
		more := e.batches(endOf(b, 0), 200, 1)
		flights := e.launch(r.Handle, more, e.rng.IntN(100))
		e.must(e.backing.Kill(e.ctx), "kill the store")
		acked := acknowledged(flights)
		e.openStore()
		when := fmt.Sprintf("after kill %d with appends in flight", round)
		r = e.log(0)
		kept := countBelow(more, r.LEO)
		if kept < acked {
			e.failf("%s: %d appends were acknowledged, up to %d, but the LEO is %d", when, acked, more[acked-1].end(), r.LEO)
		}
		b = append(b, more[:kept]...)
		e.checkOpened(r, when, 0, endOf(b, 0), b)
	}
}

func killRepeat(e *env) {
	var b []made
	for round := range 3 {
		r := e.log(0)
		more := e.batches(endOf(b, 0), 60, 1)
		e.launch(r.Handle, more, e.rng.IntN(40))
		e.kill()
		b = append(b, more...)
		r = e.log(0)
		for i, m := range more { // those that are there are repeats
			_, err := e.tryAppend(request(r.Handle, 1, m.BaseOffset, m))
			e.must(err, fmt.Sprintf("repeat append %d after kill %d", i, round))
		}
		e.checkLog(r.Handle, fmt.Sprintf("repeated after kill %d", round), 0, endOf(b, 0), b)
	}
}

func killCalls(e *env) {
	r := e.log(0)
	b := e.fill(r.Handle, 0, 5, 1)
	leo := endOf(b, 0)
	e.must(e.backing.Kill(e.ctx), "kill the store")
	e.eachCall(e.ctx, r.Handle, leo, func(act string, err error) {
		e.wantClass(err, act+" on a store that was killed", storage.ErrGone, storage.ErrUnknown, storage.ErrRetry)
	})
	e.openStore()
	e.checkOpened(e.log(0), "after calls to the store that was killed", 0, leo, b)
}

func flush(e *env) {
	const logs = 10
	var handles []storage.Handle
	var ends []int64
	for i := range logs {
		r := e.log(i)
		handles = append(handles, r.Handle)
		ends = append(ends, endOf(e.fill(r.Handle, 0, i, 1), 0))
	}
	handles = append(handles, 1<<60) // one that is none
	results := e.store.Flush(e.ctx, handles)
	if len(results) != len(handles) {
		e.failf("a flush of %d handles gave %d results", len(handles), len(results))
	}
	for i := range logs {
		e.must(results[i].Err, fmt.Sprintf("flush log %d", i))
		if results[i].Durable != ends[i] {
			e.failf("log %d ends at %d and is durable up to %d after a flush", i, ends[i], results[i].Durable)
		}
	}
	e.wantClass(results[logs].Err, "flush a handle that is none", storage.ErrGone, storage.ErrFenced, storage.ErrInvalid)
	if r := e.log(5); r.Durable != ends[5] {
		e.failf("opened again after a flush at %d, the log is durable up to %d", ends[5], r.Durable)
	}
}

func powerFlush(e *env) {
	machine := e.store.Capabilities().Survives >= storage.SurvivesMachine
	var b []made
	for round := range 8 {
		r := e.log(0)
		b = append(b, e.fill(r.Handle, endOf(b, 0), 5, 1)...)
		if machine && round%2 == 0 {
			m := e.batch(endOf(b, 0), 2, 1)
			req := request(r.Handle, 1, m.BaseOffset, m)
			req.Require = storage.SurvivesMachine
			_, err := e.tryAppend(req)
			e.must(err, "append that requires to survive the machine's loss")
			b = append(b, m)
		} else {
			e.must(e.store.Flush(e.ctx, []storage.Handle{r.Handle})[0].Err, "flush")
		}
		durable := endOf(b, 0)
		lost := e.fill(r.Handle, durable, round, 1)
		e.losePower()
		r = e.log(0)
		when := fmt.Sprintf("after power loss %d", round)
		if r.LEO < durable {
			e.failf("%s: the log was durable up to %d and ends at %d", when, durable, r.LEO)
		}
		if len(lost) > 0 && r.LEO < endOf(lost, durable) && r.Verdict != storage.VerdictMayHaveLostSuffix {
			e.failf("%s: acknowledged records are missing and the verdict is %d", when, r.Verdict)
		}
		b = append(b, lost[:countBelow(lost, r.LEO)]...)
		e.checkOpened(r, when, 0, endOf(b, 0), b)
	}
}

func powerSuffix(e *env) {
	const logs = 30
	var held [logs][]made
	for i := range logs {
		held[i] = e.fill(e.log(i).Handle, 0, 12, 1)
	}
	e.losePower()
	for i := range logs {
		r := e.log(i)
		when := fmt.Sprintf("log %d after power loss", i)
		kept := held[i][:countBelow(held[i], r.LEO)]
		e.checkOpened(r, when, 0, endOf(kept, 0), kept)
		if len(kept) < len(held[i]) && r.Verdict != storage.VerdictMayHaveLostSuffix {
			e.failf("%s: acknowledged records are missing and the verdict is %d", when, r.Verdict)
		}
		other := e.batches(r.LEO, 3, 2) // the offsets are given to other bytes
		e.must(e.store.Close(e.ctx, []storage.Handle{r.Handle})[0], "close")
		r = e.logAt(i, 2)
		e.append(r.Handle, r.LEO, other...)
		e.checkLog(r.Handle, when+", appended", 0, endOf(other, 0), append(slices.Clone(kept), other...))
	}
}

func powerVerdict(e *env) {
	const logs = 8
	var handles []storage.Handle
	for i := range logs {
		e.fill(e.log(i).Handle, 0, 10, 1)
	}
	e.losePower()
	var verdicts [logs]storage.Verdict
	for i := range logs {
		verdicts[i] = e.log(i).Verdict
	}
	for i := range logs {
		if again := e.log(i).Verdict; again != verdicts[i] {
			e.failf("log %d: the verdict was %d and is %d when opened again", i, verdicts[i], again)
		}
	}
	e.kill()
	for i := range logs {
		r := e.log(i)
		handles = append(handles, r.Handle)
		if r.Verdict != verdicts[i] {
			e.failf("log %d: the verdict was %d and is %d after a kill", i, verdicts[i], r.Verdict)
		}
	}
	for i, err := range e.store.Close(e.ctx, handles) {
		e.must(err, fmt.Sprintf("close log %d", i))
		if r := e.log(i); r.Verdict != storage.VerdictIntact {
			e.failf("log %d: the verdict is %d after it was closed in order", i, r.Verdict)
		}
	}
}
