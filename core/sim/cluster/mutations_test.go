package cluster

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// mutations are faults that a cluster could have, each of which is caught within a few
// dozen seeds. Those that take more are in rareMutations.
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
		name: "raise the high watermark below the minimum of the ISR",
		file: "core/partition/watermark.go",
		old:  "\tif len(m.isr) >= m.minISR {\n\t\thw :=", new: "\tif len(m.isr) >= 0 {\n\t\thw :=",
	},
	{
		name: "keep brokers in the ISR that begin another life",
		file: "core/controller/broker.go",
		old:  "\t\te.leave(func(n model.NodeID) bool { return n == id })\n", new: "",
	},
	{
		name: "keep the ELR while the ISR is at its minimum",
		file: "core/controller/election.go",
		old:  "&& len(p.ISR) < e.d.minISR(e.t, len(p.Replicas))\n", new: "&& len(p.ISR) <= e.d.minISR(e.t, len(p.Replicas))\n",
	},
}

var (
	mutantSeedsFlag = flag.String("mutantseeds", "60", "how many seeds a mutation has to survive to be missed")
	mutantsFlag     = flag.String("mutants", "", "which mutations TestClusterMutations tries: those that few seeds catch, if it is empty; all; or a part of their names")
)

// TestClusterMutations compiles each mutation into a test binary of its own, and expects
// TestClusterSeeds to fail there with a violation. How long that takes says nothing: what
// turns without an end comes to the bound on what happens in a run.
func TestClusterMutations(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	chosen := mutations
	switch which := *mutantsFlag; which {
	case "":
	case "all":
		chosen = slices.Concat(mutations, rareMutations)
	default:
		chosen = slices.DeleteFunc(slices.Concat(mutations, rareMutations), func(m mutation) bool { return !strings.Contains(m.name, which) })
	}
	for _, m := range chosen {
		t.Run(m.name, func(t *testing.T) {
			out, err := runMutant(t, buildMutant(t, root, m))
			var exit *exec.ExitError
			switch {
			case err == nil:
				t.Fatalf("survived %s seeds", *mutantSeedsFlag)
			case !errors.As(err, &exit) || strings.Contains(out, "panic: test timed out"):
				t.Fatalf("did not run to an end: %v\n%s", err, out)
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

// buildMutant builds this package's tests with one file replaced.
func buildMutant(t *testing.T, root string, m mutation) string {
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
	list, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutant.test")
	if err := os.WriteFile(list, overlay, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", binary, "-overlay", list, "-vet=off", "./core/sim/cluster")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("does not compile: %v\n%s", err, out)
	}
	return binary
}

// runMutant runs seeds of a mutant, for as long as this test may.
func runMutant(t *testing.T, binary string) (string, error) {
	t.Helper()
	left := time.Duration(0)
	if at, ok := t.Deadline(); ok {
		left = max(time.Until(at)-10*time.Second, time.Second)
	}
	cmd := exec.CommandContext(t.Context(), binary, "-test.run", "^TestClusterSeeds$", "-test.timeout", left.String(),
		"-alone", "-failures", "1", "-seeds", *mutantSeedsFlag)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	return string(out), err
}
