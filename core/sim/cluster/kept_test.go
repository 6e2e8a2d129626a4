package cluster

import (
	"fmt"
	"testing"
	"time"
)

// kept are seeds that have failed, with what was mended then. As the code changes, so does what
// a seed does: each is a test of what it does now.
var kept = []struct {
	seed    uint64
	minutes int // simulated; zero: the shape of OptionsOf
	mended  string
}{
	{2, 3, "simulation: give a partition to no replica that may have lost its disk"},
	{4, 1, "controller: put no new partition on a broker alone of whose directories none serves"},
	{5, 4, "controller: reassign from the only replica that has everything to none that may have lost something"},
	{7, 4, "simulation: take power from no replica that may come to be alone in sync before it knows"},
	{10, 3, "simulation: ask no leader that is older than the one that has acknowledged"},
	{24, 3, "partition: take the role and the settings of one metadata at once"},
	{8, 2, "simulation: take a disk only where the ELR keeps the others"},
	{20004, 4, "simulation: take no power from one that is to be in sync alone before it knows"},
	{534, 4, "quorum: have a leader that was paused ask whether it leads still"},
	{1792, 0, "simulation: let a producer of which a blackout has left nothing go on with its next sequence"},
	{349, 0, "partition: have a replica that counts owe what it had when it was opened, before it has told anybody"},
	{585, 0, "replica: open a log again that was being opened when its store was started again"},
	{7078, 0, "quorum: hand no vote to a node that has one by the directory that it has lost"},
}

// TestKeptSeeds runs the seeds that have failed, before others.
func TestKeptSeeds(t *testing.T) {
	for _, k := range kept {
		t.Run(fmt.Sprint(k.seed), func(t *testing.T) {
			opts, how := OptionsOf(k.seed), fmt.Sprintf("go test ./core/sim/cluster -run TestOneClusterSeed$ -v -seed %d", k.seed)
			if k.minutes > 0 {
				opts, how = LongOptionsOf(k.seed, time.Duration(k.minutes)*time.Minute), fmt.Sprintf("go run ./core/sim/simulate -minutes %d -seed %d -v", k.minutes, k.seed)
			}
			if problem := wrong(Run(k.seed, opts)); problem != "" {
				t.Errorf("%s\nit was kept for: %s\nshow it: %s", problem, k.mended, how)
			}
		})
	}
}
