package streams

import (
	"context"
	"net"

	"github.com/brokerd/brokerd/sdk/transport"
)

// Network connects streams of bytes between nodes. Its methods may be called from many
// goroutines, but for Accept, which is called by one at a time. A call whose context ends
// returns soon, with an error that is the context's (context.Cause). Errors have the classes
// of package transport.
type Network interface {
	// Capabilities says what links over the network offer. Its Proof is what peers have to
	// prove: nothing, or by TLS that they are members, or nodes that their certificates name.
	// It does no I/O and always gives the same answer.
	Capabilities() transport.Capabilities

	// Endpoint is where this node can be dialled.
	Endpoint() string

	// Material is what this node proves with who it is, where proof is demanded; otherwise
	// nil. It is asked for each link, so that it can be renewed.
	Material(ctx context.Context) (*Material, error)

	// Dial connects to an endpoint. ErrRefused: its host has answered that nobody listens;
	// ErrRetry: nobody was reached; ErrInvalid: it is none. The connection is the caller's.
	Dial(ctx context.Context, endpoint string) (net.Conn, error)

	// Accept waits for the next connection that a peer has dialled, which is the caller's.
	// Nothing is known yet of who it is.
	Accept(ctx context.Context) (net.Conn, error)

	// Close ends the listening, and every call. Connections that were given go on.
	Close() error
}

// Provider is a plugin of kind transport whose links are streams of bytes. Where sockets
// carry those, a broker can be given them, and run the links itself: nothing of what goes
// over a link goes through the plugin's process then, and a link outlives that.
type Provider interface {
	transport.Provider

	// OpenNetwork is Open without what a Transport of this package does: it checks the
	// configuration as strictly, and begins to listen. The connections of the network are
	// sockets: net.TCPConn or net.UnixConn.
	OpenNetwork(ctx context.Context, cfg transport.Config) (Network, error)
}
