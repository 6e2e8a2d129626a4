package cluster

// rareMutations are faults that take many seeds, or luck, to be seen: TestClusterMutations
// tries them where it is asked to.
var rareMutations = []mutation{
	{
		name: "cut a log to the high watermark before it follows",
		file: "core/partition/follow.go",
		old:  "\tto := min(in.End.EndOffset, m.stored)\n", new: "\tto := min(in.End.EndOffset, m.stored, m.hw)\n",
	},
	{
		name: "take batches of another session",
		file: "core/partition/follow.go",
		old:  "\t\tin.Session != m.up.session || in.Epoch != m.epoch || in.From < m.next {", new: "\t\tin.From < m.next {",
	},
	{
		name: "believe what a follower had in an earlier life",
		file: "core/partition/lead.go",
		old:  "\t\tf.acked = max(0, min(in.Counted, in.LEO, m.stored))\n", new: "\t\tf.acked = max(f.acked, min(in.Counted, in.LEO, m.stored))\n",
	},
	{
		name: "forget what was asked of the controller when it does not answer",
		file: "core/partition/isr.go",
		old:  "\tdefault:\n\t\ta.state, a.unsure = askHeld, true\n", new: "\tdefault:\n\t\tm.rollBack()\n\t\ta.state = askHeld\n",
	},
	{
		name: "take a change of an ISR that is over",
		file: "core/controller/isr.go",
		old:  "\tcase c.PartitionEpoch < p.PartitionEpoch:", new: "\tcase c.PartitionEpoch < 0:",
	},
	{
		name: "let another life of a broker into the ISR",
		file: "core/controller/isr.go",
		old:  "!ok || b.Epoch != m.Epoch && !unheard || ", new: "!ok || b.Epoch != m.Epoch && !unheard && m.Epoch < 0 || ",
	},
	{
		name: "count a replica whole that may have lost something",
		file: "core/controller/broker.go",
		old:  "case whole && slices.Contains(r.MayHaveLost, dir):", new: "case whole && n < 0:",
	},
	{
		name: "leave the ELR aside",
		file: "core/controller/election.go",
		old:  "return !slices.Contains(e.was.ISR, n) && !slices.Contains(e.was.ELR, n) ||", new: "return !slices.Contains(e.was.ISR, n) ||",
	},
	{
		name: "vote before the vote is on disk",
		file: "core/quorum/store.go",
		old:  "\tif rd.MustSync || c.Snapshot != nil ||", new: "\tif len(rd.Entries) > 0 || c.Snapshot != nil ||",
	},
	{
		name: "send before the log is on disk",
		file: "core/quorum/turn.go",
		old:  "\t\tif err := n.store.save(rd); err != nil {\n", new: "\t\t_ = n.send(rd.Messages)\n\t\tif err := n.store.save(rd); err != nil {\n",
	},
	{
		name: "create a cluster though some seed is silent",
		file: "core/quorum/finder.go",
		old:  "\tcase err != nil || a.status != statusCluster:\n\t\tf.silent = append(f.silent, in.seed)\n", new: "\tcase err != nil || a.status != statusCluster:\n",
	},
	{
		name: "raise the high watermark by the committed ISR alone",
		file: "core/partition/watermark.go",
		old:  "f.inISR || f.maybe {", new: "f.inISR {",
	},
	{
		name: "let a wiped voter keep its identity",
		file: "core/quorum/node.go",
		old:  "\treturn dir, nil\n}\n\n// NewClusterID", new: "\treturn model.DirectoryID{byte(n.cfg.NodeID) + 1}, nil\n}\n\n// NewClusterID",
	},
	{
		name: "let copies overtake each other",
		file: "core/replica/copy.go",
		old:  "\t\tc.frames = append(c.frames, q.frame)\n\t}\n\ts.exec.Ordered(Lane{s.index, r.dir.ID}, c.run)\n", new: "\t\tc.frames = append(c.frames, q.frame)\n\t}\n\ts.exec.Go(r.dir.ID, c.run)\n",
	},
	{
		name: "send copies of a log as it was before",
		file: "core/replica/copy.go",
		old:  "\tif first.Gen != r.gen {\n\t\treturn // an opening", new: "\tif first.Gen > r.gen {\n\t\treturn // an opening",
	},
}
