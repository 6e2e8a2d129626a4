package partition

import (
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// asking is what a leader has asked of the controller under the present partition
// epoch, and has not settled.
type asking struct {
	state askState
	isr   []model.Member // that was asked for last
	lost  []model.NodeID // likewise
	grows bool
	tries int // of the same question, of which none was heard of

	// unsure: a question that was never heard of may be committed yet, until the
	// partition epoch is a higher one, whatever is asked after it.
	unsure bool
	// least is the size of the smallest ISR that may be committed by now.
	least int
	// refusals counts those in a row. After one, nothing of its kind is asked before
	// growAt, or shrinkAt.
	refusals int
	growAt   time.Time
	shrinkAt time.Time
}

type askState int8

const (
	askNone   askState = iota
	askSent            // Altered is to come
	askHeld            // the same is asked again when TimerISR fires
	askBehind          // the metadata has moved on, and will tell
)

// setISR takes the committed ISR.
func (m *Machine) setISR(isr []model.NodeID) {
	m.isr = slices.Clone(isr)
	m.asking.least = len(isr)
	m.markISR()
}

// markISR marks the followers that are in the committed ISR.
func (m *Machine) markISR() {
	for i := range m.followers {
		f := &m.followers[i]
		f.inISR = slices.Contains(m.isr, f.node)
		if !f.inISR {
			f.marked, f.lags = false, false
		}
	}
}

// settled forgets what was asked: by its partition epoch it can not be committed any
// more, or has been.
func (m *Machine) settled() {
	m.asking = asking{}
	for i := range m.followers {
		m.followers[i].maybe = false
	}
}

// altered takes the controller's answer. (D11)
func (m *Machine) altered(now time.Time, in *Altered, out *Effects) {
	a := &m.asking
	if m.role != roleLeader || in.Epoch != m.epoch {
		return
	}
	if in.Outcome == OutcomeDone && in.NewPartitionEpoch > m.lead.PartitionEpoch {
		if slices.Contains(in.Lost, m.node) {
			// It leads on, under a leader epoch that the metadata will tell. What it owes is settled
			// then, as by every partition epoch that is news.
			a.state = askBehind
			return
		}
		m.lead.PartitionEpoch = in.NewPartitionEpoch
		m.lead.ELR = slices.DeleteFunc(slices.Clone(m.lead.ELR), func(n model.NodeID) bool { return slices.Contains(in.Lost, n) })
		m.settled()
		m.setISR(in.ISR)
		return
	}
	if in.PartitionEpoch != m.lead.PartitionEpoch || a.state != askSent {
		return
	}
	switch in.Outcome {
	case OutcomeDone:
		// It was so already, which says nothing of what may be committed yet.
		m.holdAsking(now, false, out)
	case OutcomeIneligible:
		if !a.unsure {
			m.rollBack()
		}
		m.holdAsking(now, a.grows, out)
	case OutcomeStale:
		a.state = askBehind
	default:
		a.state, a.unsure = askHeld, true
		a.tries++
		out.setTimer(TimerISR, now.Add(m.backoff(a.tries)))
	}
}

// rollBack reckons with the committed ISR alone.
func (m *Machine) rollBack() {
	m.asking.least = len(m.isr)
	for i := range m.followers {
		m.followers[i].maybe = false
	}
}

// holdAsking lets nothing of a kind be asked for a while.
func (m *Machine) holdAsking(now time.Time, grows bool, out *Effects) {
	a := &m.asking
	a.state, a.tries = askNone, 0
	a.refusals++
	at := now.Add(m.backoff(a.refusals))
	if grows {
		a.growAt = at
	} else {
		a.shrinkAt = at
	}
	m.armISR(now, out)
}

// armISR sets TimerISR for what is held, the first that is due.
func (m *Machine) armISR(now time.Time, out *Effects) {
	first := m.asking.growAt
	if s := m.asking.shrinkAt; s.After(now) && (!first.After(now) || s.Before(first)) {
		first = s
	}
	if first.After(now) {
		out.setTimer(TimerISR, first)
	}
}

// alter asks the controller for another ISR where this one is not what it should be:
// without those that lag, then with those that have caught up. (KIP-497)
func (m *Machine) alter(now time.Time, out *Effects) {
	if m.asking.state != askNone || m.state != stateLeading || m.stopping || m.ails {
		return
	}
	if now.Before(m.asking.shrinkAt) && now.Before(m.asking.growAt) {
		return
	}
	shrinks, grows, unsure := false, false, false
	for i := range m.followers {
		f := &m.followers[i]
		shrinks = shrinks || f.lags || m.fell(f)
		grows = grows || m.mayJoin(f)
		unsure = unsure || m.asking.unsure && f.maybe && !f.inISR
	}
	switch {
	case shrinks && !now.Before(m.asking.shrinkAt) && m.mayShrink(out):
		m.ask(false, (*follower).stays, out)
	case grows && !now.Before(m.asking.growAt):
		m.ask(true, func(f *follower) bool { return f.inISR || m.mayJoin(f) }, out)
	case unsure && !now.Before(m.asking.shrinkAt):
		m.ask(false, func(f *follower) bool { return f.inISR }, out)
	}
}

// mayJoin reports whether a follower has all that was committed, and all that was
// there when the epoch began, by its word under the partition epoch under which it would
// join, or a later one: no metadata up to that has taken its log from it, and with any that
// does the question comes too late. (KAFKA-1211, KIP-101, KIP-455)
func (m *Machine) mayJoin(f *follower) bool {
	return !f.inISR && !f.lost && f.live && f.under >= m.lead.PartitionEpoch && f.acked >= max(m.hw, m.epochStart, f.rejoins)
}

// stays reports whether a follower is to stay in the ISR.
func (f *follower) stays() bool { return f.inISR && !f.lags && !f.lost }

// mayShrink reports whether the ISR may be without those that lag, or lack what they had:
// others stay in it, or what was committed is safe here. Else one that has caught up may
// join meanwhile.
func (m *Machine) mayShrink(out *Effects) bool {
	for i := range m.followers {
		if m.followers[i].stays() {
			return true
		}
	}
	return m.mayBeAlone(out)
}

// mayBeAlone reports whether all that was committed survives the loss of power here, where
// that is to be once no other replica is in sync; else it is flushed first. From when it is
// asked for, no more than that is committed.
func (m *Machine) mayBeAlone(out *Effects) bool {
	if m.settings.Flush == FlushInterval || m.durable >= m.hw {
		return true
	}
	if !m.flushHeld {
		m.flush(out)
	}
	return false
}

// ask asks for the ISR of this replica and those that are wanted.
func (m *Machine) ask(grows bool, wanted func(*follower) bool, out *Effects) {
	isr := []model.Member{{Node: m.node, Epoch: m.lead.BrokerEpoch}}
	for i := range m.followers {
		f := &m.followers[i]
		if !wanted(f) {
			continue
		}
		isr = append(isr, model.Member{Node: f.node, Epoch: f.brokerEpoch})
		f.maybe = f.maybe || !f.inISR
	}
	a := &m.asking
	a.isr, a.lost, a.grows, a.tries = isr, m.fallen(isr), grows, 0
	a.least = min(a.least, len(isr))
	m.send(out)
}

func (m *Machine) send(out *Effects) {
	m.asking.state = askSent
	out.Alter = &AlterISR{Epoch: m.epoch, PartitionEpoch: m.lead.PartitionEpoch, ISR: m.asking.isr, Lost: m.asking.lost}
}

// askAgain asks the same again.
func (m *Machine) askAgain(now time.Time, out *Effects) {
	if m.role != roleLeader || m.stopping {
		return
	}
	if m.asking.state == askHeld {
		m.send(out)
		return
	}
	m.armISR(now, out)
}

// watchLag moves the marks by which it is known for how long a follower has been
// behind.
func (m *Machine) watchLag(now time.Time, out *Effects) {
	for i := range m.followers {
		f := &m.followers[i]
		if !f.inISR || f.marked && f.acked < f.markLEO {
			continue
		}
		f.lags = false
		f.marked = f.acked < m.stored
		if !f.marked {
			continue
		}
		f.markLEO, f.markAt = m.stored, now
		if m.lagAt.IsZero() && m.limits.LagMax > 0 {
			m.lagAt = now.Add(m.limits.LagMax)
			out.setTimer(TimerLag, m.lagAt)
		}
	}
}

// lagged looks who has been behind for too long. Where this machine has been away
// itself, what its followers have said meanwhile is still to be heard; where its store does
// not answer, they may have lacked what it was to read for them.
func (m *Machine) lagged(now time.Time, out *Effects) {
	away := m.lagAt.IsZero() || now.Sub(m.lagAt) > m.limits.LagMax/2
	m.lagAt = time.Time{}
	if m.role != roleLeader {
		return
	}
	silent := m.inflight.len() > 0 && now.Sub(m.progressAt) > m.limits.LagMax/2
	if away || m.state != stateLeading || m.ails || silent {
		m.remark(now)
	}
	for i := range m.followers {
		f := &m.followers[i]
		if !f.marked {
			continue
		}
		due := f.markAt.Add(m.limits.LagMax)
		if !due.After(now) {
			f.lags, f.rejoins = true, f.acked+1
			due = now.Add(m.limits.LagMax)
		}
		if m.lagAt.IsZero() || due.Before(m.lagAt) {
			m.lagAt = due
		}
	}
	if !m.lagAt.IsZero() {
		out.setTimer(TimerLag, m.lagAt)
	}
}

// remark counts no lag from before now, since it may be of this replica's making.
func (m *Machine) remark(now time.Time) {
	for i := range m.followers {
		m.followers[i].markAt, m.followers[i].lags = now, false
	}
}
