package storagetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/sdk/storage"
)

func openCases() []Case {
	return []Case{
		{Name: "open-create", About: "Open creates a missing log when told to, and otherwise answers ErrGone", run: openCreate},
		{Name: "open-many", About: "Open takes many logs, answers in their order, and one's error leaves the others alone", run: openMany},
		{Name: "open-fences-handle", About: "a log opened again fences every earlier handle of it, which changes nothing any more", run: openFencesHandle},
		{Name: "open-fences-epoch", About: "an opening, append or truncation with a leader epoch lower than the highest seen is ErrFenced and does nothing", run: openFencesEpoch},
		{Name: "open-remembers-epoch", About: "the leader epochs of the batches in the log fence also after a restart", run: openRemembersEpoch},
		{Name: "open-epochs", About: "Open tells each leader epoch in the log and where it starts, also after truncation and restart", run: openEpochs},
		{Name: "open-settles", About: "when Open returns, each append in flight before it is visible in the result or never takes effect", run: openSettles},
		{Name: "open-verdict", About: "the verdict after an orderly close is intact", run: openVerdict},
	}
}

func openCreate(e *env) {
	_, err := e.tryOpen(storage.OpenSpec{ID: logID(0), LeaderEpoch: 1})
	e.wantClass(err, "open a missing log", storage.ErrGone)
	r := e.log(0)
	e.checkOpened(r, "a new log", 0, 0, nil)
	if r.Verdict != storage.VerdictIntact || len(r.Epochs) != 0 || r.Durable != 0 {
		e.failf("a new log opens as %+v", r)
	}
	b := e.fill(r.Handle, 0, 3, 1)
	r, err = e.tryOpen(storage.OpenSpec{ID: logID(0), LeaderEpoch: 1})
	e.must(err, "open a log that exists, without Create")
	e.checkOpened(r, "opened again", 0, endOf(b, 0), b)
}

func openMany(e *env) {
	const logs = 40
	held := make([][]made, logs)
	for i := range logs {
		held[i] = e.fill(e.logAt(i, int32(1+i%3)).Handle, 0, i%4+1, int32(1+i%3))
	}
	e.restart()
	var specs []storage.OpenSpec
	for i := range logs {
		specs = append(specs,
			storage.OpenSpec{ID: logID(i), LeaderEpoch: 2},
			storage.OpenSpec{ID: logID(1000 + i), LeaderEpoch: 2})
	}
	results := e.store.Open(e.ctx, specs)
	if len(results) != len(specs) {
		e.failf("open of %d logs gave %d results", len(specs), len(results))
	}
	handles := map[storage.Handle]bool{}
	for i := range logs {
		when := fmt.Sprintf("log %d of many", i)
		e.wantClass(results[2*i+1].Err, "open a missing log among many", storage.ErrGone)
		r := results[2*i]
		if i%3 == 2 {
			e.wantClass(r.Err, "open a log with a lower epoch among many", storage.ErrFenced)
			continue
		}
		e.must(r.Err, when)
		if r.Handle == 0 || handles[r.Handle] {
			e.failf("%s: handle %d is zero or another log's", when, r.Handle)
		}
		handles[r.Handle] = true
		e.checkOpened(r, when, 0, endOf(held[i], 0), held[i])
	}
}

func openFencesHandle(e *env) {
	first := e.log(0)
	b := e.fill(first.Handle, 0, 6, 1)
	leo := endOf(b, 0)
	second := e.log(0)
	if second.Handle == first.Handle {
		e.failf("the same handle %d twice", first.Handle)
	}
	old, next := first.Handle, e.batch(leo, 2, 1)
	_, err := e.tryAppend(request(old, 1, leo, next))
	e.wantClass(err, "append through a superseded handle", storage.ErrFenced)
	_, err = e.store.Truncate(e.ctx, old, 1, 0)
	e.wantClass(err, "truncate through a superseded handle", storage.ErrFenced)
	_, err = e.store.Trim(e.ctx, old, leo)
	e.wantClass(err, "trim through a superseded handle", storage.ErrFenced)
	_, err = e.store.Retain(e.ctx, old, storage.RetainPolicy{Ceiling: leo, Now: e.start.Add(time.Hour), MaxAge: time.Second})
	e.wantClass(err, "retain through a superseded handle", storage.ErrFenced)
	err = e.store.Replace(e.ctx, storage.ReplaceRequest{Handle: old, From: 0, To: b[0].end()})
	e.wantClass(err, "replace through a superseded handle", storage.ErrFenced)
	err = e.store.PutBlob(e.ctx, old, "checkpoint", storage.Blob{Data: []byte("old")})
	e.wantClass(err, "put a blob through a superseded handle", storage.ErrFenced)
	_ = e.store.Close(e.ctx, []storage.Handle{old}) // whatever it answers, the newer handle stays
	if _, found, err := e.store.GetBlob(e.ctx, second.Handle, "checkpoint"); found || err != nil {
		e.failf("a superseded handle put a blob (found %v, %v)", found, err)
	}
	e.checkLog(second.Handle, "after calls through a superseded handle", 0, leo, b)
	e.append(second.Handle, leo, next)
	third := e.log(0)
	e.checkOpened(third, "opened a third time", 0, next.end(), append(b, next))
}

