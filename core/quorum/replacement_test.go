package quorum

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/model"
)

// request asks a node for a change of a member, as change does, of whom the cluster must not
// rest at two voters meanwhile.
func (s *site) request(how memberHow, of Identity) error {
	w := s.w
	var got *error
	s.node.startChange(how, of.NodeID, of.DirectoryID, nil, func(err error) { got = &err })
	s.turn()
	if !w.until(20*time.Second, func() bool { return got != nil }) {
		w.failf("change %d of node %d asked of node %d is not answered", how, of.NodeID, s.id)
	}
	return *got
}

// threeVoters is a cluster of nodes 1 to 3, all of which vote. Node 4 is yet to start.
func threeVoters(t *testing.T, seed uint64, adapt func(*Config)) *world {
	w := newWorld(t, seed, 4, adapt)
	w.sites[3].hidden = true
	for _, s := range w.sites[:3] {
		s.start()
	}
	if !w.until(20*time.Second, func() bool { return w.voters() == 3 }) {
		w.failf("%d voters", w.voters())
	}
	w.run(time.Second)
	return w
}

// join starts a node, and waits until it follows the quorum.
func (s *site) join() {
	w := s.w
	s.start()
	if !w.until(20*time.Second, func() bool { return s.node != nil && s.node.Image().Cluster.ID != "" && s.node.isKnown() }) {
		w.failf("node %d does not join", s.id)
	}
	w.run(time.Second)
}

// voting are the nodes that vote, as the leader has them.
func (w *world) voting() (out []model.NodeID) {
	w.until(10*time.Second, func() bool { return w.voters() > 0 })
	if l := w.leader(); l != nil {
		out = l.node.nodes(l.node.conf.GetVoters(), l.node.Image())
		slices.Sort(out)
	}
	return out
}

// A voter that is removed hands its vote on to one that follows, whether it leads, follows, or
// is dead: at no time do two vote, and when that is answered, three do.
func TestVoteIsHandedOn(t *testing.T) {
	for _, dead := range []bool{false, true} {
		for n := range 3 {
			t.Run(fmt.Sprint("dead=", dead, "/", n+1), func(t *testing.T) {
				w := threeVoters(t, uint64(n+1), nil)
				w.sites[3].join()
				s := w.sites[n]
				of := s.disk.stored.Identity
				if dead {
					s.crash()
					w.until(20*time.Second, func() bool { return w.leader() != nil })
				}
				if err := w.sites[3].request(memberDropVoter, of); err != nil {
					w.failf("%v", err)
				}
				want := slices.DeleteFunc([]model.NodeID{1, 2, 3, 4}, func(id model.NodeID) bool { return id == s.id })
				if got := w.voting(); !slices.Equal(got, want) {
					w.failf("%v vote, want %v", got, want)
				}
				w.run(5 * time.Second)
				if got := w.voting(); !slices.Equal(got, want) {
					w.failf("5 s later %v vote, want %v", got, want)
				}
			})
		}
	}
}

// A node that votes by the directory that it has lost is no heir by its new one, nor is made a
// voter beside it by hand: it would have two votes.
func TestNoNodeVotesTwice(t *testing.T) {
	w := threeVoters(t, 1, nil)
	lost, joins := w.sites[0], w.sites[3]
	if lost == w.leader() {
		lost = w.sites[1]
	}
	joins.join()
	old := lost.disk.stored.Identity
	lost.wipe()
	lost.start()
	member := func() bool { return lost.node != nil && lost.node.Image().Cluster.ID != "" && lost.node.isKnown() }
	var at *Node
	if !w.until(20*time.Second, func() bool { at = w.leader().node; return member() && at.caughtUp(at.progress(lost.node.raftID)) }) {
		w.failf("node %d does not join again", lost.id)
	}
	if err := w.leader().request(memberAddVoter, lost.disk.stored.Identity); !errors.Is(err, model.ErrDuplicateVoter) {
		w.failf("its new directory, while the old one votes: %v", err)
	}
	var of *site
	for _, s := range w.sites[:3] {
		if s != lost && s != w.leader() {
			of = s
		}
	}
	if _, still := w.leader().node.Image().Member(old.DirectoryID); !still {
		w.failf("it has taken its place already: this is another story")
	}
	if err := w.leader().request(memberDropVoter, of.disk.stored.Identity); err != nil {
		w.failf("%v", err)
	}
	w.run(5 * time.Second)
	want := slices.DeleteFunc([]model.NodeID{1, 2, 3, 4}, func(id model.NodeID) bool { return id == of.id })
	if got := w.voting(); !slices.Equal(got, want) {
		w.failf("%v vote, want %v", got, want)
	}
}

// Nobody takes the vote who is behind, or was told never to vote: then two are left, which by
// hand may be.
func TestVoteIsHandedOnToNobody(t *testing.T) {
	for name, adapt := range map[string]func(*Config){
		"never votes": func(c *Config) { c.NeverVote = c.NodeID == 4 },
		"is dead":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			w := threeVoters(t, 1, adapt)
			w.sites[3].join()
			w.byHand = true
			if adapt == nil {
				w.sites[3].crash()
				w.run(3 * time.Second)
			}
			s := w.sites[0]
			if s == w.leader() {
				s = w.sites[1]
			}
			if err := w.leader().request(memberDropVoter, s.disk.stored.Identity); err != nil {
				w.failf("%v", err)
			}
			w.run(3 * time.Second)
			if got := w.voters(); got != 2 {
				w.failf("%d voters", got)
			}
		})
	}
}

