package storagetest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

func grantCases() []Case {
	grants := Offers{Grants: true}
	return []Case{
		{Name: "grant", About: "what was written under a grant and told is acknowledged, and read, scanned and found like any append", Offers: grants, run: grantTold},
		{Name: "grant-limits", About: "a grant takes batches up to each of its limits", Offers: grants, run: grantLimits},
		{Name: "grant-gaps", About: "offsets may be missing under a grant that allows it", Offers: grants, run: grantGaps},
		{Name: "grant-require", About: "an append under a grant survives what it requires", Offers: grants, run: grantRequire},
		{Name: "grant-pipeline", About: "writes are told in order without waiting, complete in order, and those on their way when the grant is over are good", Offers: grants, run: grantPipeline},
		{Name: "grant-after-appends", About: "a grant waits for the appends that were queued before", Offers: grants, run: grantAfterAppends},
		{Name: "grant-repeat", About: "batches that were written under a grant are a repeat when they are appended again", Offers: grants, run: grantRepeat},
		{Name: "grant-outlasts", About: "a grant outlasts calls that change nothing in the log, and a flush makes durable what was told", Offers: grants, run: grantOutlasts},
		{Name: "grant-logs", About: "the ends of many logs can be lent at once, and stay apart", Offers: grants, run: grantLogs},
		{Name: "grant-retain", About: "retention by age lets go of what was written under grants in the units that the options ask for", Offers: grants, run: grantRetain},
		{Name: "grant-truncate", About: "what was written under a grant is truncated like any append, and does not come back", Offers: grants, run: grantTruncate},
		{Name: "grant-untold", About: "Open finds what was written and not told", Offers: grants, run: grantUntold},
		{Name: "grant-torn", About: "Open leaves out a batch that was written in part, down to one byte", Offers: grants, run: grantTorn},
	}
}

func grantTold(e *env) {
	g := e.host(e.log(0), 1)
	for n := range 40 {
		if n%3 == 0 {
			g.hold(4)
		}
		g.granted(g.next(1 + n%4)...)
		if n%8 == 0 {
			g.check("after granted writes", 0)
			g.drop()
		}
	}
	g.check("after granted writes", 0)
	for range 100 {
		e.must(e.tryTimestamp(g.held, 0, storage.TimestampQuery{
			Handle: g.handle, Timestamp: e.start.UnixMilli() - 1_000_000 + e.rng.Int64N(g.leo), UpTo: g.leo,
		}), "search what was written under grants")
	}
	e.restart()
	r := e.log(0)
	e.checkOpened(r, "after granted writes and a restart", 0, g.leo, g.held)
	if r.Verdict != storage.VerdictIntact {
		e.failf("after granted writes and an orderly shutdown the verdict is %d", r.Verdict)
	}
	g.reopened(r)
	g.hold(2)
	g.granted(g.next(2)...)
	g.check("granted again after a restart", 0)
}

func grantLimits(e *env) {
	spec := storage.OpenSpec{
		ID: logID(0), Label: "log", Create: true, LeaderEpoch: 1,
		Options: storage.LogOptions{SegmentBytes: 8192, SegmentAge: time.Hour},
	}
	g := e.host(e.logWith(spec), 1)
	stamp := e.start.UnixMilli() - 1_000_000
	for range 6 {
		g.hold(1)
		if g.grant.MaxTimestamp < math.MaxInt64 {
			stamp = g.grant.MaxTimestamp
			g.atLimit(e.batchAt(g.leo, 1, 1, stamp))
		}
		for room := g.room(); room >= recordbatch.HeaderBytes && !g.over; room = g.room() {
			size := min(room, 4096) - recordbatch.HeaderBytes
			g.atLimit(makeBatch(e.rng, g.leo, 2, 1, stamp, int(size)))
		}
		stamp++
		g.plain(e.batchAt(g.leo, 1, 1, stamp)) // which no grant had to take
	}
	g.check("after writes up to the limits of grants", 0)
	e.restart()
	e.checkOpened(e.log(0), "written up to the limits of grants, after a restart", 0, g.leo, g.held)
}

// room is how many bytes of batches the grant still takes.
func (g *host) room() int64 { return g.grant.Limit - g.pos - int64(g.grant.EndMark) }

