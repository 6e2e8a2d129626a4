package sim

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// mutation is a deliberate fault of the code under test: one place of one file,
// changed.
type mutation struct {
	name string
	file string
	old  string
	new  string
}

// mutations are faults that a broker could have; each must be caught. Some sit
// in the core, some in the store.
var mutations = []mutation{
	{
		name: "acknowledge before the store has the append",
		file: "core/partition/watermark.go",
		old:  "return min(m.stored, m.durable)", new: "return m.next",
	},
	{
		name: "acknowledge what only the page cache has",
		file: "core/partition/watermark.go",
		old:  "case FlushAlways:\n\t\treturn true", new: "case FlushAlways:\n\t\treturn false",
	},
	{
		name: "forget the sequence check",
		file: "core/partition/producers.go",
		old:  "b.BaseSequence != want {", new: "b.BaseSequence != want && want < 0 {",
	},
	{
		name: "forget repeats",
		file: "core/partition/producers.go",
		old:  "if old := s.repeatOf(b, lastSequence(b)); old != nil {", new: "if old := s.repeatOf(b, lastSequence(b)); old != nil && old.base < 0 {",
	},
	{
		name: "answer a repeat before the first is committed",
		file: "core/partition/append.go",
		old:  "\tif m.reached(&r) {\n\t\tm.respond(out, &r.waiter)", new: "\tif m.reached(&r) || r.last >= 0 {\n\t\tm.respond(out, &r.waiter)",
	},
	{
		name: "take an unknown outcome for a refusal",
		file: "core/partition/append.go",
		old:  "clean := in.Fault == FaultFull || in.Fault == FaultRetry", new: "clean := in.Fault == FaultFull || in.Fault == FaultRetry || in.Fault == FaultUnknown",
	},
	{
		name: "trim records before their producers are in a snapshot",
		file: "core/partition/upkeep.go",
		old:  "if m.snapshotSafe >= at || m.producers.len() == 0 {", new: "if at >= 0 {",
	},
	{
		name: "let a refused batch advance its producer",
		file: "core/partition/producers.go",
		old:  "\t\te.state = before.state\n\t\treturn", new: "\t\treturn",
	},
	{
		name: "do not look for producers in the log",
		file: "core/partition/open.go",
		old:  "m.producers.replay(now, b)", new: "_ = b.ProducerID",
	},
	{
		name: "put what is under way into the producers' snapshot",
		file: "core/partition/snapshot.go",
		old:  "if before, ok := undone[e.id]; ok {", new: "if before, ok := undone[e.id]; ok && e.id < 0 {",
	},
	{
		name: "serve beyond the high watermark",
		file: "core/partition/view.go",
		old:  "return v.HighWater\n", new: "return v.LEO\n",
	},
	{
		name: "store: forget the last batch of an append of several",
		file: "sdk/storage/memstore/append.go",
		old:  "s.write(log, batches, a.now)", new: "s.write(log, batches[:(len(batches)+1)/2], a.now)",
	},
	{
		name: "stamp another offset than the one acknowledged",
		file: "core/replica/perform.go",
		old:  "recordbatch.Stamp(q.data, base, epoch)", new: "recordbatch.Stamp(q.data, base+base%2, epoch)",
	},
	{
		name: "store: say durable before it is",
		file: "sdk/storage/memstore/append.go",
		old:  "disk.durable = max(disk.durable, min(a.result.LEO, disk.end))\n\ta.result.Durable, a.result.Survives = disk.durable, a.req.Require",
		new:  "a.result.Durable, a.result.Survives = max(disk.durable, a.result.LEO), a.req.Require",
	},
	{
		name: "store: skip the CRC when recovering",
		file: "sdk/storage/memstore/disklog.go",
		old:  "damage == nil || b.LastOffset < l.durable {", new: "damage == nil || b.LastOffset >= 0 {",
	},
	{
		name: "open a log without what was written and not told",
		file: "core/sim/granted.go",
		old:  "if g.pages[spec.ID] = untold; len(untold) == 0 {", new: "if g.pages[spec.ID] = untold; len(untold) >= 0 {",
	},
	{
		name: "believe a store that refuses what is in its file",
		file: "core/sim/granted.go",
		old:  "if err != nil { // what it is of", new: "if err != nil && l.told < 0 { // what it is of",
	},
}

// mutantSeeds is how many seeds a mutation has to survive to be missed.
const mutantSeeds = "2000"

// TestMutations compiles each mutation into a test binary of its own, and
// expects TestSeeds to fail there with a violation.
func TestMutations(t *testing.T) { catch(t, mutations, "TestSeeds", "-seeds", mutantSeeds) }

// catch expects a test of seeds to fail with every mutation.
func catch(t *testing.T, mutations []mutation, test string, args ...string) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
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
func runMutant(t *testing.T, root string, m mutation, test string, args ...string) (string, error) {
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
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-overlay", list, "-vet=off", "-run", "^" + test + "$", "./core/sim", "-args"}, args...)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}
