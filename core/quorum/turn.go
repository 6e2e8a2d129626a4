package quorum

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/model"
)

// unsettled is leadFrom while the end of the log is not known.
const unsettled = math.MaxUint64

// handOverTime bounds how long a leader that is to end waits for another.
const handOverTime = 500 * time.Millisecond

// Input is what the loop takes: one of these.
type Input struct {
	request  *request
	received *received
	question *question
	asked    *asked
	stop     bool
}

// Loop is the node's loop, for a simulator that turns it itself instead of calling Run.
// It has ended when Ended says so.
func (n *Node) Loop() *loop.Loop[Input] { return n.loop }

// Stop tells the node to end. Run does it when its context ends.
func (n *Node) Stop() { n.loop.Complete(Input{stop: true}) }

// Ended says whether the node takes part no longer, and what ended it if that was not
// Stop. For who turns the loop, between two turns.
func (n *Node) Ended() (bool, error) { return n.ended, n.failure }

// Step implements loop.Body. What has arrived comes before what is due, so that a node
// that was slow takes no heartbeat for missing that waits in its mailbox.
func (n *Node) Step(now time.Time, burst []Input) {
	slept := now.Sub(n.now)
	n.now = now
	if n.elected && !n.onlyVoter() && slept >= n.silenceMax() {
		n.wake(slept)
	}
	if err := n.turn(burst); err != nil && !n.ended {
		n.end(err)
	}
}

// silenceMax is for how long a leader may do nothing and be sure that it leads still: voters that
// do not hear it elect no other for an election timeout, and heard it last up to a tick before it
// fell asleep, by ticks of their own.
func (n *Node) silenceMax() time.Duration {
	return time.Duration(max(1, n.cfg.ElectionTicks-2)) * n.cfg.Tick
}

// wake is for a leader that did nothing for so long that another may have been elected: its
// process or its machine was paused. It decides nothing, and says of no broker that it may go on,
// before a majority has taken an entry of its term once more. What Raft takes no proposal for
// is a leader that hands over or is removed: then it leads no more.
func (n *Node) wake(slept time.Duration) {
	n.log.Warn("the active controller did nothing for a while: it asks whether it is that still", "broker", n.cfg.NodeID, "slept", slept)
	n.leadAnew()
	_ = n.raft.Propose(nil)
}

// Deadline implements loop.Body.
func (n *Node) Deadline() (time.Time, bool) {
	at := n.nextTick
	if due, ok := n.machine.Deadline(); ok && due.Before(at) {
		at = due
	}
	if n.stopping {
		for _, due := range []time.Time{n.handing.Add(handOverTime / 2), n.handing.Add(handOverTime)} {
			if due.After(n.now) && due.Before(at) {
				at = due
			}
		}
	}
	return at, !n.ended
}

// Done implements loop.Body.
func (n *Node) Done() bool { return n.ended }

func (n *Node) turn(burst []Input) error {
	if err := n.begin(); err != nil {
		return err
	}
	for _, in := range burst {
		if err := n.take(in); err != nil {
			return err
		}
	}
	if n.ended {
		return nil
	}
	if latest := n.now.Add(n.cfg.Tick); n.nextTick.After(latest) {
		n.nextTick = latest // the clock was set back
	}
	if !n.now.Before(n.nextTick) {
		n.nextTick = n.now.Add(n.cfg.Tick) // a pause is one tick
		n.tick()
	}
	if at, ok := n.machine.Deadline(); ok && !n.now.Before(at) {
		n.step(controller.Due{})
	}
	if err := n.ready(); err != nil {
		return err
	}
	if n.stopping {
		return n.stop()
	}
	return nil
}

// stop ends the node, or has it wait for another to lead in its place: until what is under
// way is committed, and then until one does, for a bounded time.
func (n *Node) stop() error {
	if n.handing.IsZero() {
		n.handing = n.now
	}
	waited := n.now.Sub(n.handing)
	if n.elected && waited < handOverTime {
		if len(n.replies) > 0 && waited < handOverTime/2 && n.leading.Load() {
			return nil
		}
		if n.handOver() {
			if err := n.ready(); err != nil || n.elected {
				return err
			}
		}
	}
	n.end(nil)
	return nil
}

// handOver has the voter that is farthest lead instead of this node, and says whether there
// is one that may.
func (n *Node) handOver() bool {
	if n.raft.BasicStatus().LeadTransferee != raft.None {
		return true
	}
	best := n.farthest()
	if best == raft.None {
		return false
	}
	n.leadAnew()
	n.raft.TransferLeader(best)
	return true
}

