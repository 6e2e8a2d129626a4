package storagetest

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/brokerd/brokerd/sdk/storage"
)

func leaseCases() []Case {
	leases := Offers{Leases: true}
	return []Case{
		{Name: "lease", About: "a lease at any offset is of a regular file, for reading alone, and begins with the batch that a read would", Offers: leases, run: leaseAnywhere},
		{Name: "lease-gaps", About: "and so where offsets are missing, which it says", Offers: leases, run: leaseGaps},
		{Name: "lease-refused", About: "a lease at the LEO is ErrRetry, and its other errors are those of a read", Offers: leases, run: leaseRefused},
		{Name: "lease-files", About: "leases have the same FileID exactly when they are of one file, and each file is its own", Offers: leases, run: leaseFiles},
		{Name: "lease-granted", About: "what was written under a grant and told is lent like any append", Offers: Offers{Leases: true, Grants: true}, run: leaseGranted},
		{Name: "lease-truncate", About: "bytes under a lease do not change when they are truncated and others appended in their place", Offers: leases, run: leaseTruncate},
		{Name: "lease-truncate-again", About: "nor when they are truncated again and again, to where the first truncation was", Offers: leases, run: leaseTruncateAgain},
		{Name: "lease-trim", About: "nor when they are trimmed or retained away", Offers: leases, run: leaseTrim},
		{Name: "lease-replace", About: "nor when they are replaced", Offers: leases, run: leaseReplace},
		{Name: "lease-delete", About: "nor when the log is deleted, and made again under the same name", Offers: leases, run: leaseDelete},
		{Name: "lease-recycled", About: "nor when what was retained away is used again for what is appended", Offers: leases, run: leaseRecycled},
		{Name: "lease-kill", About: "nor when the process is killed, nor when the store is opened again after it, and the log goes on as ever", Needs: Abilities{Kill: true}, Offers: leases, run: leaseKill},
		{Name: "lease-return", About: "leases can be taken and returned without end, and one that is not known is passed over", Offers: leases, run: leaseReturn},
		{Name: "lease-readers", About: "readers by lease beside appends, truncations and trims see whole batches that do not change", Offers: leases, run: leaseReaders},
	}
}

// lendable opens log n in small segments.
func (e *env) lendable(n int) *host {
	return e.host(e.lendableAt(n, 1), 1)
}

func (e *env) lendableAt(n int, epoch int32) storage.OpenResult {
	return e.logWith(storage.OpenSpec{
		ID: logID(n), Label: "lent", Create: true, LeaderEpoch: epoch,
		Options: storage.LogOptions{SegmentBytes: 4096, IndexIntervalBytes: 512},
	})
}

// leaseEverywhere takes a lease at each of the offsets and returns them all, of
// which there must be some.
func (e *env) leaseEverywhere(when string, h storage.Handle, b []made, from, to int64) []*borrowed {
	var all []*borrowed
	for offset := from; offset < to; offset++ {
		if lent := e.borrow(h, b, offset); lent != nil {
			all = append(all, lent)
		}
	}
	if len(all) == 0 && to > from {
		e.failf("%s: no lease was given at any offset from %d to %d", when, from, to)
	}
	return all
}

func leaseAnywhere(e *env) {
	g := e.lendable(0)
	for range 8 {
		for range 15 {
			g.plain(g.next(1 + e.rng.IntN(3))...)
		}
		e.giveBack(e.leaseEverywhere("after appends", g.handle, g.held, 0, g.leo)...)
	}
	start := g.held[17].LastOffset
	e.trim(g.handle, start, start)
	e.giveBack(e.leaseEverywhere("after a trim", g.handle, g.held, start, g.leo)...)
	e.restart()
	g.reopened(e.log(0))
	e.giveBack(e.leaseEverywhere("after a restart", g.handle, g.held, start, g.leo)...)
	g.plain(g.next(3)...)
	e.giveBack(e.leaseEverywhere("appended to after a restart", g.handle, g.held, start, g.leo)...)
	g.check("after leases", start)
}

