package model

// Address is where a node can be asked: what a seed's configuration, or the metadata, says.
type Address struct {
	Endpoint string
	// Node is who is to answer; NoNode: whoever is there.
	Node NodeID
}

// StreamID names a link between this broker and another one that carries replication. It is
// never used twice while this process lives.
type StreamID uint64