// passOn has the voter that is farthest ask for votes at once, where this node leads and can keep
// nothing any more: it is silent from now on, which others would notice much later. That one is a
// candidate as any other, and nothing that was not saved is told.
func (n *Node) passOn() error {
	status, best := n.raft.BasicStatus(), n.farthest()
	if status.RaftState != raft.StateLeader || status.GetTerm() != n.store.saved.GetTerm() || best == raft.None {
		return nil
	}
	return n.send([]*raftpb.Message{{
		Type: raftpb.MsgTimeoutNow.Enum(), To: proto.Uint64(best), From: proto.Uint64(n.raftID), Term: proto.Uint64(status.GetTerm()),
	}})
}

// farthest is the other voter whose log reaches farthest, of those that were heard lately, or None.
func (n *Node) farthest() (best uint64) {
	var match uint64
	n.raft.WithProgress(func(id uint64, t raft.ProgressType, pr tracker.Progress) {
		if id != n.raftID && t == raft.ProgressTypePeer && pr.RecentActive && pr.Match > match {
			best, match = id, pr.Match
		}
	})
	return best
}

// begin is the first turn: what was committed is replayed, and who needs nobody else's
// vote leads at once.
func (n *Node) begin() error {
	if n.begun {
		return nil
	}
	n.begun = true
	n.nextTick = n.now.Add(n.cfg.Tick)
	n.keepReserve()
	n.publish(n.Image())
	if err := n.ready(); err != nil {
		return err
	}
	if !n.onlyVoter() {
		n.tickAnnounce()
		return nil
	}
	if err := n.raft.Campaign(); err != nil {
		return fmt.Errorf("campaign: %w", err)
	}
	return n.ready()
}

func (n *Node) take(in Input) error {
	switch {
	case in.request != nil:
		n.accept(in.request)
	case in.received != nil:
		if n.ended {
			n.taken(in.received)
			return nil
		}
		return n.receive(in.received)
	case in.question != nil:
		n.answer(in.question)
	case in.asked != nil:
		n.heardAnswer(in.asked)
	case in.stop:
		n.stopping = true
	}
	return nil
}

func (n *Node) tick() {
	n.raft.Tick()
	n.ledTicks++
	n.tickReserve()
	n.tickPeers()
	n.tickAnnounce()
	n.tickForwarded()
	n.acceptHeld()
	n.grow()
	n.view()
	n.noteLeader()
}

// noteLeader shows Leader who leads.
func (n *Node) noteLeader() {
	id := model.NoNode
	switch lead := n.raft.BasicStatus().Lead; {
	case n.leading.Load():
		id = n.cfg.NodeID
	case lead != n.raftID && n.hasLeader():
		id = n.nodeOf(lead)
	}
	n.leads.Store(int32(id))
}

// onlyVoter says whether nobody else's vote is needed.
func (n *Node) onlyVoter() bool {
	return len(n.conf.GetVoters()) == 1 && n.conf.GetVoters()[0] == n.raftID && len(n.conf.GetVotersOutgoing()) == 0
}

// end answers everyone who still waits.
func (n *Node) end(failure error) {
	n.failure, n.ended = failure, true
	n.leading.Store(false)
	n.abandonChange()
	n.step(controller.Resign{})
	n.release()
	for _, f := range n.forwarded {
		n.held = append(n.held, f.r)
	}
	for _, a := range n.awaiting {
		n.held = append(n.held, a.r)
	}
	n.forwarded, n.awaiting = nil, nil
	n.acceptHeld()
	close(n.stopped)
}

// ready does what Raft asks for until it asks for nothing: save, then apply,
// then answer. With one voter there is nobody to send to.
func (n *Node) ready() error {
	for {
		if err := n.maybeLead(); err != nil {
			return err
		}
		if err := n.noteReached(); err != nil {
			return err
		}
		n.release()
		if !n.raft.HasReady() {
			if n.leadFrom != unsettled {
				return nil
			}
			// Everything that Raft took is saved by now.
			last, err := n.store.mem.LastIndex()
			if err != nil {
				return fmt.Errorf("end of the metadata log: %w", err)
			}
			n.leadFrom = last
			continue
		}
		rd := n.raft.Ready()
		if err := n.store.save(rd); err != nil {
			return errors.Join(err, n.passOn())
		}
		if !raft.IsEmptySnap(rd.Snapshot) {
			if err := n.install(rd.Snapshot); err != nil {
				return err
			}
		}
		if err := n.send(rd.Messages); err != nil {
			return err
		}
		if !n.short {
			n.keepReserve()
		}
		if rd.SoftState != nil {
			n.roleChanged(rd.SoftState)
		}
		if err := n.apply(rd.CommittedEntries); err != nil {
			return err
		}
		n.raft.Advance(rd)
		if err := n.maybeSnapshot(); err != nil {
			return err
		}
	}
}

// roleChanged notes that this node was elected, or no longer leads.
func (n *Node) roleChanged(soft *raft.SoftState) {
	leader := soft.RaftState == raft.StateLeader
	if n.elected && !leader {
		n.log.Info("no longer the active controller", "broker", n.cfg.NodeID)
		n.leading.Store(false)
		n.abandonChange()
		n.step(controller.Resign{})
	}
	n.elected, n.leadFrom = leader, 0
	n.noteLeader()
	n.leaderGone()
	if !leader && soft.Lead != raft.None { // there is another to ask
		n.acceptHeld()
	}
}

