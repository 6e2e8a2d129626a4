package storagetest

import (
	"os"

	"github.com/brokerd/brokerd/sdk/storage"
)

// leaseKeptCases are about what outlasts a lease: a host may have handed the bytes to
// sockets by reference, and a slow peer reads them long after.
func leaseKeptCases() []Case {
	leases := Offers{Leases: true}
	return []Case{
		{Name: "lease-returned-truncate", About: "bytes that were ever under a lease do not change when it was returned, and they are truncated and others appended", Offers: leases, run: leaseReturnedTruncate},
		{Name: "lease-returned-recycled", About: "nor when they are retained away, and others appended without end", Offers: leases, run: leaseReturnedRecycled},
		{Name: "lease-reopened", About: "nor when the log or the store was closed and opened again, and they are truncated, trimmed, retained away", Offers: leases, run: leaseReopened},
		{Name: "lease-grant-files", About: "a grant has the FileID of leases of the same file, if any, and another one when a file is used again", Offers: Offers{Leases: true, Grants: true}, run: leaseGrantFiles},
	}
}

// sent returns leases and keeps their files open, as a host does that has sent what
// they hold.
func (e *env) sent(leases []*borrowed) []*borrowed {
	var ids []storage.LeaseID
	for _, l := range leases {
		ids = append(ids, l.ID)
	}
	e.store.Files().Return(ids)
	return leases
}

func leaseReturnedTruncate(e *env) {
	g := e.lendable(0)
	var sent []*borrowed
	for range 8 {
		for range 20 {
			g.work(1 + e.rng.IntN(2))
		}
		sent = append(sent, e.sent(e.leaseEverywhere("before a truncation", g.handle, g.held, g.leo-min(g.leo, 10), g.leo))...)
		g.drop()
		g.epoch++
		g.held, g.leo = e.truncate(g.handle, g.epoch, g.held, 0, g.leo-1-e.rng.Int64N(9))
		e.unchanged("returned and truncated", sent)
		for range 10 {
			g.work(1 + e.rng.IntN(3))
		}
		e.unchanged("returned and truncated, and others appended", sent)
		g.check("truncated after leases", 0)
	}
	e.endLeases(sent)
}

func leaseReturnedRecycled(e *env) {
	g := e.lendable(0)
	var sent []*borrowed
	start := int64(0)
	for range 30 {
		for range 14 {
			g.work(1 + e.rng.IntN(3))
		}
		sent = append(sent, e.sent(e.leaseEverywhere("before retention", g.handle, g.held, start, min(start+4, g.leo)))...)
		g.drop()
		result, err := e.store.Retain(e.ctx, g.handle, storage.RetainPolicy{Ceiling: g.leo, Now: e.start, MaxBytes: 6000})
		e.must(err, "retain")
		start = result.LogStart
		g.work(2)
		e.unchanged("returned and retained away, and others appended", sent)
		g.check("retained and appended to", start)
		if len(sent) > 40 {
			e.endLeases(sent[:20])
			sent = sent[20:]
		}
	}
	e.endLeases(sent)
}

func leaseReopened(e *env) {
	g := e.lendable(0)
	var sent []*borrowed
	start := int64(0)
	for round := range 12 {
		for range 20 {
			g.work(1 + e.rng.IntN(2))
		}
		sent = append(sent, e.sent(e.leaseEverywhere("before the end of the log", g.handle, g.held, max(start, g.leo-8), g.leo))...)
		sent = append(sent, e.sent(e.leaseEverywhere("before the end of the log, at its head", g.handle, g.held, start, start+3))...)
		g.drop()
		if round%2 == 0 {
			e.must(e.store.Close(e.ctx, []storage.Handle{g.handle})[0], "close")
		} else {
			e.must(e.store.Shutdown(e.ctx), "shut the store down")
			e.openStore()
		}
		g.epoch++
		g.reopened(e.lendableAt(0, g.epoch))
		if round%3 < 2 {
			g.held, g.leo = e.truncate(g.handle, g.epoch, g.held, start, max(start, g.leo-5))
		}
		if round%3 > 0 {
			start += (g.leo - start) / 3
			e.trim(g.handle, start, start)
			result, err := e.store.Retain(e.ctx, g.handle, storage.RetainPolicy{Ceiling: g.leo, Now: e.start, MaxBytes: 6000})
			e.must(err, "retain")
			start = result.LogStart
		}
		e.unchanged("in another opening", sent)
		for range 30 {
			g.work(1)
		}
		e.unchanged("in another opening, and others appended", sent)
		g.check("opened again, after leases in the opening before", start)
	}
	e.endLeases(sent)
}

// numbered is what is known of the file that a FileID names.
type numbered struct {
	info os.FileInfo
	end  int64 // of the batches in it, at least
}

func leaseGrantFiles(e *env) {
	g := e.lendable(0)
	known := map[uint64]numbered{}
	start := int64(0)
	for round := range 60 {
		g.hold(2)
		info := e.sameNumber(g, known)
		if info == nil {
			return // FileID is not known
		}
		// A file that was leased is not used again; half the time none is.
		if round%20 >= 10 {
			for _, lent := range e.leaseEverywhere("of a log that is granted", g.handle, g.held, max(start, g.leo-12), g.leo) {
				of, err := lent.File.Stat()
				e.must(err, "look at the file of a lease")
				if same := os.SameFile(of, info); same != (lent.FileID == g.grant.FileID) {
					e.failf("a lease with FileID %d and a grant with %d are of one file: %v", lent.FileID, g.grant.FileID, same)
				}
				e.giveBack(lent)
			}
		}
		for range 6 {
			g.work(1 + e.rng.IntN(3))
		}
		if round%2 == 1 {
			g.drop()
			result, err := e.store.Retain(e.ctx, g.handle, storage.RetainPolicy{Ceiling: g.leo, Now: e.start, MaxBytes: 6000})
			e.must(err, "retain")
			start = result.LogStart
		}
	}
	g.check("granted, leased and retained", start)
}

// sameNumber writes under the grant, asks for another, and fails the case unless both
// have one FileID when they are of one file, which no other file had, nor this one when
// it held other batches. It returns the file of the grant; nil: it has no number.
func (e *env) sameNumber(g *host, known map[uint64]numbered) os.FileInfo {
	id := g.grant.FileID
	if id == 0 {
		return nil
	}
	info, err := g.grant.File.Stat()
	e.must(err, "look at the file of a grant")
	if n, again := known[id]; again && (!os.SameFile(n.info, info) || g.grant.Pos < n.end) {
		e.failf("FileID %d is that of another file, or of what this one held before: the end was at %d, and is at %d", id, n.end, g.grant.Pos)
	}
	g.granted(g.next(2)...)
	known[id] = numbered{info, g.pos}
	first := g.grant // its file stays open, so that none is taken for it
	defer first.File.Close()
	g.grant, g.over = storage.Grant{}, false
	g.hold(1)
	second, err := g.grant.File.Stat()
	e.must(err, "look at the file of a grant")
	if same := os.SameFile(info, second); same != (g.grant.FileID == id) {
		e.failf("grants with FileID %d and %d are of one file: %v", id, g.grant.FileID, same)
	}
	return second
}
