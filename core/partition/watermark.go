package partition

import (
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// needsMachine reports whether only what survives loss of power counts here: under
// FlushReplicated, where this replica may be the only one in sync by now, or still is.
func (m *Machine) needsMachine() bool {
	switch m.settings.Flush {
	case FlushAlways:
		return true
	case FlushInterval:
		return false
	}
	return m.role == roleLeader && m.asking.least < 2
}

// ownLEO is this replica's log end as far as its flush policy lets it count.
func (m *Machine) ownLEO() int64 {
	if m.needsMachine() {
		return min(m.stored, m.durable)
	}
	return m.stored
}

// advance raises the high watermark and answers whom it passes. It is the least log
// end of all that may be in sync by now, and does not move while the committed ISR is
// below its minimum. (KIP-497, KIP-966)
func (m *Machine) advance(out *Effects) {
	if !m.known || m.state == stateOffline {
		return
	}
	if len(m.isr) >= m.minISR {
		hw := m.ownLEO()
		for i := range m.followers {
			if f := &m.followers[i]; f.inISR || f.maybe {
				hw = min(hw, f.acked)
			}
		}
		m.hw = max(m.hw, hw)
		m.owes(m.hw)
	}
	for m.waiting.len() > 0 && m.waiting.at(0).last < m.hw {
		m.respondCommitted(out, m.waiting.at(0))
		m.waiting.drop()
	}
	if len(m.repeats) > 0 {
		m.repeats = slices.DeleteFunc(m.repeats, func(r repeat) bool {
			if !m.reached(&r) {
				return false
			}
			m.respond(out, &r.waiter)
			return true
		})
	}
}

// respondCommitted answers acks=all, or says that the ISR has shrunk meanwhile.
func (m *Machine) respondCommitted(out *Effects, w *waiter) {
	if len(m.isr) >= m.minISR || w.weak {
		m.respond(out, w)
		return
	}
	m.respondError(out, w.id, fmt.Errorf("%d in sync, %d needed: %w", len(m.isr), m.minISR, model.ErrNotEnoughReplicasAfter))
}

// flushIfNeeded asks for a flush when something is stored that cannot count
// before, as after opening, or when the replica has become the only one in sync.
func (m *Machine) flushIfNeeded(out *Effects) {
	if (m.state == stateLeading || m.state == stateFollowing) && m.needsMachine() && m.durable < m.stored && !m.flushHeld {
		m.flush(out)
	}
}

func (m *Machine) flush(out *Effects) {
	if m.flushing || !m.open() {
		return
	}
	m.flushing = true
	out.Flush = &Flush{Gen: m.gen}
}

// flushHold is the wait after a flush that brought nothing.
const flushHold = 100 * time.Millisecond

func (m *Machine) flushDone(now time.Time, in *FlushDone, out *Effects) {
	if in.Gen != m.gen || !m.flushing {
		return
	}
	m.flushing = false
	before := m.durable
	switch in.Fault {
	case FaultNone:
		m.durable = max(m.durable, min(in.Durable, m.stored))
	case FaultRetry, FaultFull:
		out.Notices = append(out.Notices, Notice{Kind: NoticeFailed, Err: causeOf(in.Fault, in.Err), Text: "flush the log"})
	default:
		m.reopen(now, out, fmt.Sprintf("flush failed: %v", causeOf(in.Fault, in.Err)))
		return
	}
	if m.durable == before && m.durable < m.stored {
		m.flushHeld = true
		out.setTimer(TimerFlush, now.Add(flushHold))
	}
}

// setTimer asks for a timer.
func (e *Effects) setTimer(t Timer, at time.Time) {
	e.Timers = append(e.Timers, SetTimer{Timer: t, At: at})
}

// armDeadline sees to it that TimerDeadline fires no later than at. It is set
// anew only when it must be earlier, so that it costs nothing in the usual run.
func (m *Machine) armDeadline(at time.Time, out *Effects) {
	if at.IsZero() || (!m.deadlineAt.IsZero() && !at.Before(m.deadlineAt)) {
		return
	}
	m.deadlineAt = at
	out.setTimer(TimerDeadline, at)
}

// expireWaiting tells clients whose time is up. What is under way stays so: it
// may yet become committed.
func (m *Machine) expireWaiting(now time.Time, out *Effects) {
	m.deadlineAt = time.Time{}
	err := fmt.Errorf("partition %s: %w", m.partition, model.ErrRequestTimedOut)
	var next time.Time
	late := func(deadline time.Time) bool {
		if deadline.IsZero() {
			return false
		}
		if !deadline.After(now) {
			return true
		}
		if next.IsZero() || deadline.Before(next) {
			next = deadline
		}
		return false
	}
	m.expireQueued(now, out, late, err)
	for i := range m.inflight.len() {
		if e := m.inflight.at(i); !e.answered && late(e.deadline) {
			e.answered = true
			m.respondError(out, e.id, err)
		}
	}
	m.waiting.keep(func(w *waiter) bool {
		if !late(w.deadline) {
			return true
		}
		m.respondError(out, w.id, err)
		return false
	})
	m.repeats = slices.DeleteFunc(m.repeats, func(r repeat) bool {
		if !late(r.deadline) {
			return false
		}
		m.respondError(out, r.id, err)
		return true
	})
	m.armDeadline(next, out)
}

// expireQueued refuses those that are late, and with one of a producer all that
// it sent after it, since those could only be out of order.
func (m *Machine) expireQueued(now time.Time, out *Effects, late func(time.Time) bool, err error) {
	var broken map[int64]bool
	var gone []queued
	m.queue.keep(func(q *queued) bool {
		if !broken[q.batch.ProducerID] && !late(q.deadline) {
			return true
		}
		if q.batch.ProducerID >= 0 {
			if broken == nil {
				broken = make(map[int64]bool)
			}
			broken[q.batch.ProducerID] = true
		}
		m.queuedBytes -= int64(q.batch.Bytes)
		gone = append(gone, *q)
		return false
	})
	for i := range gone {
		m.turnAway(now, out, gone[i].id, &gone[i].batch, err)
	}
}
