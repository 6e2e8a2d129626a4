package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// mutation is a deliberate fault of the code under test: one place of one file, changed.
type mutation struct {
	name string
	file string
	old  string
	new  string
}

// mutations are faults that a cluster could have; each must be caught.
var mutations = []mutation{
	{
		name: "acknowledge before the store has the append",
		file: "core/partition/watermark.go",
		old:  "\treturn m.stored\n}\n\n// advance", new: "\treturn m.next\n}\n\n// advance",
	},
	{
		name: "let logs diverge",
		file: "core/partition/lead.go",
		old:  "case end.Epoch < in.LastEpoch || end.EndOffset < in.LEO:", new: "case in.LastEpoch > m.epoch:",
	},
	{
		name: "forget producers when following",
		file: "core/partition/follow.go",
		old:  "\tm.producers.replay(now, b)\n", new: "\t_ = now\n",
	},
	{
		name: "elect whoever is alive",
		file: "core/controller/election.go",
		old:  "i >= 0 && (e.unclean || ", new: "i >= 0 && (i >= 0 || e.unclean || ",
	},
	{
		name: "answer a command before it is committed",
		file: "core/controller/machine.go",
		old:  "\tif last := len(m.inFlight) - 1; last >= 0 {\n", new: "\tif last := len(m.inFlight) - 1; last >= len(m.inFlight) {\n",
	},
	{
		name: "let a wiped voter keep its identity",
		file: "core/quorum/node.go",
		old:  "\treturn dir, nil\n}\n\n// NewClusterID", new: "\treturn model.DirectoryID{byte(n.cfg.NodeID) + 1}, nil\n}\n\n// NewClusterID",
	},
}

var mutantSeedsFlag = flag.String("mutantseeds", "500", "how many seeds a mutation has to survive to be missed")

var mutantFlag = flag.String("mutant", "", "a part of the name of the mutations that TestClusterMutations tries; all of them, if it is empty")

// TestClusterMutations compiles each mutation into a test binary of its own, and expects
// TestClusterSeeds to fail there with a violation.
func TestClusterMutations(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutations {
		if !strings.Contains(m.name, *mutantFlag) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			out, err := runMutant(t, root, m)
			var exit *exec.ExitError
			switch {
			case err == nil:
				t.Fatalf("survived %s seeds", *mutantSeedsFlag)
			case !errors.As(err, &exit) || !strings.Contains(out, "seed") && !strings.Contains(out, "panic: "):
				t.Fatalf("did not run: %v\n%s", err, out)
			}
			for line := range strings.Lines(out) {
				if strings.Contains(line, "seeds_test.go") || strings.Contains(line, "panic: ") {
					t.Log(strings.TrimSpace(line))
					return
				}
			}
			t.Fatalf("failed without a violation:\n%s", out)
		})
	}
}

// runMutant builds this package's tests with one file replaced, and runs seeds.
func runMutant(t *testing.T, root string, m mutation) (string, error) {
	t.Helper()
	path := filepath.Join(root, m.file)
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), m.old); n != 1 {
		t.Fatalf("%s has the place %d times, want once: the code has changed, and the mutation must follow", m.file, n)
	}
	dir := t.TempDir()
	mutant := filepath.Join(dir, "mutant.go")
	if err := os.WriteFile(mutant, []byte(strings.Replace(string(source), m.old, m.new, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutant}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-overlay", list, "-vet=off", "-run", "^TestClusterSeeds$", "./core/sim/cluster",
		"-args", "-alone", "-failures", "1", "-seeds", *mutantSeedsFlag)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}
