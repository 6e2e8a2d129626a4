package partition

import (
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// drain is a wait for the appends behind a refused one, which are refused too.
type drain struct {
	fault Fault
	err   error
	upTo  int64 // completions below this offset have come
}

// append takes a batch of a client.
func (m *Machine) append(now time.Time, in *Append, out *Effects) {
	switch {
	case m.stopping:
		m.refuse(out, in.ID, errStopping(m.partition))
		return
	case m.state == stateEnded:
		m.refuse(out, in.ID, fmt.Errorf("partition %s: %w", m.partition, model.ErrNotLeaderOrFollower))
		return
	case m.role != roleLeader:
		// It may lead before the next batch of that producer comes, on the same connection.
		m.turnAway(now, out, in.ID, &in.Batch, fmt.Errorf("partition %s: %w", m.partition, model.ErrNotLeaderOrFollower))
		return
	case m.state == stateOffline:
		m.refuse(out, in.ID, fmt.Errorf("partition %s is offline: %w: %w", m.partition, m.why, model.ErrStorage))
		return
	case m.standing.cutOff:
		m.turnAway(now, out, in.ID, &in.Batch, errCutOff(m.partition))
		return
	case in.Acks == model.AcksAll && len(m.isr) < m.minISR:
		m.turnAway(now, out, in.ID, &in.Batch, fmt.Errorf("%d in sync, %d needed: %w", len(m.isr), m.minISR, model.ErrNotEnoughReplicas))
		return
	case (in.Acks == model.AcksAll || m.doubt) && m.waiting.len() >= m.limits.QueuedBatches:
		m.turnAway(now, out, in.ID, &in.Batch, m.errUncommitted())
		return
	}
	q := queued{id: in.ID, batch: in.Batch, acks: in.Acks, deadline: in.Deadline, under: in.Under, logTime: in.LogAppendTime}
	if m.queue.len() == 0 && m.state == stateLeading && m.roomFor(&q) {
		m.submit(now, &q, out)
		return
	}
	if m.queue.len() >= m.limits.QueuedBatches || m.queuedBytes+int64(q.batch.Bytes) > m.limits.QueuedBytes {
		m.turnAway(now, out, in.ID, &in.Batch, fmt.Errorf("%d batches wait for partition %s: %w", m.queue.len(), m.partition, model.ErrStorage))
		return
	}
	m.queuedBytes += int64(q.batch.Bytes)
	*m.queue.push() = q
	m.armDeadline(in.Deadline, out)
}

// errUncommitted is why no more acks=all are taken: too many wait for the high
// watermark.
func (m *Machine) errUncommitted() error {
	if len(m.isr) < 2 {
		return fmt.Errorf("%d batches of partition %s wait to be flushed: %w", m.waiting.len(), m.partition, model.ErrStorage)
	}
	return fmt.Errorf("%d batches of partition %s wait for its in-sync replicas: %w", m.waiting.len(), m.partition, model.ErrNotEnoughReplicas)
}

// roomFor reports whether a batch may go to the store now.
func (m *Machine) roomFor(q *queued) bool {
	if m.inflight.len() == 0 {
		return true
	}
	return m.inflight.len() < m.limits.InFlightBatches &&
		m.inflightBytes+int64(q.batch.Bytes) <= m.limits.InFlightBytes
}

// submitQueued gives offsets to those that wait, as far as there is room.
func (m *Machine) submitQueued(now time.Time, out *Effects) {
	for m.state == stateLeading && m.queue.len() > 0 && m.roomFor(m.queue.at(0)) {
		q := *m.queue.at(0)
		m.queue.drop()
		m.queuedBytes -= int64(q.batch.Bytes)
		m.submit(now, &q, out)
	}
}

// submit gives a batch its offsets and sends it to the store, unless it repeats
// one or does not follow its producer's last.
func (m *Machine) submit(now time.Time, q *queued, out *Effects) {
	if q.under != nil && *q.under != m.epoch {
		m.refuse(out, q.id, fmt.Errorf("partition %s is led under epoch %d, not %d: %w", m.partition, m.epoch, *q.under, model.ErrNotLeaderOrFollower))
		return
	}
	if q.batch.ProducerID >= 0 {
		old, err := m.producers.check(&q.batch)
		if err != nil {
			m.refuse(out, q.id, err)
			return
		}
		if old != nil {
			m.repeated(q, old, out)
			return
		}
	}
	first := m.inflight.len() == 0
	e := m.inflight.push()
	*e = entry{id: q.id, batch: q.batch, acks: q.acks, deadline: q.deadline, logTime: q.logTime}
	records := q.batch.LastOffset - q.batch.BaseOffset
	e.batch.BaseOffset, e.batch.LastOffset, e.batch.LeaderEpoch = m.next, m.next+records, m.epoch
	m.next += records + 1
	m.inflightBytes += int64(e.batch.Bytes)
	if e.batch.ProducerID >= 0 {
		m.producers.advance(now, &e.batch, e.logTime, &e.before)
	}
	out.Appends = append(out.Appends, m.appendLog(e))
	if first {
		m.progressAt = now
		m.armStall(now, out)
	}
	m.armDeadline(q.deadline, out)
}

func (m *Machine) appendLog(e *entry) AppendLog {
	return AppendLog{
		ID: e.id, Gen: m.gen, Base: e.batch.BaseOffset, Last: e.batch.LastOffset,
		Bytes: e.batch.Bytes, Epoch: m.epoch, Machine: m.needsMachine(),
	}
}

// repeated answers a repeat as the first one is, or was, answered. It is never
// answered before the first one could be.
func (m *Machine) repeated(q *queued, old *producerBatch, out *Effects) {
	if len(m.repeats) >= m.limits.QueuedBatches {
		m.refuse(out, q.id, fmt.Errorf("%d repeats wait for partition %s: %w", len(m.repeats), m.partition, model.ErrStorage))
		return
	}
	out.Releases = append(out.Releases, q.id)
	r := repeat{acks: q.acks, waiter: waiter{
		id: q.id, base: old.base, last: old.last, deadline: q.deadline, logTime: old.timestamp,
	}}
	if m.reached(&r) {
		m.respond(out, &r.waiter)
		return
	}
	m.repeats = append(m.repeats, r)
	m.armDeadline(q.deadline, out)
}

// reached reports whether the batch that r repeats has got as far as r's client
// asks.
func (m *Machine) reached(r *repeat) bool {
	if r.acks == model.AcksAll || m.doubt {
		return r.last < m.hw
	}
	return r.last < m.stored
}

func (m *Machine) respond(out *Effects, w *waiter) {
	r := Response{ID: w.id, BaseOffset: w.base, LogAppendTime: w.logTime, LogStart: m.logStart, Epoch: m.epoch}
	out.Responses = append(out.Responses, r)
}

// appendDone takes the store's answer to one or more adjacent appends.
func (m *Machine) appendDone(now time.Time, in *AppendDone, out *Effects) {
	if in.Gen != m.gen || !m.open() {
		return
	}
	if m.role == roleFollower {
		m.copyDone(now, in, out)
		return
	}
	m.progressAt = now
	if in.Fault != FaultNone {
		m.appendFailed(now, in, out)
		return
	}
	if m.state != stateLeading || m.inflight.len() == 0 || in.Base != m.stored || in.LEO != in.Last+1 || in.LEO > m.next {
		m.reopen(now, out, fmt.Sprintf("the store acknowledged %d to %d out of turn", in.Base, in.Last))
		return
	}
	for m.inflight.len() > 0 && m.inflight.at(0).batch.LastOffset <= in.Last {
		m.landed(out)
	}
	m.durable = max(m.durable, min(in.Durable, m.stored))
	if in.Machine {
		m.durable = m.stored
	}
	m.fruitless, m.refusals = 0, 0
	if m.sinceSnapshot >= m.limits.SnapshotAfter {
		m.putSnapshot(now, out)
	}
}

// landed moves the oldest append under way to what is stored.
func (m *Machine) landed(out *Effects) {
	e := m.inflight.at(0)
	m.stored = e.batch.LastOffset + 1
	m.inflightBytes -= int64(e.batch.Bytes)
	m.sinceSnapshot++
	out.Releases = append(out.Releases, e.id)
	if !e.answered {
		w := waiter{id: e.id, weak: e.acks != model.AcksAll, base: e.batch.BaseOffset, last: e.batch.LastOffset, deadline: e.deadline, logTime: e.logTime}
		if !w.weak || m.doubt {
			*m.waiting.push() = w
		} else {
			m.respond(out, &w)
		}
	}
	m.inflight.drop()
}

// appendFailed goes on by what the fault promises: where nothing was done, those
// behind are awaited; where the outcome is open, the log is opened again.
func (m *Machine) appendFailed(now time.Time, in *AppendDone, out *Effects) {
	clean := in.Fault == FaultFull || in.Fault == FaultRetry
	if m.state == stateDraining && (clean || in.Fault == FaultInvalid) {
		m.drain.upTo = max(m.drain.upTo, in.Last+1)
		m.drained(now, out)
		return
	}
	if m.state == stateLeading && clean {
		m.state = stateDraining
		m.drain = drain{fault: in.Fault, err: in.Err, upTo: in.Last + 1}
		m.drained(now, out)
		return
	}
	if in.Fault == FaultInvalid {
		m.refusals++
	}
	m.reopen(now, out, fmt.Sprintf("append at %d failed: %v", in.Base, causeOf(in.Fault, in.Err)))
}

// drained ends a drain when the last completion has come.
func (m *Machine) drained(now time.Time, out *Effects) {
	if m.drain.upTo < m.next {
		return
	}
	cause := causeOf(m.drain.fault, m.drain.err)
	if m.drain.fault == FaultRetry {
		m.state = stateStalled
		out.setTimer(TimerBackoff, now.Add(m.backoff(m.fruitless+1)))
		m.fruitless++
		return
	}
	m.drain = drain{}
	m.state = stateLeading
	out.Notices = append(out.Notices, Notice{Kind: NoticeRefused, From: m.stored, To: m.next, Err: cause,
		Text: "the store has no room"})
	m.refuseInflight(out, fmt.Errorf("append to partition %s: %w: %w", m.partition, cause, model.ErrStorage))
}
