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
// header; it is never used again by the server, so whoever gets it may keep it.
type Call struct {
	Header
	Body []byte
	From Peer
	// Room is where records go that a Fetch reads; nil of other requests. It is for
	// the Answer.
	Room model.Room
}

// Reply is what goes back. A nil Response sends nothing (acks=0). Close ends the
// connection after what was to be sent has been sent; it is the protocol's only
// answer to a request that cannot be parsed or is not served (KIP-511).
type Reply struct {
	Response kmsg.Response
	// Version is the version of the response, where it is not the request's
	// (ApiVersions of an unknown version is answered in version 0).
	Version *int16
	Close   bool
	// Reason says why the connection is closed, for the log.
	Reason string
}

// Answer is the rest of a request that was begun. It may block, it is called
// once, on any goroutine. Requests are begun in the order in which they arrived
// on a connection, their answers may run side by side, and the server sends the
// replies in the order of the requests.
type Answer func(ctx context.Context) Reply

// Handler begins requests. Begin must not wait for the work of the request
// itself: what must happen in the connection's order (queueing an append) is
// done in Begin, all the rest in the Answer.
type Handler interface {
	Begin(ctx context.Context, c Call) Answer
}