// A voter is lost for ever with its disk. Another node joins under an ID of its own, and the
// dead one is removed, while any of those that are left dies at any of its saves. Nothing that
// was answered is lost, no term has two leaders, and in the end three vote, of whom the dead one
// is none. When its disk turns up after all, its node is told that it is no member, and ends.
func TestReplacementWithACrashAtEveryStep(t *testing.T) {
	died := 0
	for step := 1; step <= 16; step++ {
		for variant := range 9 {
			t.Run(fmt.Sprint("step=", step, "/", variant), func(t *testing.T) {
				if replaced(t, step, variant) {
					died++
				}
			})
		}
	}
	if died < 100 {
		t.Errorf("a node died in %d runs", died)
	}
}

func replaced(t *testing.T, step, variant int) (died bool) {
	w := threeVoters(t, uint64(step), nil)
	lost, joins := w.sites[variant%3], w.sites[3]
	w.byHand = true // while the new one is down, or behind, two may be left
	of := lost.disk.stored.Identity
	lost.crash()
	others := slices.DeleteFunc(slices.Clone(w.sites), func(s *site) bool { return s == lost })
	victim := others[variant/3]
	victim.disk.dieAt, victim.disk.keep = victim.disk.saves+step, step%2 == 0
	at := victim.disk.dieAt
	joins.start()
	for how := memberDropVoter; ; {
		w.again(others)
		err := w.attempt(others, how, of)
		if err == nil || errors.Is(err, model.ErrVoterNotFound) {
			if how == memberRemoved {
				break
			}
			how = memberRemoved
		}
	}
	victim.disk.dieAt = 0
	if !w.until(30*time.Second, func() bool { w.again(others); return w.voters() == 3 }) {
		w.failf("%d voters", w.voters())
	}
	if got := w.voting(); slices.Contains(got, lost.id) {
		w.failf("%v vote, and node %d is gone", got, lost.id)
	}
	lost.start()
	n := lost.node
	w.until(20*time.Second, func() bool { return lost.node == nil })
	if ended, err := n.Ended(); !ended || !errors.Is(err, ErrRemoved) {
		w.failf("the lost disk came back: ended %v, with %v", ended, err)
	}
	lost.wipe()
	w.settleWith(3, false)
	return victim.disk.saves >= at
}

// again starts those that died, a moment later.
func (w *world) again(sites []*site) {
	w.run(50 * time.Millisecond)
	for _, s := range sites {
		if s.node == nil && s.finder == nil {
			s.start()
		}
	}
}

// attempt asks one after the other for a change of a member, until one of them answers, for a
// while.
func (w *world) attempt(sites []*site, how memberHow, of Identity) error {
	var got *error
	for _, s := range sites {
		if s.node == nil || s.node.Image().Cluster.ID == "" {
			continue
		}
		if s.allocate(); s.node == nil { // commands go on meanwhile
			continue
		}
		s.node.startChange(how, of.NodeID, of.DirectoryID, nil, func(err error) { got = &err })
		s.turn()
		if w.until(2*time.Second, func() bool { return got != nil || s.node == nil }) && got != nil {
			return *got
		}
	}
	return errors.New("nobody has answered")
}

// A node that was removed while it was down, and starts again, hears a last message of who leads,
// which was on its way. It asks for nothing that is done: its broker is not registered again.
func TestForgottenNodeChangesNothing(t *testing.T) {
	w := threeVoters(t, 1, nil)
	w.register()
	s, leader := w.sites[3], w.leader()
	s.join()
	of := s.disk.stored.Identity
	s.crash()
	if err := leader.request(memberRemoved, of); err != nil {
		w.failf("%v", err)
	}
	w.run(time.Second)
	s.start()
	s.node.announce.ticks = 0 // the message comes before it asks
	m := &raftpb.Message{
		Type: raftpb.MsgHeartbeat.Enum(), From: proto.Uint64(leader.node.raftID), To: proto.Uint64(s.node.raftID),
		Term: proto.Uint64(leader.node.store.hard.GetTerm()), Commit: proto.Uint64(1),
	}
	b, err := proto.Marshal(m)
	if err != nil {
		w.failf("%v", err)
	}
	n := s.node
	if err := n.Receive(append(header(kindRaft, leader.node.self()), b...)); err != nil {
		w.failf("%v", err)
	}
	r := testRegistration
	r.ClusterID, r.NodeID, r.Directories = of.ClusterID, s.id, []model.DirectoryID{of.DirectoryID}
	answered := false
	n.Start(controller.RegisterBroker{Registration: r}, nil, func(a controller.Answer) {
		answered = true
		if a.Err == nil {
			w.failf("the broker is registered")
		}
	})
	s.turn()
	if _, led := n.leader(); !led {
		w.failf("it does not know who leads")
	}
	began := w.now
	w.until(5*time.Second, func() bool { return s.node == nil })
	if _, known := leader.node.Image().Broker(s.id); known {
		w.failf("the broker is registered")
	}
	if ended, err := n.Ended(); !ended || !errors.Is(err, ErrRemoved) || !answered || w.now.Sub(began) > time.Second {
		w.failf("after %v: ended %v, with %v, answered %v", w.now.Sub(began), ended, err, answered)
	}
}
