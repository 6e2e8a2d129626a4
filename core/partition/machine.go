package partition

import (
	"errors"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// state is where a machine is in its life.
type state int8

const (
	stateIdle      state = iota // neither leads nor follows
	stateOpening                // OpenLog or Scan is to be answered
	stateBackoff                // the log is opened again when TimerBackoff fires
	stateLeading                // open, and appends go to the store
	stateFollowing              // open, and the leader's batches go to the store
	stateCutting                // TruncateLog, or the trim that empties the log, is to be answered
	stateDraining               // an append was refused; those behind it are awaited
	stateStalled                // refused appends are sent again when TimerBackoff fires
	stateOffline                // broken until a higher leader epoch arrives
	stateEnded                  // Close was asked for
)

// role is what a replica is by the metadata.
type role int8

const (
	roleNone role = iota
	roleLeader
	roleFollower
)

// Machine is one replica. It is a value that one owner steps; nothing in it is
// safe for concurrent use.
type Machine struct {
	partition model.Partition
	node      model.NodeID
	limits    Limits
	settings  Settings

	role     role
	state    state
	stopping bool
	why      error // for stateOffline, and while the log cannot be opened
	epoch    model.LeaderEpoch
	isr      []model.NodeID
	minISR   int // in effect
	lead     Lead

	// Of a leader.
	followers []follower // in the order of the assignment
	asking    asking
	// first is where the batch begins that the log start is in, which may be below it; -1:
	// that is not known. It is looked for where a follower lacks that batch.
	first     int64
	seeks     bool      // a Scan for it is under way
	seeksFrom int64     // the log start that it is of
	lagAt     time.Time // when TimerLag fires; zero: not set
	// Of a follower.
	up following

	gen Generation
	// known: the offsets and the producers below are those of the log, so that
	// opening it again only needs to settle what is under way.
	known bool
	// unsettled: appends were let go of that may have landed. What the log holds above
	// what is known is theirs, and is taken when the log is opened.
	unsettled  bool
	logStart   int64
	stored     int64 // the log end by what the store acknowledged
	durable    int64 // below it, all survives loss of power
	next       int64 // the log end with what is under way
	hw         int64
	epochStart int64
	epochs     *epochCache
	producers  *producers
	// early is the producers whose batches were turned away before producers was
	// read; nil while there are none.
	early *producers

	whole    whole
	opening  opening
	drain    drain
	inflight ring[entry] // submitted and not acknowledged by the store, in offset order
	// waiting are acks=all clients whose batches the store has acknowledged, and
	// which wait for the high watermark. No more are taken at QueuedBatches; those
	// taken before may come to it yet, so that there are at most InFlightBatches and
	// QueuedBatches more. None holds bytes: the payload was released.
	waiting ring[waiter]
	queue   ring[queued] // no offset yet
	repeats []repeat     // answered when the batch that they repeat is
	trims   []pendingTrim

	inflightBytes int64
	queuedBytes   int64
	fruitless     int // reopenings since the store last did what it was asked
	refusals      int // refusals as invalid since then

	ails           bool      // the store does not serve
	doubt          bool      // others may lead by now
	standing       standing  // of a leader, meanwhile
	progressAt     time.Time // when the store last answered an append, or got its first
	stallArmed     bool
	deadlineAt     time.Time // when TimerDeadline fires; zero: not set
	flushing       bool
	flushHeld      bool // until TimerFlush
	retaining      bool
	freed          int64 // the log start when a follower last let the store free room
	retainHeld     bool  // until a snapshot is stored
	snapshotting   bool
	snapshotOffset int64 // of the last snapshot that was asked for
	snapshotSafe   int64 // of the last one that is known to be stored
	sinceSnapshot  int
	// timersArmed: the timers that repeat have been set.
	timersArmed bool
}

// entry is an append under way.
type entry struct {
	id       RequestID
	batch    recordbatch.Info
	acks     model.Acks
	answered bool
	deadline time.Time
	logTime  int64
	before   undo // of the producer
}

// waiter is a client that waits for the high watermark.
type waiter struct {
	id       RequestID
	weak     bool // it has asked for acks 0 or 1
	base     int64
	last     int64
	deadline time.Time
	logTime  int64
}

// queued is an append that has no offset yet.
type queued struct {
	id       RequestID
	batch    recordbatch.Info
	acks     model.Acks
	deadline time.Time
	under    *model.LeaderEpoch
	logTime  int64
}

// pendingTrim is a trim that is not answered yet. While it is held, a snapshot
// has to be stored first.
type pendingTrim struct {
	Trim
	held bool
	own  bool // a follower's, of which no client has to hear
}

// repeat is a client that sent a batch which is already in the log, or on its
// way there.
type repeat struct {
	waiter
	acks model.Acks
}

// New makes a machine that neither leads nor follows, and knows nothing of its log.
func New(cfg Config) *Machine {
	return &Machine{
		partition: cfg.Partition,
		node:      cfg.Node,
		limits:    cfg.Limits,
		settings:  cfg.Settings,
		epoch:     model.NoEpoch,
		minISR:    1,
		up:        following{leader: model.NoNode, session: cfg.Session},
		epochs:    &epochCache{},
		producers: newProducers(cfg.Limits.Producers),
		first:     -1,
		whole:     whole{damaged: -1},
	}
}

// Step applies one input and adds what is to be done to out. It never blocks
// and never fails: what goes wrong is an answer to a client, or a notice.
func (m *Machine) Step(now time.Time, in Input, out *Effects) {
	switch in := in.(type) {
	case *Append:
		m.append(now, in, out)
	case *AppendDone:
		m.appendDone(now, in, out)
	case *Lead:
		m.onLead(in, out)
	case *Resign:
		m.onResign(in, out)
	case *Configure:
		m.configure(now, in, out)
	case *Stop:
		m.stopping = true
	case *Opened:
		m.opened(now, in, out)
	case *Scanned:
		m.scanned(now, in, out)
	case *FlushDone:
		m.flushDone(now, in, out)
	case *Trim:
		m.trim(now, in, out)
	case *TrimDone:
		m.trimDone(now, in, out)
	case *Retained:
		m.retained(now, in, out)
	case *SnapshotDone:
		m.snapshotDone(now, in, out)
	case *ReadFailed:
		m.readFailed(now, in, out)
	case *Corrupt:
		m.onCorrupt(in)
	case *Restarted:
		m.restarted(now, out)
	case *Ailing:
		m.ails = in.Ails
	case *Doubted:
		m.doubted(in, out)
	case *Refused:
		m.remember(now, &in.Batch)
	case *Acknowledged:
		m.acknowledged(in)
	case *Fired:
		m.fired(now, in.Timer, out)
	default:
		m.stepReplication(now, in, out)
	}
	m.settle(now, out)
}

// stepReplication is Step for what has to do with other replicas.
func (m *Machine) stepReplication(now time.Time, in Input, out *Effects) {
	switch in := in.(type) {
	case *Replicate:
		m.onReplicate(now, in, out)
	case *Follow:
		m.onFollow(in, out)
	case *Reached:
		m.onReached(in)
	case *Subscribed:
		m.onSubscribed(now, in, out)
	case *Damaged:
		m.onDamaged(now, in, out)
	case *Truncated:
		m.truncated(now, in, out)
	case *Deleted:
		m.deleted(in, out)
	case *Subscribe:
		m.onSubscribe(in, out)
	case *Unsubscribed:
		m.onUnsubscribed(in)
	case *Altered:
		m.altered(now, in, out)
	}
}

// settle does what any input may have made possible.
func (m *Machine) settle(now time.Time, out *Effects) {
	switch m.role {
	case roleLeader:
		if m.open() {
			m.judgePending(out)
			m.watchLag(now, out)
		}
		m.advance(out)
		m.resign(now, out)
		m.alter(now, out)
		m.submitQueued(now, out)
		m.watchCommits(now, out)
	case roleFollower:
		m.follow(now, out)
	}
	m.flushIfNeeded(out)
	m.stopIfDone(now, out)
}

// View is the machine as readers see it.
func (m *Machine) View() View {
	v := View{
		Partition:  m.partition,
		Epoch:      m.epoch,
		EpochStart: m.epochStart,
		LogStart:   m.logStart,
		First:      m.logStart,
		HighWater:  min(m.hw, m.stored),
		LastStable: min(m.hw, m.stored),
		LEO:        m.stored,
		Gen:        m.gen,
		Why:        m.why,
		CutOff:     m.standing.cutOff,
		epochs:     m.epochs,
		under:      m.lead.PartitionEpoch,
		backed:     len(m.lead.Replicas) > 1,
		damaged:    m.whole.damaged >= 0 && m.role == roleLeader && !m.yields(),
	}
	if m.first >= 0 {
		v.First = m.first
	}
	if v.Follows, v.open = m.role == roleFollower, m.open(); v.Follows {
		v.known = m.up.highWater
	}
	switch {
	case m.state == stateIdle || m.state == stateEnded:
	case m.state == stateOffline:
		v.Status = StatusOffline
	case v.Follows:
		v.Status = StatusFollowing
		v.readable = m.known
	case m.open():
		v.Status = StatusServing
	case m.known:
		v.Status = StatusReopened
	default:
		v.Status = StatusOpening
	}
	return v
}

// Leads reports whether this replica is the leader, serving or about to.
func (m *Machine) Leads() bool { return m.role == roleLeader && m.state != stateEnded }

// Active reports whether this replica leads or follows, or is about to: only then it
// has an opening of the log.
func (m *Machine) Active() bool { return m.role != roleNone && m.state != stateEnded }

// Ended reports that Close was asked for.
func (m *Machine) Ended() bool { return m.state == stateEnded }

// forget drops what was known of the log: another leader may have written it. What is
// below the high watermark is the same under every leader.
func (m *Machine) forget() {
	m.known, m.timersArmed = false, false
	m.producers.reset()
	m.early = nil
	m.epochs = &epochCache{}
	m.logStart, m.stored, m.durable, m.next = 0, 0, 0, 0
	m.first = -1
	m.freed = 0
	m.unsettled = false
}

// onResign ends leading and following.
func (m *Machine) onResign(in *Resign, out *Effects) {
	if in.Epoch < m.epoch || m.state == stateEnded {
		return
	}
	m.epoch = in.Epoch
	if m.state == stateIdle {
		return
	}
	m.failAll(out, fmt.Errorf("partition %s has another leader: %w", m.partition, model.ErrNotLeaderOrFollower))
	m.endReplication(out)
	m.role, m.state, m.why = roleNone, stateIdle, nil
	out.Close = &Close{Gen: m.gen}
	m.gen++
	m.forget()
}

// goOffline stops serving until a higher leader epoch arrives.
func (m *Machine) goOffline(out *Effects, why error) {
	m.failAll(out, fmt.Errorf("partition %s went offline: %w: %w", m.partition, why, model.ErrStorage))
	m.endReplication(out)
	m.state, m.why = stateOffline, why
	m.known = false
	m.gen++ // what is still under way is not listened to any more
	out.Notices = append(out.Notices, Notice{Kind: NoticeOffline, Err: why, Text: "the replica does not serve"})
}

// endReplication lets go of what other replicas are sent, or send.
func (m *Machine) endReplication(out *Effects) {
	m.endStreams(out)
	m.asking = asking{}
	m.dropCopies(out)
	m.endSession()
}

// configure takes new settings.
func (m *Machine) configure(now time.Time, in *Configure, out *Effects) {
	if in.Settings != m.settings {
		// Only then: timers that every change of the metadata puts off never fire.
		m.timersArmed = false
	}
	m.settings = in.Settings
	gen := m.gen
	switch role := in.Role.(type) {
	case *Lead:
		m.onLead(role, out)
	case *Follow:
		m.onFollow(role, out)
	}
	m.minISR = image.EffectiveMinISR(in.Settings.MinISR, len(m.lead.Replicas)-m.lead.Adding, m.lead.Target)
	m.armTimers(now, out)
	if in.Reopen && m.gen == gen && m.open() && !m.stopping {
		m.openAnew(out)
	}
}

// open reports whether calls on the log may be made.
func (m *Machine) open() bool {
	return m.state == stateLeading || m.state == stateDraining || m.state == stateStalled || m.state == stateFollowing
}

// stopIfDone ends a machine that was told to stop, when nothing is under way.
func (m *Machine) stopIfDone(now time.Time, out *Effects) {
	if !m.stopping || m.state == stateEnded {
		return
	}
	settled := m.state == stateLeading || m.state == stateFollowing
	if settled && (m.inflight.len() > 0 || m.queue.len() > 0 || m.up.copies.len() > 0 || m.flushing || m.snapshotting) {
		return
	}
	if m.state == stateDraining || m.state == stateStalled {
		return
	}
	if settled && m.snapshotDue() {
		m.putSnapshot(now, out)
		return
	}
	m.failAll(out, errStopping(m.partition))
	m.endReplication(out)
	m.state = stateEnded
	out.Close = &Close{Gen: m.gen}
}

func errStopping(p model.Partition) error {
	return fmt.Errorf("partition %s is closing: %w", p, model.ErrNotLeaderOrFollower)
}

// errForeign: the log holds what this replica did not write.
var errForeign = errors.New("the log holds batches that this leader did not write")
