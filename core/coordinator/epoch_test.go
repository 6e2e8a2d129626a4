package coordinator

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// A log that is being opened, and a leader epoch that has not reached the replica yet, are
// waited for: groups are served soon after. It is no failure before it takes long.
func TestWhatIsNotThereYetIsWaitedFor(t *testing.T) {
	for _, err := range []error{model.ErrNotLeaderOrFollower, model.ErrUnknownLeaderEpoch, model.ErrFencedLeaderEpoch, model.ErrOffsetNotAvailable} {
		t.Run(err.Error(), func(t *testing.T) {
			s := newStepped(t, 1, nil)
			s.turn()
			s.mustCommit("g", 7)
			s.log.fail = fmt.Errorf("the replica: %w", err)
			s.log.waits = 0
			s.restart(nil)
			s.advance(loadTold - time.Millisecond)
			if _, err := s.fetch("g"); !errors.Is(err, model.ErrCoordinatorLoading) {
				t.Fatalf("answered with %v", err)
			}
			if failed := s.events.get(&s.events.failedLoads); failed > 0 || s.lines.Len() > 0 {
				t.Errorf("%d failures: %s", failed, s.lines)
			}
			s.advance(time.Minute)
			failed, lines := s.events.get(&s.events.failedLoads), strings.Count(s.lines.String(), "load groups; it is tried again")
			if failed < 10 || failed > 13 || lines < 5 || lines > 7 {
				t.Errorf("after a minute: %d failures, %d lines", failed, lines)
			}
			if s.log.waits != 1 {
				t.Errorf("%d reads have waited for the log, in the way of others", s.log.waits)
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