// maybeLead begins to decide once everything that was committed before is in the
// image: the first entry of a leader's term follows what earlier leaders left.
func (n *Node) maybeLead() error {
	if !n.elected || n.leading.Load() || n.term != n.store.hard.GetTerm() || n.applied < n.leadFrom ||
		n.raft.BasicStatus().LeadTransferee != raft.None {
		return nil
	}
	if _, err := io.ReadFull(n.rand, n.session[:]); err != nil {
		return fmt.Errorf("draw a session: %w", err)
	}
	n.leading.Store(true)
	n.noteLeader()
	n.caughtMark = math.MaxUint64 // until a tick has passed
	n.ledTicks = 0
	n.view()
	n.step(controller.Lead{Image: n.Image()})
	n.log.Info("active controller", "broker", n.cfg.NodeID, "cluster", string(n.identity.ClusterID), "offset", n.Image().Offset)
	n.acceptHeld()
	return nil
}

// apply replays committed entries, and publishes what they lead to.
func (n *Node) apply(entries []*raftpb.Entry) error {
	n.applying = true
	defer func() { n.applying = false }()
	img := n.Image()
	for _, e := range entries {
		if e.GetIndex() <= n.applied {
			continue
		}
		var next *image.Image
		var own controller.ProposalID
		var err error
		if e.GetType() == raftpb.EntryNormal {
			next, own, err = n.replayEntry(img, e)
		} else {
			next, err = n.applyChange(img, e)
		}
		if err != nil {
			return err
		}
		img, n.applied, n.term = next, e.GetIndex(), e.GetTerm()
		n.logBytes += len(e.GetData())
		if own != 0 {
			n.step(controller.Committed{Proposal: own, Image: img})
		}
	}
	if img != n.Image() {
		n.publish(img)
	}
	if n.snapped > 0 && !isMember(n.conf, n.raftID) {
		return fmt.Errorf("its directory %s was removed from the cluster: %w", n.identity.DirectoryID, ErrRemoved)
	}
	return nil
}

// applyChange replays an entry that changes the membership, and what it says of members.
func (n *Node) applyChange(base *image.Image, e *raftpb.Entry) (*image.Image, error) {
	c := &raftpb.ConfChangeV2{}
	if e.GetType() != raftpb.EntryConfChangeV2 {
		return nil, fmt.Errorf("metadata log entry %d is of type %s, which this release never writes", e.GetIndex(), e.GetType())
	}
	if err := proto.Unmarshal(e.GetData(), c); err != nil {
		return nil, fmt.Errorf("metadata log entry %d: %w", e.GetIndex(), err)
	}
	img := base
	if len(c.GetContext()) > 0 {
		s, proposal, records, err := decodeEntry(c.GetContext())
		if err == nil {
			img, err = replay(base, e.GetIndex(), records)
		}
		if err != nil {
			return nil, fmt.Errorf("metadata log entry %d: %w", e.GetIndex(), err)
		}
		n.changed(s, proposal)
	}
	n.conf = n.raft.ApplyConfChange(c)
	n.log.Info("the membership of the quorum changed", "voters", n.nodes(n.conf.GetVoters(), img), "outgoing", n.nodes(n.conf.GetVotersOutgoing(), img),
		"learners", n.nodes(n.conf.GetLearners(), img), "offset", e.GetIndex())
	return img, nil
}

// nodes names members for the log.
func (n *Node) nodes(ids []uint64, img *image.Image) []model.NodeID {
	var out []model.NodeID
	for _, id := range ids {
		for m := range img.Members() {
			if raftID(m.Directory) == id {
				out = append(out, m.Node)
			}
		}
	}
	return out
}

// replayEntry leads from base to the image after e, and says which of this
// leader's own proposals e is, or 0.
func (n *Node) replayEntry(base *image.Image, e *raftpb.Entry) (*image.Image, controller.ProposalID, error) {
	if len(e.GetData()) == 0 {
		return base, 0, nil // a new leader's first
	}
	s, proposal, records, err := decodeEntry(e.GetData())
	if err != nil {
		return nil, 0, fmt.Errorf("metadata log entry %d: %w", e.GetIndex(), err)
	}
	img, err := replay(base, e.GetIndex(), records)
	if err != nil {
		return nil, 0, fmt.Errorf("metadata log entry %d: %w", e.GetIndex(), err)
	}
	if !n.leading.Load() || s != n.session {
		proposal = 0
	}
	return img, proposal, nil
}

func (n *Node) publish(img *image.Image) {
	old := n.image.Swap(img)
	if img.Cluster.ID == "" {
		return // a member that joins knows nothing yet
	}
	n.forgetMoved(old, img)
	for _, f := range n.onImage {
		f(img)
	}
}
