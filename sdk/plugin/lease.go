package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/brokerd/brokerd/sdk/storage"
)

const (
	// leasesMax is how many leases of a store are kept, leasesPerLog of one log: each
	// costs a descriptor.
	leasesMax    = 256
	leasesPerLog = 4
	// lingeringMax is how many leases are read at a time that are not kept any more:
	// sections, whose readers may take long. Beyond it no more sections are given, so that
	// there are at most leasesMax more.
	lingeringMax = 256
	// cursorsPerLease is how many readers a lease remembers the places of.
	cursorsPerLease = 16
	// seekHeadersMax is how many batches are passed over to find an offset before the
	// plugin, which has an index, is asked for a lease that begins there.
	seekHeadersMax = 64
	// refusedReads is how many reads of a log go to the plugin after it refused to
	// lease.
	refusedReads = 16
)

// leaseCache is the leases that a store has from its plugin. A reader that goes on
// where it was asks the plugin once for each stretch of a file.
type leaseCache struct {
	files *hostFiles
	marks marks // of all files

	mu    sync.Mutex
	logs  map[storage.Handle]*leasedLog
	count int
	// lingering are those that are not kept, and still read.
	lingering int
	clock     uint64 // of use, to find the lease that was not used for longest
}

// leasedLog is what is leased of one handle.
type leasedLog struct {
	leases []*lease
	// changes counts the calls under way during which nothing is leased, and
	// generation those that there ever were.
	changes    int
	generation uint64
	refused    int                 // reads that are still to pass the plugin by
	checked    map[uint64]*checked // by file
}

// lease is a lease that is used by readers, or kept for them. It is guarded by the
// cache's mu, but for what never changes.
type lease struct {
	storage.Lease
	cache   *leaseCache
	info    os.FileInfo // of File
	handle  storage.Handle
	readers int
	dropped bool // it goes back with the last reader
	used    uint64
	cursors [cursorsPerLease]cursor
	next    int // of cursors, to be used next
}

// cursor says, if it is set, that the batch at pos is the first that ends at offset
// or behind it.
type cursor struct {
	offset, pos int64
	set         bool
}

// opened begins with a handle.
func (c *leaseCache) opened(h storage.Handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.logs[h] == nil {
		c.logs[h] = &leasedLog{}
	}
}

// suspend gives every lease of a handle back, and lets none be had until resume.
func (c *leaseCache) suspend(h storage.Handle) {
	c.mu.Lock()
	var back []*lease
	if l := c.logs[h]; l != nil {
		l.changes++
		l.generation++
		back = c.dropAll(l)
	}
	c.mu.Unlock()
	c.giveBack(back)
}

// resume undoes suspend.
func (c *leaseCache) resume(h storage.Handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.logs[h]; l != nil {
		l.changes--
		l.refused = 0
	}
}

// forget drops what is kept of a handle.
func (c *leaseCache) forget(h storage.Handle) {
	c.mu.Lock()
	var back []*lease
	if l := c.logs[h]; l != nil {
		l.generation++
		back = c.dropAll(l)
		l.forgetAll()
		delete(c.logs, h)
	}
	c.mu.Unlock()
	c.giveBack(back)
}

// closeAll closes every file. The plugin is gone; there is nobody to give back to.
func (c *leaseCache) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.logs {
		l.generation++
		l.forgetAll()
		for _, le := range c.dropAll(l) {
			closeFile(le.File)
		}
	}
}

// dropAll drops every lease of a log, and returns those that nobody reads. The
// caller holds mu.
func (c *leaseCache) dropAll(l *leasedLog) (back []*lease) {
	for _, le := range l.leases {
		back = append(back, c.drop(le)...)
	}
	l.leases = nil
	return back
}

// drop drops one lease, which the caller takes from its log, and returns it if
// nobody reads it. The caller holds mu.
func (c *leaseCache) drop(le *lease) (back []*lease) {
	le.dropped = true
	c.count--
	if le.readers == 0 {
		back = append(back, le)
	} else {
		c.lingering++
	}
	return back
}

// giveBack closes leases and tells the plugin. The caller holds no lock.
func (c *leaseCache) giveBack(leases []*lease) {
	if len(leases) == 0 {
		return
	}
	ids := make([]storage.LeaseID, 0, len(leases))
	for _, le := range leases {
		closeFile(le.File)
		ids = append(ids, le.ID)
	}
	c.files.lane.post(&call{req: request{head: head{kind: kindReturn}, leases: ids}})
}