func openFencesEpoch(e *env) {
	r := e.logAt(0, 5)
	b := e.fill(r.Handle, 0, 3, 5)
	leo := endOf(b, 0)
	_, err := e.tryOpen(storage.OpenSpec{ID: logID(0), LeaderEpoch: 4})
	e.wantClass(err, "open with a lower leader epoch", storage.ErrFenced)
	next := e.batch(leo, 1, 5)
	e.append(r.Handle, leo, next) // an Open that failed leaves the handle alone
	b, leo = append(b, next), next.end()

	_, err = e.tryAppend(request(r.Handle, 4, leo, e.batch(leo, 1, 4)))
	e.wantClass(err, "append with a lower leader epoch than the opening's", storage.ErrFenced)
	_, err = e.store.Truncate(e.ctx, r.Handle, 4, 0)
	e.wantClass(err, "truncate with a lower leader epoch", storage.ErrFenced)

	next = e.batch(leo, 1, 7)
	e.append(r.Handle, leo, next)
	b, leo = append(b, next), next.end()
	_, err = e.tryAppend(request(r.Handle, 6, leo, e.batch(leo, 1, 6)))
	e.wantClass(err, "append with a lower leader epoch than an append's", storage.ErrFenced)

	_, err = e.store.Truncate(e.ctx, r.Handle, 9, leo)
	e.must(err, "truncate at the LEO")
	_, err = e.tryAppend(request(r.Handle, 8, leo, e.batch(leo, 1, 8)))
	e.wantClass(err, "append with a lower leader epoch than a truncation's", storage.ErrFenced)
	_, err = e.tryOpen(storage.OpenSpec{ID: logID(0), LeaderEpoch: 8})
	e.wantClass(err, "open with a lower leader epoch than a truncation's", storage.ErrFenced)
	e.checkLog(r.Handle, "after fenced calls", 0, leo, b)
	e.checkOpened(e.logAt(0, 9), "opened with the highest epoch", 0, leo, b)
}

func openRemembersEpoch(e *env) {
	b := e.fill(e.logAt(0, 8).Handle, 0, 3, 8)
	e.restart()
	_, err := e.tryOpen(storage.OpenSpec{ID: logID(0), LeaderEpoch: 7})
	e.wantClass(err, "open with a lower epoch than the log's last batch, after a restart", storage.ErrFenced)
	e.checkOpened(e.logAt(0, 8), "opened with the last batch's epoch", 0, endOf(b, 0), b)
}

func openEpochs(e *env) {
	r := e.logAt(0, 9)
	var want []storage.EpochStart
	var b []made
	for _, epoch := range []int32{0, 2, 3, 7} {
		want = append(want, storage.EpochStart{Epoch: epoch, Start: endOf(b, 0)})
		for _, m := range e.batches(endOf(b, 0), 3, epoch) {
			_, err := e.tryAppend(request(r.Handle, 9, m.BaseOffset, m))
			e.must(err, "append a batch of an earlier epoch")
			b = append(b, m)
		}
	}
	check := func(when string) {
		r = e.logAt(0, 9)
		if !slices.Equal(r.Epochs, want) {
			e.failf("%s: the epochs are %v; want %v", when, r.Epochs, want)
		}
	}
	check("opened again")
	e.restart()
	check("after a restart")
	_, err := e.store.Truncate(e.ctx, r.Handle, 9, want[2].Start+1) // into the first batch of epoch 3, or after it
	e.must(err, "truncate")
	kept := slices.IndexFunc(b, func(m made) bool { return m.end() > want[2].Start+1 })
	b, want = b[:kept], want[:2]
	if kept > 6 {
		want = append(want, storage.EpochStart{Epoch: 3, Start: b[6].BaseOffset})
	}
	check("after truncation")
	e.restart()
	check("after truncation and a restart")
	e.checkLog(r.Handle, "after truncation and a restart", 0, endOf(b, 0), b)
}

func openSettles(e *env) {
	r := e.log(0)
	b := e.batches(0, 300, 1)
	var flights []*pending
	for _, m := range b {
		flights = append(flights, e.begin(request(r.Handle, 1, m.BaseOffset, m)))
	}
	r = e.logAt(0, 2)
	if r.LEO < 0 || r.LEO > endOf(b, 0) {
		e.failf("opened with appends in flight: the LEO is %d", r.LEO)
	}
	held := b[:countBelow(b, r.LEO)]
	for i, p := range flights {
		_, err := p.wait(e.ctx)
		switch {
		case err == nil && b[i].end() > r.LEO:
			e.failf("the append at %d was acknowledged but is not below the LEO %d that Open gave", b[i].BaseOffset, r.LEO)
		case err != nil && i >= len(held):
			e.wantClass(err, "an append in flight over an opening", storage.ErrFenced, storage.ErrGone, storage.ErrUnknown, storage.ErrInvalid)
		}
	}
	e.checkOpened(r, "opened with appends in flight", 0, endOf(held, 0), held)
	next := e.batch(r.LEO, 3, 2)
	e.append(r.Handle, r.LEO, next)
	e.checkLog(r.Handle, "appended after it", 0, next.end(), append(slices.Clone(held), next))
}

// countBelow returns how many of the batches end at or below offset.
func countBelow(b []made, offset int64) int {
	n := 0
	for n < len(b) && b[n].end() <= offset {
		n++
	}
	return n
}

func openVerdict(e *env) {
	b := e.fill(e.log(0).Handle, 0, 10, 1)
	e.restart()
	r := e.log(0)
	if r.Verdict != storage.VerdictIntact {
		e.failf("after an orderly shutdown the verdict is %d", r.Verdict)
	}
	if r.Durable != r.LEO {
		e.failf("after an orderly shutdown the log is durable up to %d, not up to its LEO %d", r.Durable, r.LEO)
	}
	e.checkOpened(r, "after a shutdown", 0, endOf(b, 0), b)
}