func leaseGaps(e *env) {
	g := e.lendable(0)
	for range 60 {
		at := g.leo
		if e.rng.IntN(3) == 0 {
			at += 1 + e.rng.Int64N(5)
		}
		g.plain(e.batch(at, 1+e.rng.IntN(3), 1))
	}
	e.giveBack(e.leaseEverywhere("with gaps", g.handle, g.held, 0, g.leo)...)
	for range 4 {
		first := e.rng.IntN(len(g.held) / 2)
		g.held = e.replaceSome(g.handle, g.held, first, first+1+e.rng.IntN(len(g.held)/2))
		e.giveBack(e.leaseEverywhere("replaced", g.handle, g.held, 0, endOf(g.held, 0))...)
		g.plain(g.next(2)...)
	}
	e.restart()
	g.reopened(e.log(0))
	e.giveBack(e.leaseEverywhere("replaced, and after a restart", g.handle, g.held, 0, g.leo)...)
	g.check("with gaps, after leases", 0)
}

func leaseRefused(e *env) {
	files := e.store.Files()
	refused := func(act string, h storage.Handle, offset int64, classes ...error) {
		_, err := files.Lease(e.ctx, h, offset)
		e.wantClass(err, act, classes...)
	}
	first := e.log(0)
	refused("lease in an empty log", first.Handle, 0, storage.ErrRetry)
	b := e.fill(first.Handle, 0, 10, 1)
	leo, start := endOf(b, 0), b[4].BaseOffset
	refused("lease at the LEO", first.Handle, leo, storage.ErrRetry)
	e.trim(first.Handle, start, start)
	for _, offset := range []int64{-1, math.MinInt64, start - 1, leo + 1, math.MaxInt64} {
		refused(fmt.Sprintf("lease at %d in a log from %d to %d", offset, start, leo), first.Handle, offset, storage.ErrInvalid)
	}
	refused("lease in what is none", 1<<60, start, storage.ErrGone, storage.ErrFenced, storage.ErrInvalid)
	second := e.log(0)
	if _, readErr := e.store.Read(e.ctx, storage.ReadRequest{Handle: first.Handle, Offset: start, UpTo: leo, MaxBytes: 100}); readErr != nil {
		refused("lease by a superseded handle", first.Handle, start, storage.Class(readErr))
	}
	e.must(e.store.Close(e.ctx, []storage.Handle{second.Handle})[0], "close")
	refused("lease by a closed handle", second.Handle, start, storage.ErrGone)
	third := e.log(0)
	e.must(e.store.Delete(e.ctx, logID(0)), "delete")
	refused("lease in a deleted log", third.Handle, start, storage.ErrGone, storage.ErrFenced)
}

func leaseFiles(e *env) {
	var all []*borrowed
	for n := range 3 {
		g := e.lendable(n)
		for range 60 {
			g.plain(g.next(1)...)
		}
		all = append(all, e.leaseEverywhere("in several logs", g.handle, g.held, 0, g.leo)...)
	}
	infos := make([]os.FileInfo, len(all))
	for i, l := range all {
		info, err := l.File.Stat()
		e.must(err, "look at the file of a lease")
		infos[i] = info
	}
	for i, l := range all {
		for j, other := range all[:i] {
			if same := os.SameFile(infos[i], infos[j]); same != (l.FileID == other.FileID) {
				e.failf("leases with FileID %d and %d are of one file: %v", l.FileID, other.FileID, same)
			}
		}
	}
	for i, l := range all { // every other file is closed; the rest stay
		if i%2 == 0 {
			e.must(l.File.Close(), "close the file of a lease")
		}
	}
	var open []*borrowed
	for i, l := range all {
		if i%2 == 1 {
			open = append(open, l)
		}
	}
	e.unchanged("after the files of other leases were closed", open)
	e.giveBack(open...)
}

func leaseGranted(e *env) {
	g := e.lendable(0)
	var kept []*borrowed
	for round := range 12 {
		g.hold(4)
		g.granted(g.next(2)...)
		from := max(0, g.leo-20)
		all := e.leaseEverywhere("after granted writes", g.handle, g.held, from, g.leo)
		kept = append(kept, all[0])
		e.giveBack(all[1:]...)
		if g.fits(g.next(1)...) { // behind what is lent
			g.granted(g.next(1)...)
		}
		if round%4 == 3 {
			g.drop()
			g.held, g.leo = e.truncate(g.handle, g.epoch, g.held, 0, g.leo-3)
		}
		e.unchanged("beside granted writes", kept)
	}
	g.check("granted and lent", 0)
	e.giveBack(kept...)
}