// atLimit writes and tells what the grant must take.
func (g *host) atLimit(m made) {
	if !g.fits(m) {
		g.failf("the kit made a batch that does not fit into %+v at %d", g.grant, g.pos)
	}
	g.told(g.begin(g.write(m)), g.leo)
}

func grantGaps(e *env) {
	g := e.host(e.log(0), 1)
	for round := range 12 {
		g.hold(4)
		if !g.grant.Gaps {
			g.granted(g.next(2)...)
			g.plain(e.batch(g.leo+3, 1, 1))
			continue
		}
		list := []made{e.batch(g.leo+1+int64(round%3), 2, 1), e.batch(g.leo+10, 1, 1)}
		req := g.write(list...)
		if round%2 == 0 {
			g.told(g.begin(req), g.leo)
			continue
		}
		r := e.log(0)
		e.checkOpened(r, "opened with offsets missing in what was not told", 0, g.leo, g.held)
		g.reopened(r)
	}
	g.check("with offsets missing", 0)
	if g.hold(1); g.grant.Gaps && g.grant.MaxOffset < math.MaxInt64 {
		g.granted(e.batch(g.grant.MaxOffset, 1, 1)) // as far as it goes
		g.plain(e.batch(g.leo, 1, 1))
	}
	g.check("with offsets missing, at the greatest that the grant takes", 0)
	e.restart()
	e.checkOpened(e.log(0), "with offsets missing, after a restart", 0, g.leo, g.held)
}

func grantRequire(e *env) {
	most := e.store.Capabilities().Survives
	for level := storage.SurvivesUnset; level <= most; level++ {
		g := e.host(e.log(int(level)), 1)
		g.require = level
		for n := range 8 {
			g.hold(2)
			g.granted(g.next(1 + n%2)...)
			more := g.next(1)
			if level < most && g.fits(more...) {
				req := g.write(more...)
				req.Require = most
				p := e.begin(req)
				g.told(p, g.leo)
				if p.result.Survives < most {
					e.failf("an append under a grant that requires level %d is acknowledged as surviving %d", most, p.result.Survives)
				}
			}
		}
		g.check(fmt.Sprintf("after granted writes that require level %d", level), 0)
	}
}

func grantPipeline(e *env) {
	g := e.host(e.log(0), 1)
	for round := range 10 {
		g.hold(2)
		var flights []*pending
		var ends []int64
		for len(flights) < 100*round+1 {
			list := g.next(1 + e.rng.IntN(2))
			if !g.fits(list...) { // what the store says of it is not looked at meanwhile
				break
			}
			flights = append(flights, e.begin(g.write(list...)))
			ends = append(ends, g.leo)
		}
		for i, p := range flights {
			for j := range i {
				if !flights[j].ended() && p.ended() {
					e.failf("append %d under a grant was completed before append %d", i, j)
				}
			}
			g.told(p, ends[i])
		}
		g.drop()
	}
	g.check("after granted writes that were told without waiting", 0)
	e.restart()
	e.checkOpened(e.log(0), "and after a restart", 0, g.leo, g.held)
}

// ended says whether the completion has come.
func (p *pending) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func grantAfterAppends(e *env) {
	g := e.host(e.log(0), 1)
	for range 6 {
		var flights []*pending
		for _, m := range g.next(60) {
			flights = append(flights, e.begin(request(g.handle, 1, m.BaseOffset, m)))
			g.leo, g.held = m.end(), append(g.held, m)
		}
		if err := g.tryGrant(); err != nil { // which checks where it begins
			g.wantClass(err, "ask for a grant with appends in flight", storage.ErrRetry)
		}
		if m := g.next(1); g.fits(m...) {
			flights = append(flights, e.begin(g.write(m...)))
		}
		for _, p := range flights {
			_, err := p.wait(e.ctx)
			e.must(err, "append before a grant")
		}
		g.drop()
	}
	g.check("after appends and grants", 0)
}

