package partition

import (
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// standing is how a leader fares while others may lead by now, and it has not heard of it.
type standing struct {
	// marked: something waits, and the high watermark was hw at the time at.
	marked bool
	hw     int64
	at     time.Time
	// cutOff: nothing was committed for Limits.CommitMax since then. Until the high watermark
	// moves, or nothing is left that could move it, appends are turned away.
	cutOff bool
}

// doubted takes whether others may lead by now. Once it is known that this replica leads still,
// those are answered that have waited for nothing else.
func (m *Machine) doubted(in *Doubted, out *Effects) {
	m.doubt, m.standing = in.Doubt, standing{}
	if m.doubt {
		return
	}
	m.waiting.keep(func(w *waiter) bool {
		if w.weak {
			m.respond(out, w)
		}
		return !w.weak
	})
}

// watchCommits sees to it that clients do not wait for a leader that others have replaced. As
// long as followers take what is appended, the leader goes on, whoever leads by the metadata:
// what it commits rests on epochs, and on no lease.
func (m *Machine) watchCommits(now time.Time, out *Effects) {
	if !m.doubt || m.limits.CommitMax <= 0 {
		return
	}
	s := &m.standing
	moved := m.hw > s.hw
	if s.cutOff && (moved || m.hw >= m.next) || s.marked && (moved || !m.awaits()) {
		*s = standing{}
	}
	if s.cutOff || s.marked || !m.awaits() {
		return
	}
	*s = standing{marked: true, hw: m.hw, at: now}
	out.setTimer(TimerCommit, now.Add(m.limits.CommitMax))
}

// awaits reports whether a client may wait for the high watermark.
func (m *Machine) awaits() bool {
	return m.waiting.len() > 0 || m.inflight.len() > 0 || m.queue.len() > 0 || len(m.repeats) > 0
}

// uncommitted looks whether anything was committed since the mark.
func (m *Machine) uncommitted(now time.Time, out *Effects) {
	s := &m.standing
	if !s.marked || m.role != roleLeader {
		return
	}
	if due := s.at.Add(m.limits.CommitMax); due.After(now) {
		out.setTimer(TimerCommit, due)
		return
	}
	*s = standing{hw: s.hw, cutOff: true}
	err := errCutOff(m.partition)
	m.expireQueued(now, out, func(time.Time) bool { return true }, err)
	for i := range m.inflight.len() {
		if e := m.inflight.at(i); !e.answered {
			e.answered = true
			m.respondError(out, e.id, err)
		}
	}
	m.failStored(out, 0, err)
}

// errCutOff sends clients to look who leads. What of theirs is in the log stays there, so that
// it is known when it comes again, here or where it was copied to.
func errCutOff(p model.Partition) error {
	return fmt.Errorf("partition %s: nothing can be committed here, and others may lead: %w", p, model.ErrNotLeaderOrFollower)
}
