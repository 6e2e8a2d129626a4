package quorum

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/model"
)

// grown is a cluster whose nodes have become voters.
func grown(t *testing.T, seed uint64, nodes, voters int, adapt func(*Config)) *world {
	w := newWorld(t, seed, nodes, adapt)
	for _, s := range w.sites {
		s.start()
	}
	if !w.until(20*time.Second, func() bool { return w.voters() == voters }) {
		w.failf("%d nodes have become %d voters", nodes, w.voters())
	}
	w.register()
	return w
}

// ask has a node do something until it is answered, and returns the answer.
func (s *site) ask(op controller.Op) controller.Answer {
	w := s.w
	var got *controller.Answer
	s.node.Start(op, nil, func(a controller.Answer) { got = &a })
	s.turn()
	if !w.until(20*time.Second, func() bool { return got != nil }) {
		w.failf("%T asked of node %d is not answered", op, s.id)
	}
	return *got
}

// change asks a node for a change of a member, until it is answered.
func (s *site) change(how memberHow, of *site) error {
	w := s.w
	w.byHand = true
	var got *controller.Answer
	id := of.disk.stored.Identity
	r := &request{member: &memberChange{how: how}, reply: func(a controller.Answer) { got = &a }}
	r.member.member.Node, r.member.member.Directory = id.NodeID, id.DirectoryID
	s.node.loop.Complete(Input{request: r})
	s.turn()
	if !w.until(20*time.Second, func() bool { return got != nil }) {
		w.failf("change %d asked of node %d is not answered", how, s.id)
	}
	return got.Err
}

func (w *world) cut(s *site) {
	for _, o := range w.sites {
		w.cuts[[2]*site{s, o}], w.cuts[[2]*site{o, s}] = true, true
	}
}

// A cluster that grows from one voter to three never loses what was answered, nor has two
// leaders in a term, wherever a node dies on the way: before or after the write of each
// of its saves, for a moment or for long.
func TestGrowthWithACrashAtEveryStep(t *testing.T) {
	died := 0
	for step := 1; step <= 24; step++ {
		for variant := range 12 {
			t.Run(fmt.Sprint("step=", step, "/", variant), func(t *testing.T) {
				w := newWorld(t, uint64(step), 3, nil)
				victim := w.sites[variant%3]
				victim.disk.dieAt, victim.disk.keep = step, variant/3%2 == 0
				for _, s := range w.sites {
					s.start()
				}
				for range 40 { // commands go on meanwhile
					if w.until(50*time.Millisecond, func() bool { return victim.disk.saves >= step }) {
						break
					}
					if l := w.leader(); l != nil {
						l.allocate()
					}
				}
				if victim.disk.saves >= step {
					died++
				}
				victim.disk.dieAt = 0
				if variant/6 == 0 {
					w.run(5 * time.Second) // the others go on, if they can
					for _, s := range w.sites {
						if s.node != nil {
							s.allocate()
						}
					}
					w.run(time.Second)
				}
				w.settleWith(3, false)
			})
		}
	}
	if died < 250 {
		t.Errorf("a node died in %d runs", died)
	}
}

// A node that lost its disk is another member: it follows first, then takes the place of
// the voter that it was. When the lost disk comes back, its node is told that it is no
// member, and ends.
func TestWipedNode(t *testing.T) {
	w := grown(t, 1, 3, 3, nil)
	s := w.sites[1]
	old := s.disk
	was := old.stored.Identity.DirectoryID
	s.wipe()
	s.start()
	gone := func() bool {
		_, still := w.sites[0].node.Image().Member(was)
		return !still && w.voters() == 3
	}
	if !w.until(20*time.Second, gone) {
		w.failf("the voter that was lost is still a member")
	}
	w.settle(3)
	lost := s.disk
	s.crash()
	s.disk, s.wiped = old, nil
	s.start()
	n := s.node
	w.until(20*time.Second, func() bool { return s.node == nil })
	if ended, err := n.Ended(); !ended || !errors.Is(err, ErrRemoved) {
		w.failf("with the lost disk again: ended %v, %v", ended, err)
	}
	s.disk = lost
	s.start()
	w.settle(3)
}