func grantRepeat(e *env) {
	g := e.host(e.log(0), 1)
	for n := range 6 {
		g.hold(3)
		g.granted(g.next(3)...)
		list := g.held[len(g.held)-3+n%3:]
		g.drop()
		result, err := e.tryAppend(request(g.handle, 1, list[0].BaseOffset, list...))
		e.must(err, "append again what was written under a grant")
		if result.LEO != g.leo {
			e.failf("a repeat in a log that ends at %d is acknowledged with LEO %d", g.leo, result.LEO)
		}
		g.check("after a repeat", 0)
	}
	g.hold(3)
	g.write(g.next(3)...) // not told
	list := g.held[len(g.held)-3:]
	g.reopened(e.log(0))
	_, err := e.tryAppend(request(g.handle, 1, list[0].BaseOffset, list...))
	e.must(err, "append again what Open found")
	g.check("after a repeat of what was not told", 0)
	e.restart()
	e.checkOpened(e.log(0), "after repeats and a restart", 0, g.leo, g.held)
}

func grantOutlasts(e *env) {
	other := e.log(1)
	g := e.host(e.log(0), 1)
	for range 5 {
		g.hold(20)
		told := func(after string) {
			if list := g.next(1); g.fits(list...) {
				p := e.begin(g.write(list...))
				if _, err := p.wait(e.ctx); err != nil {
					e.failf("after %s the grant is of no use: %v", after, err)
				}
				g.told(p, g.leo)
			}
		}
		told("nothing")
		flushed := e.store.Flush(e.ctx, []storage.Handle{g.handle})[0]
		e.must(flushed.Err, "flush a log that is granted")
		if flushed.Durable != g.leo {
			e.failf("a log that ends at %d, all of it told, is durable up to %d after a flush", g.leo, flushed.Durable)
		}
		told("a flush")
		e.must(e.tryRead(g.held, storage.ReadRequest{Handle: g.handle, Offset: g.leo / 2, UpTo: g.leo, MaxBytes: 1000, AtLeastOne: true}), "read")
		told("a read")
		e.must(e.tryScan(g.held, storage.ScanRequest{Handle: g.handle, UpTo: g.leo, MaxBatches: 5}), "scan")
		e.must(e.tryTimestamp(g.held, 0, storage.TimestampQuery{Handle: g.handle, Kind: storage.Latest, UpTo: g.leo}), "search")
		told("a scan and a search")
		e.put(g.handle, "state", g.leo, []byte("state"))
		e.wantBlob(g.handle, "put beside a grant", "state", g.leo, []byte("state"))
		told("a blob")
		_, err := e.store.List(e.ctx)
		e.must(err, "list")
		_, err = e.store.Usage(e.ctx)
		e.must(err, "usage")
		b := e.fill(other.Handle, other.LEO, 2, 1)
		other.LEO = endOf(b, 0)
		told("appends to another log")
		if e.store.Capabilities().Leases {
			if lent := e.borrow(g.handle, g.held, g.leo/2); lent != nil {
				e.giveBack(lent)
			}
			told("a lease")
		}
		g.drop()
	}
	g.check("after other calls beside grants", 0)
}

func grantLogs(e *env) {
	const logs = 12
	held, leos, starts := make([][]made, logs), make([]int64, logs), make([]int64, logs)
	e.parallel(logs, func(e *env, i int) {
		g := e.host(e.log(i), 1)
		start := int64(0)
		for round := range 5 {
			g.epoch = int32(round + 1)
			for n := range 10 {
				g.granted(g.next(1 + n%3)...)
			}
			g.check("beside other logs that are granted", start)
			g.drop()
			g.held, g.leo = e.truncate(g.handle, g.epoch, g.held, start, g.leo-2)
			start = g.held[round].LastOffset
			e.trim(g.handle, start, start)
			g.check("truncated and trimmed beside other logs that are granted", start)
		}
		held[i], leos[i], starts[i] = g.held, g.leo, start
		g.drop()
	})
	e.restart()
	for i := range logs {
		e.checkOpened(e.logAt(i, 5), "after granted writes beside others and a restart", starts[i], leos[i], trimmed(held[i], starts[i]))
	}
}

func grantRetain(e *env) {
	// A batch a minute, for three hours, in a log that is small.
	g := e.host(e.logWith(storage.OpenSpec{
		ID: logID(0), Label: "aged", Create: true, LeaderEpoch: 1,
		Options: storage.LogOptions{SegmentAge: 10 * time.Minute},
	}), 1)
	for i := range 180 {
		g.granted(e.batchAt(g.leo, 1, 1, e.start.Add(time.Duration(i-180)*time.Minute).UnixMilli()))
	}
	g.drop()
	policy := storage.RetainPolicy{Ceiling: g.leo, Now: e.start, MaxAge: time.Hour, MaxBytes: -1}
	_, gone := e.retain(g.handle, g.held, "retain an hour of three, written under grants in units of 10 minutes", policy)
	if gone > 120 || gone < 120-12 {
		e.failf("%d batches go of 120 that are too old, one a minute, written under grants in units of 10 minutes", gone)
	}
}

