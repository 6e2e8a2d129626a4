package storagetest

import (
	"fmt"
	"slices"

	"github.com/brokerd/brokerd/sdk/storage"
)

func truncateCases() []Case {
	return []Case{
		{Name: "truncate", About: "Truncate drops every batch that holds an offset of to or above, and splits none", run: truncate},
		{Name: "truncate-above", About: "truncating at or above the LEO changes nothing, and below the log start is ErrInvalid", run: truncateAbove},
		{Name: "truncate-trimmed", About: "truncating the batch that the log start is inside of leaves an empty log that ends at its start", run: truncateTrimmed},
		{Name: "truncate-kill", About: "truncation is durable when it returns: nothing of the suffix comes back after a kill, over other bytes or under none", Needs: Abilities{Kill: true}, run: truncateKill},
		{Name: "truncate-power", About: "truncation is durable against loss of power too", Needs: Abilities{LosePower: true}, run: truncatePower},
	}
}

// truncate truncates under epoch and returns the batches that must be left, and
// the LEO.
func (e *env) truncate(h storage.Handle, epoch int32, b []made, start, to int64) ([]made, int64) {
	kept := b[:countBelow(b, to)]
	leo, err := e.store.Truncate(e.ctx, h, epoch, to)
	e.must(err, fmt.Sprintf("truncate to %d", to))
	least := max(start, endOf(kept, start))
	most := least
	if len(kept) < len(b) { // more only into a gap
		most = max(least, min(to, b[len(kept)].BaseOffset))
	}
	if leo < least || leo > most {
		e.failf("truncating to %d a log that starts at %d gives LEO %d; want %d to %d", to, start, leo, least, most)
	}
	return slices.Clip(kept), leo
}

func truncate(e *env) {
	r := e.logWith(storage.OpenSpec{ID: logID(0), Label: "log", Create: true, LeaderEpoch: 1, Options: storage.LogOptions{SegmentBytes: 1024}})
	var b []made
	for round := range 12 {
		epoch := int32(round + 1)
		b = append(b, e.fill(r.Handle, endOf(b, 0), 15, epoch)...)
		to := e.rng.Int64N(endOf(b, 0))
		switch round {
		case 3:
			to = b[7].BaseOffset // on a boundary
		case 5:
			to = b[7].BaseOffset + 1
		case 7:
			to = 0
		}
		b, _ = e.truncate(r.Handle, epoch, b, 0, to)
		e.checkLog(r.Handle, fmt.Sprintf("truncated to %d", to), 0, endOf(b, 0), b)
	}
	b = append(b, e.fill(r.Handle, endOf(b, 0), 5, 20)...)
	e.restart()
	e.checkOpened(e.logAt(0, 20), "truncated and appended to, after a restart", 0, endOf(b, 0), b)
}

func truncateAbove(e *env) {
	r := e.log(0)
	b := e.fill(r.Handle, 0, 6, 1)
	leo := endOf(b, 0)
	for _, to := range []int64{leo, leo + 1, leo + 1000} {
		got, err := e.store.Truncate(e.ctx, r.Handle, 1, to)
		e.must(err, fmt.Sprintf("truncate a log that ends at %d to %d", leo, to))
		if got != leo {
			e.failf("truncating a log that ends at %d to %d gives LEO %d", leo, to, got)
		}
	}
	start := b[3].BaseOffset
	_, err := e.store.Trim(e.ctx, r.Handle, start)
	e.must(err, "trim")
	_, err = e.store.Truncate(e.ctx, r.Handle, 1, start-1)
	e.wantClass(err, "truncate below the log start", storage.ErrInvalid)
	e.checkLog(r.Handle, "after truncations that change nothing", start, leo, b[3:])
}

func truncateTrimmed(e *env) {
	r := e.log(0)
	m := e.batch(0, 10, 1)
	e.append(r.Handle, 0, m)
	_, err := e.store.Trim(e.ctx, r.Handle, 4)
	e.must(err, "trim")
	leo, err := e.store.Truncate(e.ctx, r.Handle, 1, 7)
	e.must(err, "truncate")
	if leo != 4 {
		e.failf("truncating to 7 a log of one batch, 0 to 9, that starts at 4 gives LEO %d; want 4", leo)
	}
	e.restart()
	r = e.log(0)
	e.checkOpened(r, "truncated inside its first batch, after a restart", 4, 4, nil)
	b := e.fill(r.Handle, 4, 3, 1)
	e.checkLog(r.Handle, "appended after it", 4, endOf(b, 4), b)
}