// The first node may be lost as soon as the others have heard that it is needed no more,
// also where they start anew.
func TestFirstNodeIsLostAfterGrowth(t *testing.T) {
	w := newWorld(t, 1, 3, nil)
	for _, s := range w.sites {
		s.start()
	}
	heard := func() bool {
		for _, s := range w.sites {
			if s.node == nil || len(s.node.conf.GetVoters()) != 3 || len(s.node.conf.GetVotersOutgoing()) > 0 {
				return false
			}
		}
		return true
	}
	if !w.until(5*time.Second, heard) {
		w.failf("the cluster does not grow")
	}
	w.sites[0].wipe()
	for _, s := range w.sites[1:] {
		s.crash()
	}
	w.settleWith(3, false)
}

// Another node with the ID of one that is there is refused; it never takes its place.
func TestSecondNodeOfOneID(t *testing.T) {
	w := newWorld(t, 1, 4, func(c *Config) {
		if c.NodeID == 4 {
			c.NodeID, c.Bootstrap = 2, false
		}
	})
	w.sites[3].hidden = true
	for _, s := range w.sites[:3] {
		s.start()
	}
	w.until(5*time.Second, func() bool { return w.voters() == 3 })
	w.sites[3].start()
	w.run(10 * time.Second)
	members := 0
	for m := range w.leader().node.Image().Members() {
		if members++; m.Node == 2 && m.Endpoint != "host-2" {
			w.failf("the second node 2 has taken the place of the first")
		}
	}
	if members != 3 {
		w.failf("%d members", members)
	}
}

// A leader that was cut off with entries that nobody else has takes over the log of the
// others, by a snapshot, and keeps nothing of its own.
func TestSnapshotTakesThePlaceOfALongerLog(t *testing.T) {
	w := grown(t, 1, 3, 3, func(c *Config) { c.SnapshotEntries = 8 })
	old := w.leader()
	w.cut(old)
	for range 40 {
		old.node.Start(controller.AllocateProducerIDs{}, nil, func(a controller.Answer) {
			if a.Err == nil {
				w.failf("a leader that was cut off answers")
			}
		})
		old.turn()
	}
	end := old.disk.last()
	w.until(20*time.Second, func() bool { l := w.leader(); return l != nil && l != old && !old.node.Leading() })
	for range 20 {
		if a := w.leader().ask(controller.AllocateProducerIDs{}); a.Err != nil {
			w.failf("%v", a.Err)
		}
	}
	before := w.tally["snapshots"]
	saves := old.disk.saves
	clear(w.cuts)
	w.until(20*time.Second, func() bool {
		return w.tally["snapshots"] > before && old.disk.stored.Snapshot.GetMetadata().GetIndex() > 15
	})
	if old.disk.last() >= end || old.disk.saves == saves {
		w.failf("its log ended at %d and ends at %d", end, old.disk.last())
	}
	old.crash()
	old.start()
	w.settle(3)
}

// A member that was away for longer than the log gets a snapshot.
func TestSnapshotForALearnerFarBehind(t *testing.T) {
	w := grown(t, 1, 4, 3, func(c *Config) { c.SnapshotEntries, c.NeverVote = 10, c.NodeID == 4 })
	s := w.sites[3]
	w.until(5*time.Second, func() bool { return s.node != nil && s.node.isKnown() })
	s.crash()
	for range 50 {
		w.leader().ask(controller.AllocateProducerIDs{})
	}
	w.drop = 300 // snapshots are lost too, and sent again
	before := w.tally["snapshots"]
	s.start()
	if !w.until(time.Minute, func() bool { return s.node.applied+2 > w.leader().node.applied }) || w.tally["snapshots"] == before {
		w.failf("node 4 is at %d of %d, after %d snapshots", s.node.applied, w.leader().node.applied, w.tally["snapshots"]-before)
	}
	w.settle(3)
	w.run(time.Second)
	if st, err := w.leader().node.Status(); err != nil || len(st.Voters) != 3 || len(st.Observers) != 1 || st.Observers[0].ID != 4 ||
		st.Observers[0].LEO < st.HighWatermark || w.now.Sub(st.Observers[0].LastContact) > time.Second || w.now.Sub(st.Observers[0].LastCaughtUp) > time.Second {
		w.failf("status %+v, %v", st, err)
	}
}