func grantTruncate(e *env) {
	g := e.host(e.logWith(storage.OpenSpec{ID: logID(0), Label: "log", Create: true, LeaderEpoch: 1, Options: storage.LogOptions{SegmentBytes: 4096}}), 1)
	for round := range 12 {
		g.epoch = int32(round + 1)
		for range 10 {
			g.granted(g.next(1 + e.rng.IntN(2))...)
		}
		g.drop()
		g.held, g.leo = e.truncate(g.handle, g.epoch, g.held, 0, g.leo-1-e.rng.Int64N(min(g.leo, 20)))
		for range round % 3 { // other bytes at these offsets, shorter or longer
			g.granted(g.next(1)...)
		}
		g.check("truncated after granted writes", 0)
		g.drop()
		switch round % 4 {
		case 1:
			g.reopened(e.logAt(0, g.epoch))
		case 3:
			e.restart()
			g.reopened(e.logAt(0, g.epoch))
		}
		g.check("truncated after granted writes, and opened again", 0)
	}
}

func grantUntold(e *env) {
	g := e.host(e.log(0), 1)
	for round := range 12 {
		g.hold(8)
		var flights []*pending
		told := e.rng.IntN(6)
		for n := range 6 {
			req := g.write(g.next(1)...)
			if n < told {
				flights = append(flights, e.begin(req))
			}
		}
		old := g.grant.ID
		before, pos := g.handle, g.pos
		g.epoch = int32(1 + round/2)
		r := e.logAt(0, g.epoch)
		when := fmt.Sprintf("opened with %d writes of 6 told", told)
		for _, p := range flights { // which Open fences or finds
			if _, err := p.wait(e.ctx); err != nil {
				e.wantClass(err, "tell before Open", storage.ErrFenced, storage.ErrGone, storage.ErrUnknown, storage.ErrInvalid)
			}
		}
		e.checkOpened(r, when, 0, g.leo, g.held)
		if last := r.Epochs[len(r.Epochs)-1].Epoch; last != g.held[len(g.held)-1].LeaderEpoch {
			e.failf("%s: the last epoch is %d; want %d", when, last, g.held[len(g.held)-1].LeaderEpoch)
		}
		late := g.next(1)
		infos, _ := join(late)
		_, err := e.tryAppend(storage.AppendRequest{
			Handle: before, LeaderEpoch: g.epoch, BaseOffset: g.leo, Batches: infos, Granted: old, Pos: pos,
		})
		e.wantClass(err, "tell under a grant of a superseded handle", storage.ErrFenced, storage.ErrGone, storage.ErrInvalid)
		g.reopened(r)
		g.check(when+", and told more by the old handle", 0)
		g.plain(g.next(1)...)
	}
	e.restart()
	e.checkOpened(e.logAt(0, g.epoch), "after openings with writes that were not told, and a restart", 0, g.leo, g.held)
}

func grantTorn(e *env) {
	g := e.host(e.log(0), 1)
	for _, keep := range []int{1, 8, 12, 16, 17, 60, 61, -1, -20} {
		g.hold(5)
		g.granted(g.next(1)...)
		g.hold(4)
		g.write(g.next(2)...)
		torn := g.next(1)[0].data
		if keep < 0 {
			keep += len(torn)
		}
		g.writeAt(torn[:min(keep, len(torn)-1)], g.pos)
		r := e.log(0)
		when := fmt.Sprintf("opened with the first %d bytes of a batch written", keep)
		e.checkOpened(r, when, 0, g.leo, g.held)
		g.reopened(r)
		if keep%2 == 0 {
			g.plain(g.next(1)...)
		} else {
			g.granted(g.next(1)...)
		}
		g.check(when+", and appended to", 0)
		g.drop()
		g.reopened(e.log(0))
		g.check(when+", appended to and opened again", 0)
	}
	e.restart()
	e.checkOpened(e.log(0), "after torn writes and a restart", 0, g.leo, slices.Clone(g.held))
}
