package wire

import (
	"context"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Header is a request's header.
type Header struct {
	Key           int16
	Version       int16
	CorrelationID int32
	ClientID      string
}

// Peer is who sent a request, and through which listener.
type Peer struct {
	Listener  string
	Host      string // the remote address without its port
	Principal security.Principal
}

// Call is one request as the server framed it. Body is the request without its
// header; it is never used again by the server, so whoever gets it may keep it,
// unless the Reply gives it back.
type Call struct {
	Header
	Body []byte
	// Frame is what Body is a part of, where that is large; otherwise nil. The server
	// keeps it until the Reply gives Body back, and whoever keeps it beside the server
	// may look at Body for longer.
	Frame *model.Frame
	From  Peer
	// Room is where records go that a Fetch reads; nil of other requests. It is for
	// the Answer.
	Room model.Room
	// Turn says when the Answer is asked for. The server always gives one; it is for
	// this request alone.
	Turn Turn
}

// Turn lets a handler be asked for an answer when there is one, instead of being
// asked at once and letting the connection wait inside the Answer. It is for work
// that ends elsewhere, such as an append, whose end then wakes the connection once.
//
// A handler that uses neither method is asked in the connection's order, and its
// Answer may block. Otherwise its Answer must not block.
type Turn interface {
	// Later, called in Begin, puts the Answer off until Ready, or until the
	// connection ends: then the Answer is asked with a context that has ended, and
	// Ready may come afterwards, for nothing.
	Later()
	// Ready says that the Answer is there. It is called once, after Later on any
	// goroutine, or without it in Begin. It never blocks and answers nothing itself.
	Ready()
}

// Body is a response that encodes itself, in the version of its request. The server
// calls its methods one after the other: Size, Encode, Release; or Release alone.
type Body interface {
	// Size bounds, in bytes, what Encode appends and what it splices. Memory is
	// asked for by it, before there is anything encoded.
	Size() Size
	// Encode appends the body to dst, without the header of the response. Records
	// that are to be sent from where they are, it hands to splice instead. Small ones are
	// better appended, since each part costs the kernel about as much as copying 4
	// KiB. What is spliced must not change before Release.
	Encode(dst []byte, splice Splice) []byte
	// Release is called exactly once, when the reply was sent or will not be.
	Release()
}

// Size is how much a Body has, in bytes.
type Size struct {
	Appended int // at most
	Spliced  int // of memory
	Sections int // of files, which take no memory
}

// Splice takes the parts of a Body that are not appended. at is the length of what is
// appended before the part, so that it never falls; several at one place follow each
// other.
type Splice interface {
	Records(at int, records []byte)
	Section(at int, section *model.Section)
}

// Reply is what goes back: a Body, or else a Response; with neither nothing is sent
// (acks=0). Close ends the connection after what was to be sent has been sent; it is
// the protocol's only answer to a request that cannot be parsed or is not served
// (KIP-511).
type Reply struct {
	Body     Body
	Response kmsg.Response
	// Version is the version of the Response, where it is not the request's
	// (ApiVersions of an unknown version is answered in version 0).
	Version *int16
	// Spent gives the Call's Body back: when the reply is encoded, nothing of it is
	// used any more but by those who keep its Frame, and the server may read another
	// request into it.
	Spent bool
	Close bool
	// Reason says why the connection is closed, for the log.
	Reason string
}

// Answer is the rest of a request that was begun. It is called once, on any
// goroutine. Requests are begun in the order in which they arrived on a connection,
// also while earlier ones are answered; their answers are asked for one after the
// other in that order. It may block, unless the Turn was used; then later answers of
// its connection wait, as in Kafka. It returns soon after its context ends.
type Answer func(ctx context.Context) Reply

// Handler begins requests. Begin must not wait for the work of the request
// itself: what must happen in the connection's order (queueing an append) is
// done in Begin, all the rest in the Answer.
type Handler interface {
	Begin(ctx context.Context, c Call) Answer
}