// Two nodes beside one voter: it stays alone until both are there.
func TestTwoNodesHaveOneVoter(t *testing.T) {
	w := newWorld(t, 1, 3, nil)
	w.sites[0].start()
	w.sites[1].cfg.Bootstrap = false
	w.run(2 * time.Second)
	// The third seed is silent: no cluster yet.
	if w.sites[0].node != nil {
		w.failf("a cluster was created though a seed is silent")
	}
	w.sites[1].start()
	w.run(2 * time.Second)
	if w.sites[0].node != nil {
		w.failf("a cluster was created though a seed is silent")
	}
	w.sites[2].start()
	w.until(20*time.Second, func() bool { return w.voters() == 1 })
	w.sites[2].crash()
	w.run(10 * time.Second)
	if w.voters() != 1 {
		w.failf("two nodes have %d voters", w.voters())
	}
	w.settle(3)
}

// A first node that was wiped joins the cluster again, and never creates a second one, also
// while the others are silent.
func TestWipedFirstNodeCreatesNothing(t *testing.T) {
	w := grown(t, 1, 3, 3, nil)
	cluster := w.sites[1].node.Identity().ClusterID
	w.sites[0].wipe()
	w.cut(w.sites[0])
	w.sites[0].start()
	w.run(30 * time.Second)
	if w.sites[0].node != nil {
		w.failf("it found a verdict alone: %+v", w.sites[0].node.Identity())
	}
	w.settle(3)
	if got := w.sites[0].node.Identity().ClusterID; got != cluster {
		w.failf("it is of cluster %s, the others of %s", got, cluster)
	}
}

// Two nodes that may both create a cluster make one.
func TestTwoFounders(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(t, seed, 3, func(c *Config) { c.Bootstrap = true })
		w.delay = 300 * time.Millisecond
		for _, s := range w.sites {
			w.after(time.Duration(w.rand.IntN(500))*time.Millisecond, s.start)
		}
		w.run(20 * time.Second)
		for _, s := range w.sites {
			if s.node == nil || s.node.Identity().ClusterID != w.sites[0].node.Identity().ClusterID {
				w.failf("node %d: %+v", s.id, s.node)
			}
		}
	}
}

// Two nodes of one ID create nothing, neither two clusters nor one, and say why.
func TestTwoFoundersOfOneID(t *testing.T) {
	w := newWorld(t, 1, 3, func(c *Config) {
		c.Bootstrap = true
		if c.NodeID == 2 {
			c.NodeID = 1
		}
	})
	for _, s := range w.sites[:2] {
		s.start()
	}
	one, two := w.sites[0].finder, w.sites[1].finder
	w.run(10 * time.Second)
	if w.sites[0].node != nil || w.sites[1].node != nil {
		w.failf("a cluster was created")
	}
	ended, err := one.Ended()
	endedToo, errToo := two.Ended()
	if !ended || !endedToo || !errors.Is(err, ErrForeign) || !errors.Is(errToo, ErrForeign) {
		w.failf("they ended with %v and %v", err, errToo)
	}
}

// A node that is to be of one cluster does not join another.
func TestSeedOfAnotherCluster(t *testing.T) {
	w := newWorld(t, 1, 2, func(c *Config) {
		if c.NodeID == 2 {
			c.ClusterID = "another"
		}
	})
	w.sites[0].start()
	w.sites[1].start()
	f := w.sites[1].finder
	w.run(3 * time.Second)
	if ended, err := f.Ended(); !ended || !errors.Is(err, ErrForeign) || w.sites[1].node != nil {
		w.failf("the search ended %v: %v", ended, err)
	}
}

