package model

// Member is a replica that is in sync, or is to be, as its leader knows it: a broker in
// one registration. (KIP-903)
//
// The broker epoch of a member that is in sync already may be NoBrokerEpoch, where a leader
// has not heard from it yet; it is not compared then. That a member has not begun another
// life since is in the partition epoch.
type Member struct {
	Node  NodeID
	Epoch BrokerEpoch
}

// NoBrokerEpoch stands where no registration is known.
const NoBrokerEpoch BrokerEpoch = -1

// ISRChange is what a leader asks of the controller for one partition. (AlterPartition)
// One that asks for what is committed already is committed all the same, under the next
// partition epoch: so a leader settles what it has asked before and never heard of.
type ISRChange struct {
	Partition      Partition
	LeaderEpoch    LeaderEpoch
	PartitionEpoch PartitionEpoch
	ISR            []Member
	// Lost are replicas whose logs lack what they have acknowledged in this life of their
	// brokers, or cannot be read: they leave the ISR, and are not among those that have all
	// that was committed. Where the leader itself is one, another replica leads, or, where
	// nobody else is known to have more, the same one under another leader epoch.
	Lost []NodeID
}

// ISRResult answers an ISRChange. Err nil: committed, and the rest is what the partition is
// now. ErrFencedLeaderEpoch, ErrInvalidUpdateVersion, ErrUnknownTopicID,
// ErrInvalidRequest: the metadata has moved on. ErrIneligibleReplica: a member may not be in
// sync now. ErrStaleBrokerEpoch: the leader's own registration is over. ErrNotController:
// the one that was asked is not, or knows less than the leader; nothing is known of the
// outcome.
type ISRResult struct {
	Leader         NodeID
	LeaderEpoch    LeaderEpoch
	PartitionEpoch PartitionEpoch
	ISR            []NodeID
	Err            error
}

// Reassignment asks that a partition get other replicas, the first of them the preferred
// leader; nil: that it keep those that it had before. (KIP-455)
type Reassignment struct {
	Partition Partition
	Replicas  []NodeID
}

// LogEnd is where a replica's log ends.
type LogEnd struct {
	Partition Partition
	// PartitionEpoch is of the metadata by which the replica has that log.
	PartitionEpoch PartitionEpoch
	LastEpoch      LeaderEpoch // of its last record, or NoEpoch
	LEO            int64
}
