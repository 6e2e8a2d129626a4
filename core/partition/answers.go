package partition

import (
	"slices"
	"time"

	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// failAll answers everybody who waits. Offsets under way are forgotten with it,
// which is right only where the log is not written before it is opened again.
func (m *Machine) failAll(out *Effects, err error) {
	m.failInflight(out, err)
	for m.queue.len() > 0 {
		q := m.queue.at(0)
		m.refuse(out, q.id, err)
		m.queue.drop()
	}
	m.queuedBytes = 0
	m.failStored(out, 0, err)
	m.failTrims(out, err)
	m.flushing, m.retaining, m.retainHeld, m.snapshotting = false, false, false, false
}

// failInflight answers those whose appends are under way, undoes what they
// did to the producers, newest first, and takes their offsets back.
func (m *Machine) failInflight(out *Effects, err error) {
	for i := range m.inflight.len() {
		e := m.inflight.at(i)
		if !e.answered {
			m.respondError(out, e.id, err)
		}
		out.Releases = append(out.Releases, e.id)
	}
	for m.inflight.len() > 0 {
		e := m.inflight.at(m.inflight.len() - 1)
		if e.batch.ProducerID >= 0 {
			m.producers.revert(&e.batch, &e.before)
		}
		m.inflight.dropLast()
	}
	m.inflightBytes = 0
	m.next = m.stored
	m.failRepeats(out, m.stored, err)
}

// refuseInflight is failInflight where the store has promised that nothing of the
// appends is in the log, nor will be.
func (m *Machine) refuseInflight(out *Effects, err error) {
	from := len(out.Responses)
	m.failInflight(out, err)
	for i := range out.Responses[from:] {
		out.Responses[from+i].Refused = true
	}
}

// failStored answers acks=all clients whose records, from offset on, were
// stored and will not be committed by this replica as it is.
func (m *Machine) failStored(out *Effects, from int64, err error) {
	m.waiting.keep(func(w *waiter) bool {
		if w.last < from {
			return true
		}
		m.respondError(out, w.id, err)
		return false
	})
	m.failRepeats(out, from, err)
}

func (m *Machine) failRepeats(out *Effects, from int64, err error) {
	m.repeats = slices.DeleteFunc(m.repeats, func(r repeat) bool {
		if r.last < from {
			return false
		}
		m.respondError(out, r.id, err)
		return true
	})
}

func (m *Machine) failTrims(out *Effects, err error) {
	for _, t := range m.trims {
		if !t.own {
			m.respondError(out, t.ID, err)
		}
	}
	m.trims = m.trims[:0]
}

func (m *Machine) respondError(out *Effects, id RequestID, err error) {
	r := Response{ID: id, BaseOffset: -1, LogAppendTime: -1, LogStart: -1, Epoch: m.epoch, Err: err}
	if m.known {
		r.LogStart = m.logStart
	}
	out.Responses = append(out.Responses, r)
}

// turnAway refuses an append that has not got its offsets for a reason that
// will pass.
func (m *Machine) turnAway(now time.Time, out *Effects, id RequestID, batch *recordbatch.Info, err error) {
	m.refuse(out, id, err)
	m.remember(now, batch)
}

// remember keeps that a batch was turned away.
func (m *Machine) remember(now time.Time, batch *recordbatch.Info) {
	if batch.ProducerID < 0 {
		return
	}
	for i := range m.queue.len() {
		if m.queue.at(i).batch.ProducerID == batch.ProducerID {
			return // an earlier one makes the producer known, or is turned away itself
		}
	}
	if m.known {
		m.producers.refused(now, batch)
		return
	}
	if m.early == nil {
		m.early = newProducers(m.limits.Producers)
	}
	m.early.refused(now, batch)
}

// refuse answers an append that got no offset.
func (m *Machine) refuse(out *Effects, id RequestID, err error) {
	m.respondError(out, id, err)
	out.Responses[len(out.Responses)-1].Refused = true
	out.Releases = append(out.Releases, id)
}
