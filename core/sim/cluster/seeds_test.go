package cluster

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

var (
	seedsFlag = flag.Uint64("seeds", seedsByDefault, "how many seeds TestClusterSeeds runs")
	fromFlag  = flag.Uint64("from", 1, "the first seed")
	aloneFlag = flag.Bool("alone", false, "run the seeds in this process, and not half of them in another")
	seedFlag  = flag.Uint64("seed", 1, "the seed that TestOneClusterSeed runs")
)

// Floors: what a run must have met, so that a clean run is not an idle one.
const manySeeds = 50 // fewer need not have met everything

var failuresFlag = flag.Int("failures", 3, "how many seeds may fail before a run ends")

// TestClusterSeeds runs seeds and expects no violation. A seed that fails is printed with
// the command that shows it. Raft draws from the one source of randomness of the process,
// so that one process runs one seed at a time: half of them run in another.
func TestClusterSeeds(t *testing.T) {
	from, n := *fromFlag, *seedsFlag
	var others <-chan Report
	if !*aloneFlag && n > 1 {
		others = startOther(t, from+n/2, n-n/2)
		n /= 2
	}
	total := runSeeds(t, from, n)
	if *aloneFlag {
		line, err := json.Marshal(total)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%s%s\n", reportPrefix, line)
		return
	}
	if others != nil {
		total.Add(<-others)
	}
	t.Logf("seeds=%d %s", *seedsFlag, total)
	if *seedsFlag < manySeeds {
		return
	}
	for name, got := range map[string]int{
		"elections": total.Elections, "changes of ISRs": total.ISRChanges, "truncations": total.Truncations, "crashes": total.Crashes(),
		"pauses": total.Pauses, "cuts": total.Cuts, "power losses": total.PowerLosses, "lost batches": total.LostBatches,
	} {
		if uint64(got) < *seedsFlag/5 {
			t.Errorf("only %d %s in %d seeds", got, name, *seedsFlag)
		}
	}
	for name, got := range map[string]int{
		"questions that came late": total.Overtaken, "votes after which voter and candidate went": total.Ballots, "questions without an answer": total.Unheard,
		"deaths in a save": total.SaveDeaths, "lost disks": total.Wipes, "raised partitions": total.Raised,
	} {
		if uint64(got) < *seedsFlag/20 {
			t.Errorf("only %d %s in %d seeds", got, name, *seedsFlag)
		}
	}
}

const reportPrefix = "report of the seeds: "

// startOther runs seeds in another process, and gives their sum.
func startOther(t *testing.T, from, n uint64) <-chan Report {
	t.Helper()
	done := make(chan Report, 1)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestClusterSeeds$", "-alone",
		"-from", strconv.FormatUint(from, 10), "-seeds", strconv.FormatUint(n, 10))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		var r Report
		err := cmd.Wait()
		for line := range strings.Lines(out.String()) {
			if text, ok := strings.CutPrefix(line, reportPrefix); ok {
				err = joined(err, json.Unmarshal([]byte(text), &r))
			}
		}
		if err != nil {
			t.Errorf("seeds from %d on, in another process: %v\n%s", from, err, out.String())
		}
		done <- r
	}()
	return done
}

func joined(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// runSeeds runs seeds and adds up what happened.
func runSeeds(t *testing.T, from, n uint64) (total Report) {
	t.Helper()
	failed := 0
	for seed := from; seed < from+n && failed < *failuresFlag; seed++ {
		r, err := Run(seed, OptionsOf(seed))
		if problem := wrong(r, err); problem != "" {
			failed++
			t.Errorf("seed %d: %s\nshow it: go test ./core/sim/cluster -run TestOneClusterSeed$ -v -seed %d", seed, problem, seed)
		}
		total.Add(r)
	}
	return total
}

// wrong says what is wrong with a run, or nothing.
func wrong(r Report, err error) string {
	if err != nil {
		return err.Error()
	}
	return r.Wrong()
}

// TestOneClusterSeed runs one seed twice, shows every event, and expects the same both
// times.
func TestOneClusterSeed(t *testing.T) {
	opts := OptionsOf(*seedFlag)
	if testing.Verbose() {
		opts.Log = func(line string) { t.Log(line) }
	}
	first, err := Run(*seedFlag, opts)
	if problem := wrong(first, err); problem != "" {
		t.Errorf("seed %d: %s", *seedFlag, problem)
	}
	t.Log(first)
	opts.Log = nil
	if again, _ := Run(*seedFlag, opts); again.Trace != first.Trace {
		t.Errorf("seed %d ran differently the second time: the simulation is not deterministic", *seedFlag)
	}
}