func truncateKill(e *env) {
	var b []made
	for round := range 6 {
		epoch := int32(round + 1)
		r := e.logAt(0, epoch)
		e.checkOpened(r, fmt.Sprintf("after kill %d", round), 0, endOf(b, 0), b)
		b = append(b, e.fill(r.Handle, endOf(b, 0), 12, epoch)...)
		if round%2 == 0 {
			e.must(e.store.Flush(e.ctx, []storage.Handle{r.Handle})[0].Err, "flush")
		}
		b, _ = e.truncate(r.Handle, epoch, b, 0, endOf(b, 0)-1-e.rng.Int64N(20))
		if round%3 != 0 { // other bytes at these offsets
			b = append(b, e.fill(r.Handle, endOf(b, 0), round, epoch)...)
		}
		e.kill()
	}
	e.checkOpened(e.logAt(0, 6), "after the last kill", 0, endOf(b, 0), b)
}

func truncatePower(e *env) {
	r := e.log(0)
	b := e.fill(r.Handle, 0, 12, 1)
	e.must(e.store.Flush(e.ctx, []storage.Handle{r.Handle})[0].Err, "flush")
	b, _ = e.truncate(r.Handle, 2, b, 0, b[6].BaseOffset)
	e.losePower()
	r = e.logAt(0, 2)
	e.checkOpened(r, "after truncation and power loss", 0, endOf(b, 0), b)
	e.fill(r.Handle, endOf(b, 0), 3, 2)
}

func trimCases() []Case {
	return []Case{
		{Name: "trim", About: "Trim raises the log start to the offset, on a batch's boundary or inside it, and never lowers it", run: trim},
		{Name: "trim-reset", About: "trimming above the LEO empties the log and moves its end there", run: trimReset},
		{Name: "trim-kill", About: "trimming is durable when it returns", Needs: Abilities{Kill: true}, run: trimKill},
		{Name: "trim-reset-kill", About: "moving an emptied log is durable when it returns", Needs: Abilities{Kill: true}, run: trimResetKill},
	}
}

// trimmed returns the batches that a log starting at start has.
func trimmed(b []made, start int64) []made {
	return b[countBelow(b, start):]
}

func (e *env) trim(h storage.Handle, to, want int64) {
	start, err := e.store.Trim(e.ctx, h, to)
	e.must(err, fmt.Sprintf("trim to %d", to))
	if start != want {
		e.failf("trimming to %d gives a log start of %d; want %d", to, start, want)
	}
}

func trim(e *env) {
	r := e.logWith(storage.OpenSpec{ID: logID(0), Label: "log", Create: true, LeaderEpoch: 1, Options: storage.LogOptions{SegmentBytes: 1024}})
	b := e.fill(r.Handle, 0, 60, 1)
	leo, start := endOf(b, 0), int64(0)
	for start < leo {
		start += 1 + e.rng.Int64N(leo/8)
		start = min(start, leo)
		e.trim(r.Handle, start, start)
		e.trim(r.Handle, start, start)
		e.trim(r.Handle, start-1, start)
		e.trim(r.Handle, 0, start)
		e.checkLog(r.Handle, fmt.Sprintf("trimmed to %d", start), start, leo, trimmed(b, start))
	}
	e.restart()
	r = e.log(0)
	e.checkOpened(r, "trimmed to its end, after a restart", leo, leo, nil)
	more := e.fill(r.Handle, leo, 5, 1)
	e.trim(r.Handle, more[1].LastOffset, more[1].LastOffset)
	e.restart()
	e.checkOpened(e.log(0), "trimmed inside a batch, after a restart", more[1].LastOffset, endOf(more, 0), more[1:])
}

func trimReset(e *env) {
	r := e.log(0)
	e.trim(r.Handle, 1000, 1000)
	e.checkLog(r.Handle, "a new log moved to 1000", 1000, 1000, nil)
	b := e.fill(r.Handle, 1000, 4, 1)
	e.checkLog(r.Handle, "appended to after that", 1000, endOf(b, 0), b)
	to := endOf(b, 0) + 500
	e.trim(r.Handle, to, to)
	e.restart()
	r = e.log(0)
	e.checkOpened(r, "moved above its LEO, after a restart", to, to, nil)
	b = e.fill(r.Handle, to, 4, 1)
	e.checkLog(r.Handle, "appended to after that", to, endOf(b, 0), b)
}

