package sim

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/sim/mutant"
)

// mutations are faults that a broker could have; each must be caught. Some sit
// in the core, some in the store.
var mutations = []mutant.Mutation{
	{
		Name: "acknowledge before the store has the append",
		File: "core/partition/watermark.go",
		Old:  "return min(m.stored, m.durable)", New: "return m.next",
	},
	{
		Name: "acknowledge what only the page cache has",
		File: "core/partition/watermark.go",
		Old:  "case FlushAlways:\n\t\treturn true", New: "case FlushAlways:\n\t\treturn false",
	},
	{
		Name: "forget the sequence check",
		File: "core/partition/producers.go",
		Old:  "b.BaseSequence != want {", New: "b.BaseSequence != want && want < 0 {",
	},
	{
		Name: "forget repeats",
		File: "core/partition/producers.go",
		Old:  "if old := s.repeatOf(b, lastSequence(b)); old != nil {", New: "if old := s.repeatOf(b, lastSequence(b)); old != nil && old.base < 0 {",
	},
	{
		Name: "answer a repeat before the first is committed",
		File: "core/partition/append.go",
		Old:  "\tif m.reached(&r) {\n\t\tm.respond(out, &r.waiter)", New: "\tif m.reached(&r) || r.last >= 0 {\n\t\tm.respond(out, &r.waiter)",
	},
	{
		Name: "take an unknown outcome for a refusal",
		File: "core/partition/append.go",
		Old:  "clean := in.Fault == FaultFull || in.Fault == FaultRetry", New: "clean := in.Fault == FaultFull || in.Fault == FaultRetry || in.Fault == FaultUnknown",
	},
	{
		Name: "trim records before their producers are in a snapshot",
		File: "core/partition/upkeep.go",
		Old:  "if m.snapshotSafe >= at || m.producers.len() == 0 {", New: "if at >= 0 {",
	},
	{
		Name: "let a refused batch advance its producer",
		File: "core/partition/producers.go",
		Old:  "\t\te.state = before.state\n\t\treturn", New: "\t\treturn",
	},
	{
		Name: "do not look for producers in the log",
		File: "core/partition/open.go",
		Old:  "m.producers.replay(now, b)", New: "_ = b.ProducerID",
	},
	{
		Name: "put what is under way into the producers' snapshot",
		File: "core/partition/snapshot.go",
		Old:  "if before, ok := undone[e.id]; ok {", New: "if before, ok := undone[e.id]; ok && e.id < 0 {",
	},
	{
		Name: "serve beyond the high watermark",
		File: "core/partition/view.go",
		Old:  "return v.HighWater\n", New: "return v.LEO\n",
	},
	{
		Name: "store: forget the last batch of an append of several",
		File: "sdk/storage/memstore/append.go",
		Old:  "s.write(log, batches, a.now)", New: "s.write(log, batches[:(len(batches)+1)/2], a.now)",
	},
	{
		Name: "stamp another offset than the one acknowledged",
		File: "core/replica/perform.go",
		Old:  "recordbatch.Stamp(q.data, base, epoch)", New: "recordbatch.Stamp(q.data, base+base%2, epoch)",
	},
	{
		Name: "store: say durable before it is",
		File: "sdk/storage/memstore/append.go",
		Old:  "disk.durable = max(disk.durable, min(a.result.LEO, disk.end))\n\ta.result.Durable, a.result.Survives = disk.durable, a.req.Require",
		New:  "a.result.Durable, a.result.Survives = max(disk.durable, a.result.LEO), a.req.Require",
	},
	{
		Name: "store: skip the CRC when recovering",
		File: "sdk/storage/memstore/disklog.go",
		Old:  "damage == nil || b.LastOffset < l.durable {", New: "damage == nil || b.LastOffset >= 0 {",
	},
	{
		Name: "open a log without what was written and not told",
		File: "core/sim/granted.go",
		Old:  "if g.pages[spec.ID] = untold; len(untold) == 0 {", New: "if g.pages[spec.ID] = untold; len(untold) >= 0 {",
	},
	{
		Name: "believe a store that refuses what is in its file",
		File: "core/sim/granted.go",
		Old:  "if err != nil { // what it is of", New: "if err != nil && l.told < 0 { // what it is of",
	},
}

// mutantSeeds is how many seeds a mutation has to survive to be missed.
const mutantSeeds = "2000"

// TestMutations compiles each mutation into a test binary of its own, and
// expects TestSeeds to fail there with a violation.
func TestMutations(t *testing.T) { catch(t, mutations, "TestSeeds", "-seeds", mutantSeeds) }

// catch expects a test of seeds to fail with every mutation.
func catch(t *testing.T, mutations []mutant.Mutation, test string, args ...string) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutations {
		t.Run(m.Name, func(t *testing.T) {
			out, err := runMutant(t, root, m, test, args...)
			var exit *exec.ExitError
			switch {
			case err == nil:
				t.Fatalf("survived %v", args)
			case !errors.As(err, &exit) || !strings.Contains(out, "--- FAIL: "+test):
				t.Fatalf("did not run: %v\n%s", err, out)
			case !strings.Contains(out, "violated: ") && !strings.Contains(out, "panic: "):
				t.Fatalf("failed without a violation:\n%s", out)
			}
			for line := range strings.Lines(out) {
				if strings.Contains(line, "violated: ") || strings.Contains(line, "panic: ") {
					t.Log(strings.TrimSpace(line))
					break
				}
			}
		})
	}
}

// runMutant builds this package's tests with one file replaced, and runs seeds.
func runMutant(t *testing.T, root string, m mutant.Mutation, test string, args ...string) (string, error) {
	t.Helper()
	list := m.Overlay(t, root)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-overlay", list, "-vet=off", "-run", "^" + test + "$", "./core/sim", "-args"}, args...)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}
