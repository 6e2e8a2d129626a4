package partition

import (
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// follower is another replica, as the leader knows it.
type follower struct {
	node        model.NodeID
	brokerEpoch model.BrokerEpoch // of its last subscription, or NoBrokerEpoch
	session     Session           // likewise; 0: none
	accepted    bool              // what it says in its session counts
	live        bool              // its stream has not ended
	asked       Subscribe         // to be answered when the log is open, if pending
	pending     bool
	// acked is its log end, by its own word in this life of its broker, and under the
	// partition epoch under which it said so last: a replica that is taken from a broker
	// and given to it again has another log by the later epoch.
	acked int64
	under model.PartitionEpoch

	inISR bool // committed
	maybe bool // in an ISR that was asked for and may be committed by now
	lost  bool // its log lacks what it had acknowledged, by its word

	// markLEO was the log end at markAt, while marked: there it began to be behind,
	// or passed the last mark. So the oldest byte that it lacks is no younger than
	// twice what is between markAt and now, and no older where it has caught up.
	markLEO int64
	markAt  time.Time
	marked  bool
	lags    bool // for too long, when TimerLag fired last
	// rejoins is the log end without which it does not come back into the ISR: one that
	// was behind has to have moved.
	rejoins int64
}

// FollowerState is what a leader knows of another replica.
type FollowerState struct {
	Node  model.NodeID
	Live  bool  // it has subscribed, and its link is up
	InISR bool  // by the committed ISR
	LEO   int64 // that it has acknowledged
}

// Followers appends what a leader knows of the other replicas to buf, in the order of
// the assignment. Nobody else knows any.
func (m *Machine) Followers(buf []FollowerState) []FollowerState {
	for i := range m.followers {
		f := &m.followers[i]
		buf = append(buf, FollowerState{Node: f.node, Live: f.live, InISR: f.inISR, LEO: f.acked})
	}
	return buf
}

// Counts reports whether the high watermark of a leader rests on another replica: it is in
// sync, or may be by now.
func (m *Machine) Counts(node model.NodeID) bool {
	f := m.follower(node)
	return f != nil && (f.inISR || f.maybe)
}

func (m *Machine) follower(node model.NodeID) *follower {
	for i := range m.followers {
		if m.followers[i].node == node {
			return &m.followers[i]
		}
	}
	return nil
}

// onLead takes leadership, or news of the ISR and the assignment.
func (m *Machine) onLead(in *Lead, out *Effects) {
	if in.Epoch < m.epoch || m.stopping || m.state == stateEnded {
		return
	}
	if in.Epoch == m.epoch && m.role == roleLeader {
		m.renewed(in, out)
		return
	}
	switch {
	case m.role == roleFollower && m.state != stateOffline:
		m.endSession()
	case m.state == stateIdle || m.state == stateOffline || in.Epoch > m.epoch+1:
		// Somebody else may have led since, and have written and cut the log.
		err := fmt.Errorf("partition %s had another leader: %w", m.partition, model.ErrNotLeaderOrFollower)
		m.failInflight(out, err)
		m.failStored(out, 0, err)
		m.forget()
	}
	m.endStreams(out)
	m.followers = m.followers[:0]
	m.asking = asking{}
	m.role, m.epoch, m.why = roleLeader, in.Epoch, nil
	m.refusals, m.lagAt, m.standing = 0, time.Time{}, standing{}
	m.relied(in.PartitionEpoch, in.ISR, in.ELR)
	m.assigned(in, out)
	m.setISR(in.ISR)
	m.openAnew(out)
}

// renewed takes what has changed under the same leader epoch. Only a higher partition
// epoch changes the ISR, and settles what was asked under a lower one.
func (m *Machine) renewed(in *Lead, out *Effects) {
	if in.PartitionEpoch < m.lead.PartitionEpoch {
		return
	}
	newer := in.PartitionEpoch > m.lead.PartitionEpoch
	m.assigned(in, out)
	if newer {
		m.settled()
		m.setISR(in.ISR)
	} else {
		m.markISR()
	}
}

// assigned takes the assignment, and keeps what is known of those that stay in it.
func (m *Machine) assigned(in *Lead, out *Effects) {
	m.lead = *in
	m.lead.Replicas = slices.Clone(in.Replicas)
	m.minISR = image.EffectiveMinISR(m.settings.MinISR, len(in.Replicas)-in.Adding, in.Target)
	kept := make([]follower, 0, len(in.Replicas))
	for _, node := range in.Replicas {
		if node == m.node {
			continue
		}
		if f := m.follower(node); f != nil {
			kept = append(kept, *f)
			continue
		}
		kept = append(kept, follower{node: node, brokerEpoch: model.NoBrokerEpoch})
	}
	for i := range m.followers {
		if f := &m.followers[i]; f.live && !slices.Contains(in.Replicas, f.node) {
			out.EndStreams = append(out.EndStreams, EndStream{Node: f.node, Session: f.session})
		}
	}
	m.followers = kept
}

// endStreams ends every stream to a follower.
func (m *Machine) endStreams(out *Effects) {
	for i := range m.followers {
		f := &m.followers[i]
		if f.live {
			out.EndStreams = append(out.EndStreams, EndStream{Node: f.node, Session: f.session})
		}
		f.live, f.accepted, f.pending = false, false, false
	}
}

// onSubscribe answers a follower that wants the log, when the log is open.
func (m *Machine) onSubscribe(in *Subscribe, out *Effects) {
	if m.role != roleLeader || m.state == stateOffline || m.state == stateEnded || m.stopping || in.Epoch != m.epoch {
		m.unanswerable(in, out)
		return
	}
	f := m.follower(in.Node)
	if f == nil {
		m.unanswerable(in, out)
		return
	}
	if in.BrokerEpoch < f.brokerEpoch || in.BrokerEpoch == f.brokerEpoch && in.Session <= f.session {
		return // it is late
	}
	if in.BrokerEpoch != f.brokerEpoch {
		f.acked = 0 // what it had in its life before may be gone (KIP-903)
	}
	f.lost = in.Counted == Lacking
	f.brokerEpoch, f.session = in.BrokerEpoch, in.Session
	f.accepted, f.live, f.pending = false, false, false
	if !m.open() {
		f.asked, f.pending = *in, true
		return
	}
	m.judge(f, in, out)
}

// unanswerable sends a follower to the metadata, or lets it ask again later.
func (m *Machine) unanswerable(in *Subscribe, out *Effects) {
	verdict := VerdictUnknown
	if in.Epoch < m.epoch {
		verdict = VerdictFenced
	}
	out.Answers = append(out.Answers, Answer{
		Node: in.Node, Session: in.Session, Epoch: m.epoch, Verdict: verdict,
		End: model.EpochEnd{Epoch: model.NoEpoch, EndOffset: -1},
	})
}

// judgePending answers those who asked while the log was not open.
func (m *Machine) judgePending(out *Effects) {
	for i := range m.followers {
		if f := &m.followers[i]; f.pending {
			f.pending = false
			m.judge(f, &f.asked, out)
		}
	}
}

// judge compares a follower's log with this one by the leader epochs of both.
// (KIP-101, KIP-279, KIP-320, KIP-595)
func (m *Machine) judge(f *follower, in *Subscribe, out *Effects) {
	a := Answer{
		Node: in.Node, Session: in.Session, Epoch: m.epoch, Verdict: VerdictAccepted,
		From: in.LEO, End: model.EpochEnd{Epoch: model.NoEpoch, EndOffset: -1}, LogStart: m.logStart,
	}
	end := model.EpochEnd{Epoch: in.LastEpoch, EndOffset: m.stored} // of a log without records
	if in.LastEpoch != model.NoEpoch {
		end = m.epochs.end(in.LastEpoch, m.stored)
	}
	// Where all that it has was trimmed here, nothing can be told of it.
	trimmed := in.LEO <= m.logStart && in.LastEpoch != model.NoEpoch && in.LastEpoch < m.epochs.first()
	if (trimmed || in.LEO < m.logStart) && m.first < 0 {
		f.asked, f.pending = *in, true
		m.seek(out)
		return
	}
	switch {
	case in.LastEpoch > in.Epoch:
		a.Verdict = VerdictUnknown
	case in.LEO < m.first || trimmed && in.LEO == m.first:
		a.Verdict, a.LogStart = VerdictReset, m.first
	case trimmed:
		a.Verdict, a.End = VerdictDiverges, model.EpochEnd{Epoch: in.LastEpoch, EndOffset: m.first}
	case end.Epoch < in.LastEpoch || end.EndOffset < in.LEO:
		a.Verdict, a.End = VerdictDiverges, end
	default:
		f.accepted, f.live, f.rejoins, f.under = true, true, 0, in.PartitionEpoch
		f.acked = max(0, min(in.Counted, in.LEO, m.stored))
	}
	out.Answers = append(out.Answers, a)
}

// seek looks for the batch that the log start is in. A follower is to have all of it: a log
// can not begin within a batch that it does not hold.
func (m *Machine) seek(out *Effects) {
	if !m.seeks {
		m.seeks, m.seeksFrom = true, m.logStart
		out.Scan = &Scan{Gen: m.gen, From: m.logStart, UpTo: m.stored, Max: 1}
	}
}

// sought takes what was found. Those who wait for it are judged, or ask again.
func (m *Machine) sought(now time.Time, in *Scanned, out *Effects) {
	m.seeks = false
	switch {
	case in.Fault != FaultNone:
		for i := range m.followers {
			if f := &m.followers[i]; f.pending {
				f.pending = false
				m.unanswerable(&f.asked, out)
			}
		}
		m.reopenIfGone(now, in.Fault, in.Err, "scan", out)
	case m.seeksFrom == m.logStart:
		m.first = m.logStart
		if len(in.Batches) > 0 {
			m.first = min(m.first, in.Batches[0].BaseOffset)
		}
	}
}

// onUnsubscribed takes that a follower's link is gone. What it has acknowledged, it
// has.
func (m *Machine) onUnsubscribed(in *Unsubscribed) {
	if f := m.follower(in.Node); f != nil && f.session == in.Session {
		f.live, f.pending = false, false
	}
}

// acknowledged takes the log end of another replica.
func (m *Machine) acknowledged(in *Acknowledged) {
	if m.role != roleLeader || in.Epoch != m.epoch {
		return
	}
	f := m.follower(in.Node)
	if f == nil || !f.accepted || in.Session != f.session {
		return
	}
	f.acked = max(f.acked, min(in.LEO, m.stored))
	f.under = max(f.under, in.PartitionEpoch)
}
