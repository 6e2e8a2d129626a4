package partition

import (
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// expiryEvery is between two looks for idle producers.
const expiryEvery = 10 * time.Minute

// spread is a part of a period, by the partition, so that the timers of many
// partitions do not fire together.
func (m *Machine) spread(period time.Duration) time.Duration {
	h := uint64(m.partition.Index) + 1
	for _, b := range m.partition.Topic {
		h = h*1099511628211 + uint64(b)
	}
	return period/2 + time.Duration(float64(h%1024)/1024*float64(period/2))
}

// armTimers sets the timers that repeat.
func (m *Machine) armTimers(now time.Time, out *Effects) {
	if m.timersArmed || !m.open() {
		return
	}
	m.timersArmed = true
	if every := m.settings.RetentionEvery; every > 0 {
		out.setTimer(TimerRetention, now.Add(m.spread(every)))
	}
	if every := m.limits.SnapshotEvery; every > 0 {
		out.setTimer(TimerSnapshot, now.Add(m.spread(every)))
	}
	if m.settings.Flush == FlushInterval {
		out.setTimer(TimerFlush, now.Add(m.flushEvery()))
	}
	out.setTimer(TimerExpiry, now.Add(m.expiryPeriod()))
}

func (m *Machine) flushEvery() time.Duration { return max(m.settings.FlushEvery, time.Millisecond) }

func (m *Machine) expiryPeriod() time.Duration {
	return max(time.Second, min(expiryEvery, m.settings.ProducerExpiry))
}

// fired handles a timer that is due.
func (m *Machine) fired(now time.Time, t Timer, out *Effects) {
	switch t {
	case TimerDeadline:
		m.expireWaiting(now, out)
	case TimerStall:
		m.stalled(now, out)
	case TimerBackoff:
		m.again(now, out)
	case TimerFlush:
		m.flushHeld = false
		if m.durable < m.stored {
			m.flush(out)
		}
		if m.settings.Flush == FlushInterval && m.Active() {
			out.setTimer(TimerFlush, now.Add(m.flushEvery()))
		}
	case TimerRetention:
		m.retain(now, out)
	case TimerSnapshot:
		if m.open() && m.snapshotDue() {
			m.putSnapshot(now, out)
		}
		if m.Active() {
			out.setTimer(TimerSnapshot, now.Add(m.limits.SnapshotEvery))
		}
	case TimerExpiry:
		if m.known {
			m.producers.expire(now, m.settings.ProducerExpiry)
		}
		if m.Active() {
			out.setTimer(TimerExpiry, now.Add(m.expiryPeriod()))
		}
	case TimerSubscribe:
		m.mayAsk()
	case TimerLag:
		m.lagged(now, out)
	case TimerISR:
		m.askAgain(now, out)
	case TimerCommit:
		m.uncommitted(now, out)
	}
}

// again repeats what had to wait.
func (m *Machine) again(now time.Time, out *Effects) {
	switch m.state {
	case stateBackoff:
		m.openLog(out)
	case stateStalled:
		m.state = stateLeading
		m.drain = drain{}
		m.resubmit(now, out)
	}
}

// armStall sets the watch over the store, once.
func (m *Machine) armStall(now time.Time, out *Effects) {
	if !m.stallArmed {
		m.stallArmed = true
		out.setTimer(TimerStall, now.Add(m.limits.AppendStall))
	}
}

// stalled opens the log again when the store has not answered an append for too
// long: its outcome is open, and a store that hangs may need another handle.
func (m *Machine) stalled(now time.Time, out *Effects) {
	m.stallArmed = false
	waits := m.inflight.len() > 0 && (m.state == stateLeading || m.state == stateDraining)
	if !waits && m.up.copies.len() == 0 {
		return
	}
	if due := m.progressAt.Add(m.limits.AppendStall); due.After(now) {
		m.stallArmed = true
		out.setTimer(TimerStall, due)
		return
	}
	m.reopen(now, out, fmt.Sprintf("the store has not answered an append for %s", m.limits.AppendStall))
}

// readFailed opens the log again when a read found that it is gone.
func (m *Machine) readFailed(now time.Time, in *ReadFailed, out *Effects) {
	if in.Gen != m.gen || !m.open() {
		return
	}
	m.reopen(now, out, fmt.Sprintf("read failed: %v", causeOf(in.Fault, in.Err)))
}

// restarted opens the log again, at once: how often it had to be before says
// nothing of the new process.
func (m *Machine) restarted(now time.Time, out *Effects) {
	switch {
	case m.stopping:
	case m.open() || m.state == stateCutting:
		m.fruitless = 0
		m.reopen(now, out, "the store was started again")
	case m.state == stateBackoff:
		m.openLog(out)
	}
}

// trim handles DeleteRecords: never beyond the high watermark.
func (m *Machine) trim(now time.Time, in *Trim, out *Effects) {
	to := in.To
	if to == -1 {
		to = m.hw
	}
	switch {
	case m.state == stateOffline && m.role == roleLeader:
		m.respondError(out, in.ID, fmt.Errorf("partition %s is offline: %w: %w", m.partition, m.why, model.ErrStorage))
	case !m.open() || m.stopping || m.role != roleLeader:
		m.respondError(out, in.ID, fmt.Errorf("partition %s: %w", m.partition, model.ErrNotLeaderOrFollower))
	case m.settings.Compact && !m.settings.Delete:
		m.respondError(out, in.ID, fmt.Errorf("a compacted topic keeps its records: %w", model.ErrPolicyViolation))
	case to < 0 || to > m.hw:
		m.respondError(out, in.ID, fmt.Errorf("offset %d is outside 0 to %d: %w", in.To, m.hw, model.ErrOffsetOutOfRange))
	case to <= m.logStart:
		m.respond(out, &waiter{id: in.ID, base: -1, logTime: -1})
	default:
		m.trims = append(m.trims, pendingTrim{Trim: Trim{ID: in.ID, To: to}, held: true})
		m.trimHeld(now, out)
	}
}

// mayBegin reports whether the log may begin at an offset without producers
// being forgotten with their records: all that lies below is in a snapshot. Where
// it is not, one is asked for.
func (m *Machine) mayBegin(now time.Time, at int64, out *Effects) bool {
	if m.snapshotSafe >= at || m.producers.len() == 0 {
		return true
	}
	m.putSnapshot(now, out)
	return false
}

// trimHeld sends the trims that need not wait for a snapshot any more.
func (m *Machine) trimHeld(now time.Time, out *Effects) {
	for i := range m.trims {
		if t := &m.trims[i]; t.held && m.mayBegin(now, t.To, out) {
			t.held = false
			out.Trims = append(out.Trims, TrimLog{Gen: m.gen, ID: t.ID, To: t.To})
		}
	}
}

func (m *Machine) trimDone(now time.Time, in *TrimDone, out *Effects) {
	if in.Gen != m.gen {
		return
	}
	if m.state == stateCutting && in.ID == startTrim {
		m.started(now, in, out)
		return
	}
	for i, t := range m.trims {
		if t.ID != in.ID {
			continue
		}
		m.trims = append(m.trims[:i], m.trims[i+1:]...)
		if t.own {
			m.followedTrim(now, in, out)
			return
		}
		if in.Fault == FaultNone {
			m.raiseLogStart(now, in.LogStart, out)
			m.respond(out, &waiter{id: in.ID, base: -1, logTime: -1})
			return
		}
		m.respondError(out, in.ID, fmt.Errorf("trim to %d: %w: %w", t.To, causeOf(in.Fault, in.Err), model.ErrStorage))
		m.reopenIfGone(now, in.Fault, in.Err, "trim", out)
		return
	}
}

// reopenIfGone opens the log again after a fault that says that this handle is
// of no use, or that leaves an outcome open.
func (m *Machine) reopenIfGone(now time.Time, fault Fault, err error, act string, out *Effects) {
	switch fault {
	case FaultGone, FaultFenced, FaultUnknown:
		m.reopen(now, out, fmt.Sprintf("%s failed: %v", act, causeOf(fault, err)))
	}
}

// raiseLogStart takes a new log start. Where records had to go before a snapshot
// could be stored, there may be room for it now.
func (m *Machine) raiseLogStart(now time.Time, to int64, out *Effects) {
	if to <= m.logStart || to > m.stored {
		return
	}
	m.logStart, m.first = to, -1
	m.hw = max(m.hw, to)
	m.epochs = m.epochs.trimmed(to)
	m.outlivedDamage()
	m.mayBegin(now, to, out)
}

// retain asks the store to apply retention, below the high watermark.
func (m *Machine) retain(now time.Time, out *Effects) {
	if m.settings.RetentionEvery <= 0 || !m.Active() {
		return
	}
	out.setTimer(TimerRetention, now.Add(m.settings.RetentionEvery))
	if m.role == roleFollower {
		m.free(now, out)
		return
	}
	limited := m.settings.RetentionAge > 0 || m.settings.RetentionBytes >= 0
	if m.retaining || !m.open() || !m.settings.Delete || !limited {
		return
	}
	m.retaining = true
	if !m.mayBegin(now, m.hw, out) {
		m.retainHeld = true
		return
	}
	m.retainBelow(now, m.hw, out)
}

func (m *Machine) retainBelow(now time.Time, ceiling int64, out *Effects) {
	m.retainHeld = false
	out.Retain = &Retain{
		Gen: m.gen, Ceiling: ceiling, Now: now,
		Age: m.settings.RetentionAge, Bytes: m.settings.RetentionBytes,
	}
}

// free lets a follower's store free the room of what was trimmed. What else goes is
// its leader's to decide.
func (m *Machine) free(now time.Time, out *Effects) {
	if m.retaining || !m.open() || m.freed == m.logStart {
		return
	}
	m.retaining, m.freed = true, m.logStart
	out.Retain = &Retain{Gen: m.gen, Ceiling: m.logStart, Now: now, Bytes: -1}
}

func (m *Machine) retained(now time.Time, in *Retained, out *Effects) {
	if in.Gen != m.gen || !m.retaining {
		return
	}
	m.retaining = false
	if in.Fault != FaultNone {
		out.Notices = append(out.Notices, Notice{Kind: NoticeFailed, Err: causeOf(in.Fault, in.Err), Text: "apply retention"})
		m.reopenIfGone(now, in.Fault, in.Err, "retention", out)
		return
	}
	m.raiseLogStart(now, in.LogStart, out)
}

// snapshotWorth is how many batches are scanned at the next opening rather than
// pay for a snapshot that has no producer to tell of.
const snapshotWorth = 10_000

// snapshotDue reports whether a snapshot would tell more than the last.
func (m *Machine) snapshotDue() bool {
	return m.snapshotOffset != m.stored && (m.producers.len() > 0 || m.sinceSnapshot >= snapshotWorth)
}

// putSnapshot asks that the producers be kept as they are at the log end that
// the store has acknowledged. What is under way is not in it.
func (m *Machine) putSnapshot(now time.Time, out *Effects) {
	if m.snapshotting || !m.open() {
		return
	}
	undone := make(map[int64]*undo)
	for i := range m.inflight.len() {
		e := m.inflight.at(i)
		if _, ok := undone[e.batch.ProducerID]; !ok && e.batch.ProducerID >= 0 {
			undone[e.batch.ProducerID] = &e.before
		}
	}
	m.snapshotting = true
	m.sinceSnapshot = 0
	m.snapshotOffset = m.stored
	out.Snapshot = &PutSnapshot{Gen: m.gen, Offset: m.stored, Data: encodeProducers(m.producers, now, undone)}
}

func (m *Machine) snapshotDone(now time.Time, in *SnapshotDone, out *Effects) {
	if in.Gen != m.gen || !m.snapshotting {
		return
	}
	m.snapshotting = false
	if in.Fault == FaultNone {
		m.snapshotSafe = m.snapshotOffset
		m.trimHeld(now, out)
		if m.retainHeld {
			m.retainBelow(now, min(m.hw, m.snapshotSafe), out)
		}
		return
	}
	out.Notices = append(out.Notices, Notice{Kind: NoticeFailed, Err: causeOf(in.Fault, in.Err), Text: "store the producer snapshot"})
	if !m.stopping {
		m.snapshotOffset = -1 // the timer tries again
	}
	m.withoutSnapshot(now, in.Fault, in.Err, out)
	m.reopenIfGone(now, in.Fault, in.Err, "snapshot", out)
}

// withoutSnapshot goes on with what waited for a snapshot that failed. On a full
// disk retention goes first, since that is what makes room. A trim is refused: it
// can be asked for again, and a producer whose unanswered batches it took could
// not go on after a crash.
func (m *Machine) withoutSnapshot(now time.Time, fault Fault, err error, out *Effects) {
	switch {
	case m.retainHeld && fault == FaultFull:
		m.retainBelow(now, m.hw, out)
	case m.retainHeld:
		m.retainHeld, m.retaining = false, false // the timer tries again
	}
	kept := m.trims[:0]
	for _, t := range m.trims {
		if !t.held {
			kept = append(kept, t)
			continue
		}
		if t.own {
			m.up.logStart = 0 // the leader's next word brings it back
			continue
		}
		m.respondError(out, t.ID, fmt.Errorf("trim to %d: %w: %w", t.To, causeOf(fault, err), model.ErrStorage))
	}
	m.trims = kept
}