func leaseTruncate(e *env) {
	g := e.lendable(0)
	var kept []*borrowed
	for round := range 10 {
		for range 20 {
			g.work(1 + e.rng.IntN(2))
		}
		all := e.leaseEverywhere("before a truncation", g.handle, g.held, g.leo-min(g.leo, 30), g.leo)
		e.giveBack(all[1:]...)
		kept = append(kept, all[0])
		g.drop()
		g.epoch++
		to := g.leo - 1 - e.rng.Int64N(min(g.leo, 40))
		if round == 5 {
			to = 0
		}
		g.held, g.leo = e.truncate(g.handle, g.epoch, g.held, 0, to)
		e.unchanged(fmt.Sprintf("truncated to %d", to), kept)
		for range 10 {
			g.work(1 + e.rng.IntN(3))
		}
		e.unchanged(fmt.Sprintf("truncated to %d, and others appended", to), kept)
		g.check("truncated beside leases", 0)
		e.giveBack(e.leaseEverywhere("truncated beside leases", g.handle, g.held, 0, g.leo)...)
		if round%3 == 2 {
			g.reopened(e.logAt(0, g.epoch))
			g.check("truncated beside leases, and opened again", 0)
		}
	}
	e.restartBeside(kept)
	e.checkOpened(e.logAt(0, g.epoch), "truncated beside leases, after a restart", 0, g.leo, g.held)
}

func leaseTruncateAgain(e *env) {
	g := e.lendable(0)
	var kept []*borrowed
	for round := range 8 {
		for range 20 {
			g.work(1 + e.rng.IntN(2))
		}
		all := e.leaseEverywhere("before truncations", g.handle, g.held, g.leo-min(g.leo, 8), g.leo)
		e.giveBack(all[1:]...)
		kept = append(kept, all[0])
		to := g.held[len(g.held)-1-e.rng.IntN(6)].BaseOffset
		for again := range 4 {
			g.drop()
			g.epoch++
			g.held, g.leo = e.truncate(g.handle, g.epoch, g.held, 0, to)
			for range again { // nothing the first time
				g.work(1)
			}
			e.unchanged("truncated again and again", kept)
			g.check("truncated again and again", 0)
			if again == 2 {
				g.reopened(e.logAt(0, g.epoch))
				g.check("truncated again and again, and opened", 0)
			}
		}
		if round%4 == 3 {
			e.restartBeside(kept)
			kept = nil
			r := e.logAt(0, g.epoch)
			e.checkOpened(r, "truncated again and again, after a restart", 0, g.leo, g.held)
			g.reopened(r)
		}
	}
	e.giveBack(kept...)
}

// work appends under a grant where the store gives one, and without where not.
func (g *host) work(n int) {
	if g.store.Capabilities().Grants {
		g.granted(g.next(n)...)
		return
	}
	g.plain(g.next(n)...)
}

func leaseTrim(e *env) {
	g := e.lendable(0)
	var kept []*borrowed
	start := int64(0)
	for round := range 8 {
		for range 30 {
			g.work(1 + e.rng.IntN(2))
		}
		kept = append(kept, e.leaseEverywhere("before a trim", g.handle, g.held, start, start+5)...)
		g.drop()
		if round%2 == 0 {
			start += (g.leo - start) * 2 / 3
			e.trim(g.handle, start, start)
			_, err := e.store.Retain(e.ctx, g.handle, storage.RetainPolicy{Ceiling: g.leo, Now: e.start, MaxBytes: -1})
			e.must(err, "free what was trimmed")
		} else {
			result, err := e.store.Retain(e.ctx, g.handle, storage.RetainPolicy{Ceiling: g.leo, Now: e.start, MaxBytes: 4096})
			e.must(err, "retain")
			start = result.LogStart
		}
		e.unchanged("trimmed and retained away", kept)
		g.check("trimmed beside leases", start)
	}
	to := g.leo + 100
	e.trim(g.handle, to, to)
	g.leo, start = to, to
	g.work(3)
	e.unchanged("in a log that was emptied", kept)
	g.check("emptied beside leases", start)
	e.giveBack(kept...)
}

func leaseReplace(e *env) {
	g := e.lendable(0)
	var kept []*borrowed
	for range 6 {
		for range 20 {
			g.work(1 + e.rng.IntN(2))
		}
		g.drop()
		for i, lent := range e.leaseEverywhere("before a replacement", g.handle, g.held, 0, g.leo) {
			if i%8 == 0 {
				kept = append(kept, lent)
			} else {
				e.giveBack(lent)
			}
		}
		first := e.rng.IntN(len(g.held) / 2)
		g.held = e.replaceSome(g.handle, g.held, first, len(g.held)-e.rng.IntN(2))
		e.unchanged("replaced", kept)
		g.work(2)
		e.unchanged("replaced, and others appended", kept)
		g.check("replaced beside leases", 0)
	}
	e.giveBack(kept...)
}

