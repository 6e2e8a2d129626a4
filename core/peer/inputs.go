package peer

import (
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/transport"
)

// LinkID names a link while its process lives. The machine gives odd ones to the links that
// it dials, and the driver even ones to those that it accepts, none twice.
type LinkID uint64

// QuestionID names a question of a peer to this node.
type QuestionID uint64

// Input is what a machine can be stepped with: a pointer to one of the types of this file.
// The machine does not keep the pointer, but slices and functions in it.
type Input interface{ input() }

// Of this node's owners.
type (
	// Post sends a message, if it can; bulk, over a link that holds up no other. Its bytes
	// do not change any more.
	Post struct {
		To      model.Address
		Message []byte
		Bulk    bool
	}
	// Ask puts a question. One Answered gives Done back, with the answer or an error.
	Ask struct {
		To       model.Address
		Question []byte
		Timeout  time.Duration
		Done     func(answer []byte, err error)
	}
	// Answer answers an Asked. What is not known any more is left aside.
	Answer struct {
		Question QuestionID
		Answer   []byte
	}
	// Locate says where a node can be dialled, for streams and for addresses that have no
	// endpoint. Empty: nobody knows any more.
	Locate struct {
		Node     model.NodeID
		Endpoint string
	}
	// Want says whether a stream to a node is wanted.
	Want struct {
		Node   model.NodeID
		Wanted bool
	}
	// End ends a stream.
	End struct{ Stream model.StreamID }
	// Stop ends everything. What is asked later is refused.
	Stop struct{}
)

// Of the driver. Of each Dial there is one Failed, or one Dialled and then, once, Ended. Of
// each Accepted there is one Ended. Nothing of a link comes after it has failed or ended.
type (
	// Dialled says that a link is made.
	Dialled struct {
		Link LinkID
		Peer transport.Peer
	}
	// Failed says that it is not, and why, or that the dial was given up after CloseLink.
	Failed struct {
		Link LinkID
		Err  error
	}
	// Accepted says that a peer has made a link. What has arrived on it already is received
	// after that.
	Accepted struct {
		Link LinkID
		Peer transport.Peer
		Lane transport.Lane
	}
	// Received gives a message, whose bytes are the machine's, and then its owner's.
	Received struct {
		Link LinkID
		Data []byte
	}
	// Arriving says that a large message has begun to arrive. A driver whose messages arrive
	// at once leaves it away.
	Arriving struct {
		Link  LinkID
		Bytes int
	}
	// Sent says that the transport has taken the oldest Write of a link of which it was not said
	// yet.
	Sent struct{ Link LinkID }
	// Ended says that a link has ended, that all of what had arrived on it was given, and that
	// nothing of what was to be written is used any more: what was not Sent by now is lost.
	Ended struct{ Link LinkID }
	// Tick says that it is the time of Deadline.
	Tick struct{}
)

func (*Post) input()     {}
func (*Ask) input()      {}
func (*Answer) input()   {}
func (*Locate) input()   {}
func (*Want) input()     {}
func (*End) input()      {}
func (*Stop) input()     {}
func (*Dialled) input()  {}
func (*Failed) input()   {}
func (*Accepted) input() {}
func (*Received) input() {}
func (*Arriving) input() {}
func (*Sent) input()     {}
func (*Ended) input()    {}
func (*Tick) input()     {}
