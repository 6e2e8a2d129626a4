package cluster

import (
	"errors"
	"flag"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/sim/mutant"
)

// mutations are faults that a cluster could have, each of which is caught within a few
// dozen seeds. Those that take more are in rareMutations, and those that are chosen without
// regard to what is checked in blindMutations.
var mutations = []mutant.Mutation{
	{
		Name: "raise the high watermark by the committed ISR alone",
		File: "core/partition/watermark.go",
		Old:  "f.inISR || f.maybe {", New: "f.inISR {",
	},
	{
		Name: "let logs diverge",
		File: "core/partition/lead.go",
		Old:  "case end.Epoch < in.LastEpoch || end.EndOffset < in.LEO:", New: "case in.LastEpoch > m.epoch:",
	},
	{
		Name: "forget producers when following",
		File: "core/partition/follow.go",
		Old:  "\tm.producers.replay(now, b)\n", New: "\t_ = now\n",
	},
	{
		Name: "elect whoever is alive",
		File: "core/controller/election.go",
		Old:  "i >= 0 && (e.unclean || ", New: "i >= 0 && (i >= 0 || e.unclean || ",
	},
	{
		Name: "answer a command before it is committed",
		File: "core/controller/machine.go",
		Old:  "\tif last := len(m.inFlight) - 1; last >= 0 {\n", New: "\tif last := len(m.inFlight) - 1; last >= len(m.inFlight) {\n",
	},
	{
		Name: "raise the high watermark below the minimum of the ISR",
		File: "core/partition/watermark.go",
		Old:  "\tif len(m.isr) >= m.minISR {\n\t\thw :=", New: "\tif len(m.isr) >= 0 {\n\t\thw :=",
	},
	{
		Name: "count what is being added for the minimum of the ISR, at the controller alone",
		File: "core/controller/election.go",
		Old:  "&& len(p.ISR) < e.d.minISR(e.t, p.Counted())\n", New: "&& len(p.ISR) < e.d.minISR(e.t, len(p.Replicas))\n",
	},
	{
		Name: "raise no partition",
		File: "core/controller/raise.go",
		Old:  "\t\tbegan = r.begin()\n", New: "",
	},
	{
		Name: "keep the ELR while the ISR is at its minimum",
		File: "core/controller/election.go",
		Old:  "&& len(p.ISR) < e.d.minISR(e.t, p.Counted())\n", New: "&& len(p.ISR) <= e.d.minISR(e.t, p.Counted())\n",
	},
}

var (
	mutantSeedsFlag = flag.String("mutantseeds", "150", "how many seeds a mutation has to survive to be missed")
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
		chosen = slices.Concat(mutations, rareMutations, blindMutations)
	default:
		chosen = slices.DeleteFunc(slices.Concat(mutations, rareMutations, blindMutations), func(m mutant.Mutation) bool { return !strings.Contains(m.Name, which) })
	}
	for _, m := range chosen {
		t.Run(m.Name, func(t *testing.T) {
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
func buildMutant(t *testing.T, root string, m mutant.Mutation) string {
	t.Helper()
	list, binary := m.Overlay(t, root), filepath.Join(t.TempDir(), "mutant.test")
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