func leaseDelete(e *env) {
	var kept []*borrowed
	for range 5 {
		g := e.lendable(0)
		for range 40 {
			g.work(1 + e.rng.IntN(2))
		}
		g.drop()
		kept = append(kept, e.leaseEverywhere("before Delete", g.handle, g.held, 0, g.leo)...)
		e.must(e.store.Delete(e.ctx, logID(0)), "delete")
		e.unchanged("deleted", kept)
	}
	e.restartBeside(kept)
}

func leaseRecycled(e *env) {
	g := e.lendable(0)
	var kept []*borrowed
	start := int64(0)
	for round := range 40 {
		for range 14 {
			g.work(1 + e.rng.IntN(3))
		}
		all := e.leaseEverywhere("before retention", g.handle, g.held, start, min(start+9, g.leo))
		kept = append(kept, all[0])
		e.giveBack(all[1:]...)
		if len(kept) > 6 {
			e.giveBack(kept[:3]...)
			kept = slices.Clone(kept[3:])
		}
		g.drop()
		result, err := e.store.Retain(e.ctx, g.handle, storage.RetainPolicy{Ceiling: g.leo, Now: e.start, MaxBytes: 6000})
		e.must(err, "retain")
		start = result.LogStart
		g.work(2)
		e.unchanged("retained away, and others appended", kept)
		g.check("retained and appended to", start)
		if round%5 == 4 {
			// What is there and not told is found, and nothing that was there before.
			if list := g.next(2); g.fits(list...) {
				g.write(list...)
			}
			g.reopened(e.log(0))
			g.check("retained, appended to and opened again", start)
		}
	}
	e.restartBeside(kept)
	e.checkOpened(e.log(0), "retained and appended to, after a restart", start, g.leo, trimmed(g.held, start))
}

func leaseKill(e *env) {
	g := e.lendable(0)
	start := int64(0)
	for round := range 10 {
		for range 20 {
			g.work(1 + e.rng.IntN(2))
		}
		kept := e.leaseEverywhere("before a kill", g.handle, g.held, max(start, g.leo-8), g.leo)
		if list := g.next(2); g.fits(list...) {
			g.write(list...)
		}
		g.drop()
		e.must(e.backing.Kill(e.ctx), "kill the store")
		e.unchanged("after a kill", kept)
		e.openStore()
		g.epoch++
		r := e.lendableAt(0, g.epoch)
		e.checkOpened(r, "after a kill", start, g.leo, trimmed(g.held, start))
		g.reopened(r)
		switch round % 3 {
		case 0:
			g.held, g.leo = e.truncate(g.handle, g.epoch, g.held, start, max(start, g.leo-10))
		case 1:
			result, err := e.store.Retain(e.ctx, g.handle, storage.RetainPolicy{Ceiling: g.leo, Now: e.start, MaxBytes: 3000})
			e.must(err, "retain")
			start = result.LogStart
		}
		for range 30 {
			g.work(1)
		}
		e.unchanged("in another life, and others appended", kept)
		e.endLeases(kept)
		g.check("in another life, after leases in the one before", start)
	}
}

func leaseReturn(e *env) {
	g := e.lendable(0)
	for range 80 {
		g.work(2)
	}
	files := e.store.Files()
	files.Return(nil)
	files.Return([]storage.LeaseID{0, 1 << 62, math.MaxUint64})
	late := false
	for n := range 3000 {
		lease, err := files.Lease(e.ctx, g.handle, int64(n)%g.leo)
		if errors.Is(err, storage.ErrRetry) {
			continue
		}
		e.must(err, fmt.Sprintf("lease for the %dth time", n))
		e.must(lease.File.Close(), "close the file of a lease")
		ids := []storage.LeaseID{lease.ID}
		if n%10 == 0 {
			ids = append(ids, lease.ID, 1<<62)
		}
		files.Return(ids)
		late = late || n >= 2900
	}
	if !late {
		e.failf("after 2900 leases, each returned, none is given any more")
	}
	g.drop()
	g.check("after leases without end", 0)
}