// A clock that is set back stops nothing.
func TestClockSetBack(t *testing.T) {
	w := grown(t, 1, 3, 3, nil)
	w.now = w.now.Add(-time.Hour)
	w.run(5 * time.Second)
	if w.leader() == nil {
		w.failf("nobody leads")
	}
	w.settle(3)
}

// A member of another cluster is refused by every door, and what it sends changes nothing.
func TestAnotherClusterIsRefused(t *testing.T) {
	w := grown(t, 1, 3, 3, nil)
	other := newWorld(t, 2, 1, nil)
	other.sites[0].cfg.Endpoint = ""
	other.sites[0].start()
	other.run(time.Second)
	stranger, n := other.sites[0].node, w.leader().node
	term := n.store.hard.GetTerm()
	vote := stranger.vote(n, term+5)
	if err := n.Receive(vote); err != nil {
		w.failf("%v", err)
	}
	var got answer
	n.Question(header(kindCommand, stranger.self()), func(b []byte) {
		var err error
		if got, err = decodeAnswer(b); err != nil {
			w.failf("%v", err)
		}
	})
	// Neither does what is for the directory that another member has.
	var others []*Node
	for _, s := range w.sites {
		if s.node != n {
			others = append(others, s.node)
		}
	}
	if err := n.Receive(others[0].vote(others[1], term+5)); err != nil {
		w.failf("%v", err)
	}
	w.run(time.Second)
	if n.store.hard.GetTerm() != term || len(n.strangers) != 1 || got.status != statusForeign || got.cluster != n.identity.ClusterID {
		w.failf("term %d became %d, strangers %v, answer %+v", term, n.store.hard.GetTerm(), n.strangers, got)
	}
}

// FR-35 (KAFKA-17608): the leader is removed as a voter: another leads in its place at once, and
// the one that was removed follows. By hand, any number of voters may be left.
func TestVotersByHand(t *testing.T) {
	w := grown(t, 1, 4, 3, nil)
	w.until(5*time.Second, func() bool { return w.leader() != nil && w.sites[2].node.isKnown() && w.sites[3].node.isKnown() })
	w.run(time.Second)
	leader := w.leader()
	asked := w.sites[0]
	began := w.now
	if err := asked.change(memberDropVoter, leader); err != nil {
		w.failf("remove the leader: %v", err)
	}
	if took := w.now.Sub(began); took > 700*time.Millisecond || w.leader() == nil || w.leader() == leader {
		w.failf("after %v the leader is %v", took, w.leader())
	}
	// The fourth takes the place: the target is three.
	if st, err := w.leader().node.Status(); err != nil || len(st.Voters) != 3 || len(st.Observers) != 1 || st.Observers[0].ID != leader.id {
		w.failf("who asked is told of %+v, %v", st, err)
	}
	if w.voters() != 3 || leader.node.raft.BasicStatus().RaftState != raft.StateFollower {
		w.failf("%d voters", w.voters())
	}
	for _, tt := range []struct {
		how  memberHow
		of   *site
		want error
	}{
		{memberDropVoter, leader, model.ErrVoterNotFound},
		{memberAddVoter, w.leader(), model.ErrDuplicateVoter},
		{memberRemoved, w.leader(), model.ErrInvalidRequest},
	} {
		if err := asked.change(tt.how, tt.of); !errors.Is(err, tt.want) {
			w.failf("change %d of node %d: %v, want %v", tt.how, tt.of.id, err, tt.want)
		}
	}
	if err := asked.change(memberAddVoter, leader); err != nil || w.voters() != 4 {
		w.failf("add it again: %v, %d voters", err, w.voters())
	}
	for w.voters() > 1 {
		if err := asked.change(memberDropVoter, w.leader()); err != nil {
			w.failf("with %d voters: %v", w.voters(), err)
		}
		w.until(5*time.Second, func() bool { return w.leader() != nil && w.voters() > 0 })
	}
	if err := asked.change(memberDropVoter, w.leader()); !errors.Is(err, model.ErrInvalidRequest) {
		w.failf("the last voter: %v", err)
	}
	var follows *site
	for _, s := range w.sites {
		if s != w.leader() && s != asked {
			follows = s
		}
	}
	n := follows.node
	if err := asked.change(memberRemoved, follows); err != nil {
		w.failf("forget a member: %v", err)
	}
	w.until(20*time.Second, func() bool { return follows.node == nil })
	if ended, err := n.Ended(); !ended || !errors.Is(err, ErrRemoved) {
		w.failf("a member that was forgotten: ended %v, %v", ended, err)
	}
}

