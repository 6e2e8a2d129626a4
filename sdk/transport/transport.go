package transport

import "context"

const (
	// MessageBytesMax is the largest message, which every transport carries whole, however
	// small the messages of its network are: it cuts them and puts them together again.
	MessageBytesMax = 128 << 20
	// LinkBytesMax is how much of messages may be under way in each direction of a link:
	// sent, and not received. One message may be larger. What is kept beside the bytes of a
	// message counts too, so that empty ones are bounded.
	LinkBytesMax = 16 << 20
)

// Transport carries messages between this node and its peers. See the package comment for
// what holds everywhere.
type Transport interface {
	// Capabilities says what this transport offers beyond the contract. It does no I/O and
	// always gives the same answer.
	Capabilities() Capabilities

	// Endpoint is where this node can be dialled, as far as the transport knows: it names
	// the port that was bound where a free one was asked for.
	Endpoint() string

	// Dial makes a link to the node at an endpoint, and returns when the peer's transport
	// has agreed to it; its broker need not have accepted it yet.
	//
	// ErrRefused, ErrRetry: nobody was reached. ErrDenied: the peer did not prove what is
	// demanded of it, or did not believe this node. ErrOther: somebody else than Target
	// names has answered, as the message tells. ErrInvalid: the target makes no sense.
	Dial(ctx context.Context, to Target) (Link, error)

	// Accept waits for the next link that a peer has dialled. Links that are dialled and not
	// accepted are bounded in number; beyond that, dialling waits, and then fails with
	// ErrRetry. The bound is each lane's own. The peer may be of any cluster, and have any
	// directory: whether it should is for the broker to see.
	Accept(ctx context.Context) (Link, error)

	// Close ends every link and everything else, at once, and returns when nothing of the
	// transport is left. After it, all calls give ErrClosed. Closing twice is no error.
	Close() error
}

// Link is one link, as one end has it. Every link that Dial or Accept has given is to be
// closed, also one that has ended. Whoever sends on a link receives on it too, in another
// goroutine: two ends that only send wait for each other, and an end that receives nothing is
// not told that the link has ended.
type Link interface {
	// Peer is who is at the other end.
	Peer() Peer

	// Lane is the lane that it was dialled for.
	Lane() Lane

	// Send sends one message, given in parts, which may be none: it arrives as one. It
	// returns when the transport has taken the message, having waited while more than
	// LinkBytesMax is under way. The bytes are the transport's until Send returns, and are
	// not changed. A transport may wait earlier, but takes 64 KiB at least.
	//
	// Messages of calls that follow one another arrive in that order; of calls at one time,
	// in some order. ErrClosed: it may still arrive, and what was sent before it too.
	// ErrInvalid: it is larger than MessageBytesMax; the link goes on. A call whose context
	// ends has sent the message, or nothing of it, or has ended the link.
	Send(ctx context.Context, message ...[]byte) error

	// Receive waits for the next message, and returns it in memory that room has given for
	// it. The bytes are the caller's for ever. When the link has ended, it gives what had
	// arrived before, then ErrClosed.
	//
	// A call whose context ends has received nothing, and the next call goes on. An error
	// of room is returned and ends the link, also one that is the context's.
	//
	// Memory that room has given stays the transport's after an error that is the
	// context's: the next call goes on with it and does not ask its own room. After any
	// other error it is the caller's again.
	Receive(ctx context.Context, room Room) ([]byte, error)

	// Close ends the link at both ends, at once: what was sent, and not received, may be
	// lost. It does not wait for the peer. Closing twice is no error. Who has something to
	// say before, and must be heard, waits for the answer.
	Close() error
}

// Room gives memory for a message of n bytes: a slice of that length. It may wait, which
// holds up the link. It is called from Receive, at most once for each message. Its context
// ends with that of Receive, and when the link is closed or has ended.
type Room func(ctx context.Context, n int) ([]byte, error)

// Lane is what a link is for.
type Lane uint8

// The lanes. Links of one lane may share a network connection, links of two lanes never
// do.
const (
	// Control is for what must not wait behind records: the quorum's messages, heartbeats,
	// commands and their answers. What is large, as a snapshot is, goes over Data.
	Control Lane = 1
	// Data is for records and what is said about them.
	Data Lane = 2
)

// String returns the lane's name, as in logs and metrics.
func (l Lane) String() string {
	switch l {
	case Control:
		return "control"
	case Data:
		return "data"
	default:
		return "unknown"
	}
}

// Identity is who a node says it is.
type Identity struct {
	// ClusterID is empty for a node that belongs to no cluster yet: it may be dialled by
	// any, and dial any.
	ClusterID string
	NodeID    int32
	// DirectoryID identifies the node's quorum directory for ever: a node that has lost its
	// disk comes back with another.
	DirectoryID DirectoryID
}

// DirectoryID identifies one directory of one node for ever.
type DirectoryID [16]byte

// Target is whom to dial, for what.
type Target struct {
	Endpoint string
	Lane     Lane
	// NodeID is who is to answer. AnyNode: whoever is there, who tells in Link.Peer; it is
	// how a seed is dialled, of which nothing but the endpoint is known.
	NodeID int32
	// ClusterID is the cluster that the node is to belong to; empty: to any, or to none.
	ClusterID string
}

// AnyNode is the NodeID of a Target that may be any node.
const AnyNode int32 = -1

// Peer is the node at the other end of a link.
type Peer struct {
	Identity

	// Proof says what of it was proved.
	Proof Proof
}

// Proof is what a peer has proved of its identity to the transport.
type Proof uint8

// What a peer may have proved, each including what is before it.
const (
	ProofNone   Proof = 0 // nothing: it says so
	ProofMember Proof = 1 // that it may belong to the cluster: it has the secret, or a certificate of its authority
	ProofNode   Proof = 2 // that it is the node of its NodeID: its certificate names it
)

// String returns the proof's name, as in logs.
func (p Proof) String() string {
	switch p {
	case ProofNone:
		return "none"
	case ProofMember:
		return "member"
	case ProofNode:
		return "node"
	default:
		return "unknown"
	}
}

// Capabilities is what a transport offers beyond the contract.
type Capabilities struct {
	// Refuses: to dial a node whose process is gone, while its host is there, fails with
	// ErrRefused within a second. It tells of who listened at the endpoint: a transport
	// may be gone, or have moved, while its broker lives.
	Refuses bool
	// Resets: the end of a process ends its links at its peers within 50 ms, while its
	// host is there and the network is not cut.
	Resets bool
	// Proof is what every peer of a link has proved.
	Proof Proof
}
