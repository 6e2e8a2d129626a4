package cluster

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
	seedsFlag = flag.Uint64("seeds", 100, "how many seeds TestClusterSeeds runs")
	fromFlag  = flag.Uint64("from", 1, "the first seed")
	seedFlag  = flag.Uint64("seed", 1, "the seed that TestOneClusterSeed runs")
)

// Floors: what a run must have met, so that a clean run is not an idle one.
const leastAcked = 20 // records, in each seed

// TestClusterSeeds runs seeds and expects no violation. A seed that fails is printed with
// the command that shows it.
func TestClusterSeeds(t *testing.T) {
	total := runSeeds(t, *fromFlag, *seedsFlag)
	t.Logf("seeds=%d %s", *seedsFlag, total)
}

// String is a run's numbers, for the log.
func (r Report) String() string {
	return fmt.Sprintf("acked=%d reads=%d retried=%d lost_answers=%d elections=%d isr_changes=%d truncations=%d crashes=%d kills=%d power_losses=%d store_deaths=%d pauses=%d cuts=%d slow=%d stalls=%d full=%d failed=%d lost_batches=%d",
		r.Acked, r.Reads, r.Retried, r.LostAnswers, r.Elections, r.ISRChanges, r.Truncations, r.Crashes(), r.Kills, r.PowerLosses, r.Deaths,
		r.Pauses, r.Cuts, r.Slow, r.Stalls, r.Full, r.Failed, r.LostBatches)
}

// runSeeds runs seeds on all processors and adds up what happened.
func runSeeds(t *testing.T, from, n uint64) Report {
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
				r, err := Run(seed, OptionsOf(seed))
				if problem := judge(r, err); problem != "" {
					failed.Add(1)
					t.Errorf("seed %d: %s\nshow it: go test ./core/sim/cluster -run TestOneClusterSeed$ -v -seed %d", seed, problem, seed)
				}
				mu.Lock()
				total.add(r)
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
	}
	return ""
}

func (r *Report) add(o Report) {
	r.Acked += o.Acked
	r.Reads += o.Reads
	r.Retried += o.Retried
	r.LostAnswers += o.LostAnswers
	r.Elections += o.Elections
	r.ISRChanges += o.ISRChanges
	r.Truncations += o.Truncations
	r.Kills += o.Kills
	r.PowerLosses += o.PowerLosses
	r.Deaths += o.Deaths
	r.Pauses += o.Pauses
	r.Cuts += o.Cuts
	r.Slow += o.Slow
	r.Stalls += o.Stalls
	r.Full += o.Full
	r.Failed += o.Failed
	r.LostBatches += o.LostBatches
}

// TestOneClusterSeed runs one seed twice, shows every event, and expects the same both
// times.
func TestOneClusterSeed(t *testing.T) {
	opts := OptionsOf(*seedFlag)
	if testing.Verbose() {
		opts.Log = func(line string) { t.Log(line) }
	}
	first, err := Run(*seedFlag, opts)
	if problem := judge(first, err); problem != "" {
		t.Errorf("seed %d: %s", *seedFlag, problem)
	}
	t.Log(first)
	opts.Log = nil
	if again, _ := Run(*seedFlag, opts); again.Trace != first.Trace {
		t.Errorf("seed %d ran differently the second time: the simulation is not deterministic", *seedFlag)
	}
}
