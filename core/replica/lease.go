package replica

import (
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/core/partition"
)

// lease is until when the active controller does not fence this broker for its silence, as far
// as this broker has heard. Nothing that acks=all stands for rests on it.
type lease struct {
	began time.Time
	until atomic.Int64 // nanoseconds since began; 0: it was never told, and is not looked at
	// doubting is how many shards have found that it has run out.
	doubting atomic.Int32
}

// Leased tells that this broker is not fenced for its silence before a time, and that the
// metadata is here by which the controller said so. When it has passed, as after a pause of the
// process, acks 0 and 1 wait for followers, until there is another lease. It is fencing alone
// that waits for a lease: a preferred election, a reassignment or a directory that does not
// serve has another broker lead at any time. It does not block.
func (m *Manager) Leased(until time.Time) {
	first := m.lease.until.Swap(max(1, int64(until.Sub(m.lease.began)))) == 0
	if !first && m.lease.doubting.Load() == 0 {
		return // the shards look when the lease before is over
	}
	for _, s := range m.shards {
		s.loop.Complete(Input{kind: inputLeased})
	}
}

// lapsed implements host.
func (m *Manager) lapsed(now time.Time) bool {
	until := m.lease.until.Load()
	return until != 0 && int64(now.Sub(m.lease.began)) > until
}

// lapses implements host.
func (m *Manager) lapses() (time.Time, bool) {
	until := m.lease.until.Load()
	return m.lease.began.Add(time.Duration(until) + 1), until != 0
}

// doubting implements host.
func (m *Manager) doubting(more int32) { m.lease.doubting.Add(more) }

// judgeLease tells the machines whether others may lead by now, before they hear of anything
// else in a turn.
func (s *Shard) judgeLease(now time.Time) {
	doubt := s.host.lapsed(now)
	if doubt == s.doubt {
		return
	}
	s.doubt = doubt
	if doubt {
		s.host.doubting(1)
	} else {
		s.host.doubting(-1)
	}
	for _, r := range s.inOrder() {
		if r.machine != nil && !r.deleting {
			s.step(now, r, &partition.Doubted{Doubt: doubt})
		}
	}
}