// FR-38 (KAFKA-20895): a leader that is told to end has another lead first, without a lost
// round.
func TestHandOver(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		w := grown(t, uint64(nodes), nodes, nodes, func(c *Config) { c.VotersTarget = 5 - 2*(5-nodes)/2 })
		for range 5 {
			old := w.leader()
			began := w.now
			old.node.Stop()
			old.turn()
			w.until(time.Second, func() bool { return old.node == nil })
			if took := w.now.Sub(began); took > handOverTime {
				w.failf("the end took %v", took)
			}
			w.until(time.Second, func() bool { return w.leader() != nil })
			if took := w.now.Sub(began); took > 100*time.Millisecond {
				w.failf("nobody led for %v", took)
			}
			old.start()
			w.run(2 * time.Second)
		}
		w.settle(nodes)
	}
}

// What waits with a leader that ends is not lost: it is answered, or the next one does it.
func TestCommandsOutliveTheLeader(t *testing.T) {
	w := grown(t, 1, 3, 3, nil)
	for range 5 {
		old := w.leader()
		asked := w.sites[0]
		if asked == old {
			asked = w.sites[1]
		}
		old.node.Stop()
		var errs []error
		for range 10 {
			asked.node.Start(controller.AllocateProducerIDs{}, nil, func(a controller.Answer) { errs = append(errs, a.Err) })
			asked.turn()
			w.run(5 * time.Millisecond)
		}
		w.until(5*time.Second, func() bool { return len(errs) == 10 })
		if err := errors.Join(errs...); err != nil || len(errs) != 10 {
			w.failf("%d answers: %v", len(errs), err)
		}
		old.start()
		w.run(3 * time.Second)
	}
}

// A majority that is gone stops changes, and nothing else: the image stays.
func TestNoMajority(t *testing.T) {
	w := grown(t, 1, 3, 3, nil)
	leader := w.leader()
	for _, s := range w.sites {
		if s != leader {
			s.crash()
		}
	}
	w.run(5 * time.Second)
	answered := false
	leader.node.Start(controller.AllocateProducerIDs{}, nil, func(controller.Answer) { answered = true })
	leader.turn()
	w.run(5 * time.Second)
	if leader.node.Leading() || answered || leader.node.Image().BrokerCount() != 1 {
		w.failf("without a majority: leads %v, answered %v", leader.node.Leading(), answered)
	}
	w.settle(3)
	if !answered {
		w.failf("what was asked meanwhile is never answered")
	}
}

