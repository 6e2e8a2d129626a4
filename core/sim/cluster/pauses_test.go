package cluster

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/lifecycle"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
)

// moment is longer than a node takes for what it has to do at one time.
const moment = 100 * time.Millisecond

// between does something to each pair of a node of one kind and one of the other.
func (s *story) between(some []*node, do func(a, b *node)) {
	for _, a := range some {
		for _, b := range s.nodes {
			if !slices.Contains(some, b) {
				do(a, b)
			}
		}
	}
}

// TestACutOffLeaderSendsItsClientsAway: a leader that nobody hears has no client wait for longer
// than its lease and a little more, and takes nothing then. What it had taken is dropped where
// another leads, and taken there when it is sent again.
func TestACutOffLeaderSendsItsClientsAway(t *testing.T) {
	s := newStory(t, 2, 3)
	leader := s.replicas[0]
	s.taken(s.produce(leader, model.AcksAll, "0.0"))
	s.between([]*node{leader}, s.cutApart)
	began := s.w.Now()
	waits := s.produce(leader, model.AcksAll, "1.0")
	s.until("an answer", func() bool { return waits.answered })
	took, most := s.w.Now().Sub(began), controller.DefaultConfig().BrokerLease+partition.DefaultLimits().CommitMax+moment
	if !errors.Is(waits.Err, model.ErrNotLeaderOrFollower) || waits.Refused || took > most {
		t.Errorf("answered %v (refused %t) after %s, want to be sent away after %s at most", waits.Err, waits.Refused, took, most)
	}
	late := s.produce(leader, model.AcksAll, "2.0")
	s.until("another answer", func() bool { return late.answered })
	if !errors.Is(late.Err, model.ErrNotLeaderOrFollower) || !late.Refused {
		t.Errorf("to one that is cut off: %v, refused %t", late.Err, late.Refused)
	}
	s.until("another leader", func() bool { p := s.now(); return p.Leader != leader.id && s.leads(s.node(p.Leader)) })
	s.taken(s.produce(s.node(s.now().Leader), model.AcksAll, "1.0"))
	s.between([]*node{leader}, s.mended)
	s.settled("0.0", "1.0")
}

// TestALeaderWithoutControllersGoesOn: replicas that hear each other, and no controller, take
// records for much longer than a lease.
func TestALeaderWithoutControllersGoesOn(t *testing.T) {
	s := newStory(t, 2, 3)
	s.between(s.replicas, s.cutApart)
	var values []string
	for until := s.w.Now().Add(5 * controller.DefaultConfig().BrokerLease); s.w.Now().Before(until); {
		values = append(values, fmt.Sprintf("%d.0", len(values)))
		s.taken(s.produce(s.replicas[0], model.AcksAll, values[len(values)-1]))
		s.throughout(moment, "", func() bool { return true })
	}
	s.between(s.replicas, s.mended)
	s.settled(values...)
}

// TestAQuickRestartIsAShortPause: a broker whose process ends and starts at once, and whose end
// nobody has noticed, does not wait until the lease of its earlier life is over.
func TestAQuickRestartIsAShortPause(t *testing.T) {
	s := newStory(t, 1, 2)
	for _, n := range []*node{s.replicas[0], s.other} { // one that votes, and one that does not
		s.throughout(3*time.Second, "", func() bool { return true })
		s.killed(n)
		s.restarted(n)
		began := s.w.Now()
		s.until("the restarted broker", func() bool { return !n.member.Fenced() })
		took, most := s.w.Now().Sub(began), controller.DefaultConfig().BrokerLease/2+lifecycle.Defaults().RetryMax+moment
		if took > most {
			t.Fatalf("node %d serves %s after its restart, want %s at most", n.id, took, most)
		}
	}
}
