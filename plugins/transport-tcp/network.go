package transporttcp

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/streams"
)

// source has what this node proves with who it is. It may be used from many goroutines.
type source interface {
	own() (*streams.Material, error)
}

// nobody proves nothing.
type nobody struct{}

func (nobody) own() (*streams.Material, error) { return nil, nil }

// network connects by TCP. It implements streams.Network.
type network struct {
	proof    transport.Proof
	source   source
	listener *net.TCPListener
	endpoint string

	closing context.Context // ends with Close
	close   context.CancelFunc
}

// errClosed is what calls say after Close.
var errClosed = transport.Errorf(transport.ErrClosed, "the transport is closed")

// listen begins to listen.
func (n *network) listen(ctx context.Context, s settings) error {
	config := net.ListenConfig{Control: control}
	listener, err := config.Listen(ctx, "tcp", s.Listen)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, syscall.EADDRINUSE):
		return transport.Errorf(transport.ErrRetry, "somebody listens on %s already", s.Listen)
	case err != nil:
		return wrong("listen on %s: %v", s.Listen, err)
	}
	n.listener = listener.(*net.TCPListener)
	n.endpoint = s.endpoint(listener.Addr().String())
	n.closing, n.close = context.WithCancel(context.Background())
	return nil
}

// Capabilities implements streams.Network.
func (n *network) Capabilities() transport.Capabilities {
	return transport.Capabilities{Refuses: true, Resets: true, Proof: n.proof}
}

// Endpoint implements streams.Network.
func (n *network) Endpoint() string { return n.endpoint }

// Material implements streams.Network.
func (n *network) Material(context.Context) (*streams.Material, error) { return n.source.own() }

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// Accept implements streams.Network.
func (n *network) Accept(ctx context.Context) (net.Conn, error) {
	_ = n.listener.SetDeadline(time.Time{}) // it fails where the listener is closed
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(fired)
		_ = n.listener.SetDeadline(past) // as before
	})
	conn, err := n.listener.AcceptTCP()
	if !stop() {
		<-fired
	}
	switch {
	case err == nil:
		return conn, nil
	case n.closing.Err() != nil:
		return nil, errClosed
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, transport.Errorf(transport.ErrRetry, "%v", err)
}

// Close implements streams.Network.
func (n *network) Close() error {
	if n.closing.Err() != nil {
		return nil
	}
	n.close()
	return n.listener.Close()
}
