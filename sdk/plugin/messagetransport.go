package plugin

import (
	"context"

	"github.com/brokerd/brokerd/sdk/transport"
)

// messageTransport is a transport whose links a plugin runs. It implements
// transport.Transport.
type messageTransport struct{ *TransportSession }

// Dial implements transport.Transport.
func (t *messageTransport) Dial(ctx context.Context, to transport.Target) (transport.Link, error) {
	switch {
	case t.isClosed():
		return nil, errSessionClosed
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case len(to.ClusterID) > clusterMax:
		return nil, transport.Errorf(transport.ErrInvalid, "the ID of the cluster is longer than %d bytes", clusterMax)
	case len(to.Endpoint) > endpointMax:
		return nil, transport.Errorf(transport.ErrInvalid, "the endpoint is longer than %d bytes", endpointMax)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.closing, func() { cancel(errSessionClosed) })()
	a, err := t.lane.call(ctx, kindDial, dialBody(to))
	if err != nil {
		return nil, t.failed(err)
	}
	return a.link, nil
}

// Accept implements transport.Transport.
func (t *messageTransport) Accept(ctx context.Context) (transport.Link, error) {
	switch {
	case t.isClosed():
		return nil, errSessionClosed
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.closing, func() { cancel(errSessionClosed) })()
	a, err := t.lane.call(ctx, kindAccept, nil)
	if err != nil {
		return nil, t.failed(err)
	}
	return a.link, nil
}

// isClosed says whether the transport was closed.
func (s *TransportSession) isClosed() bool {
	return s.closing.Err() != nil
}

// failed is the error of a call that may have failed because the transport was closed.
func (s *TransportSession) failed(err error) error {
	if s.isClosed() {
		return errSessionClosed
	}
	return err
}
