package cluster

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
)

// Outages and bugs of clusters that were really met, and whose order of events no real
// process can be brought to.

// Values, by who sends them and which one it is there.
const (
	valueB = "0.0"
	valueX = "1.0"
	valueY = "2.0"
	valueZ = "3.0"
)

// FR-19: a leader has a record that nobody else has, another one leads and takes one at the
// same offset, and the first leads again before the two have met. The second one's record is
// of an epoch that the first knows nothing of. (KAFKA-6361, KIP-279)
func TestFR19LogsAgreeAfterTwoFastChangesOfLeader(t *testing.T) {
	s := newStory(t, 1, 2)
	a, b := s.replicas[0], s.replicas[1]
	s.taken(s.produce(a, model.AcksAll, valueB))
	s.cutApart(a, b)
	x := s.produce(a, model.AcksLeader, valueX)
	atX := s.taken(x)
	s.lead(b)
	y := s.produce(b, model.AcksLeader, valueY)
	atY := s.taken(y)
	s.lead(a)
	if leo := s.log(a).LEO; atX != 1 || atY != 1 || leo != 2 || y.LeaderEpoch <= x.LeaderEpoch || !slices.Contains(s.now().ISR, b.id) {
		t.Fatalf("x is at %d in epoch %d, y at %d in epoch %d, the first one's log ends at %d, ISR %v: this is another story",
			atX, x.LeaderEpoch, atY, y.LeaderEpoch, leo, s.now().ISR)
	}
	z := s.produce(a, model.AcksAll, valueZ)
	s.mended(a, b)
	s.taken(z)
	s.settled(valueB, valueX, valueZ)
}

// FR-20: an acknowledged record outlives that the follower starts again before it has heard of
// the high watermark, and its leader dies just then. (KIP-101)
func TestFR20RestartBeforeTheHighWatermarkIsKnown(t *testing.T) {
	// acknowledged brings a record to both, of which the follower does not know that it is
	// committed.
	acknowledged := func(s *story) (leader, follower *node) {
		leader, follower = s.replicas[0], s.replicas[1]
		x := s.produce(leader, model.AcksAll, valueX)
		s.until("a copy", func() bool { return s.log(follower).LEO == 1 })
		s.wrong(leader, follower, memnet.Faults{Cut: true})
		s.taken(x)
		if hw := s.log(follower).HighWatermark; hw != 0 {
			t.Fatalf("the follower knows of high watermark %d: this is another story", hw)
		}
		return leader, follower
	}
	t.Run("the follower is out of the ISR", func(t *testing.T) {
		s := newStory(t, 1, 2)
		leader, follower := acknowledged(s)
		s.killed(follower)
		s.mended(leader, follower)
		s.restarted(follower)
		s.until("the follower's log again", func() bool { return s.end(follower) >= 0 })
		s.killed(leader)
		s.throughout(5*time.Second, "the follower keeps its record", func() bool { return s.log(follower).LEO == 1 })
		s.restarted(leader)
		s.settled(valueX)
	})
	t.Run("the follower leads", func(t *testing.T) {
		s := newStory(t, 1, 2)
		leader, follower := acknowledged(s)
		s.killed(leader)
		s.until("another leader", func() bool { return s.now().Leader == follower.id })
		if hw := s.log(follower).HighWatermark; hw != 0 {
			t.Fatalf("the follower knows of high watermark %d: this is another story", hw)
		}
		s.killed(follower)
		s.mended(leader, follower)
		s.restarted(follower)
		s.until("the follower to lead", func() bool { return s.leads(follower) })
		s.until("the record", func() bool { return follower.fetch(s.p, 0, 1000).HighWatermark == 1 })
		s.restarted(leader)
		s.settled(valueX)
	})
}

