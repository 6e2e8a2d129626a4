package quorum

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/model"
)

// reached is how far the metadata log has come. It is replaced as a whole.
type reached struct {
	term uint64
	end  uint64 // of the last entry that is saved
	high uint64 // of the last entry that is committed
	// applied is the last entry that the image rests on.
	applied uint64
	// voter: this node is one, by what it has applied.
	voter bool
}

// view is how far a member is, as the leader knows it.
type view struct {
	id     model.NodeID
	dir    model.DirectoryID
	own    bool
	voter  bool
	match  uint64
	heard  time.Time // zero: not in this leader's life
	caught time.Time // when it had all that was committed; zero: never
}

// noteReached shows Status what is saved and committed now.
func (n *Node) noteReached() error {
	last, err := n.store.mem.LastIndex()
	if err != nil {
		return fmt.Errorf("end of the metadata log: %w", err)
	}
	now := reached{
		term: n.store.hard.GetTerm(), end: last, high: n.store.hard.GetCommit(), applied: n.applied,
		voter: slices.Contains(n.conf.GetVoters(), n.raftID) || slices.Contains(n.conf.GetVotersOutgoing(), n.raftID),
	}
	if old := n.reached.Load(); old == nil || *old != now {
		n.reached.Store(&now)
	}
	return nil
}

// view shows Status how far the members are.
func (n *Node) view() {
	if !n.leading.Load() {
		n.views.Store(nil)
		return
	}
	before := map[model.DirectoryID]time.Time{}
	if old := n.views.Load(); old != nil {
		for _, v := range *old {
			before[v.dir] = v.caught
		}
	}
	var views []view
	n.raft.WithProgress(func(id uint64, t raft.ProgressType, pr tracker.Progress) {
		v := view{id: n.nodeOf(id), own: id == n.raftID, voter: t == raft.ProgressTypePeer, match: pr.Match}
		if m := n.member(id); m != nil {
			v.dir = m.Directory
		}
		v.caught = before[v.dir]
		if p := n.peers[id]; p != nil {
			v.heard = p.heard
			if n.caughtUp(&pr) {
				v.caught = p.heard
			}
		}
		if v.own {
			v.id, v.dir = n.cfg.NodeID, n.identity.DirectoryID
		}
		views = append(views, v)
	})
	n.views.Store(&views)
}

// Progress is how far this node itself is in the quorum. Offsets are exclusive ends.
type Progress struct {
	Leads     bool // it is the active controller
	Voter     bool
	Leader    model.NodeID // as far as this node knows, or NoNode
	Term      uint64
	End       int64 // of its log
	Committed int64 // as far as it knows
	Applied   int64 // what its image rests on
}

// Progress may be called concurrently and never blocks.
func (n *Node) Progress() Progress {
	p := Progress{Leads: n.leading.Load(), Leader: n.Leader()}
	if r := n.reached.Load(); r != nil {
		p.Voter, p.Term, p.End, p.Committed, p.Applied = r.voter, r.term, int64(r.end)+1, int64(r.high)+1, int64(r.applied)+1
	}
	return p
}

// Counts is what this node has decided as the active controller since it was opened. It may
// be called concurrently and never blocks.
func (n *Node) Counts() controller.Counts {
	if c := n.counts.Load(); c != nil {
		return *c
	}
	return controller.Counts{}
}

// countUp shows Counts what was committed.
func (n *Node) countUp(more controller.Counts) {
	more.Add(n.Counts())
	n.counts.Store(&more)
}

// Leader is the node that leads the quorum, as far as this one knows, or NoNode. It may be
// called concurrently and never blocks.
func (n *Node) Leader() model.NodeID { return model.NodeID(n.leads.Load()) }

// Status is the quorum as its leader sees it; from any other node the error is
// ErrNotLeaderOrFollower. It may be called concurrently and never blocks. Offsets
// are Raft's indexes, and ends are exclusive as Kafka's. What it says of others is as of
// the last tick, or of the last change of a voter that was asked for.
func (n *Node) Status() (model.QuorumStatus, error) {
	r, views := n.reached.Load(), n.views.Load()
	if r == nil || views == nil || !n.leading.Load() {
		return model.QuorumStatus{}, fmt.Errorf("broker %d does not lead the quorum: %w", n.cfg.NodeID, model.ErrNotLeaderOrFollower)
	}
	s := model.QuorumStatus{Leader: n.cfg.NodeID, Epoch: int32(min(r.term, 1<<31-1)), HighWatermark: int64(r.high) + 1}
	for _, v := range *views {
		m := model.QuorumVoter{ID: v.id, Directory: v.dir, LEO: int64(v.match) + 1, LastContact: v.heard, LastCaughtUp: v.caught}
		if v.own {
			m.LEO = int64(r.end) + 1
		}
		if v.voter {
			s.Voters = append(s.Voters, m)
		} else {
			s.Observers = append(s.Observers, m)
		}
	}
	return s, nil
}

// Describe is Status as the leader has it, whom this node asks if it is another. Offsets
// are the leader's.
func (n *Node) Describe(ctx context.Context) (model.QuorumStatus, error) {
	var got model.QuorumStatus
	r := &request{}
	r.described = func(s model.QuorumStatus) {
		got = s
		r.reply(controller.Answer{})
	}
	if _, err := n.wait(ctx, r); err != nil {
		return model.QuorumStatus{}, err
	}
	return got, nil
}

// describe answers how the quorum is, where this node leads.
func (n *Node) describe(r *request) {
	s, err := n.Status()
	if err != nil {
		r.reply(controller.Answer{Err: err})
		return
	}
	r.described(s)
}
