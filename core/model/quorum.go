package model

import "time"

// QuorumStatus is the metadata quorum as its leader sees it.
type QuorumStatus struct {
	Leader        NodeID
	Epoch         int32
	HighWatermark int64
	Voters        []QuorumVoter
	Observers     []QuorumVoter // those who follow without a vote
}

// QuorumVoter is a member of the quorum, and how far its metadata log reaches.
type QuorumVoter struct {
	ID        NodeID
	Directory DirectoryID
	LEO       int64
	// LastContact is when the leader last heard from it, and LastCaughtUp when it last
	// had all that was committed; zero: never, or it is the leader.
	LastContact  time.Time
	LastCaughtUp time.Time
}
