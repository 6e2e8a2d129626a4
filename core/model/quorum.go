package model

// QuorumStatus is the metadata quorum as its leader sees it.
type QuorumStatus struct {
	Leader        NodeID
	Epoch         int32
	HighWatermark int64
	Voters        []QuorumVoter
}

// QuorumVoter is one who votes, and how far its metadata log reaches.
type QuorumVoter struct {
	ID        NodeID
	Directory DirectoryID
	LEO       int64
}