func trimKill(e *env) {
	var b []made
	start := int64(0)
	for round := range 5 {
		r := e.log(0)
		e.checkOpened(r, fmt.Sprintf("after kill %d", round), start, endOf(b, 0), trimmed(b, start))
		b = append(b, e.fill(r.Handle, endOf(b, 0), 10, 1)...)
		start = b[8*round+e.rng.IntN(8)].LastOffset
		e.trim(r.Handle, start, start)
		e.kill()
	}
	e.checkOpened(e.log(0), "after the last kill", start, endOf(b, 0), trimmed(b, start))
}

func trimResetKill(e *env) {
	r := e.log(0)
	b := e.fill(r.Handle, 0, 10, 1)
	to := endOf(b, 0) + 100
	e.trim(r.Handle, to, to)
	e.kill()
	r = e.log(0)
	e.checkOpened(r, "moved above its LEO, after a kill", to, to, nil)
	b = e.fill(r.Handle, to, 3, 1)
	e.kill()
	e.checkOpened(e.log(0), "appended to, after another", to, endOf(b, to), b)
}

func replaceCases() []Case {
	return []Case{
		{Name: "replace", About: "Replace puts other batches in place of a range, and leaves all others and their offsets", run: replace},
		{Name: "replace-end", About: "the LEO does not fall when the last batches are replaced by fewer or none", run: replaceEnd},
		{Name: "replace-invalid", About: "ranges that are not whole batches, and batches that do not fit or are damaged, are ErrInvalid and change nothing", run: replaceInvalid},
		{Name: "replace-kill", About: "what Replace returned from survives a kill, and what it had put away does not come back", Needs: Abilities{Kill: true}, run: replaceKill},
		{Name: "replace-kill-midway", About: "after a kill during Replace the log holds the old range or the new one, never a mixture", Needs: Abilities{Kill: true}, run: replaceKillMidway},
	}
}

// compacted returns what is left of the batches when each is kept, rewritten
// shorter, or dropped, as the seed decides.
func (e *env) compacted(b []made) []made {
	var left []made
	for _, m := range b {
		switch e.rng.IntN(3) {
		case 0:
			left = append(left, m)
		case 1:
			// Records go, the offsets of those that stay do not change.
			n := int(m.LastOffset-m.BaseOffset) + 1
			left = append(left, e.batchAt(m.BaseOffset, n, m.LeaderEpoch, m.MaxTimestamp))
		}
	}
	return left
}

func (e *env) tryReplace(h storage.Handle, from, to int64, with []made) error {
	infos, data := join(with)
	return e.store.Replace(e.ctx, storage.ReplaceRequest{Handle: h, From: from, To: to, Batches: infos, Data: data})
}

// replaceSome replaces batches first to last-1 and returns the new whole.
func (e *env) replaceSome(h storage.Handle, b []made, first, last int) []made {
	with := e.compacted(b[first:last])
	from, to := b[first].BaseOffset, b[last-1].end()
	e.must(e.tryReplace(h, from, to, with), fmt.Sprintf("replace %d to %d", from, to))
	return slices.Concat(b[:first], with, b[last:])
}

func replace(e *env) {
	r := e.logWith(storage.OpenSpec{ID: logID(0), Label: "log", Create: true, LeaderEpoch: 1, Options: storage.LogOptions{SegmentBytes: 1024}})
	b := e.fill(r.Handle, 0, 80, 1)
	leo := endOf(b, 0)
	for round := range 10 {
		first := e.rng.IntN(len(b) - 2)
		last := first + 1 + e.rng.IntN(len(b)-1-first)
		b = e.replaceSome(r.Handle, b, first, last)
		e.checkLog(r.Handle, fmt.Sprintf("after replacement %d", round), 0, leo, b)
		for offset := range leo {
			if offset%7 == int64(round%7) { // reads where offsets are missing
				e.must(e.tryRead(b, storage.ReadRequest{Handle: r.Handle, Offset: offset, UpTo: leo, MaxBytes: 500, AtLeastOne: true}), "read")
			}
		}
		m := e.batch(leo, 2, 1)
		e.append(r.Handle, leo, m)
		b, leo = append(b, m), m.end()
	}
	e.restart()
	r = e.log(0)
	e.checkOpened(r, "after replacements and a restart", 0, leo, b)
	b, leo = e.truncate(r.Handle, 1, b, 0, leo-5)
	e.checkLog(r.Handle, "truncated after replacements", 0, leo, b)
	e.restart()
	e.checkOpened(e.log(0), "truncated after replacements, and a restart", 0, leo, b)
}

