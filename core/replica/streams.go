package replica

import (
	"github.com/brokerd/brokerd/core/model"
)

// StreamID names a link between this broker and another one that carries replication.
type StreamID = model.StreamID

// Streams keeps the links that carry replication. Nothing of it waits. Messages of one
// stream arrive in order, once each, and none after one that was lost; those of two
// streams between the same brokers overtake each other, and what arrives may be old.
// A Receiver is told what happens.
type Streams interface {
	// Want says whether this broker wants a stream to a node. While it does, one is dialled
	// again and again, with pauses, whenever there is none.
	Want(node model.NodeID, wanted bool)
	// Send queues a message, whose parts are not changed and not kept beyond sent, which is
	// called once, from any goroutine, possibly before Send returns, unless it is nil: with
	// true when the network has taken the bytes, with false when it never will. What is
	// queued is bounded by the credit that the receiver has given; beyond it Send reports
	// false, calls nobody, and the stream has ended.
	Send(s StreamID, parts [][]byte, sent func(taken bool)) bool
	// End ends a stream.
	End(s StreamID)
}

// Receiver is told what happens to streams: for each one after the other, from any
// goroutine. Manager implements it. Nothing of it waits, and each method may call those of
// Streams.
type Receiver interface {
	// StreamUp tells of a new stream with a node: one that was dialled because it is wanted,
	// over which this broker follows, or one that the node has dialled, over which it leads.
	// Nothing else is told of a stream before, and nothing after StreamDown.
	StreamUp(s StreamID, node model.NodeID, dialled bool)
	// StreamRoom gives memory for a message of n bytes that is about to arrive, until
	// StreamMessage is given it, filled, or the stream is down. Nil: it is more than the node
	// has been granted, and the stream is to be ended.
	StreamRoom(s StreamID, n int) []byte
	// StreamMessage gives a message, whose bytes are the receiver's from then on: in memory
	// from StreamRoom, or in any that nobody else uses.
	StreamMessage(s StreamID, message []byte)
	// StreamDown tells that a stream has ended, also one that End was called for.
	StreamDown(s StreamID)
}

// Controller is whom a leader asks for another ISR. done is called once, from any
// goroutine, with a result for each change, or with an error, after which each may be
// committed yet, or not.
type Controller interface {
	AlterISR(changes []model.ISRChange, done func([]model.ISRResult, error))
}
