package storagetest

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/brokerd/brokerd/sdk/storage"
)

// host is a host at work on one log: it appends under grants, and without where it
// gets none. It belongs to the goroutine of its env.
type host struct {
	*env
	handle  storage.Handle
	epoch   int32
	require storage.Survives
	leo     int64
	held    []made // what it has written or appended, in order
	grant   storage.Grant
	pos     int64 // where the next write begins
	over    bool  // the store has ended the grant
}

// host makes a host of a log that was opened.
func (e *env) host(r storage.OpenResult, epoch int32) *host {
	return &host{env: e, handle: r.Handle, epoch: epoch, leo: r.LEO}
}

// reopened goes on with another opening, or another life of the store.
func (g *host) reopened(r storage.OpenResult) {
	g.drop()
	g.handle, g.leo = r.Handle, r.LEO
}

// drop stops using the grant.
func (g *host) drop() {
	if g.grant.ID != 0 {
		g.grant.File.Close()
	}
	g.grant, g.over = storage.Grant{}, false
}

// grantTries is how often a host asks for a grant, with an append in between,
// before it takes the store to give none.
const grantTries = 200

// obtain gets a new grant. What is not granted at once is appended to first.
func (g *host) obtain() {
	for range grantTries {
		err := g.tryGrant()
		if err == nil {
			return
		}
		g.wantClass(err, "ask for a grant", storage.ErrRetry)
		g.plain(g.next(1)...)
	}
	g.failf("%d times a grant was asked for, with an append in between, and none was given", grantTries)
}

// tryGrant asks for a grant once, and checks it.
func (g *host) tryGrant() error {
	g.drop()
	grant, err := g.store.Files().Grant(g.ctx, g.handle, g.epoch, g.require)
	if err != nil {
		return err
	}
	g.grant, g.pos = grant, grant.Pos
	if grant.File == nil {
		g.failf("a grant without a file: %+v", grant)
	}
	info, err := grant.File.Stat()
	g.must(err, "look at the file of a grant")
	switch {
	case grant.ID == 0 || !g.ids.add(uint64(grant.ID)):
		g.failf("grant %d has the number of none, or of an earlier one", grant.ID)
	case !info.Mode().IsRegular():
		g.failf("the file of a grant is no regular file: %v", info.Mode())
	case grant.LEO != g.leo || grant.LeaderEpoch != g.epoch:
		g.failf("a log that ends at %d is granted for leader epoch %d from %d on, epoch %d", g.leo, g.epoch, grant.LEO, grant.LeaderEpoch)
	case grant.Pos < 0 || grant.Limit <= grant.Pos || grant.EndMark < 0 || grant.MaxOffset < grant.LEO:
		g.failf("nothing can be written within the limits of %+v", grant)
	}
	return nil
}

// next makes n batches that go on at the LEO.
func (g *host) next(n int) []made { return g.batches(g.leo, n, g.epoch) }

// fits says whether the grant takes the batches.
func (g *host) fits(list ...made) bool {
	if g.grant.ID == 0 || g.over {
		return false
	}
	end, next := g.pos+int64(g.grant.EndMark), g.leo
	for _, m := range list {
		if m.MaxTimestamp > g.grant.MaxTimestamp || m.LastOffset > g.grant.MaxOffset || !g.grant.Gaps && m.BaseOffset != next {
			return false
		}
		end, next = end+int64(len(m.data)), m.end()
	}
	return end <= g.grant.Limit
}

// write writes the batches under the grant, whose limits they keep, and returns
// what tells of them.
func (g *host) write(list ...made) storage.AppendRequest {
	infos, data := join(list)
	req := storage.AppendRequest{
		Handle: g.handle, LeaderEpoch: g.epoch, BaseOffset: g.leo, Batches: infos,
		Granted: g.grant.ID, Pos: g.pos, Require: g.require,
	}
	g.writeAt(append(data, make([]byte, g.grant.EndMark)...), g.pos)
	g.pos += int64(len(data))
	g.leo, g.held = endOf(list, g.leo), append(g.held, list...)
	return req
}

func (g *host) writeAt(data []byte, pos int64) {
	_, err := g.grant.File.WriteAt(data, pos)
	g.must(err, "write to the file of a grant")
}

// told checks the answer to what told of writes up to leo.
func (g *host) told(p *pending, leo int64) {
	result, err := p.wait(g.ctx)
	act := fmt.Sprintf("tell of what was written at %d", p.req.BaseOffset)
	g.must(err, act)
	switch {
	case result.LEO != leo:
		g.failf("%s: acknowledged with LEO %d, want %d", act, result.LEO, leo)
	case result.Survives < max(g.require, storage.SurvivesProcess):
		g.failf("%s: acknowledged as surviving level %d; required was %d", act, result.Survives, g.require)
	case result.Durable > result.LEO || result.Survives >= storage.SurvivesMachine && result.Durable < result.LEO:
		g.failf("%s: surviving level %d, with LEO %d, and durable up to %d", act, result.Survives, result.LEO, result.Durable)
	}
	g.over = g.over || result.GrantOver
}

// granted writes the batches under a grant and tells of them: under another grant,
// or without, where they do not fit into the one that there is.
func (g *host) granted(list ...made) {
	if g.grant.ID == 0 || g.over {
		g.drop()
		if err := g.tryGrant(); err != nil {
			g.wantClass(err, "ask for a grant", storage.ErrRetry)
		}
	}
	if !g.fits(list...) {
		g.plain(list...)
		return
	}
	g.told(g.begin(g.write(list...)), g.leo)
}

