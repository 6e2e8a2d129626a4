package cluster

import "github.com/brokerd/brokerd/core/sim/mutant"

// rareMutations are faults that take many seeds, or luck, to be seen: TestClusterMutations
// tries them where it is asked to.
//
// Seeds that caught some of them, as the simulation was then (what is added to it moves them):
// the acknowledgement before the store has the append 120, the cut to the high watermark 102,
// the replica that counts as whole 25, the wiped voter that keeps its identity 33. The
// first three hundred missed batches of another session, which TestClusterOfMachines of
// core/partition catches, what a follower had in an earlier life, what was asked and is
// forgotten (before leaders were cut off that had asked), and the change of an ISR that is over.
var rareMutations = []mutant.Mutation{
	{
		Name: "cut a log to the high watermark before it follows",
		File: "core/partition/follow.go",
		Old:  "\tto := min(in.End.EndOffset, m.stored)\n", New: "\tto := min(in.End.EndOffset, m.stored, m.hw)\n",
	},
	{
		Name: "take batches of another session",
		File: "core/partition/follow.go",
		Old:  "\t\tin.Session != m.up.session || in.Epoch != m.epoch || in.From < m.next {", New: "\t\tin.From < m.next {",
	},
	{
		Name: "believe what a follower had in an earlier life",
		File: "core/partition/lead.go",
		Old:  "\t\tf.acked = max(0, min(in.Counted, in.LEO, m.stored))\n", New: "\t\tf.acked = max(f.acked, min(in.Counted, in.LEO, m.stored))\n",
	},
	{
		Name: "forget what was asked of the controller when it does not answer",
		File: "core/partition/isr.go",
		Old:  "\tdefault:\n\t\ta.state, a.unsure = askHeld, true\n", New: "\tdefault:\n\t\tm.rollBack()\n\t\ta.state = askHeld\n",
	},
	{
		Name: "take a change of an ISR that is over",
		File: "core/controller/isr.go",
		Old:  "\tcase c.PartitionEpoch < p.PartitionEpoch:", New: "\tcase c.PartitionEpoch < 0:",
	},
	{
		Name: "let another life of a broker into the ISR",
		File: "core/controller/isr.go",
		Old:  "!ok || b.Epoch != m.Epoch && !unheard || ", New: "!ok || b.Epoch != m.Epoch && !unheard && m.Epoch < 0 || ",
	},
	{
		Name: "count a replica whole that may have lost something",
		File: "core/controller/broker.go",
		Old:  "case whole && slices.Contains(r.MayHaveLost, dir):", New: "case whole && n < 0:",
	},
	{
		Name: "leave the ELR aside",
		File: "core/controller/election.go",
		Old:  "return !slices.Contains(e.was.ISR, n) && !slices.Contains(e.was.ELR, n) ||", New: "return !slices.Contains(e.was.ISR, n) ||",
	},
	{
		Name: "vote before the vote is on disk",
		File: "core/quorum/store.go",
		Old:  "\tif rd.MustSync || c.Snapshot != nil ||", New: "\tif len(rd.Entries) > 0 || c.Snapshot != nil ||",
	},
	{
		Name: "send before the log is on disk",
		File: "core/quorum/turn.go",
		Old:  "\t\tif err := n.store.save(rd); err != nil {\n", New: "\t\t_ = n.send(rd.Messages)\n\t\tif err := n.store.save(rd); err != nil {\n",
	},
	{
		Name: "create a cluster though some seed is silent",
		File: "core/quorum/finder.go",
		Old:  "\tcase err != nil || a.status != statusCluster:\n\t\tf.silent = append(f.silent, in.seed)\n", New: "\tcase err != nil || a.status != statusCluster:\n",
	},
	{
		Name: "acknowledge before the store has the append",
		File: "core/partition/watermark.go",
		Old:  "\treturn m.stored\n}\n\n// advance", New: "\treturn m.next\n}\n\n// advance",
	},
	{
		Name: "let a wiped voter keep its identity",
		File: "core/quorum/node.go",
		Old:  "\treturn dir, nil\n}\n\n// NewClusterID", New: "\treturn model.DirectoryID{byte(n.cfg.NodeID) + 1}, nil\n}\n\n// NewClusterID",
	},
	{
		Name: "acknowledge alone what is not on disk",
		File: "core/partition/watermark.go",
		Old:  "m.role == roleLeader && m.asking.least < 2\n", New: "m.role == roleLeader && m.asking.least < 1\n",
	},
	{
		Name: "let copies overtake each other",
		File: "core/replica/copy.go",
		Old:  "\t\tc.frames = append(c.frames, q.frame)\n\t}\n\ts.exec.Ordered(Lane{s.index, r.dir.ID}, c.run)\n", New: "\t\tc.frames = append(c.frames, q.frame)\n\t}\n\ts.exec.Go(r.dir.ID, c.run)\n",
	},
	{
		Name: "send copies of a log as it was before",
		File: "core/replica/copy.go",
		Old:  "\tif first.Gen != r.gen {\n\t\treturn // an opening", New: "\tif first.Gen > r.gen {\n\t\treturn // an opening",
	},
}
