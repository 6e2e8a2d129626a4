package sim

import "testing"

// groupMutations are faults that a group coordinator could have.
var groupMutations = []mutation{
	{
		name: "take commits of earlier generations",
		file: "core/group/offsets.go",
		old:  "case q.Generation != g.generation:", new: "case q.Generation > g.generation:",
	},
	{
		name: "acknowledge a commit before it is durable",
		file: "core/group/offsets.go",
		old:  "m.write(now, c.group, records, c, out)\n",
		new:  "m.write(now, c.group, records, c, out)\n\tc.answer(model.CommittedOffsets{Offsets: c.errs}, out)\n",
	},
	{
		name: "show a commit before it is durable",
		file: "core/group/offsets.go",
		old:  "m.write(now, c.group, records, c, out)\n",
		new:  "m.write(now, c.group, records, c, out)\n\tfor i := range c.keys {\n\t\tc.group.offsets[c.keys[i]] = c.values[i]\n\t}\n",
	},
	{
		name: "answer while the log is loaded",
		file: "core/group/machine.go",
		old:  "if m.phase != phaseServing {", new: "if m.phase == phaseIdle {",
	},
	{
		name: "let the offsets of a live group expire",
		file: "core/group/expiry.go",
		old:  "case g.state != model.GroupStable, !g.readable, g.isSubscribed(key.Topic):", new: "case g.state != model.GroupStable:",
	},
	{
		name: "hand out the assignment of a generation that is over",
		file: "core/group/sync.go",
		old:  "if g.assigning != a.write {\n\t\treturn // the group has gone on", new: "if g.assigning != a.write && err != nil {\n\t\treturn",
	},
	{
		name: "tell an assignment before it is durable",
		file: "core/group/sync.go",
		old:  "\ta.write = g.assigning\n", new: "\ta.write = g.assigning\n\ta.written(m, now, nil, out)\n",
	},
	{
		name: "pass over tombstones",
		file: "core/group/load.go",
		old:  "delete(g.offsets, key)\n", new: "_ = key\n",
	},
	{
		name: "replay records in another order",
		file: "core/group/load.go",
		old:  "r := &in.Records[i]\n", new: "r := &in.Records[len(in.Records)-1-i]\n",
	},
	{
		name: "let a static member go on whose place is taken",
		file: "core/group/group.go",
		old:  "\t\tif mem.id != id {\n", new: "\t\tif mem.id != id {\n\t\t\treturn mem, nil\n\t\t}\n\t\tif mem.id == \"\" {\n",
	},
	{
		name: "do not count heartbeats",
		file: "core/group/members.go",
		old:  "\tm.alarms.set(&mem.alarm, now.Add(mem.session))\n\tif g.state == model.GroupPreparingRebalance {",
		new:  "\t_ = mem\n\tif g.state == model.GroupPreparingRebalance {",
	},
	{
		name: "let no session end",
		file: "core/group/members.go",
		old:  "if !mem.fresh && (mem.join.waits || mem.sync.waits) {", new: "if !mem.fresh || mem.join.waits {",
	},
	{
		name: "take a refused write for a durable one",
		file: "core/group/writes.go",
		old:  "w.outcome.written(m, now, refusal(w.err), out)", new: "w.outcome.written(m, now, nil, out)",
	},
	{
		name: "answer nobody when the coordinator resigns",
		file: "core/group/machine.go",
		old:  "\tm.failAll(out, fmt.Errorf(\"the groups have another coordinator: %w\", model.ErrNotCoordinator))\n", new: "",
	},
	{
		name: "serve before the end of the log",
		file: "core/coordinator/load.go",
		old:  "case l.next >= l.end:", new: "case l.next >= l.end-1:",
	},
	{
		name: "leave the last record of a write out",
		file: "core/coordinator/write.go",
		old:  "for i := range q.Records {", new: "for i := range q.Records[:max(1, len(q.Records)-1)] {",
	},
	{
		name: "do not wake a machine",
		file: "core/coordinator/shard.go",
		old:  "s.timers.Set(timerKey{h, timerMachine}, *e.Timer)", new: "s.timers.Cancel(timerKey{h, timerMachine})",
	},
}

// TestGroupMutations is TestMutations with groups.
func TestGroupMutations(t *testing.T) {
	catch(t, groupMutations, "TestGroupSeeds", "-groupseeds", "1000")
}