// Nor does it while others come to lead, who have heard nobody yet, and while the first is
// slow to answer.
func TestSecondNodeOfOneIDWhileLeadersChange(t *testing.T) {
	for seed := range uint64(5) {
		w := newWorld(t, seed, 4, func(c *Config) {
			if c.NodeID == 4 {
				c.NodeID, c.Bootstrap = 2, false
			}
		})
		w.sites[3].hidden = true
		for _, s := range w.sites[:3] {
			s.start()
		}
		w.until(5*time.Second, func() bool { return w.voters() == 3 })
		w.sites[3].start()
		w.delay = 150 * time.Millisecond
		for range 5 {
			w.run(5 * time.Second)
			if l := w.leader(); l != nil && l.id != 2 {
				l.crash()
				w.run(5 * time.Second)
				l.start()
			}
			if w.sites[1].node == nil {
				w.failf("the first node 2 was removed")
			}
			for m := range w.sites[1].node.Image().Members() {
				if m.Node == 2 && m.Endpoint != "host-2" {
					w.failf("the second node 2 is a member beside the first, or in its place: %+v", m)
				}
			}
		}
	}
}

// A leader that was paused, and does not know yet that others have led since, tells nobody
// who has joined meanwhile that it is no member: that would end it.
func TestLeaderOfBeforeKnowsNotWhoJoined(t *testing.T) {
	for seed := range uint64(8) {
		w := newWorld(t, seed, 4, nil)
		w.sites[3].hidden = true
		for _, s := range w.sites[:3] {
			s.start()
		}
		if !w.until(20*time.Second, func() bool { return w.voters() == 3 }) {
			w.failf("%d voters", w.voters())
		}
		before, joins := w.leader(), w.sites[3]
		w.cut(before)
		before.paused = w.now.Add(20*time.Second + time.Duration(seed)*time.Second)
		joins.start()
		known := func() bool { return joins.node != nil && joins.node.Image().Cluster.ID != "" && joins.node.isKnown() }
		if !w.until(15*time.Second, known) {
			w.failf("node 4 has not joined")
		}
		for _, s := range w.sites[:3] {
			if s != before {
				s.crash()
			}
		}
		clear(w.cuts)
		n := joins.node
		w.run(30 * time.Second) // it asks for who leads, the one before among others
		if ended, err := n.Ended(); ended {
			w.failf("node 4 ended: %v", err)
		}
	}
}

// A copy of a directory that is in use gets no part in the quorum, since both would vote as
// one, and ends; the metadata does not move to and fro between the two.
func TestCopyOfADirectoryInUse(t *testing.T) {
	for seed := range uint64(5) {
		w := newWorld(t, seed, 4, func(c *Config) {
			if c.NodeID == 4 {
				c.NodeID, c.Bootstrap = 2, false
			}
		})
		copied := w.sites[3]
		copied.hidden = true
		for _, s := range w.sites[:3] {
			s.start()
		}
		if !w.until(20*time.Second, func() bool { return w.voters() == 3 }) {
			w.failf("%d voters", w.voters())
		}
		w.run(time.Second)
		copied.disk.stored = w.sites[1].disk.stored
		before := w.sites[0].node.applied
		copied.start()
		n := copied.node
		w.until(30*time.Second, func() bool { return copied.node == nil })
		if ended, err := n.Ended(); !ended || !errors.Is(err, ErrInUse) {
			w.failf("the copy ended: %v, with %v", ended, err)
		}
		if w.sites[1].node == nil || w.voters() != 3 || w.sites[0].node.applied > before+4 {
			w.failf("the node that was copied is %v, and there are %d entries more", w.sites[1].node, w.sites[0].node.applied-before)
		}
	}
}

// A leader whose disk fails has another one lead in its place at once, and not only once the
// others have missed it.
func TestALeaderWhoseDiskFailsPassesOn(t *testing.T) {
	w := grown(t, 1, 3, 3, nil)
	old := w.leader()
	cfg := old.node.cfg
	missed := time.Duration(cfg.ElectionTicks) * cfg.Tick // the least after which others would notice
	old.disk.die = true
	old.create()
	if !w.until(time.Second, func() bool { return old.node == nil }) {
		w.failf("node %d goes on without its disk", old.id)
	}
	if !w.until(missed/2, func() bool { l := w.leader(); return l != nil && l != old }) {
		w.failf("nobody leads in place of node %d", old.id)
	}
	old.disk.die = false
	old.start()
	w.settle(3)
}