// plain appends without a grant.
func (g *host) plain(list ...made) {
	g.drop()
	g.append(g.handle, g.leo, list...)
	g.leo, g.held = endOf(list, g.leo), append(g.held, list...)
}

// hold makes sure that there is a grant that takes n more batches of the kit's
// usual size.
func (g *host) hold(n int) {
	const batchBytes = 300 // no usual batch is larger
	for range grantTries {
		if g.grant.ID != 0 && !g.over && g.pos+int64(n*batchBytes+g.grant.EndMark) <= g.grant.Limit {
			return
		}
		if g.grant.ID != 0 {
			g.plain(g.next(1)...)
		}
		g.obtain()
	}
	g.failf("no grant has room for %d batches", n)
}

// check compares the log with what the host has done, from start on.
func (g *host) check(when string, start int64) {
	g.checkLog(g.handle, when, start, g.leo, trimmed(g.held, start))
}

// leaseBit tells the numbers of leases from those of grants.
const leaseBit = 1 << 63

// idSet is the numbers of grants and leases that a store has given in one life.
type idSet struct {
	mu  sync.Mutex
	all map[uint64]bool
}

// add says whether the number is new.
func (s *idSet) add(id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[id] {
		return false
	}
	if s.all == nil {
		s.all = map[uint64]bool{}
	}
	s.all[id] = true
	return true
}

// borrowed is a lease, and what its stretch held when it was taken.
type borrowed struct {
	storage.Lease
	data []byte
}

// borrow takes a lease at offset of a log whose batches are known, and checks it.
// It returns nil when the store says to read without.
func (e *env) borrow(h storage.Handle, b []made, offset int64) *borrowed {
	lease, err := e.store.Files().Lease(e.ctx, h, offset)
	if errors.Is(err, storage.ErrRetry) {
		return nil
	}
	act := fmt.Sprintf("lease at %d", offset)
	e.must(err, act)
	if lease.ID == 0 || !e.ids.add(leaseBit|uint64(lease.ID)) || lease.File == nil || lease.FileID == 0 || lease.Pos < 0 || lease.Limit <= lease.Pos {
		e.failf("%s: it is %+v", act, lease)
	}
	info, err := lease.File.Stat()
	e.must(err, act+": look at its file")
	if !info.Mode().IsRegular() {
		e.failf("%s: its file is no regular file: %v", act, info.Mode())
	}
	lent := &borrowed{Lease: lease, data: make([]byte, lease.Limit-lease.Pos)}
	_, err = lease.File.ReadAt(lent.data, lease.Pos)
	e.must(err, act+": read its stretch")
	if _, err := lease.File.WriteAt(lent.data[:1], lease.Pos); err == nil {
		e.failf("%s: its file can be written to", act)
	}
	if err := lent.checkStretch(b, offset); err != nil {
		e.failf("%s: %v", act, err)
	}
	return lent
}

// checkStretch checks that a stretch holds the batches of the log from the first
// that reaches offset on, and says so.
func (l *borrowed) checkStretch(b []made, offset int64) error {
	first := 0
	for first < len(b) && b[first].LastOffset < offset {
		first++
	}
	rest, count, next := l.data, first, int64(math.MinInt64)
	for ; len(rest) > 0; count++ {
		if count == len(b) || len(rest) < len(b[count].data) || string(rest[:len(b[count].data)]) != string(b[count].data) {
			return fmt.Errorf("its stretch holds %s, which are not the log's batches from %d on", describe(l.data), offset)
		}
		if next != math.MinInt64 && b[count].BaseOffset != next && !l.Gaps {
			return fmt.Errorf("offsets are missing before %d, and it says that there are no gaps", b[count].BaseOffset)
		}
		next, rest = b[count].end(), rest[len(b[count].data):]
	}
	switch {
	case l.First > b[first].BaseOffset:
		return fmt.Errorf("its first batch is at %d, and it says at %d or above", b[first].BaseOffset, l.First)
	case l.End < next:
		return fmt.Errorf("its last batch ends at %d, and it says that it ends at %d", next, l.End)
	case count < len(b) && l.End > b[count].BaseOffset:
		return fmt.Errorf("it says that it ends at %d, and leaves out the batch at %d", l.End, b[count].BaseOffset)
	}
	return nil
}

// unchanged fails the case unless each stretch holds what it held.
func (e *env) unchanged(when string, leases []*borrowed) {
	for _, l := range leases {
		now := make([]byte, len(l.data))
		if _, err := l.File.ReadAt(now, l.Pos); err != nil {
			e.failf("%s: read the stretch of lease %d: %v", when, l.ID, err)
		}
		if string(now) != string(l.data) {
			e.failf("%s: the stretch of lease %d held %s and holds %s", when, l.ID, describe(l.data), describe(now))
		}
	}
}

// giveBack returns leases.
func (e *env) giveBack(leases ...*borrowed) {
	var ids []storage.LeaseID
	for _, l := range leases {
		l.File.Close()
		ids = append(ids, l.ID)
	}
	e.store.Files().Return(ids)
}

// endLeases closes the files of leases that are over.
func (e *env) endLeases(leases []*borrowed) {
	for _, l := range leases {
		l.File.Close()
	}
}

// restartBeside shuts the store down while leases are out, and opens it again.
func (e *env) restartBeside(leases []*borrowed) {
	e.must(e.store.Shutdown(e.ctx), "shut the store down")
	e.unchanged("shut down", leases)
	e.openStore()
	e.unchanged("shut down, and opened again", leases)
	e.endLeases(leases)
}