func replaceEnd(e *env) {
	r := e.log(0)
	b := e.fill(r.Handle, 0, 10, 1)
	leo := endOf(b, 0)
	e.must(e.tryReplace(r.Handle, b[7].BaseOffset, leo, b[7:8]), "replace the end with less")
	b = b[:8]
	e.checkLog(r.Handle, "with its end replaced by less", 0, leo, b)
	e.must(e.tryReplace(r.Handle, b[4].BaseOffset, leo, nil), "replace the end with nothing")
	b = b[:4]
	e.checkLog(r.Handle, "with its end replaced by nothing", 0, leo, b)
	e.restart()
	r = e.log(0)
	e.checkOpened(r, "with its end replaced by nothing, after a restart", 0, leo, b)
	m := e.batch(leo, 2, 1)
	e.append(r.Handle, leo, m)
	b = append(slices.Clone(b), m)
	e.restart()
	e.checkOpened(e.log(0), "appended to after that", 0, m.end(), b)
}

func replaceInvalid(e *env) {
	r := e.log(0)
	var b []made
	for i := range 10 {
		m := e.batch(int64(i)*10, 10, 1)
		e.append(r.Handle, m.BaseOffset, m)
		b = append(b, m)
	}
	for _, try := range []struct {
		what     string
		from, to int64
		with     []made
	}{
		{"from inside a batch", 15, 40, b[2:4]},
		{"to inside a batch", 10, 35, b[1:3]},
		{"to above the LEO", 80, 110, b[8:10]},
		{"backwards", 40, 20, nil},
		{"with batches below the range", 20, 40, b[1:3]},
		{"with batches above the range", 20, 40, b[3:5]},
		{"with batches out of order", 20, 50, []made{b[4], b[2]}},
	} {
		e.wantClass(e.tryReplace(r.Handle, try.from, try.to, try.with), "replace "+try.what, storage.ErrInvalid)
	}
	bad := e.batch(20, 10, 1)
	bad.data[len(bad.data)-1] ^= 1
	e.wantClass(e.tryReplace(r.Handle, 20, 30, []made{bad}), "replace with a damaged batch", storage.ErrInvalid)
	infos, data := join(b[2:4])
	err := e.store.Replace(e.ctx, storage.ReplaceRequest{Handle: r.Handle, From: 20, To: 40, Batches: infos[:1], Data: data})
	e.wantClass(err, "replace with batches that are not described", storage.ErrInvalid)
	e.checkLog(r.Handle, "after replacements that were refused", 0, 100, b)
}

func replaceKill(e *env) {
	r := e.log(0)
	b := e.fill(r.Handle, 0, 40, 1)
	leo := endOf(b, 0)
	for round := range 5 {
		if round%2 == 0 {
			e.must(e.store.Flush(e.ctx, []storage.Handle{r.Handle})[0].Err, "flush")
		}
		if len(b) < 4 {
			break
		}
		b = e.replaceSome(r.Handle, b, e.rng.IntN(2), len(b)-e.rng.IntN(2))
		e.kill()
		r = e.log(0)
		e.checkOpened(r, fmt.Sprintf("after replacement and kill %d", round), 0, leo, b)
	}
}

func replaceKillMidway(e *env) {
	for round := range 6 {
		r := e.log(round)
		b := e.fill(r.Handle, 0, 30, 1)
		leo := endOf(b, 0)
		with := slices.Concat(b[:3], e.compacted(b[3:27]), b[27:])
		infos, data := join(with[3 : len(with)-3])
		req := storage.ReplaceRequest{Handle: r.Handle, From: b[3].BaseOffset, To: b[27].BaseOffset, Batches: infos, Data: data}
		store, ctx, outcome := e.store, e.ctx, make(chan error, 1)
		go func() { outcome <- store.Replace(ctx, req) }()
		var err error
		if round%2 == 0 {
			err = <-outcome
		}
		e.must(e.backing.Kill(e.ctx), "kill the store")
		if round%2 != 0 {
			err = <-outcome
		}
		e.openStore()
		r = e.log(round)
		oldErr := e.tryCheckLog(r.Handle, 0, leo, b)
		newErr := e.tryCheckLog(r.Handle, 0, leo, with)
		switch {
		case newErr == nil:
		case oldErr == nil && err != nil:
		case oldErr == nil:
			e.failf("Replace succeeded before a kill and the old range is back")
		default:
			e.failf("after a kill during Replace the log holds neither the old range (%v) nor the new (%v)", oldErr, newErr)
		}
	}
}
