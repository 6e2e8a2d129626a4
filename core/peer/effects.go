package peer

import (
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/transport"
)

// EffectKind is what an Effect asks for.
type EffectKind uint8

// The kinds of effect, and which fields of theirs are set.
const (
	// Dial: begin to make Link to Target. Answered by Dialled or Failed.
	Dial EffectKind = iota + 1
	// Write: send one message, of Parts, on Link, after those before it. Answered by Sent. Parts
	// are read until then, or until Ended.
	Write
	// CloseLink: end Link, or give its dialling up. Answered by Ended, or Failed.
	CloseLink
	// Posted: Peer has sent Message.
	Posted
	// Asked: Peer has asked Message; an Answer input with Question answers it.
	Asked
	// Answered: call Done with Message and Err.
	Answered
	// StreamUp: Link is Stream from now on, with Peer, and Was dialled by this node or not.
	StreamUp
	// StreamMessage: Message has arrived on Stream.
	StreamMessage
	// StreamDown: Stream has ended.
	StreamDown
	// Settled: call Sent with Was: the network has taken a stream's message, or never will.
	Settled
	// Told: something was found out about a peer: Event.
	Told
)

var effectNames = [...]string{"", "dial", "write", "close", "posted", "asked", "answered", "stream up", "stream message", "stream down", "settled", "told"}

// String returns the kind's name, as in traces.
func (k EffectKind) String() string {
	if int(k) >= len(effectNames) {
		return "unknown"
	}
	return effectNames[k]
}

// Effect is something that the machine asks of its driver.
type Effect struct {
	Kind     EffectKind
	Was      bool
	Link     LinkID
	Stream   model.StreamID
	Question QuestionID
	Target   transport.Target
	Peer     transport.Peer
	Parts    [][]byte
	Message  []byte
	Err      error
	Done     func([]byte, error)
	Sent     func(bool)
	Event    Event
}

// Effects is what steps have asked for, in order. Who has done it all calls Reset.
type Effects struct{ List []Effect }

// Reset empties e and keeps its room.
func (e *Effects) Reset() {
	clear(e.List)
	e.List = e.List[:0]
}

func (e *Effects) add(effect Effect) { e.List = append(e.List, effect) }

// EventKind is what an Event tells.
type EventKind uint8

// The kinds of event.
const (
	// Reached: a link to Address, which answers as Peer, was made.
	Reached EventKind = iota + 1
	// Refused: nobody listens at Address, which is evidence that the process is gone.
	Refused
	// Unreached: to dial Address has failed for any other reason.
	Unreached
	// Lost: a link to Address has ended, and this node has not ended it. It is a suspicion.
	Lost
	// Rejected: Peer, or what it has sent, is not what it should be, as Err tells, and its link
	// was ended.
	Rejected
)

var eventNames = [...]string{"", "reached", "refused", "unreached", "lost", "rejected"}

// String returns the kind's name, as in logs.
func (k EventKind) String() string {
	if int(k) >= len(eventNames) {
		return "unknown"
	}
	return eventNames[k]
}

// Event is something that was found out about a peer. Nothing is decided by it here beyond
// the links.
type Event struct {
	Kind    EventKind
	Address model.Address // where this node has dialled; no endpoint: the peer has
	Peer    transport.Peer
	Err     error
}
