package cluster

import "github.com/brokerd/brokerd/core/sim/mutant"

// blindMutations are chosen from the code under test alone: neither by the faults of the
// simulation, nor by what it checks. Two of them are in mutations too. What each needs to be
// caught is beside it.
//
// That a leader goes on with what it knew of its log after an epoch that it let pass (in.Epoch >
// m.epoch+1 in onLead) is none of them: only the replica itself writes to its log, and one that
// has not followed in between has written nothing.
var blindMutations = []mutant.Mutation{
	{
		// A repeat that comes to a new leader is of a batch that others may not have. It takes the
		// loss of that leader before they do.
		Name: "a repeat is answered once its first is stored here",
		File: "core/partition/append.go",
		Old:  "\t\treturn r.last < m.hw\n",
		New:  "\t\treturn r.last < m.stored\n",
	},
	{
		// A leader knows of a lower high watermark than the one before it has acknowledged by. It
		// takes a follower that joins without a record that was acknowledged before: it counts from
		// then on, and may come to lead in place of those that have it.
		Name: "a follower joins the ISR with less than there was when the epoch began",
		File: "core/partition/isr.go",
		Old:  "f.acked >= max(m.hw, m.epochStart, f.rejoins)",
		New:  "f.acked >= max(m.hw, f.rejoins)",
	},
	{
		// KIP-101 without KIP-279. It takes two leaders in a row that have written without
		// followers, and a third log.
		Name: "a follower cuts by its leader's word alone",
		File: "core/partition/follow.go",
		Old:  "\tif own.Epoch != model.NoEpoch {\n\t\tto = min(to, own.EndOffset)\n\t}\n",
		New:  "\t_ = own\n",
	},
	{
		// A follower that comes to lead takes what was sent again for new. It takes an answer that
		// was lost with its leader.
		Name: "a follower keeps no books of producers",
		File: "core/partition/follow.go",
		Old:  "\tm.producers.replay(now, b)\n\tm.epochs = m.epochs.assigned(b.LeaderEpoch, b.BaseOffset)\n",
		New:  "\tm.epochs = m.epochs.assigned(b.LeaderEpoch, b.BaseOffset)\n",
	},
	{
		// What lands behind the leader's back is foreign to it, which takes it offline. It takes
		// another leader while an append is at a store that is slow.
		Name: "a leader that becomes a follower has nothing under way",
		File: "core/partition/follow.go",
		Old:  "\t\t// What is under way may land yet.\n\t\tm.unsettled = true\n",
		New:  "",
	},
	{
		// It may be alone by now, with what only page caches hold. It takes a leader that loses
		// power after its question was heard and before it has heard the answer, with a record that
		// the follower who leaves has too. Few seeds have that; TestClusterOfMachines of
		// core/partition has it.
		Name: "an ISR of one counts only when it is known to be committed",
		File: "core/partition/isr.go",
		Old:  "\ta.least = min(a.least, len(isr))\n",
		New:  "",
	},
	{
		// With the minimum reached records are committed that those outside do not get. It takes one
		// of those outside that comes back before the others.
		Name: "the ELR is kept while the ISR is at its minimum",
		File: "core/controller/election.go",
		Old:  "len(p.ISR) < e.d.minISR(e.t, p.Counted())\n",
		New:  "len(p.ISR) <= e.d.minISR(e.t, p.Counted())\n",
	},
	{
		// It may never be. It takes a controller that goes between its answer and the commit.
		Name: "a leader hears of its ISR before that is committed",
		File: "core/controller/machine.go",
		Old:  "if last := len(m.inFlight) - 1; last >= 0 {",
		New:  "if last := len(m.inFlight) - 1; last >= 0 && answer.ISR == nil {",
	},
	{
		// What earlier controllers have committed is not all replayed yet. It takes a new controller
		// that is asked at once, after a busy one.
		Name: "a controller decides as soon as it is elected",
		File: "core/quorum/turn.go",
		Old:  "n.term != n.store.hard.GetTerm() || n.applied < n.leadFrom ||",
		New:  "n.applied < n.leadFrom ||",
	},
	{
		// It may be committed for all that. It takes a leader that is cut off just when it has asked
		// (unheard.go).
		Name: "a question to the controller without an answer has changed nothing",
		File: "core/replica/isr.go",
		Old:  "in.Outcome, in.Err = partition.OutcomeUnknown, fmt.Errorf(\"ask the controller: %w\", err)",
		New:  "in.Outcome, in.Err = partition.OutcomeIneligible, fmt.Errorf(\"ask the controller: %w\", err)",
	},
}
