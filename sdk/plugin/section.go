package plugin

import "github.com/brokerd/brokerd/sdk/storage"

// sectionBytesMin is how much is worth to be sent from its file: less costs more to send
// on its own than to copy.
const sectionBytesMin = 32 << 10

var _ storage.Sections = (*Store)(nil)

// ReadSection implements storage.Sections.
func (s *Store) ReadSection(req storage.ReadRequest) (storage.Section, bool) {
	if s.files == nil {
		return storage.Section{}, false
	}
	return s.files.leases.section(&req)
}

// section answers a read with a stretch of a leased file, if all of it was checked.
func (c *leaseCache) section(req *storage.ReadRequest) (storage.Section, bool) {
	if !c.serves(req) || req.MaxBytes < sectionBytesMin {
		return storage.Section{}, false
	}
	if c.crowded() {
		return storage.Section{}, false
	}
	le, at := c.find(req.Handle, req.Offset)
	if le == nil {
		return storage.Section{}, false
	}
	pos, end, ok := c.checkedFrom(le, at, req)
	if !ok {
		c.release(le, cursor{})
		return storage.Section{}, false
	}
	c.files.lane.counters.sectionBytes.Add(end.pos - pos)
	return storage.Section{File: le.File, Pos: pos, Bytes: int(end.pos - pos), Next: end.offset, Owner: le}, true
}

// checkedFrom finds the stretch of a lease that a read asks for, where all of it was checked
// and it is worth to be sent on its own.
func (c *leaseCache) checkedFrom(le *lease, at cursor, req *storage.ReadRequest) (pos int64, end mark, ok bool) {
	k := c.checkedOf(le.handle, le.FileID, le.info)
	if k == nil {
		return 0, mark{}, false
	}
	if pos = at.pos; at.offset != req.Offset {
		if pos, ok = k.place(req.Offset); !ok {
			return 0, mark{}, false
		}
	}
	end, ok = k.last(pos, int64(req.MaxBytes), le.Limit, req.UpTo)
	return pos, end, ok && end.pos-pos >= sectionBytesMin
}

// crowded says whether so many files are kept open for sections alone that no more are
// given: a read needs its file for a moment only.
func (c *leaseCache) crowded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lingering >= lingeringMax
}

// Release implements storage.SectionOwner.
func (le *lease) Release(damaged bool) {
	if damaged {
		le.cache.files.lane.counters.leasesDoubted[DoubtRead].Add(1)
		le.cache.doubt(le, errLease)
		return
	}
	le.cache.release(le, cursor{})
}