// FR-25: a follower has caught up, and its leader asks for it to be in sync. Before the
// controller hears that, the follower's host loses power, and with it all that its log had.
// It comes back at once. What was asked for is of its earlier life, and refused: it is not in
// sync, and does not lead when the leader dies. (KAFKA-14140, KIP-841, KIP-903)
func TestFR25AnEarlierLifeIsNotInSync(t *testing.T) {
	s := newStory(t, 1, 2)
	leader, follower := s.replicas[0], s.replicas[1]
	s.taken(s.produce(leader, model.AcksAll, valueX))
	s.killed(follower)
	s.until("an ISR of one", func() bool { return len(s.now().ISR) == 1 })
	asked, answers := s.asks(leader)
	s.restarted(follower)
	s.until("a question for an ISR of two", func() bool { return len(*asked) > 0 })
	s.wrong(leader, s.controls, memnet.Faults{Hold: true})
	earlier, _ := s.check.Newest().Broker(follower.id)
	s.losesPower(follower, 1)
	s.command(controller.FenceBroker{ID: follower.id, Epoch: earlier.Epoch})
	s.restarted(follower)
	s.until("another life that may be in sync", func() bool {
		b, _ := s.check.Newest().Broker(follower.id)
		return b.Incarnation == follower.incarnation && !b.Fenced
	})
	of := (*asked)[0].ISR[1].Epoch
	if p := s.now(); len(*answers) > 0 || p.Leader != leader.id || len(p.ISR) != 1 || of != earlier.Epoch || !s.controls.quorum.Leading() {
		t.Fatalf("asked for %v, %d answers, leader %d, ISR %v, the controller is the same %v: this is another story",
			*asked, len(*answers), p.Leader, p.ISR, s.controls.quorum.Leading())
	}
	s.mended(leader, s.controls)
	s.until("an answer", func() bool { return len(*answers) > 0 })
	if err := (*answers)[0].Err; !errors.Is(err, model.ErrIneligibleReplica) || len(s.now().ISR) != 1 {
		t.Errorf("the answer is %v and the ISR %v, want %v", err, s.now().ISR, model.ErrIneligibleReplica)
	}
	s.killed(leader)
	s.throughout(5*time.Second, "the empty replica does not lead", func() bool { return s.now().Leader != follower.id })
	s.restarted(leader)
	s.settled(valueX)
}

// FR-26: of three replicas the last in sync loses power with what it has not flushed: a
// record that was acknowledged by all, and one that was not. It is back first, and is not elected.
// One that left the ISR later than the minimum allows, and has lost nothing, leads. (KIP-966)
func TestFR26LastReplicaLosesPower(t *testing.T) {
	s := newStory(t, 2, 3)
	last, next, first := s.replicas[0], s.replicas[1], s.replicas[2]
	s.taken(s.produce(last, model.AcksAll, valueX))
	s.killed(first)
	s.until("an ISR of two", func() bool { return len(s.now().ISR) == 2 })
	s.taken(s.produce(last, model.AcksAll, valueY))
	s.killed(next)
	s.taken(s.produce(last, model.AcksLeader, valueZ))
	s.until("an ISR of one", func() bool { return len(s.now().ISR) == 1 })
	if p := s.now(); p.ISR[0] != last.id || !slices.Equal(p.ELR, []model.NodeID{next.id}) {
		t.Fatalf("ISR %v, ELR %v: this is another story", p.ISR, p.ELR)
	}
	s.losesPower(last, 3)
	s.restarted(last)
	s.until("the last one again", func() bool {
		b, _ := s.check.Newest().Broker(last.id)
		return b.Incarnation == last.incarnation && !b.Fenced
	})
	s.throughout(5*time.Second, "nobody leads", func() bool { return s.now().Leader == model.NoNode })
	s.restarted(next)
	s.until("the next one to lead", func() bool { return s.leads(next) })
	s.restarted(first)
	s.settled(valueX, valueY)
}

// FR-25: a broker has been told to end, and takes long to, since another one has not heard of
// it. It copies its leader's log all the while. It is out of the ISR, and stays so.
// (KAFKA-14140, KIP-841)
func TestFR25OneThatShutsDownIsNotInSync(t *testing.T) {
	s := newStory(t, 1, 2)
	leader, follower := s.replicas[0], s.replicas[1]
	s.taken(s.produce(leader, model.AcksAll, valueX))
	s.wrong(s.other, s.controls, memnet.Faults{Hold: true})
	follower.life.do(func() { follower.member.StartLeave() })
	s.until("an ISR of one", func() bool { return len(s.now().ISR) == 1 })
	s.taken(s.produce(leader, model.AcksAll, valueY))
	s.until("a copy", func() bool { return s.end(follower) == 2 })
	s.throughout(500*time.Millisecond, "an ISR of one", func() bool { return len(s.now().ISR) == 1 })
	if b, _ := s.check.Newest().Broker(follower.id); b.Fenced || !b.ShuttingDown || !follower.up() {
		t.Fatalf("fenced %v, shutting down %v, up %v: this is another story", b.Fenced, b.ShuttingDown, follower.up())
	}
	s.mended(s.other, s.controls)
	s.until("the end of the follower", func() bool { return !follower.up() })
	s.restarted(follower)
	s.settled(valueX, valueY)
}
