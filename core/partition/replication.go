package partition

import (
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// Session names one subscription of a follower to its leader. A follower draws them
// rising, over all its lives: it tells what comes late from an earlier subscription, or
// from an earlier life.
type Session uint64

// Follow makes this replica a follower of Leader under Epoch, or tells that nobody
// leads (NoNode). A lower epoch than the machine has seen is ignored; a higher one
// opens the log again, which fences whoever wrote under the ones before it. Nothing is
// cut off the log but where the leader of this very epoch has said that it diverges.
type Follow struct {
	Epoch          model.LeaderEpoch
	PartitionEpoch model.PartitionEpoch
	Leader         model.NodeID
	ISR            []model.NodeID
	ELR            []model.NodeID // KIP-966
	Replicas       []model.NodeID // the assignment
	Adding         int            // how many of them count for the minimum of the ISR only later (KIP-455)
	Target         int            // how many there are to be
}

// Reached tells a follower that its host has a link to a node, or has lost it. Told of a
// link that it knows of, it takes it for another one, and subscribes anew. It may be told
// at any time, and of nodes that it does not follow, which it remembers.
type Reached struct {
	Node model.NodeID
	Up   bool
}

// Verdict is a leader's answer to Subscribe.
type Verdict int8

// The verdicts.
const (
	VerdictAccepted Verdict = iota // the stream goes on from the follower's LEO
	VerdictDiverges                // the follower's log differs from End on: cut, and ask again
	VerdictReset                   // the leader's log has nothing of the follower's any more: start at LogStart, with a whole batch
	VerdictFenced                  // the leader knows a higher leader epoch: wait for the metadata
	VerdictUnknown                 // it does not lead under this epoch, or not yet: ask again later
)

// Subscribed answers a follower's Subscription.
type Subscribed struct {
	Node     model.NodeID // who answers
	Session  Session
	Epoch    model.LeaderEpoch // the leader's
	Verdict  Verdict
	End      model.EpochEnd // with VerdictDiverges: the largest epoch that both may know, and its end at the leader
	LogStart int64
}

// Replicate is batches from the leader, checked by CRC, as they are in its log: with its
// offsets and leader epochs. None of them is no mistake: then it tells of the offsets alone.
type Replicate struct {
	ID      RequestID // of the payload, all batches back to back; released by an effect
	Session Session
	Epoch   model.LeaderEpoch // the leader's, at or above every batch's
	// From is where the leader's stream was: the LEO of a follower that has all before.
	From      int64
	Batches   []recordbatch.Info // the machine does not keep the slice
	HighWater int64
	LogStart  int64
}

// Damaged tells a follower that what came in a session cannot be used (a wrong CRC, a
// message that cannot be read): it subscribes anew, after a while.
type Damaged struct {
	Session Session
	Err     error
}

// Truncated answers TruncateLog.
type Truncated struct {
	Gen   Generation
	LEO   int64
	Fault Fault
	Err   error
}

// Deleted answers DeleteLog.
type Deleted struct{ Gen Generation }

// Subscribe is a follower's question to the leader: from where may the stream go on?
type Subscribe struct {
	Node        model.NodeID
	BrokerEpoch model.BrokerEpoch // of the follower's broker; KIP-903
	Session     Session
	Epoch       model.LeaderEpoch // under which it follows
	// PartitionEpoch is that of the metadata that the follower has: by it, it has this log.
	PartitionEpoch model.PartitionEpoch
	LEO            int64
	// Counted is its log end as far as its flush policy lets it count, or Lacking.
	Counted   int64
	LastEpoch model.LeaderEpoch // of its last record, or NoEpoch
	LogStart  int64
}

// Unsubscribed tells a leader that a follower's link is gone.
type Unsubscribed struct {
	Node    model.NodeID
	Session Session
}

// Outcome is what became of an AlterISR.
type Outcome int8

// The outcomes.
const (
	OutcomeDone       Outcome = iota // committed; the metadata tells, before or after this answer
	OutcomeUnknown                   // no answer, or no controller: it may be committed yet; ask again, the same
	OutcomeIneligible                // refused: a member may not be in sync now; nothing has changed (KIP-841, KIP-903)
	OutcomeStale                     // refused: the metadata has moved on, and will tell
)

// Altered answers AlterISR.
type Altered struct {
	Epoch          model.LeaderEpoch    // that it was asked under
	PartitionEpoch model.PartitionEpoch // likewise
	Lost           []model.NodeID       // that were named as such that lack something
	Outcome        Outcome
	// NewPartitionEpoch and ISR are what was committed, with OutcomeDone.
	NewPartitionEpoch model.PartitionEpoch
	ISR               []model.NodeID
	Err               error
}

func (*Follow) input()       {}
func (*Reached) input()      {}
func (*Subscribed) input()   {}
func (*Replicate) input()    {}
func (*Damaged) input()      {}
func (*Truncated) input()    {}
func (*Deleted) input()      {}
func (*Subscribe) input()    {}
func (*Unsubscribed) input() {}
func (*Altered) input()      {}

// Subscription asks the leader for its stream. The host adds its broker epoch.
type Subscription struct {
	Leader         model.NodeID
	Session        Session
	Epoch          model.LeaderEpoch
	PartitionEpoch model.PartitionEpoch
	LEO            int64
	Counted        int64
	LastEpoch      model.LeaderEpoch
	LogStart       int64
}

// Ack tells the leader how far this follower's log reaches, and under which partition epoch
// it has that log. Only the last of a session counts, so that a host may leave out those
// before it. It goes behind the Subscription of its session.
type Ack struct {
	Leader         model.NodeID
	Session        Session
	Epoch          model.LeaderEpoch
	PartitionEpoch model.PartitionEpoch
	LEO            int64 // as far as the flush policy lets it count
}

// CopyLog asks that the payload of a Replicate be appended as it is. It is answered by
// AppendDone. Limits bound how many are under way: a host gives the leader less credit than
// they are, since what is beyond them is dropped, and the leader is asked again.
type CopyLog struct {
	ID    RequestID
	Gen   Generation
	Base  int64 // the log end before it; the first batch may begin above
	Last  int64
	Bytes int
	Epoch model.LeaderEpoch // under which it is written, at or above every batch's
	// Machine asks that it survive the loss of power of the machine before it is
	// answered.
	Machine bool
}

// TruncateLog asks that all from To on be dropped. It is answered by Truncated.
type TruncateLog struct {
	Gen   Generation
	Epoch model.LeaderEpoch
	To    int64
}

// DeleteLog asks that the log, which holds no record, be deleted, again and again until it is.
// It is answered by Deleted. The log that is opened then is a new one.
type DeleteLog struct{ Gen Generation }

// Answer is a leader's to a Subscribe. With VerdictAccepted the host sends the log from
// From on, up to the View's LEO and no further, and what the high watermark and the log
// start become, until EndStream, or until an Answer of a higher session of this follower: a
// lower one is to a question that came late, and ends nothing. From may be below the View's
// log start, in the batch that the log starts in, which is sent whole. Where the View's First
// has passed what would come next, the host sends the log start alone, without batches: the
// follower subscribes anew, and is told where to start.
type Answer struct {
	Node     model.NodeID
	Session  Session
	Epoch    model.LeaderEpoch
	Verdict  Verdict
	From     int64
	End      model.EpochEnd
	LogStart int64
}

// EndStream ends what an accepted Answer has begun.
type EndStream struct {
	Node    model.NodeID
	Session Session
}

// AlterISR asks the controller for another ISR. There is one under way at most; until it is
// answered the leader reckons with every replica that may be in sync. (KIP-497)
type AlterISR struct {
	Epoch          model.LeaderEpoch
	PartitionEpoch model.PartitionEpoch
	ISR            []model.Member
	// Lost are replicas whose logs lack what they had acknowledged, or cannot be read. With
	// this one among them, another is to lead. (model.ISRChange)
	Lost []model.NodeID
}
