package sim

import (
	"testing"

	"github.com/brokerd/brokerd/core/sim/mutant"
)

// groupMutations are faults that a group coordinator could have.
var groupMutations = []mutant.Mutation{
	{
		Name: "take commits of earlier generations",
		File: "core/group/offsets.go",
		Old:  "case q.Generation != g.generation:", New: "case q.Generation > g.generation:",
	},
	{
		Name: "acknowledge a commit before it is durable",
		File: "core/group/offsets.go",
		Old:  "m.write(now, c.group, records, c, out)\n",
		New:  "m.write(now, c.group, records, c, out)\n\tc.answer(model.CommittedOffsets{Offsets: c.errs}, out)\n",
	},
	{
		Name: "show a commit before it is durable",
		File: "core/group/offsets.go",
		Old:  "m.write(now, c.group, records, c, out)\n",
		New:  "m.write(now, c.group, records, c, out)\n\tfor i := range c.keys {\n\t\tc.group.offsets[c.keys[i]] = c.values[i]\n\t}\n",
	},
	{
		Name: "answer while the log is loaded",
		File: "core/group/machine.go",
		Old:  "if m.phase != phaseServing {", New: "if m.phase == phaseIdle {",
	},
	{
		Name: "let the offsets of a live group expire",
		File: "core/group/expiry.go",
		Old:  "case g.state != model.GroupStable, !g.readable, g.isSubscribed(key.Topic):", New: "case g.state != model.GroupStable:",
	},
	{
		Name: "hand out the assignment of a generation that is over",
		File: "core/group/sync.go",
		Old:  "if g.assigning != a.write {\n\t\treturn // the group has gone on", New: "if g.assigning != a.write && err != nil {\n\t\treturn",
	},
	{
		Name: "tell an assignment before it is durable",
		File: "core/group/sync.go",
		Old:  "\ta.write = g.assigning\n", New: "\ta.write = g.assigning\n\ta.written(m, now, nil, out)\n",
	},
	{
		Name: "pass over tombstones",
		File: "core/group/load.go",
		Old:  "delete(g.offsets, key)\n", New: "_ = key\n",
	},
	{
		Name: "replay records in another order",
		File: "core/group/load.go",
		Old:  "r := &in.Records[i]\n", New: "r := &in.Records[len(in.Records)-1-i]\n",
	},
	{
		Name: "let a static member go on whose place is taken",
		File: "core/group/group.go",
		Old:  "\t\tif mem.id != id {\n", New: "\t\tif mem.id != id {\n\t\t\treturn mem, nil\n\t\t}\n\t\tif mem.id == \"\" {\n",
	},
	{
		Name: "do not count heartbeats",
		File: "core/group/members.go",
		Old:  "\tm.alarms.set(&mem.alarm, now.Add(mem.session))\n\tif g.state == model.GroupPreparingRebalance {",
		New:  "\t_ = mem\n\tif g.state == model.GroupPreparingRebalance {",
	},
	{
		Name: "let no session end",
		File: "core/group/members.go",
		Old:  "if !mem.fresh && (mem.join.waits || mem.sync.waits) {", New: "if !mem.fresh || mem.join.waits {",
	},
	{
		Name: "take a refused write for a durable one",
		File: "core/group/writes.go",
		Old:  "w.outcome.written(m, now, refusal(w.err), out)", New: "w.outcome.written(m, now, nil, out)",
	},
	{
		Name: "answer nobody when the coordinator resigns",
		File: "core/group/machine.go",
		Old:  "\tm.failAll(out, fmt.Errorf(\"the groups have another coordinator: %w\", model.ErrNotCoordinator))\n", New: "",
	},
	{
		Name: "serve before the end of the log",
		File: "core/coordinator/load.go",
		Old:  "case l.next >= l.end:", New: "case l.next >= l.end-1:",
	},
	{
		Name: "leave the last record of a write out",
		File: "core/coordinator/write.go",
		Old:  "for i := range q.Records {", New: "for i := range q.Records[:max(1, len(q.Records)-1)] {",
	},
	{
		Name: "do not wake a machine",
		File: "core/coordinator/shard.go",
		Old:  "s.timers.Set(timerKey{h, timerMachine}, *e.Timer)", New: "s.timers.Cancel(timerKey{h, timerMachine})",
	},
}

// TestGroupMutations is TestMutations with groups.
func TestGroupMutations(t *testing.T) {
	catch(t, groupMutations, "TestGroupSeeds", "-groupseeds", "1000")
}
