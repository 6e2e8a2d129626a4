package cluster

import (
	"slices"
	"testing"

	"github.com/brokerd/brokerd/core/model"
)

// A voter that is in sync is lost for ever with its disks. A new node joins under an ID of its
// own, takes the replicas of the dead one, and its vote. Then the old disks turn up: their node is
// told that it is forgotten. Nothing that was acknowledged is lost, and no vote is counted twice.
func TestDeadVoterIsReplaced(t *testing.T) {
	s := newStory(t, 2, 3)
	s.opts.Departures = true
	lost := s.replicas[2]
	if !slices.Contains(s.voting(), lost.id) {
		t.Fatalf("%v vote, and not %d: this is another story", s.voting(), lost.id)
	}
	s.taken(s.produce(s.replicas[0], model.AcksAll, valueX))
	s.lose(lost)
	if s.retiring != lost {
		t.Fatalf("it may not be lost, since %s: this is another story", s.unserved())
	}
	s.until("another member in its place", func() bool { return s.retiring == nil })
	leader := func() *node { return s.node(s.now().Leader) } // of which it may be another by now
	s.until("a leader", func() bool { return leader() != nil && s.leads(leader()) })
	s.taken(s.produce(leader(), model.AcksAll, valueY))
	if got := s.voting(); len(got) != votersTarget || slices.Contains(got, lost.id) {
		t.Errorf("%v vote", got)
	}
	if len(s.gone) == 0 {
		s.comeBackNow(lost)
	}
	s.until("the end of the one that was forgotten", func() bool { return s.report.Returned == 1 })
	if s.report.Lost != 1 || s.report.Joins != 1 || s.report.Retired != 1 {
		t.Errorf("%s", s.report)
	}
	s.settled(valueX, valueY)
}

// voting are the nodes that vote in the quorum, as its leader says.
func (s *story) voting() (out []model.NodeID) {
	s.t.Helper()
	s.until("who votes", func() bool {
		out = nil
		for _, n := range s.nodes {
			if n.up() && n.quorum != nil && n.quorum.Leading() {
				status, err := n.quorum.Status()
				for _, v := range status.Voters {
					out = append(out, v.ID)
				}
				return err == nil
			}
		}
		return false
	})
	return out
}
