package sim

import (
	"flag"
	"fmt"
	"testing"
)

var groupSeedsFlag = flag.Uint64("groupseeds", 300, "how many seeds TestGroupSeeds runs")

// Floors of runs with groups: what each of them must have met, and what they must have
// met on average; of the rest, one in ten.
const (
	leastRebalances = 3
	leastCommits    = 10 // offsets
	meanRebalances  = 8
	meanCommits     = 100
)

// TestGroupSeeds runs seeds with groups of consumers and expects no violation: no
// offset that expires under a live group, is gone after a restart or goes back, no
// group that is forgotten, no stale commit (FR-9, FR-12, FR-14, FR-15, FR-17).
func TestGroupSeeds(t *testing.T) {
	total := runSeeds(t, *fromFlag, *groupSeedsFlag, GroupOptionsOf, judgeGroups, "TestOneGroupSeed")
	t.Logf("seeds=%d rebalances=%d commits=%d stale_commits=%d fetched=%d expired=%d deleted=%d fenced=%d stalls=%d vanished=%d returned=%d moves=%d lost_answers=%d broker_kills=%d plugin_deaths=%d power_losses=%d failed_operations=%d",
		*groupSeedsFlag, total.Rebalances, total.Commits, total.Stale, total.Fetched, total.Expired, total.Deleted, total.Fenced, total.Stalls,
		total.Vanished, total.Returned, total.Moves, total.LostAnswers, total.Kills, total.Deaths, total.PowerLosses, total.Failed)
	if total.Rebalances < meanRebalances*int(*groupSeedsFlag) || total.Commits < meanCommits*int(*groupSeedsFlag) {
		t.Errorf("only %d rebalances and %d commits in %d seeds", total.Rebalances, total.Commits, *groupSeedsFlag)
	}
	for name, got := range map[string]int{
		"stale commits": total.Stale, "expired offsets": total.Expired, "deletions": total.Deleted, "fenced members": total.Fenced,
		"stalls": total.Stalls, "vanished members": total.Vanished, "returned members": total.Returned, "moves of leaders": total.Moves,
		"lost answers": total.LostAnswers, "failed operations": total.Failed, "power losses": total.PowerLosses,
	} {
		if uint64(got) < *groupSeedsFlag/10 {
			t.Errorf("only %d %s in %d seeds", got, name, *groupSeedsFlag)
		}
	}
}

// judgeGroups says what is wrong with a run, or nothing.
func judgeGroups(r Report, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case len(r.Violations) > 0:
		return "violated: " + r.Violations[0]
	case r.Rebalances < leastRebalances:
		return fmt.Sprintf("only %d rebalances", r.Rebalances)
	case r.Commits < leastCommits:
		return fmt.Sprintf("only %d offsets were committed", r.Commits)
	case r.Crashes() < leastCrashes:
		return fmt.Sprintf("only %d crashes", r.Crashes())
	}
	return ""
}

// TestOneGroupSeed is TestOneSeed with groups.
func TestOneGroupSeed(t *testing.T) { runOne(t, GroupOptionsOf(*seedFlag), judgeGroups) }
