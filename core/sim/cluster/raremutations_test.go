package cluster

import "github.com/brokerd/brokerd/core/sim/mutant"

// rareMutations are faults that take many seeds to be seen, since several things have to happen
// one upon the other: what those are is beside each. TestClusterMutations tries them where it is
// asked to.
var rareMutations = []mutant.Mutation{
	{
		// It takes a broker that has lost the end of a log with its power, and that is elected before
		// a leader has said that it lacks something.
		Name: "keep brokers in the ISR that begin another life",
		File: "core/controller/broker.go",
		Old:  "\t\te.leave(func(n model.NodeID) bool { return n == id })\n", New: "",
	},
	{
		// It takes a follower that has a record, and has not heard that it is committed, and that is
		// the next leader once it has followed again. (KIP-101)
		Name: "cut a log to the high watermark before it follows",
		File: "core/partition/follow.go",
		Old:  "\tto := min(in.End.EndOffset, m.stored)\n", New: "\tto := min(in.End.EndOffset, m.stored, m.hw)\n",
	},
	{
		// It takes batches that are late by a whole subscription. Few seeds have that;
		// TestClusterOfMachines of core/partition has it.
		Name: "take batches of another session",
		File: "core/partition/follow.go",
		Old:  "\t\tin.Session != m.up.session || in.Epoch != m.epoch || in.From < m.next {", New: "\t\tin.From < m.next {",
	},
	{
		// It takes a follower that has lost its end, or was given another log. (KIP-903) By what it had
		// acknowledged before, instead of by the high watermark, nothing breaks: that is forgotten
		// where its broker epoch is another, and within one life it loses nothing.
		Name: "believe that who follows has what is committed",
		File: "core/partition/lead.go",
		Old:  "\t\tf.acked = max(0, min(in.Counted, in.LEO, m.stored))\n", New: "\t\tf.acked = max(m.hw, min(in.Counted, in.LEO, m.stored))\n",
	},
	{
		// It takes a leader that is cut off just when it has asked (unheard.go), and whose question
		// was heard.
		Name: "forget what was asked of the controller when it does not answer",
		File: "core/partition/isr.go",
		Old:  "\tdefault:\n\t\ta.state, a.unsure = askHeld, true\n", New: "\tdefault:\n\t\tm.rollBack()\n\t\ta.state = askHeld\n",
	},
	{
		// It takes a question that comes when the partition has changed since. (overtaken.go)
		Name: "take a change of an ISR that is over",
		File: "core/controller/isr.go",
		Old:  "\tcase c.PartitionEpoch < p.PartitionEpoch:", New: "\tcase c.PartitionEpoch < 0:",
	},
	{
		// It takes a follower that begins another life, with less, while its leader's question names
		// the earlier one. (overtaken.go)
		Name: "let another life of a broker into the ISR",
		File: "core/controller/isr.go",
		Old:  "!ok || b.Epoch != m.Epoch && !unheard || ", New: "!ok || b.Epoch != m.Epoch && !unheard && m.Epoch < 0 || ",
	},
	{
		// It takes the loss of power of one in sync, which is the first to be elected afterwards.
		Name: "count a replica whole that may have lost something",
		File: "core/controller/broker.go",
		Old:  "case whole && slices.Contains(r.MayHaveLost, dir):", New: "case whole && n < 0:",
	},
	{
		// It takes an ISR below its minimum, whose last one loses what it has while one of the ELR
		// is back. (counted.go)
		Name: "leave the ELR aside",
		File: "core/controller/election.go",
		Old:  "return !slices.Contains(e.was.ISR, n) && !slices.Contains(e.was.ELR, n) ||", New: "return !slices.Contains(e.was.ISR, n) ||",
	},
	{
		// It takes a voter that dies after it has voted, and is back while another stands in that
		// term. (ballots.go)
		Name: "vote twice in a term",
		File: "core/quorum/store.go",
		Old:  "\treturn s, s.mem.SetHardState(s.hard)\n", New: "\ts.hard.Vote = nil\n\treturn s, s.mem.SetHardState(s.hard)\n",
	},
	{
		// It takes a voter that dies in that save, and votes for another one in the same term.
		Name: "vote before the vote is on disk",
		File: "core/quorum/turn.go",
		Old:  "\t\tif err := n.store.save(rd); err != nil {\n",
		New:  "\t\tif len(rd.Entries) == 0 {\n\t\t\t_ = n.send(rd.Messages)\n\t\t\trd.Messages = nil\n\t\t}\n\t\tif err := n.store.save(rd); err != nil {\n",
	},
	{
		// It takes a voter that dies before that entry comes.
		Name: "save a vote with the next entry",
		File: "core/quorum/store.go",
		Old:  "\tif rd.MustSync || c.Snapshot != nil ||", New: "\tif len(rd.Entries) > 0 || c.Snapshot != nil ||",
	},
	{
		// It takes a voter that dies in that save, without whose word there was no majority.
		Name: "send before the log is on disk",
		File: "core/quorum/turn.go",
		Old:  "\t\tif err := n.store.save(rd); err != nil {\n", New: "\t\t_ = n.send(rd.Messages)\n\t\trd.Messages = nil\n\t\tif err := n.store.save(rd); err != nil {\n",
	},
	{
		// It takes a leader that was fenced while it was paused, and what had reached it. (leases.go)
		Name: "hold a lease after a pause",
		File: "core/partition/append.go",
		Old:  "\t\tif !w.weak || m.doubt {\n", New: "\t\tif !w.weak || m.doubt && m.epoch < 0 {\n",
	},
	{
		// It takes a first broker that has lost its disks, and cannot reach those that know its
		// cluster.
		Name: "create a cluster though some seed is silent",
		File: "core/quorum/finder.go",
		Old:  "\tcase err != nil || a.status != statusCluster:\n\t\tf.silent = append(f.silent, in.seed)\n", New: "\tcase err != nil || a.status != statusCluster:\n",
	},
	{
		// It takes followers that have acknowledged what their leader's store does not have any
		// more.
		Name: "acknowledge before the store has the append",
		File: "core/partition/watermark.go",
		Old:  "\treturn m.stored\n}\n\n// advance", New: "\treturn m.next\n}\n\n// advance",
	},
	{
		// It takes a voter that loses its disks after its word has made a majority.
		Name: "let a wiped voter keep its identity",
		File: "core/quorum/node.go",
		Old:  "\treturn dir, nil\n}\n\n// NewClusterID", New: "\treturn model.DirectoryID{byte(n.cfg.NodeID) + 1}, nil\n}\n\n// NewClusterID",
	},
	{
		// It takes a loss of power of the only one in sync, right after it has acknowledged.
		Name: "acknowledge alone what is not on disk",
		File: "core/partition/watermark.go",
		Old:  "m.role == roleLeader && m.asking.least < 2\n", New: "m.role == roleLeader && m.asking.least < 1\n",
	},
	{
		// It takes two copies to one log at once, of a store of which the first call is the slower.
		Name: "let copies overtake each other",
		File: "core/replica/copy.go",
		Old:  "\t\tc.frames = append(c.frames, q.frame)\n\t}\n\ts.exec.Ordered(Lane{s.index, r.dir.ID}, c.run)\n", New: "\t\tc.frames = append(c.frames, q.frame)\n\t}\n\ts.exec.Go(r.dir.ID, c.run)\n",
	},
	{
		// It takes a log that is opened again, and cut, while copies of it wait.
		Name: "send copies of a log as it was before",
		File: "core/replica/copy.go",
		Old:  "\tif first.Gen != r.gen {\n\t\treturn // an opening", New: "\tif first.Gen > r.gen {\n\t\treturn // an opening",
	},
}
