package quorum

import (
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/brokerd/brokerd/core/controller"
)

// A node that is turned by hand has no goroutine and no clock of its own, and one seed
// gives one history, also of what Raft draws from crypto/rand.
func TestTurnedByHand(t *testing.T) {
	history := func(seed uint64) (id Identity) {
		t.Run("seed", func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, seed)
			n := open(t, testConfig(t))
			id = n.Identity()
			now := time.Unix(1, 0)
			answered := false
			n.Start(controller.AllocateProducerIDs{}, nil, func(a controller.Answer) { answered = a.Err == nil })
			if n.Loop().Turn(now); !answered || !n.Leading() {
				t.Errorf("after one turn: answered %v, leading %v", answered, n.Leading())
			}
			for range 50 {
				at, ok := n.Loop().Deadline()
				if !ok || at.Before(now) {
					t.Fatalf("due at %v (%v), it is %v", at, ok, now)
				}
				now = at
				n.Loop().Turn(now)
			}
			n.Stop()
			n.Loop().Turn(now)
			if ended, err := n.Ended(); !ended || err != nil {
				t.Errorf("after Stop: ended %v, %v", ended, err)
			}
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
		return id
	}
	a := history(1)
	b := history(1)
	c := history(2)
	if a != b || a == c {
		t.Errorf("seed 1 gave %v and %v, seed 2 gave %v", a, b, c)
	}
}