// read answers a read from a lease that is kept, if it can: whole batches up to the
// end of one lease.
func (c *leaseCache) read(req *storage.ReadRequest) (storage.ReadResult, bool) {
	if !c.serves(req) {
		return storage.ReadResult{}, false
	}
	le, at := c.find(req.Handle, req.Offset)
	if le == nil {
		return storage.ReadResult{}, false
	}
	pos, err := c.files.seek(le, at, req.Offset)
	if errors.Is(err, errFar) {
		c.release(le, cursor{})
		return storage.ReadResult{}, false
	}
	return c.serve(le, pos, req, err)
}

// readNew answers a read from a lease that it asks for. What it cannot answer, or
// finds in doubt, is the plugin's to answer.
func (c *leaseCache) readNew(ctx context.Context, req *storage.ReadRequest) (storage.ReadResult, bool) {
	if !c.serves(req) {
		return storage.ReadResult{}, false
	}
	le := c.lease(ctx, req)
	if le == nil {
		return storage.ReadResult{}, false
	}
	return c.serve(le, le.Pos, req, nil)
}

// serves says whether a read is one for leases: its answer may have batches.
func (c *leaseCache) serves(req *storage.ReadRequest) bool {
	return c.files.offers.Leases && req.Offset >= 0 && req.Offset < req.UpTo && (req.MaxBytes > 0 || req.AtLeastOne)
}

// serve answers a read from pos on, unless there is an error already, and counts the
// reader out.
func (c *leaseCache) serve(le *lease, pos int64, req *storage.ReadRequest, err error) (storage.ReadResult, bool) {
	var res storage.ReadResult
	if err == nil {
		res, err = c.files.readLease(le, pos, req)
	}
	if err != nil {
		c.files.lane.counters.doubted(err)
		c.doubt(le, err)
		return storage.ReadResult{}, false
	}
	c.files.lane.counters.leasedBytes.Add(int64(len(res.Data)))
	if k := c.checkedOf(le.handle, le.FileID, le.info); k != nil {
		k.read(pos, req.Offset, res.Data)
	}
	c.release(le, cursor{offset: res.Next, pos: pos + int64(len(res.Data)), set: true})
	return res, true
}

// find returns a lease that has an offset, and the place nearest before it that is
// known.
func (c *leaseCache) find(h storage.Handle, offset int64) (*lease, cursor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.logs[h]
	if l == nil {
		return nil, cursor{}
	}
	var best *lease
	var at cursor
	for _, le := range l.leases {
		if offset < le.First || offset >= le.End {
			continue
		}
		for _, cur := range le.cursors {
			if cur.set && cur.offset <= offset && cur.pos < le.Limit && (best == nil || cur.offset > at.offset) {
				best, at = le, cur
			}
		}
	}
	if best != nil {
		c.use(best)
	}
	return best, at
}

// use counts a reader in. The caller holds mu.
func (c *leaseCache) use(le *lease) {
	le.readers++
	c.clock++
	le.used = c.clock
}

// release counts a reader out, and remembers where it ended.
func (c *leaseCache) release(le *lease, at cursor) {
	c.mu.Lock()
	le.readers--
	gone := le.dropped && le.readers == 0
	if gone {
		c.lingering--
	}
	if at.set && !gone {
		le.remember(at)
	}
	c.mu.Unlock()
	if gone {
		c.giveBack([]*lease{le})
	}
}

// remember keeps a place, in the stead of the oldest.
func (le *lease) remember(at cursor) {
	for _, have := range le.cursors {
		if have == at {
			return
		}
	}
	le.cursors[le.next] = at
	le.next = (le.next + 1) % cursorsPerLease
}

// doubt counts a reader out that found a lease, or the file below it, to be not what was
// said. Then what was checked of the log before counts no more.
func (c *leaseCache) doubt(le *lease, err error) {
	if !errors.Is(err, errRevoked) {
		c.forgetChecked(le.handle)
	}
	c.discard(le)
}

// discard counts a reader out that found the lease to be not what was said.
func (c *leaseCache) discard(le *lease) {
	c.mu.Lock()
	if l := c.logs[le.handle]; l != nil && !le.dropped {
		c.remove(l, le)
		c.drop(le)
		l.refused = refusedReads
	}
	c.mu.Unlock()
	c.release(le, cursor{})
}

