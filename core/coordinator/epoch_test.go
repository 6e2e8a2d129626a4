package coordinator

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// A log that is being opened, and a leader epoch that has not reached the replica yet, are
// waited for: groups are served soon after, and nothing has failed.
func TestWhatIsNotThereYetIsNoFailedLoad(t *testing.T) {
	for _, err := range []error{model.ErrNotLeaderOrFollower, model.ErrUnknownLeaderEpoch, model.ErrFencedLeaderEpoch, model.ErrOffsetNotAvailable} {
		t.Run(err.Error(), func(t *testing.T) {
			s := newStepped(t, 1, nil)
			s.turn()
			s.mustCommit("g", 7)
			s.log.fail = fmt.Errorf("the replica: %w", err)
			s.restart(nil)
			s.advance(time.Minute)
			if _, err := s.fetch("g"); !errors.Is(err, model.ErrCoordinatorLoading) {
				t.Fatalf("answered with %v", err)
			}
			if failed := s.events.get(&s.events.failedLoads); failed > 0 {
				t.Errorf("%d failures", failed)
			}
			s.log.fail = nil
			s.advance(openAgain)
			s.mustHave("g", 7)
		})
	}
}

// What a load waits to be committed may be lost by a store: it ends where the log does.
func TestLoadOfALogThatHasLostItsEnd(t *testing.T) {
	s := newStepped(t, 1, nil)
	s.turn()
	s.mustCommit("g", 1)
	s.mustCommit("g", 2)
	p := s.log.part(0)
	p.hw = p.leo - 1
	s.restart(nil)
	s.advance(time.Second)
	p.batches, p.leo = p.batches[:1], p.leo-1
	s.advance(loadAgain)
	s.mustHave("g", 1)
}
