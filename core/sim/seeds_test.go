package sim

import (
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	seedsFlag = flag.Uint64("seeds", 1500, "how many seeds TestSeeds runs")
	fromFlag  = flag.Uint64("from", 1, "the first seed")
)

// Floors: what a run must have met on average, and at least once in all, so
// that a clean run is not an idle one.
const (
	leastAcked   = 20 // records, in each seed
	leastCrashes = 1  // in each seed
)

// TestSeeds runs seeds and expects no violation. A seed that fails is printed
// with the command that shows it.
func TestSeeds(t *testing.T) {
	total := runSeeds(t, *fromFlag, *seedsFlag, OptionsOf, judge, "TestOneSeed")
	t.Logf("seeds=%d acked=%d reads=%d retried=%d lost_answers=%d broker_kills=%d plugin_deaths=%d power_losses=%d lost_batches=%d torn_writes=%d failed_operations=%d full_disks=%d trims=%d granted=%d found=%d",
		*seedsFlag, total.Acked, total.Reads, total.Retried, total.LostAnswers, total.Kills, total.Deaths, total.PowerLosses,
		total.Lost, total.Torn, total.Failed, total.Full, total.Trims, total.Granted, total.Found)
	for name, got := range map[string]int{
		"power losses": total.PowerLosses, "lost batches": total.Lost, "torn writes": total.Torn, "failed operations": total.Failed,
		"full disks": total.Full, "trims": total.Trims, "lost answers": total.LostAnswers,
		"granted appends": total.Granted, "appends found": total.Found,
	} {
		if uint64(got) < *seedsFlag/100 {
			t.Errorf("only %d %s in %d seeds", got, name, *seedsFlag)
		}
	}
}

// runSeeds runs seeds on all processors and adds up what happened. one names the test
// that shows a single seed.
func runSeeds(t *testing.T, from, n uint64, options func(uint64) Options, judge func(Report, error) string, one string) Report {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // worlds are small, and soon forgotten
	var next, failed atomic.Uint64
	next.Store(from)
	var mu sync.Mutex
	var total Report
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				seed := next.Add(1) - 1
				if seed >= from+n || failed.Load() >= 3 {
					return
				}
				r, err := Run(seed, options(seed))
				if problem := judge(r, err); problem != "" {
					failed.Add(1)
					t.Errorf("seed %d: %s\nshow it: go test ./core/sim -run %s$ -v -seed %d", seed, problem, one, seed)
				}
				mu.Lock()
				add(&total, r)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return total
}

// judge says what is wrong with a run, or nothing.
func judge(r Report, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case len(r.Violations) > 0:
		return "violated: " + r.Violations[0]
	case r.Acked < leastAcked:
		return fmt.Sprintf("only %d records were acknowledged", r.Acked)
	case r.Crashes() < leastCrashes:
		return fmt.Sprintf("only %d crashes", r.Crashes())
	}
	return ""
}

func add(total *Report, r Report) {
	total.Acked += r.Acked
	total.Retried += r.Retried
	total.LostAnswers += r.LostAnswers
	total.Kills += r.Kills
	total.Deaths += r.Deaths
	total.PowerLosses += r.PowerLosses
	total.Granted += r.Granted
	total.Found += r.Found
	total.Lost += r.Lost
	total.Torn += r.Torn
	total.Failed += r.Failed
	total.Full += r.Full
	total.Trims += r.Trims
	total.Reads += r.Reads
	total.Rebalances += r.Rebalances
	total.Commits += r.Commits
	total.Stale += r.Stale
	total.Fetched += r.Fetched
	total.Expired += r.Expired
	total.Deleted += r.Deleted
	total.Fenced += r.Fenced
	total.Stalls += r.Stalls
	total.Vanished += r.Vanished
	total.Returned += r.Returned
	total.Moves += r.Moves
}

var seedFlag = flag.Uint64("seed", 1, "the seed that TestOneSeed runs")

// TestOneSeed runs one seed twice, shows every event, and expects the same both
// times.
func TestOneSeed(t *testing.T) { runOne(t, OptionsOf(*seedFlag), judge) }

func runOne(t *testing.T, opts Options, judge func(Report, error) string) {
	t.Helper()
	if testing.Verbose() {
		opts.Log = func(line string) { t.Log(line) }
	}
	first, err := Run(*seedFlag, opts)
	if problem := judge(first, err); problem != "" {
		t.Errorf("seed %d: %s", *seedFlag, problem)
	}
	opts.Log = nil
	if again, _ := Run(*seedFlag, opts); again.Trace != first.Trace {
		t.Errorf("seed %d ran differently the second time: the simulation is not deterministic", *seedFlag)
	}
}
