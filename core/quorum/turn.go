package quorum

import (
	"fmt"
	"io"
	"math"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/loop"
)

// unsettled is leadFrom while the end of the log is not known.
const unsettled = math.MaxUint64

// Input is what the loop takes: one of these.
type Input struct {
	request *request
	stop    bool
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
	n.now = now
	if err := n.turn(burst); err != nil && !n.ended {
		n.end(err)
	}
}

// Deadline implements loop.Body.
func (n *Node) Deadline() (time.Time, bool) {
	at := n.nextTick
	if due, ok := n.machine.Deadline(); ok && due.Before(at) {
		at = due
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
		n.take(in)
	}
	if n.ended {
		return nil
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
		n.end(nil)
	}
	return nil
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
		return nil
	}
	if err := n.raft.Campaign(); err != nil {
		return fmt.Errorf("campaign: %w", err)
	}
	return n.ready()
}

func (n *Node) take(in Input) {
	switch {
	case in.request != nil:
		n.accept(in.request)
	case in.stop:
		n.stopping = true
	}
}

func (n *Node) tick() {
	n.raft.Tick()
	n.tickReserve()
}

// onlyVoter says whether nobody else's vote is needed.
func (n *Node) onlyVoter() bool {
	return len(n.conf.GetVoters()) == 1 && n.conf.GetVoters()[0] == n.raftID && len(n.conf.GetVotersOutgoing()) == 0
}

// end answers everyone who still waits.
func (n *Node) end(failure error) {
	n.failure, n.ended = failure, true
	n.leading.Store(false)
	n.step(controller.Resign{})
	n.release()
	held := n.held
	n.held = nil
	for _, r := range held {
		n.accept(r)
	}
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
		n.step(controller.Resign{})
	}
	n.elected, n.leadFrom = leader, 0
	if !leader && soft.Lead != raft.None {
		held := n.held
		n.held = nil
		for _, r := range held { // there is another to ask
			n.accept(r)
		}
	}
}

// maybeLead begins to decide once everything that was committed before is in the
// image: the first entry of a leader's term follows what earlier leaders left.
func (n *Node) maybeLead() error {
	if !n.elected || n.leading.Load() || n.term != n.store.hard.GetTerm() || n.applied < n.leadFrom {
		return nil
	}
	if _, err := io.ReadFull(n.rand, n.session[:]); err != nil {
		return fmt.Errorf("draw a session: %w", err)
	}
	n.leading.Store(true)
	n.step(controller.Lead{Image: n.Image()})
	n.log.Info("active controller", "broker", n.cfg.NodeID, "cluster", string(n.identity.ClusterID), "offset", n.Image().Offset)
	held := n.held
	n.held = nil
	for _, r := range held {
		n.accept(r)
	}
	return nil
}

// apply replays committed entries, and publishes what they lead to.
func (n *Node) apply(entries []*raftpb.Entry) error {
	img := n.Image()
	for _, e := range entries {
		if e.GetIndex() <= n.applied {
			continue
		}
		if e.GetType() != raftpb.EntryNormal {
			return fmt.Errorf("entry %d changes the membership, which this release cannot do", e.GetIndex())
		}
		next, own, err := n.replayEntry(img, e)
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
	return nil
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
	n.image.Store(img)
	for _, f := range n.onImage {
		f(img)
	}
}
