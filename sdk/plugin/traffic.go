package plugin

import (
	"errors"
	"sync/atomic"

	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// GrantEnd is why a grant is not used any more.
type GrantEnd int

const (
	// GrantIdle: nothing was appended for some time.
	GrantIdle GrantEnd = iota
	// GrantOver: the plugin has ended it, as when a segment is full.
	GrantOver
	// GrantUnfit: an append did not fit it, as one of another leader epoch or one that
	// reaches past its limit.
	GrantUnfit
	// GrantBehind: the plugin had too much left to hear of.
	GrantBehind
	// GrantChange: a call was to change the log.
	GrantChange
	// GrantFailed: a write failed, or the plugin refused what it was told.
	GrantFailed
	// GrantLost: the plugin's process ended.
	GrantLost

	grantEnds
)

// GrantEnds is every reason, by name.
func GrantEnds() [grantEnds]string {
	return [...]string{"idle", "over", "unfit", "behind", "change", "failed", "lost"}
}

// String names the reason.
func (e GrantEnd) String() string { return GrantEnds()[e] }

// LeaseDoubt is why a read from a lease was left to the plugin after all.
type LeaseDoubt int

const (
	// DoubtBatch: there is no batch where one should be, or its CRC is another.
	DoubtBatch LeaseDoubt = iota
	// DoubtOrder: a batch has not the offsets that should come there.
	DoubtOrder
	// DoubtRead: the file ended, or could not be read.
	DoubtRead

	leaseDoubts
)

// LeaseDoubts is every reason, by name.
func LeaseDoubts() [leaseDoubts]string { return [...]string{"batch", "order", "read"} }

// String names the reason.
func (d LeaseDoubt) String() string { return LeaseDoubts()[d] }

// Moved is how much went some way.
type Moved struct{ Batches, Bytes int64 }

// Carried is what went over a lane, in one direction.
type Carried struct{ Units, Bytes int64 }

// Traffic is what has gone between a broker and a store so far.
type Traffic struct {
	// Granted was written under grants, as far as the plugin was told of it or the grant
	// has ended, and Called given to the plugin, which took it.
	Granted, Called Moved
	// GrantsBegun less all that ended are held; GrantsRefused were asked for in vain.
	GrantsBegun, GrantsRefused int64
	GrantsEnded                [grantEnds]int64
	// LeasedBytes were read from leases, SectionBytes are those of sections (ReadSection),
	// CalledBytes were given by the plugin.
	LeasedBytes, SectionBytes, CalledBytes int64
	LeasesDoubted                          [leaseDoubts]int64
	Sent, Received                         Carried
	// Waits counts calls that found the lane's window full.
	Waits int64
}

// GrantsHeld is how many grants have not ended.
func (t *Traffic) GrantsHeld() int64 {
	held := t.GrantsBegun
	for _, n := range t.GrantsEnded {
		held -= n
	}
	return max(held, 0) // what is counted meanwhile is not seen at one moment
}

// Ended is GrantsEnded by the reasons' names.
func (t *Traffic) Ended() map[string]int64 {
	names := GrantEnds()
	return named(names[:], t.GrantsEnded[:])
}

// Doubted is LeasesDoubted by the reasons' names.
func (t *Traffic) Doubted() map[string]int64 {
	names := LeaseDoubts()
	return named(names[:], t.LeasesDoubted[:])
}

func named(names []string, counts []int64) map[string]int64 {
	out := make(map[string]int64, len(names))
	for i, name := range names {
		out[name] = counts[i]
	}
	return out
}

// Counters count the traffic of a store, over every process that it is served by in
// turn. The zero value is ready. Each number is added to by one goroutine at a time, or
// seldom, so that counting costs those who move records next to nothing.
type Counters struct {
	// By the lane's sender.
	sent carried
	_    [cacheLineBytes]byte
	// By the lane's receiver.
	received      carried
	called        moved
	calledBytes   atomic.Int64 // that were read
	_             [cacheLineBytes]byte
	granted       moved        // once for all that a unit tells
	leasedBytes   atomic.Int64 // once for each read
	sectionBytes  atomic.Int64
	grantsBegun   atomic.Int64
	grantsRefused atomic.Int64
	grantsEnded   [grantEnds]atomic.Int64
	leasesDoubted [leaseDoubts]atomic.Int64
	waits         atomic.Int64
}

// cacheLineBytes keeps apart what several goroutines write.
const cacheLineBytes = 64

type moved struct{ batches, bytes atomic.Int64 }

func (m *moved) add(batches, bytes int64) {
	m.batches.Add(batches)
	m.bytes.Add(bytes)
}

func (m *moved) load() Moved { return Moved{m.batches.Load(), m.bytes.Load()} }

type carried struct{ units, bytes atomic.Int64 }

func (c *carried) add(units, bytes int64) {
	c.units.Add(units)
	c.bytes.Add(bytes)
}

func (c *carried) load() Carried { return Carried{c.units.Load(), c.bytes.Load()} }

// Traffic returns what was counted so far.
func (c *Counters) Traffic() Traffic {
	t := Traffic{
		Granted: c.granted.load(), Called: c.called.load(),
		LeasedBytes: c.leasedBytes.Load(), SectionBytes: c.sectionBytes.Load(), CalledBytes: c.calledBytes.Load(),
		Sent: c.sent.load(), Received: c.received.load(), GrantsRefused: c.grantsRefused.Load(), Waits: c.waits.Load(),
	}
	for i := range t.GrantsEnded { // before those that began, so that none has ended before it began
		t.GrantsEnded[i] = c.grantsEnded[i].Load()
	}
	t.GrantsBegun = c.grantsBegun.Load()
	for i := range t.LeasesDoubted {
		t.LeasesDoubted[i] = c.leasesDoubted[i].Load()
	}
	return t
}

// doubted counts a lease whose bytes were not served. Nothing is wrong with one whose
// plugin has ended.
func (c *Counters) doubted(err error) {
	switch {
	case errors.Is(err, errRevoked):
	case errors.Is(err, recordbatch.ErrCRC), errors.Is(err, recordbatch.ErrNotABatch), errors.Is(err, recordbatch.ErrIncomplete):
		c.leasesDoubted[DoubtBatch].Add(1)
	case errors.Is(err, errLease):
		c.leasesDoubted[DoubtOrder].Add(1)
	default:
		c.leasesDoubted[DoubtRead].Add(1)
	}
}

// Held is what is lent at one moment, and what is under way.
type Held struct {
	Leases int
	// Appends are those that wait for the plugin: for its answer, or for a grant.
	Appends int
}

// Carrier returns what carries the store's records: what was allowed, as far as the
// plugin and the platform have it.
func (s *Store) Carrier() Carrier {
	if s.carrier == CarrierFiles && s.files == nil {
		return CarrierSocket
	}
	return s.carrier
}

// Held looks at what is lent now. It takes the locks of the data path for moments.
func (s *Store) Held() Held {
	h := Held{Appends: s.lane.appends()}
	if s.files != nil {
		h.Leases = s.files.leases.held()
		h.Appends += s.files.waiting()
	}
	return h
}

// appends is how many appends wait for an answer.
func (l *lane) appends() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.pending {
		if c.queue != nil && !c.telling {
			n++
		}
	}
	return n
}

// waiting is how many appends wait for a grant.
func (f *hostFiles) waiting() (n int) {
	f.mu.Lock()
	asking := make([]*hostLog, 0, len(f.lent))
	for l := range f.lent {
		asking = append(asking, l)
	}
	f.mu.Unlock()
	for _, l := range asking {
		l.mu.Lock()
		n += len(l.held)
		l.mu.Unlock()
	}
	return n
}

// held is how many leases are kept or read.
func (c *leaseCache) held() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count + c.lingering
}
