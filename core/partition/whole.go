package partition

import (
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// Lacking stands in a Subscription for how much of a log counts: nothing, since it lacks what
// it has acknowledged in this life of its broker, or cannot be read. The replica is not in sync.
const Lacking int64 = -1

// whole is how far this log can be relied on.
type whole struct {
	// owed is the log end by which others may count on this replica: what it has told a leader,
	// or committed as one, in this life of its broker, while the metadata counted on it; and what
	// it had when it was opened first, if they did then.
	owed int64
	// among: the metadata count on it.
	among bool
	// lacks: the log ended below what it had acknowledged when it was opened last. What it
	// takes from a leader then is its own again, but it does not lead before it has all of it,
	// or the metadata counts on it no more.
	lacks bool
	// damaged is the lowest offset at which a read has met damage; -1: none has. What lies below
	// is here.
	damaged int64
}

// owes takes that others count on this log up to an offset.
func (m *Machine) owes(to int64) { m.whole.owed = max(m.whole.owed, to) }

// counted is this follower's log end as far as its leader may count on it.
func (m *Machine) counted() int64 {
	if m.whole.damaged >= 0 {
		return min(m.ownLEO(), m.whole.damaged)
	}
	return m.ownLEO()
}

// relied takes who counts by the metadata of another partition epoch, before anything else of
// it. Who is not among them owes nothing: before it is again, it has said under that epoch what
// it has. Nor does a leader that is the only one that is left.
func (m *Machine) relied(under model.PartitionEpoch, isr, elr []model.NodeID) {
	among := slices.Contains(isr, m.node) || slices.Contains(elr, m.node)
	m.whole.among = among
	if under <= m.lead.PartitionEpoch {
		return
	}
	last := m.role == roleLeader && len(isr) == 1 && len(elr) == 0
	if among && !last {
		return
	}
	m.whole.owed = 0
	if m.whole.lacks {
		m.whole.lacks = false
		m.endSession() // the leader is to hear that what it says counts again
	}
}

// endsAt takes that this log is cut off at an offset, as the leader's word wants it. Nobody
// counts on what the leader does not have. But of a log that lacks something, other records
// than those that it lacks may be cut: it owes what it did.
func (m *Machine) endsAt(to int64) {
	m.hw = min(m.hw, to)
	if !m.whole.lacks {
		m.whole.owed = min(m.whole.owed, to)
	}
}

// caughtUp ends that this log lacks something, once the leader's records are in place of it.
func (m *Machine) caughtUp() {
	if m.whole.lacks && m.stored >= m.whole.owed {
		m.whole.lacks = false
		m.endSession()
	}
}

// fellBack reports whether the log ends below what is known of it, or what others count on.
func (m *Machine) fellBack(leo int64) bool {
	return m.known && leo < m.stored || leo < m.whole.owed || leo < m.hw
}

// Lacks reports whether this log lacks what others count on. It follows what was stepped last.
func (m *Machine) Lacks() bool { return m.whole.lacks }

// FallsBack reports whether a log that was opened is one that will lack what others count on,
// once the machine has been stepped with that. It changes nothing.
func (m *Machine) FallsBack(in *Opened) bool {
	if in.Gen != m.gen || in.Fault != FaultNone || m.state != stateOpening || m.opening.ready || !m.fellBack(in.LEO) {
		return false
	}
	return m.role == roleLeader && len(m.lead.Replicas) > 1 || m.role == roleFollower && in.LEO < m.whole.owed
}

// lost says which records are gone though they had been acknowledged, and forgets what rested
// on them. A leader whose followers may have them leads no more under this epoch, under which
// no offset may get a second value.
func (m *Machine) lost(in *Opened, out *Effects) {
	w := &m.whole
	if m.known && in.LEO < m.stored || in.LEO < m.hw || !w.lacks {
		end := max(w.owed, m.hw)
		if m.known {
			end = max(end, m.stored)
		}
		out.Notices = append(out.Notices, Notice{
			Kind: NoticeLost, From: in.LEO, To: end,
			Text: "the store lost records that it had acknowledged",
		})
	}
	m.hw = min(m.hw, in.LEO)
	err := fmt.Errorf("the store lost records from offset %d on: %w", in.LEO, model.ErrStorage)
	if m.role == roleLeader && len(m.lead.Replicas) > 1 {
		w.lacks = true
		m.goOffline(out, err)
		return
	}
	if w.lacks = m.role == roleFollower && in.LEO < w.owed; !w.lacks {
		w.owed = min(w.owed, in.LEO) // of the only replica, or of records that nobody counts on
	}
	m.failInflight(out, err)
	m.failStored(out, in.LEO, err)
	m.forget()
}

// onCorrupt takes that a read has met damage. What is below it counts, and no more.
func (m *Machine) onCorrupt(in *Corrupt) {
	if in.Gen == m.gen && m.open() && in.Offset >= m.logStart && in.Offset < m.stored {
		m.damagedAt(in.Offset)
	}
}

func (m *Machine) damagedAt(offset int64) {
	w := &m.whole
	if w.damaged >= 0 && w.damaged <= offset {
		return
	}
	w.damaged = offset
	if m.role == roleFollower {
		m.endSession() // the leader counts what it was told, until it is told anew
	}
}

// outlivedDamage forgets damage that is not in the log any more.
func (m *Machine) outlivedDamage() {
	if at := m.whole.damaged; at < 0 || at >= m.logStart && at < m.stored {
		return
	}
	m.whole.damaged = -1
	if m.role == roleFollower {
		m.endSession() // the leader is to hear that all counts again
	}
}

// yields reports whether another replica is to lead in place of this one: its log lacks
// something, or cannot be read, and others are in sync; or there are none, and it is to lead
// under another leader epoch, if the controller knows of nobody who has more.
func (m *Machine) yields() bool {
	switch {
	case m.stopping:
		return false
	case m.state == stateOffline:
		return m.whole.lacks || slices.ContainsFunc(m.followers, func(f follower) bool { return f.counts() })
	case m.whole.damaged >= 0:
		return slices.ContainsFunc(m.followers, func(f follower) bool { return f.stays() && f.live })
	}
	return false
}

// counts reports whether a follower has all that was committed. One that lags has.
func (f *follower) counts() bool { return f.inISR && !f.lost }

// resign asks for an ISR without this replica, so that another one leads.
func (m *Machine) resign(now time.Time, out *Effects) {
	a := &m.asking
	if !m.yields() || a.state != askNone || now.Before(a.shrinkAt) {
		return
	}
	var isr []model.Member
	for i := range m.followers {
		if f := &m.followers[i]; f.counts() {
			isr = append(isr, model.Member{Node: f.node, Epoch: f.brokerEpoch})
		}
	}
	a.isr, a.lost, a.grows, a.tries = isr, append(m.fallen(isr), m.node), false, 0
	text, from := "this replica's log lacks what it had; another one is to lead", m.whole.owed
	if m.whole.damaged >= 0 {
		from = m.whole.damaged
	}
	if m.state != stateOffline {
		text = "this replica's log is damaged; another one is to lead"
	}
	out.Notices = append(out.Notices, Notice{Kind: NoticeResigning, From: from, To: m.stored, Err: m.why, Text: text})
	m.send(out)
}

// fell reports whether a follower lacks something while the metadata counts on it.
func (m *Machine) fell(f *follower) bool {
	return f.lost && (f.inISR || slices.Contains(m.lead.ELR, f.node))
}

// fallen are the followers that lack what they had, and are to be counted on no more by the
// ISR that is asked for.
func (m *Machine) fallen(isr []model.Member) []model.NodeID {
	var nodes []model.NodeID
	for i := range m.followers {
		f := &m.followers[i]
		if m.fell(f) && !slices.ContainsFunc(isr, func(o model.Member) bool { return o.Node == f.node }) {
			nodes = append(nodes, f.node)
		}
	}
	return nodes
}
