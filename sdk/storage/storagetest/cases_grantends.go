package storagetest

import (
	"fmt"
	"math"
	"slices"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

func grantEndCases() []Case {
	grants := Offers{Grants: true}
	kill, power := Abilities{Kill: true}, Abilities{LosePower: true}
	return []Case{
		{Name: "grant-ended", About: "a grant is over with every call that opens, closes, appends to or changes the log", Offers: grants, run: grantEnded},
		{Name: "grant-end", About: "a grant that was given back is over, and only that of this log", Offers: grants, run: grantEnd},
		{Name: "grant-fenced", About: "no end is lent to a superseded or closed handle, nor for a leader epoch that is too low", Offers: grants, run: grantFenced},
		{Name: "grant-lies", About: "what is told beside the grant's limits, its order or its log is refused, and Open finds what is there", Offers: grants, run: grantLies},
		{Name: "grant-damaged", About: "what was told and is damaged in its file is never read", Offers: grants, run: grantDamaged},
		{Name: "grant-failed-write", About: "what a write that failed left in the file does not come back behind other batches", Offers: grants, run: grantFailedWrite},
		{Name: "grant-kill", About: "all that was written whole under a grant survives kill -9 of the process, told or not, and nothing else is there", Needs: kill, Offers: grants, run: grantKill},
		{Name: "grant-kill-truncate", About: "nothing that was truncated or overwritten after granted writes comes back after a kill", Needs: kill, Offers: grants, run: grantKillTruncate},
		{Name: "grant-power", About: "what was told requiring it, or flushed, survives loss of power, and the verdict tells what may be lost", Needs: power, Offers: grants, run: grantPower},
	}
}

// afterwards checks that the grant is over: what is told under it is refused. The
// log is opened again, as it must be after a refusal, and holds what it held.
func (g *host) afterwards(what string, start int64) {
	infos, _ := join(g.next(1))
	_, err := g.tryAppend(storage.AppendRequest{
		Handle: g.handle, LeaderEpoch: g.epoch, BaseOffset: g.leo, Batches: infos, Granted: g.grant.ID, Pos: g.pos,
	})
	if err == nil {
		g.failf("what is told under a grant is taken after %s", what)
	}
	g.drop()
	r := g.logAt(0, g.epoch)
	g.checkOpened(r, "told under a grant after "+what, start, g.leo, trimmed(g.held, start))
	g.reopened(r)
}

func grantEnded(e *env) {
	g := e.host(e.log(0), 1)
	start := int64(0)
	lend := func() {
		g.hold(6)
		for range 3 {
			g.told(g.begin(g.write(g.next(1)...)), g.leo)
		}
	}
	for range 2 {
		lend()
		list := g.next(2)
		e.append(g.handle, g.leo, list...)
		g.leo, g.held = endOf(list, 0), append(g.held, list...)
		g.afterwards("an append without it", start)

		lend()
		older, pos := g.grant, g.pos
		g.obtain()
		g.drop()
		g.grant, g.pos = older, pos
		g.afterwards("another grant", start)

		lend()
		g.held, g.leo = e.truncate(g.handle, g.epoch, g.held, start, g.held[len(g.held)-1].BaseOffset)
		g.afterwards("a truncation", start)

		lend()
		start = g.held[len(g.held)-3].BaseOffset
		e.trim(g.handle, start, start)
		g.afterwards("a trim", start)

		lend()
		result, err := e.store.Retain(e.ctx, g.handle, storage.RetainPolicy{Ceiling: g.leo, Now: e.start, MaxBytes: -1})
		e.must(err, "retain")
		start = result.LogStart
		g.afterwards("retention", start)

		lend()
		n := len(g.held)
		g.held = e.replaceSome(g.handle, g.held, n-2, n)
		g.afterwards("a replacement", start)

		lend()
		e.must(e.store.Close(e.ctx, []storage.Handle{g.handle})[0], "close")
		g.afterwards("Close", start)

		lend()
		e.logAt(0, g.epoch)
		g.afterwards("an opening", start)
		g.plain(g.next(1)...)
	}
	lend()
	e.must(e.store.Delete(e.ctx, logID(0)), "delete")
	g.leo, g.held = 0, nil
	g.afterwards("Delete", 0)
}

func grantEnd(e *env) {
	g, other := e.host(e.log(0), 1), e.host(e.log(1), 1)
	files := e.store.Files()
	for range 4 {
		g.hold(6)
		other.hold(6)
		g.told(g.begin(g.write(g.next(1)...)), g.leo)
		for _, id := range []storage.GrantID{0, other.grant.ID, g.grant.ID + 1000, math.MaxUint64} {
			e.must(files.End(e.ctx, g.handle, id), "end a grant that is not this log's")
		}
		g.told(g.begin(g.write(g.next(1)...)), g.leo)
		p := e.begin(g.write(g.next(1)...))
		e.must(files.End(e.ctx, g.handle, g.grant.ID), "end a grant")
		g.told(p, g.leo)
		e.must(files.End(e.ctx, g.handle, g.grant.ID), "end a grant twice")
		g.afterwards("it was given back", 0)
		other.told(other.begin(other.write(other.next(1)...)), other.leo)
		g.obtain()
		e.must(files.End(e.ctx, g.handle, g.grant.ID), "end a grant")
		g.plain(g.next(2)...)
		g.obtain()
		g.drop() // and forget it
	}
	g.check("after grants that were given back", 0)
	other.check("beside a log whose grants were given back", 0)
}

func grantFenced(e *env) {
	files := e.store.Files()
	refused := func(act string, h storage.Handle, epoch int32, classes ...error) {
		_, err := files.Grant(e.ctx, h, epoch, storage.SurvivesUnset)
		e.wantClass(err, act, classes...)
	}
	first := e.logAt(0, 5)
	b := e.fill(first.Handle, 0, 4, 5)
	refused("grant for a leader epoch that is too low", first.Handle, 4, storage.ErrFenced)
	second := e.logAt(0, 5)
	refused("grant to a superseded handle", first.Handle, 5, storage.ErrFenced)
	refused("grant to a handle that is none", 1<<60, 5, storage.ErrGone, storage.ErrFenced, storage.ErrInvalid)

	g := e.host(second, 7) // of a leader that is new
	g.leo, g.held = endOf(b, 0), b
	g.hold(2)
	g.granted(g.next(2)...)
	g.drop()
	_, err := e.tryAppend(request(g.handle, 6, g.leo, e.batch(g.leo, 1, 6)))
	e.wantClass(err, "append with a lower leader epoch than an append under a grant", storage.ErrFenced)
	_, err = e.tryOpen(storage.OpenSpec{ID: logID(0), LeaderEpoch: 6})
	e.wantClass(err, "open with a lower leader epoch than an append under a grant", storage.ErrFenced)
	g.check("after fenced calls", 0)

	e.must(e.store.Close(e.ctx, []storage.Handle{g.handle})[0], "close")
	refused("grant to a closed handle", g.handle, 7, storage.ErrGone)
	r := e.logAt(0, 7)
	e.must(e.store.Delete(e.ctx, logID(0)), "delete")
	refused("grant to a handle of a deleted log", r.Handle, 7, storage.ErrGone, storage.ErrFenced)
}

func grantLies(e *env) {
	other := e.host(e.log(1), 1)
	other.hold(3)
	far := func(info *storage.BatchInfo, base int64) {
		info.LastOffset += base - info.BaseOffset
		info.BaseOffset = base
	}
	g := e.host(e.log(0), 1)
	for _, lie := range []struct {
		what string
		tell func(req *storage.AppendRequest)
	}{
		{"a position that is too high", func(req *storage.AppendRequest) { req.Pos++ }},
		{"a position that is too low", func(req *storage.AppendRequest) { req.Pos-- }},
		{"the position of the write before", func(req *storage.AppendRequest) { req.Pos = g.grant.Pos }},
		{"a negative position", func(req *storage.AppendRequest) { req.Pos = math.MinInt64 }},
		{"the greatest position", func(req *storage.AppendRequest) { req.Pos = math.MaxInt64 }},
		{"a grant that is none", func(req *storage.AppendRequest) { req.Granted += 1000 }},
		{"the grant of another log", func(req *storage.AppendRequest) { req.Granted = other.grant.ID }},
		{"a base offset above the LEO", func(req *storage.AppendRequest) { req.BaseOffset++ }},
		{"a base offset of zero", func(req *storage.AppendRequest) { req.BaseOffset = 0 }},
		{"a lower leader epoch", func(req *storage.AppendRequest) { req.LeaderEpoch-- }},
		{"batches of another leader epoch", func(req *storage.AppendRequest) { req.Batches[1].LeaderEpoch-- }},
		{"no batch", func(req *storage.AppendRequest) { req.Batches = nil }},
		{"a batch that is smaller than its header", func(req *storage.AppendRequest) { req.Batches[0].Bytes = recordbatch.HeaderBytes - 1 }},
		{"a batch of negative size", func(req *storage.AppendRequest) { req.Batches[1].Bytes = math.MinInt32 }},
		{"a batch that is larger than the file", func(req *storage.AppendRequest) { req.Batches[1].Bytes = math.MaxInt32 }},
		{"batches that overlap", func(req *storage.AppendRequest) { req.Batches[1].BaseOffset = req.Batches[0].LastOffset }},
		{"batches in the other order", func(req *storage.AppendRequest) { slices.Reverse(req.Batches) }},
		{"a batch below the LEO", func(req *storage.AppendRequest) { req.Batches[0].BaseOffset-- }},
		{"a batch that ends before it begins", func(req *storage.AppendRequest) { req.Batches[1].LastOffset = req.Batches[1].BaseOffset - 1 }},
		{"an offset above the grant's", func(req *storage.AppendRequest) {
			if last := len(req.Batches) - 1; g.grant.MaxOffset < math.MaxInt64 {
				far(&req.Batches[last], g.grant.MaxOffset+1)
			} else {
				req.Pos++ // it has no limit
			}
		}},
		{"a level that cannot be had", func(req *storage.AppendRequest) { req.Require = storage.SurvivesStore + 1 }},
		{"what was written, and its bytes too", func(req *storage.AppendRequest) { _, data := join(g.held[len(g.held)-2:]); req.Data = [][]byte{data} }},
	} {
		g.epoch++
		g.reopened(e.logAt(0, g.epoch))
		g.hold(6)
		g.told(g.begin(g.write(g.next(1)...)), g.leo)
		req := g.write(g.next(2)...)
		lie.tell(&req)
		if _, err := e.tryAppend(req); err == nil {
			e.failf("under a grant, the store believes %s", lie.what)
		}
		r := e.logAt(0, g.epoch)
		e.checkOpened(r, "told "+lie.what+", and opened again", 0, g.leo, g.held)
		g.reopened(r)
	}
	other.granted(other.next(2)...)
	other.check("beside a log of which lies were told", 0)
}

func grantDamaged(e *env) {
	for n := range 6 {
		g := e.host(e.log(n), 1)
		g.hold(5)
		g.granted(g.next(2)...)
		g.hold(3)
		good := g.held
		bad := g.next(1)[0]
		at := crcCovered + e.rng.IntN(len(bad.data)-crcCovered)
		bad.data[at] ^= 1 << e.rng.IntN(8)
		_, err := e.tryAppend(g.write(bad))
		if err == nil { // nobody has looked at it
			got, err := e.readAll(g.handle, 0, g.leo)
			e.wantClass(err, "read what was told and is damaged", storage.ErrCorrupt)
			if _, want := join(good); string(got) != string(want) {
				e.failf("with what was told damaged, reads return %s before they meet it; want %s", describe(got), describe(want))
			}
			continue
		}
		r := e.log(n)
		e.checkOpened(r, "opened after damage was told", 0, endOf(good, 0), good)
	}
}

func grantFailedWrite(e *env) {
	// What goes on after a write that failed.
	goOn := map[string]func(g *host, m made){
		"an append": func(g *host, m made) { g.plain(m) },
		"another grant": func(g *host, m made) {
			g.drop()
			if err := g.tryGrant(); err != nil {
				g.wantClass(err, "ask for a grant after a write that failed", storage.ErrRetry)
			}
			if !g.fits(m) {
				g.plain(m)
				return
			}
			g.told(g.begin(g.write(m)), g.leo)
		},
		"a grant given back, and an append": func(g *host, m made) {
			g.must(g.store.Files().End(g.ctx, g.handle, g.grant.ID), "end a grant")
			g.plain(m)
		},
	}
	for n, what := range []string{"an append", "another grant", "a grant given back, and an append"} {
		g := e.host(e.log(n), 1)
		for range 6 {
			g.hold(8)
			g.granted(g.next(1)...)
			g.hold(6)
			// The write is said to have failed, and its bytes are all there. What takes
			// its place ends where a batch of the failed write begins.
			ms := e.start.UnixMilli()
			failed := []made{makeBatch(e.rng, g.leo, 2, 1, ms, 100), makeBatch(e.rng, g.leo+2, 2, 1, ms, 100), makeBatch(e.rng, g.leo+4, 2, 1, ms, 100)}
			_, data := join(failed)
			g.writeAt(append(data, make([]byte, g.grant.EndMark)...), g.pos)
			goOn[what](g, makeBatch(e.rng, g.leo, 2, 1, ms, 100))
			g.drop()
			r := e.log(n)
			e.checkOpened(r, "a write failed, then "+what+", then an opening", 0, g.leo, g.held)
			g.reopened(r)
		}
	}
	e.restart()
}

func grantKill(e *env) {
	g := e.host(e.log(0), 1)
	for round := range 8 {
		g.hold(12)
		var flights []*pending
		for n := range 8 {
			req := g.write(g.next(1)...)
			if n < round {
				flights = append(flights, e.begin(req))
			}
		}
		if round%2 == 0 && len(flights) > 0 {
			_, err := flights[len(flights)-1].wait(e.ctx)
			e.must(err, "tell of what was written")
		}
		e.must(e.backing.Kill(e.ctx), "kill the store")
		g.write(g.next(1)...) // by a host that has not heard of it
		if torn := g.next(1)[0].data; round%3 != 0 {
			g.writeAt(torn[:1+e.rng.IntN(len(torn)-1)], g.pos)
		}
		g.drop()
		e.openStore()
		r := e.log(0)
		when := fmt.Sprintf("after a kill with %d writes of 8 told", min(round, 8))
		e.checkOpened(r, when, 0, g.leo, g.held)
		if r.Verdict != storage.VerdictIntact {
			e.failf("%s the verdict is %d, though the machine stayed up", when, r.Verdict)
		}
		g.reopened(r)
		g.granted(g.next(2)...)
		g.check(when+", and appended to", 0)
	}
}

func grantKillTruncate(e *env) {
	spec := storage.OpenSpec{ID: logID(0), Label: "log", Create: true, LeaderEpoch: 1, Options: storage.LogOptions{SegmentBytes: 4096}}
	g := e.host(e.logWith(spec), 1)
	for round := range 10 {
		for range 8 {
			g.granted(g.next(1)...)
		}
		g.drop()
		g.held, g.leo = e.truncate(g.handle, g.epoch, g.held, 0, g.leo-1-e.rng.Int64N(min(g.leo, 12)))
		for range round % 4 {
			g.granted(g.next(1)...)
		}
		if list := g.next(2); round%2 == 0 && g.fits(list...) {
			g.write(list...)
		}
		e.must(e.backing.Kill(e.ctx), "kill the store")
		g.drop()
		e.openStore()
		g.epoch++
		spec.LeaderEpoch = g.epoch
		r := e.logWith(spec)
		e.checkOpened(r, "granted, truncated and killed", 0, g.leo, g.held)
		g.reopened(r)
	}
}

func grantPower(e *env) {
	most := e.store.Capabilities().Survives
	g := e.host(e.log(0), 1)
	for round := range 10 {
		g.require = storage.SurvivesUnset
		if round%3 == 0 && most >= storage.SurvivesMachine {
			g.require = storage.SurvivesMachine
		}
		g.hold(14)
		for range 4 {
			p := e.begin(g.write(g.next(1)...))
			g.told(p, g.leo)
			g.over = false
		}
		durable := g.leo
		if g.require < storage.SurvivesMachine {
			e.must(e.store.Flush(e.ctx, []storage.Handle{g.handle})[0].Err, "flush")
			told := e.rng.IntN(round + 1)
			for n := range round {
				if req := g.write(g.next(1)...); n < told {
					e.begin(req) // its answer may be lost
				}
			}
		}
		e.losePower()
		r := e.log(0)
		when := fmt.Sprintf("after loss of power %d", round)
		if r.LEO < durable {
			e.failf("%s: the log was durable up to %d and ends at %d", when, durable, r.LEO)
		}
		if r.LEO < g.leo && r.Verdict != storage.VerdictMayHaveLostSuffix {
			e.failf("%s: records that were written under a grant are missing and the verdict is %d", when, r.Verdict)
		}
		g.held = g.held[:countBelow(g.held, r.LEO)]
		e.checkOpened(r, when, 0, endOf(g.held, 0), g.held)
		g.reopened(r)
		e.must(e.store.Close(e.ctx, []storage.Handle{g.handle})[0], "close")
		g.reopened(e.log(0))
	}
}
