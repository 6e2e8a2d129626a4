package streams

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/frame"
)

// Dial implements transport.Transport.
func (t *Transport) Dial(ctx context.Context, to transport.Target) (transport.Link, error) {
	if err := t.begin(); err != nil {
		return nil, err
	}
	defer t.work.Done()
	if err := checkTarget(to); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.closing, func() { cancel(errClosed) })()
	raw, err := t.network.Dial(ctx, to.Endpoint)
	if err != nil {
		return nil, dialFailed(ctx, to.Endpoint, err)
	}
	link, err := t.introduce(ctx, raw, to)
	if err != nil {
		_ = raw.Close() // it has failed already
		return nil, dialFailed(ctx, to.Endpoint, err)
	}
	return link, nil
}

// checkTarget says whether a target makes sense, but for its endpoint.
func checkTarget(to transport.Target) error {
	switch {
	case to.Lane != transport.Control && to.Lane != transport.Data:
		return transport.Errorf(transport.ErrInvalid, "there is no lane %d", to.Lane)
	case to.NodeID < transport.AnyNode:
		return transport.Errorf(transport.ErrInvalid, "%d is the ID of no node", to.NodeID)
	case len(to.ClusterID) > frame.ClusterBytesMax:
		return transport.Errorf(transport.ErrInvalid, "the ID of the cluster is longer than %d bytes", frame.ClusterBytesMax)
	}
	return nil
}

// dialFailed says where a dial has failed. A context that has ended is the reason.
func dialFailed(ctx context.Context, endpoint string, err error) error {
	if ctx.Err() != nil {
		cause := context.Cause(ctx)
		if errors.Is(cause, transport.ErrClosed) {
			return cause
		}
		return fmt.Errorf("%w: dial %s: %w", transport.ErrRetry, endpoint, cause)
	}
	var own *transport.Error
	if !errors.As(err, &own) {
		return transport.Errorf(transport.ErrRetry, "dial %s: %v", endpoint, err)
	}
	return transport.Errorf(own.Class, "dial %s: %s", endpoint, own.Message)
}

// introduce proves who is at both ends, and makes the link.
func (t *Transport) introduce(ctx context.Context, raw net.Conn, to transport.Target) (transport.Link, error) {
	if err := raw.SetDeadline(time.Now().Add(introduceTimeout)); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() }) // what waits on it fails
	conn, err := t.protect(ctx, raw, true)
	if err != nil {
		return nil, err
	}
	answer, err := frame.Greet(conn.Conn, frame.Hello{Identity: t.identity, Lane: to.Lane, ToNode: to.NodeID, ToCluster: to.ClusterID})
	if err != nil {
		if err = classify(err); errors.Is(err, transport.ErrClosed) {
			return nil, transport.Errorf(transport.ErrRetry, "the peer is closing")
		}
		return nil, err
	}
	proof, err := conn.check(answer.Identity)
	if err != nil {
		frame.Decline(conn.Conn, err)
		return nil, err
	}
	if err := frame.Confirm(conn.Conn); err != nil {
		return nil, err
	}
	if !stop() {
		return nil, context.Cause(ctx)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return t.link(conn, transport.Peer{Identity: answer.Identity, Proof: proof}, to.Lane)
}
