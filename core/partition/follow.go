package partition

import (
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// following is what a replica knows of the leader that it follows.
type following struct {
	leader  model.NodeID
	reached []model.NodeID // nodes to which the host has a link, in no order
	session Session        // the last that was drawn
	state   sessionState
	// attempts counts subscriptions since something of one was stored.
	attempts int
	copies   ring[copied]           // submitted and not acknowledged by the store
	batches  ring[recordbatch.Info] // of the copies, in their order
	bytes    int64                  // of the copies
	told     int64                  // the log end that the leader was last told
	under    model.PartitionEpoch   // under which it was told
	// highWater and logStart are the leader's, by its last word in this session.
	highWater int64
	logStart  int64
}

// sessionState is how far a subscription has come.
type sessionState int8

const (
	sessionNone     sessionState = iota // none: one is asked for as soon as it may be
	sessionHeld                         // none before TimerSubscribe fires
	sessionAsked                        // its answer is awaited, until TimerSubscribe fires
	sessionAccepted                     // the leader's log comes
	sessionFenced                       // none under this leader epoch
)

// copied is one Replicate under way to the store.
type copied struct {
	id      RequestID
	batches int
	last    int64
	bytes   int64
}

// onFollow begins to follow, or takes news of the one that is followed.
func (m *Machine) onFollow(in *Follow, out *Effects) {
	if in.Epoch < m.epoch || m.stopping || m.state == stateEnded {
		return
	}
	if in.Epoch == m.epoch && m.role == roleFollower {
		if in.PartitionEpoch >= m.lead.PartitionEpoch {
			m.followed(in)
		}
		return
	}
	switch {
	case m.state == stateIdle || m.state == stateOffline:
		m.forget()
	case m.role == roleLeader:
		m.failAll(out, fmt.Errorf("partition %s has another leader: %w", m.partition, model.ErrNotLeaderOrFollower))
		// What is under way may land yet.
		m.unsettled = true
	}
	m.endStreams(out)
	m.followers = m.followers[:0]
	m.asking = asking{}
	m.role, m.epoch, m.why = roleFollower, in.Epoch, nil
	m.refusals, m.up.attempts = 0, 0
	m.up.leader = in.Leader
	m.followed(in)
	m.openAnew(out)
}

// followed takes what the metadata says of the partition.
func (m *Machine) followed(in *Follow) {
	if in.Leader != m.up.leader {
		m.endSession()
		m.up.leader = in.Leader
	}
	m.relied(in.PartitionEpoch, in.ISR, in.ELR)
	m.lead = Lead{
		Epoch: in.Epoch, PartitionEpoch: in.PartitionEpoch, BrokerEpoch: model.NoBrokerEpoch,
		ISR: slices.Clone(in.ISR), Replicas: slices.Clone(in.Replicas), Adding: in.Adding, Target: in.Target,
	}
	m.setISR(in.ISR)
}

// onReached takes that the host has a link to a node, or has lost it.
func (m *Machine) onReached(in *Reached) {
	at := slices.Index(m.up.reached, in.Node)
	switch {
	case in.Up && at < 0:
		m.up.reached = append(m.up.reached, in.Node)
	case !in.Up && at >= 0:
		m.up.reached = slices.Delete(m.up.reached, at, at+1)
	}
	// A link that comes up is a new one: what a session was on has gone.
	if m.role == roleFollower && in.Node == m.up.leader && m.up.state != sessionFenced {
		m.endSession()
		m.up.attempts = 0
	}
}

// endSession lets nothing of the present subscription count any more. What is
// under way to the store stays so.
func (m *Machine) endSession() {
	m.up.state = sessionNone
	m.up.highWater, m.up.logStart = 0, 0
}

// subscribe asks the leader for its log, from where this one ends.
func (m *Machine) subscribe(now time.Time, out *Effects) {
	if m.state != stateFollowing || m.up.state != sessionNone || m.stopping || m.up.copies.len() > 0 ||
		m.up.leader == model.NoNode || !slices.Contains(m.up.reached, m.up.leader) {
		return
	}
	m.up.session++
	m.up.state = sessionAsked
	m.up.attempts++
	m.up.told, m.up.under = m.counted(), m.lead.PartitionEpoch
	if m.whole.lacks || m.whole.damaged >= 0 {
		m.up.told = Lacking
	}
	m.owes(m.up.told)
	last := m.epochs.last()
	if m.stored == m.logStart {
		last = model.NoEpoch // whatever is remembered of records that were trimmed
	}
	out.Subscription = &Subscription{
		Leader: m.up.leader, Session: m.up.session, Epoch: m.epoch, PartitionEpoch: m.up.under,
		LEO: m.stored, Counted: m.up.told, LastEpoch: last, LogStart: m.logStart,
	}
	// No wait is without an end: a link that is silent is no evidence of anything.
	out.setTimer(TimerSubscribe, now.Add(m.limits.AnswerWait))
}

// subscribeLater ends the session, and lets the next wait, longer each time until
// something is stored.
func (m *Machine) subscribeLater(now time.Time, out *Effects) {
	m.endSession()
	m.up.state = sessionHeld
	out.setTimer(TimerSubscribe, now.Add(m.backoff(m.up.attempts)))
}

// mayAsk ends the wait for a subscription, or for the answer to one.
func (m *Machine) mayAsk() {
	if m.up.state == sessionHeld || m.up.state == sessionAsked {
		m.endSession()
	}
}

// onSubscribed takes the leader's verdict.
func (m *Machine) onSubscribed(now time.Time, in *Subscribed, out *Effects) {
	if m.role != roleFollower || m.state != stateFollowing || m.up.state != sessionAsked ||
		in.Node != m.up.leader || in.Session != m.up.session {
		return
	}
	switch {
	case in.Verdict == VerdictFenced && in.Epoch > m.epoch:
		m.endSession()
		m.up.state = sessionFenced
	case in.Epoch != m.epoch:
		m.subscribeLater(now, out)
	case in.Verdict == VerdictAccepted:
		m.up.state = sessionAccepted
		m.up.logStart = in.LogStart
	case in.Verdict == VerdictDiverges:
		m.cut(now, in, out)
	case in.Verdict == VerdictReset && in.LogStart >= m.stored && in.LogStart > m.logStart:
		m.startAt(in.LogStart, out)
	default:
		m.subscribeLater(now, out)
	}
}

// cut drops what the leader's log does not have: from the end of the largest epoch
// that both know, or, where the leader's is not known here, from the end of the
// largest smaller one, and then the leader is asked again. (KIP-101, KIP-279)
func (m *Machine) cut(now time.Time, in *Subscribed, out *Effects) {
	own := m.epochs.end(in.End.Epoch, m.stored)
	to := min(in.End.EndOffset, m.stored)
	if own.Epoch != model.NoEpoch {
		to = min(to, own.EndOffset)
	}
	if in.End.Epoch == model.NoEpoch || in.End.EndOffset < 0 {
		to = m.stored // it says nothing to cut by
	}
	if to < m.logStart {
		// Below it nothing can be dropped, nor be had from the leader: this log
		// goes on where it starts when the leader's has come as far.
		to = m.logStart
	}
	if to >= m.stored {
		m.subscribeLater(now, out)
		return
	}
	out.Notices = append(out.Notices, Notice{Kind: NoticeTruncated, From: to, To: m.stored,
		Text: fmt.Sprintf("the log of the leader of epoch %d is another one from there on", m.epoch)})
	if to < m.hw {
		out.Notices = append(out.Notices, Notice{Kind: NoticeLost, From: to, To: m.hw,
			Text: fmt.Sprintf("the leader of epoch %d does not have records that had been committed", m.epoch)})
	}
	m.endSession()
	m.state = stateCutting
	m.unknow()
	m.endsAt(to)
	out.Truncate = &TruncateLog{Gen: m.gen, Epoch: m.epoch, To: to}
}

// truncated opens the log anew, so that epochs and producers are what is left of
// them. (F10)
func (m *Machine) truncated(now time.Time, in *Truncated, out *Effects) {
	if in.Gen != m.gen || m.state != stateCutting {
		return
	}
	if in.Fault != FaultNone {
		m.reopen(now, out, fmt.Sprintf("truncation failed: %v", causeOf(in.Fault, in.Err)))
		return
	}
	m.endsAt(in.LEO)
	m.openAnew(out)
}

// startAt empties the log, which has nothing of what the leader's has.
func (m *Machine) startAt(to int64, out *Effects) {
	out.Notices = append(out.Notices, Notice{Kind: NoticeTruncated, From: m.logStart, To: to,
		Text: "the leader's log starts above"})
	m.endSession()
	m.state = stateCutting
	m.unknow()
	out.Trims = append(out.Trims, TrimLog{Gen: m.gen, ID: startTrim, To: to})
}

// started answers the trim of startAt.
func (m *Machine) started(now time.Time, in *TrimDone, out *Effects) {
	if in.Fault != FaultNone {
		m.reopen(now, out, fmt.Sprintf("trim failed: %v", causeOf(in.Fault, in.Err)))
		return
	}
	m.early = nil // what was refused may be in what has gone
	m.openAnew(out)
}

// unknow lets nothing that is remembered of the log count when it is opened again,
// but the high watermark, below which it does not change.
func (m *Machine) unknow() {
	m.known = false
	m.producers.reset()
	m.early = nil
}

// onReplicate takes batches of the leader's.
func (m *Machine) onReplicate(now time.Time, in *Replicate, out *Effects) {
	if m.role != roleFollower || m.state != stateFollowing || m.stopping || m.up.state != sessionAccepted ||
		in.Session != m.up.session || in.Epoch != m.epoch || in.From < m.next {
		out.Releases = append(out.Releases, in.ID)
		return
	}
	if m.startsWithin(in) {
		out.Releases = append(out.Releases, in.ID)
		m.beginAnew(out)
		return
	}
	bytes, err := m.usable(in)
	if err != nil {
		out.Releases = append(out.Releases, in.ID)
		m.damaged(now, err, out)
		return
	}
	m.up.highWater = max(m.up.highWater, in.HighWater)
	m.up.logStart = max(m.up.logStart, in.LogStart)
	if len(in.Batches) == 0 {
		out.Releases = append(out.Releases, in.ID)
		return
	}
	if m.up.copies.len() == 0 {
		m.progressAt = now
		m.armStall(now, out)
	}
	last := in.Batches[len(in.Batches)-1].LastOffset
	*m.up.copies.push() = copied{id: in.ID, batches: len(in.Batches), last: last, bytes: bytes}
	for i := range in.Batches {
		*m.up.batches.push() = in.Batches[i]
	}
	m.up.bytes += bytes
	out.Copies = append(out.Copies, CopyLog{
		ID: in.ID, Gen: m.gen, Base: m.next, Last: last, Bytes: int(bytes), Epoch: m.epoch, Machine: m.needsMachine(),
	})
	m.next = last + 1
}

// startsWithin reports whether this log holds nothing, and starts within a batch of the
// leader's, which it has lost.
func (m *Machine) startsWithin(in *Replicate) bool {
	return len(in.Batches) > 0 && m.logStart == m.stored && m.up.copies.len() == 0 &&
		in.Batches[0].BaseOffset < m.stored && in.Batches[0].LastOffset >= m.stored
}

// beginAnew has the log deleted, which can begin nowhere but where it does, and goes on as a
// replica that never had one. Before it has taken as much as it had, it does not lead.
func (m *Machine) beginAnew(out *Effects) {
	out.Notices = append(out.Notices, Notice{Kind: NoticeTruncated, From: m.logStart, To: m.stored,
		Text: "it holds nothing, and starts within a batch of the leader's: it begins anew"})
	m.endSession()
	m.state = stateCutting
	m.owes(m.stored)
	m.whole.lacks, m.hw = true, 0
	m.forget()
	out.Delete = &DeleteLog{Gen: m.gen}
}

// deleted opens the new log.
func (m *Machine) deleted(in *Deleted, out *Effects) {
	if in.Gen == m.gen && m.state == stateCutting {
		m.openAnew(out)
	}
}

// usable is the length of the batches, or why they cannot be what follows here.
func (m *Machine) usable(in *Replicate) (int64, error) {
	if in.From > m.next {
		return 0, fmt.Errorf("the leader's log goes on at offset %d, this one ends at %d", in.From, m.next)
	}
	if in.LogStart > m.next && len(in.Batches) == 0 {
		return 0, fmt.Errorf("the leader's log starts at offset %d, this one ends at %d", in.LogStart, m.next)
	}
	bytes, next, epoch := int64(0), m.next, m.lastEpoch()
	for i := range in.Batches {
		b := &in.Batches[i]
		if b.BaseOffset < next || b.LastOffset < b.BaseOffset || b.LeaderEpoch < epoch || b.LeaderEpoch > in.Epoch || b.Bytes <= 0 {
			return 0, fmt.Errorf("a batch of epoch %d from %d to %d does not follow epoch %d, offset %d", b.LeaderEpoch, b.BaseOffset, b.LastOffset, epoch, next)
		}
		bytes, next, epoch = bytes+int64(b.Bytes), b.LastOffset+1, b.LeaderEpoch
	}
	if n := m.up.copies.len(); n > 0 && len(in.Batches) > 0 && (n >= m.limits.InFlightBatches || m.up.bytes+bytes > m.limits.InFlightBytes) {
		return 0, fmt.Errorf("%d messages of %d bytes are under way to the store", n, m.up.bytes)
	}
	return bytes, nil
}

// lastEpoch is the epoch of the last record with what is under way.
func (m *Machine) lastEpoch() model.LeaderEpoch {
	if n := m.up.batches.len(); n > 0 {
		return m.up.batches.at(n - 1).LeaderEpoch
	}
	return m.epochs.last()
}

// onDamaged takes that what came in a session cannot be used.
func (m *Machine) onDamaged(now time.Time, in *Damaged, out *Effects) {
	if m.role == roleFollower && m.state == stateFollowing && in.Session == m.up.session &&
		(m.up.state == sessionAsked || m.up.state == sessionAccepted) {
		m.damaged(now, in.Err, out)
	}
}

func (m *Machine) damaged(now time.Time, err error, out *Effects) {
	out.Notices = append(out.Notices, Notice{Kind: NoticeFailed, From: m.stored, To: m.next, Err: err, Text: "follow the leader"})
	m.subscribeLater(now, out)
}

// copyDone takes the store's answer to one or more adjacent copies.
func (m *Machine) copyDone(now time.Time, in *AppendDone, out *Effects) {
	m.progressAt = now
	if in.Fault != FaultNone {
		m.reopen(now, out, fmt.Sprintf("append at %d failed: %v", in.Base, causeOf(in.Fault, in.Err)))
		return
	}
	if m.up.copies.len() == 0 || in.Base != m.stored || in.LEO != in.Last+1 || in.LEO > m.next {
		m.reopen(now, out, fmt.Sprintf("the store acknowledged %d to %d out of turn", in.Base, in.Last))
		return
	}
	for m.up.copies.len() > 0 && m.up.copies.at(0).last <= in.Last {
		m.copyLanded(now, out)
	}
	m.durable = max(m.durable, min(in.Durable, m.stored))
	if in.Machine {
		m.durable = m.stored
	}
	m.fruitless, m.up.attempts = 0, 0
	if m.sinceSnapshot >= m.limits.SnapshotAfter {
		m.putSnapshot(now, out)
	}
}

// copyLanded moves the oldest copy under way to what is stored.
func (m *Machine) copyLanded(now time.Time, out *Effects) {
	c := *m.up.copies.at(0)
	m.up.copies.drop()
	for range c.batches {
		m.learn(now, m.up.batches.at(0))
		m.up.batches.drop()
	}
	m.stored = c.last + 1
	m.up.bytes -= c.bytes
	out.Releases = append(out.Releases, c.id)
}

// learn takes what a batch of the log says of producers and epochs. One that does
// not follow its producer's last is taken all the same: its leader has decided. (H5)
func (m *Machine) learn(now time.Time, b *recordbatch.Info) {
	m.producers.replay(now, b)
	m.epochs = m.epochs.assigned(b.LeaderEpoch, b.BaseOffset)
	m.sinceSnapshot++
}

// dropCopies lets go of what is under way to the store. What of it lands is found
// when the log is opened again.
func (m *Machine) dropCopies(out *Effects) {
	if m.up.copies.len() == 0 {
		return
	}
	m.unsettled = true
	for m.up.copies.len() > 0 {
		out.Releases = append(out.Releases, m.up.copies.at(0).id)
		m.up.copies.drop()
	}
	for m.up.batches.len() > 0 {
		m.up.batches.drop()
	}
	m.up.bytes = 0
	m.next = m.stored
}

// follow does what any input may have made possible for a follower.
func (m *Machine) follow(now time.Time, out *Effects) {
	if m.state != stateFollowing {
		return
	}
	m.hw = max(m.hw, min(m.up.highWater, m.stored))
	m.caughtUp()
	if counted := m.counted(); m.up.state == sessionAccepted && (counted > m.up.told || m.lead.PartitionEpoch > m.up.under) {
		m.up.told, m.up.under = max(m.up.told, counted), m.lead.PartitionEpoch
		m.owes(m.up.told)
		out.setAck(Ack{Leader: m.up.leader, Session: m.up.session, Epoch: m.epoch, PartitionEpoch: m.up.under, LEO: m.up.told})
	}
	if to := min(m.up.logStart, m.hw); to > m.logStart && len(m.trims) == 0 && !m.stopping {
		m.trims = append(m.trims, pendingTrim{Trim: Trim{ID: ownTrim, To: to}, held: true, own: true})
		m.trimHeld(now, out)
	}
	m.subscribe(now, out)
}

// followedTrim answers a trim that follows the leader's.
func (m *Machine) followedTrim(now time.Time, in *TrimDone, out *Effects) {
	if in.Fault == FaultNone {
		m.raiseLogStart(now, in.LogStart, out)
		return
	}
	m.up.logStart = 0 // the leader's next word brings it back
	out.Notices = append(out.Notices, Notice{Kind: NoticeFailed, Err: causeOf(in.Fault, in.Err), Text: "trim the log as the leader did"})
	m.reopenIfGone(now, in.Fault, in.Err, "trim", out)
}

// LastSession is the last session that was drawn.
func (m *Machine) LastSession() Session { return m.up.session }

// A follower takes no trims of clients, so that its own have these names.
const (
	ownTrim   RequestID = iota // as the leader did
	startTrim                  // to start where the leader's log does
)
