package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// fallsBack has the store of a node that lives on start again without what it had not
// flushed, so many batches.
func (s *story) fallsBack(n *node, batches int) {
	s.t.Helper()
	s.w.Note("the store of node %d falls back", n.id)
	if lost := n.fallBack(powerSeed); lost != batches {
		s.t.Fatalf("%d batches are lost, and not %d: this is another story", lost, batches)
	}
}

// The store of a follower in sync starts again without what it had not flushed, and nobody
// hears of it before the leader dies. The follower is elected, and has another one lead that
// has everything.
func TestAStoreThatFellBackDoesNotLead(t *testing.T) {
	s := newStory(t, 2, 3)
	leader, fallen, third := s.replicas[0], s.replicas[1], s.replicas[2]
	s.taken(s.produce(leader, model.AcksAll, valueX))
	s.cutApart(leader, fallen)
	s.cutApart(third, fallen)
	s.fallsBack(fallen, 1)
	s.until("the log without what is lost", func() bool { return s.end(fallen) == 0 })
	if p := s.now(); len(p.ISR) != 3 || p.Leader != leader.id {
		t.Fatalf("leader %d, ISR %v: this is another story", p.Leader, p.ISR)
	}
	epoch := s.now().LeaderEpoch
	s.killed(leader)
	s.until("the third to lead", func() bool { return s.leads(third) })
	if p := s.now(); p.LeaderEpoch < epoch+2 || slices.Contains(p.ISR, fallen.id) || slices.Contains(p.ELR, fallen.id) {
		t.Fatalf("leader epoch %d after %d, ISR %v, ELR %v: want one in which another one led, and is not in sync", p.LeaderEpoch, epoch, p.ISR, p.ELR)
	}
	s.mended(third, fallen)
	s.mended(leader, fallen)
	s.restarted(leader)
	s.settled(valueX)
}

// The store of a leader starts again without what it had not flushed: its followers have it,
// and one of them leads.
func TestALeaderWhoseStoreFellBackLeadsNoMore(t *testing.T) {
	s := newStory(t, 2, 3)
	leader := s.replicas[0]
	s.taken(s.produce(leader, model.AcksAll, valueX))
	s.fallsBack(leader, 1)
	s.until("another one to lead", func() bool { return s.leads(s.replicas[1]) || s.leads(s.replicas[2]) })
	s.taken(s.produce(s.node(s.now().Leader), model.AcksAll, valueY))
	s.settled(valueX, valueY)
}

// The store of a follower in sync starts again without what it had not flushed, and its broker
// dies: before its logs were opened again, or once it knows which of them lacks something, and
// nobody else does. In its next life it does not count, and does not lead when all others are away.
func TestABrokerThatDiesBeforeItsFallIsKnown(t *testing.T) {
	for _, knows := range []bool{false, true} {
		t.Run(fmt.Sprint("knows=", knows), func(t *testing.T) {
			s := newStory(t, 2, 3)
			leader, fallen, third := s.replicas[0], s.replicas[1], s.replicas[2]
			s.killed(third)
			s.until("two in sync", func() bool { return len(s.now().ISR) == 2 })
			s.taken(s.produce(leader, model.AcksAll, valueX))
			s.cutApart(leader, fallen)
			s.fallsBack(fallen, 1)
			if knows {
				s.until("the log without what is lost", func() bool { return s.end(fallen) == 0 })
				s.throughout(100*time.Millisecond, "the log lacks it", func() bool { return s.end(fallen) == 0 })
			}
			s.killed(fallen)
			if p := s.now(); !slices.Contains(p.ISR, fallen.id) {
				t.Fatalf("ISR %v: this is another story", p.ISR)
			}
			s.restarted(fallen)
			s.until("it is registered again", func() bool { return fallen.toldOf == fallen.starts })
			if p := s.now(); slices.Contains(p.ISR, fallen.id) || slices.Contains(p.ELR, fallen.id) {
				t.Fatalf("ISR %v, ELR %v: broker %d lacks what was acknowledged", p.ISR, p.ELR, fallen.id)
			}
			s.killed(leader)
			s.until("nobody to lead", func() bool { return s.now().Leader == model.NoNode })
			s.throughout(5*time.Second, "nobody leads", func() bool { return s.now().Leader == model.NoNode })
			s.mended(leader, fallen)
			s.restarted(third)
			s.restarted(leader)
			s.settled(valueX)
		})
	}
}