// remove takes a lease out of a log. The caller holds mu.
func (c *leaseCache) remove(l *leasedLog, le *lease) {
	for i := range l.leases {
		if l.leases[i] == le {
			l.leases = append(l.leases[:i:i], l.leases[i+1:]...)
			return
		}
	}
}

// lease asks the plugin for the stretch that begins with an offset, for a reader.
func (c *leaseCache) lease(ctx context.Context, req *storage.ReadRequest) *lease {
	generation, may := c.mayAsk(req.Handle)
	if !may || c.files.tellAll(ctx, req.Handle) != nil { // what it does not know it does not lend
		return nil
	}
	a, err := c.files.lane.do(ctx, request{
		head: head{kind: kindLease, timeout: c.files.timeout, handle: req.Handle}, lease: req.Offset,
	}, 0)
	le := &lease{Lease: a.lease, cache: c, handle: req.Handle}
	if le.File = a.file; err == nil {
		err = le.check(req.Offset)
	}
	if err != nil {
		c.refuse(req.Handle, a)
		return nil
	}
	le.remember(cursor{offset: req.Offset, pos: le.Pos, set: true})
	return c.keep(req.Handle, generation, le)
}

// mayAsk says whether to ask for a lease, and of which generation it will be.
func (c *leaseCache) mayAsk(h storage.Handle) (generation uint64, may bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.logs[h]
	if l == nil || l.changes > 0 {
		return 0, false
	}
	if l.refused > 0 {
		l.refused--
		return 0, false
	}
	return l.generation, true
}

// refuse notes that no lease was to be had.
func (c *leaseCache) refuse(h storage.Handle, a answer) {
	c.mu.Lock()
	if l := c.logs[h]; l != nil {
		l.refused = refusedReads
	}
	c.mu.Unlock()
	if a.lease.ID != 0 {
		c.giveBack([]*lease{{Lease: storage.Lease{ID: a.lease.ID, File: a.file}}})
		return
	}
	a.drop()
}

// check makes sure that what the plugin leased can be used.
func (le *lease) check(offset int64) error {
	if le.ID == 0 || le.File == nil || le.Pos < 0 || le.Limit <= le.Pos || le.End <= offset {
		return fmt.Errorf("a lease of bytes %d to %d with offsets %d to %d", le.Pos, le.Limit, le.First, le.End)
	}
	info, err := le.File.Stat()
	le.info = info
	switch {
	case err != nil:
		return fmt.Errorf("look at a file that was leased: %w", err)
	case !info.Mode().IsRegular() || mayWrite(le.File):
		return fmt.Errorf("a file was leased that is %v", info.Mode())
	}
	return nil
}

// keep puts a lease among those of its log, unless the log has changed since it was
// asked for, and makes room. The caller reads it.
func (c *leaseCache) keep(h storage.Handle, generation uint64, le *lease) *lease {
	var back []*lease
	c.mu.Lock()
	l := c.logs[h]
	c.use(le)
	c.count++
	switch {
	case l == nil || l.generation != generation || l.changes > 0:
		c.drop(le) // it goes back with this reader
	default:
		if len(l.leases) >= leasesPerLog {
			back = c.evict(l, oldest(l.leases))
		}
		l.leases = append(l.leases, le)
		if c.count > leasesMax {
			back = append(back, c.evictOldest()...)
		}
	}
	c.mu.Unlock()
	c.giveBack(back)
	return le
}

// oldest is the lease that was not used for longest.
func oldest(leases []*lease) *lease {
	best := leases[0]
	for _, le := range leases {
		if le.used < best.used {
			best = le
		}
	}
	return best
}

// evict drops a lease of a log. The caller holds mu.
func (c *leaseCache) evict(l *leasedLog, le *lease) []*lease {
	c.remove(l, le)
	return c.drop(le)
}

// evictOldest drops the lease of all that was not used for longest. The caller holds
// mu.
func (c *leaseCache) evictOldest() []*lease {
	var of *leasedLog
	var best *lease
	for _, l := range c.logs {
		if len(l.leases) == 0 {
			continue
		}
		if le := oldest(l.leases); best == nil || le.used < best.used {
			of, best = l, le
		}
	}
	if best == nil {
		return nil
	}
	return c.evict(of, best)
}
