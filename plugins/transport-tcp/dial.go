package transporttcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
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
	host, port, err := checkTarget(to)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.closing, func() { cancel(errClosed) })()
	raw, err := connect(ctx, host, port)
	if err != nil {
		return nil, t.dialFailed(ctx, to.Endpoint, err)
	}
	link, err := t.introduce(ctx, raw, to)
	if err != nil {
		_ = raw.Close() // it has failed already
		return nil, t.dialFailed(ctx, to.Endpoint, err)
	}
	return link, nil
}

// checkTarget says whether a target can be dialled, and where.
func checkTarget(to transport.Target) (host string, port uint16, err error) {
	switch {
	case to.Lane != transport.Control && to.Lane != transport.Data:
		return "", 0, transport.Errorf(transport.ErrInvalid, "there is no lane %d", to.Lane)
	case to.NodeID < transport.AnyNode:
		return "", 0, transport.Errorf(transport.ErrInvalid, "%d is the ID of no node", to.NodeID)
	case len(to.ClusterID) > frame.ClusterBytesMax:
		return "", 0, transport.Errorf(transport.ErrInvalid, "the ID of the cluster is longer than %d bytes", frame.ClusterBytesMax)
	}
	host, number, err := splitEndpoint(to.Endpoint)
	if err != nil {
		return "", 0, err
	}
	n, _ := strconv.ParseUint(number, 10, 16) // it was checked
	if host == "" || n == 0 {
		return "", 0, transport.Errorf(transport.ErrInvalid, "%q names no host and port to dial", to.Endpoint)
	}
	return host, uint16(n), nil
}

// dialFailed says where a dial has failed. A context that has ended is the reason.
func (t *Transport) dialFailed(ctx context.Context, endpoint string, err error) error {
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

// connect makes a connection to a host.
func connect(ctx context.Context, host string, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	addresses, err := resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	return connectAny(ctx, addresses, port)
}

// connectAny makes a connection to one of a host's addresses. ErrRefused: every one of them
// has answered that nobody listens.
func connectAny(ctx context.Context, addresses []netip.Addr, port uint16) (net.Conn, error) {
	refused := 0
	var failed error
	for i, address := range addresses {
		conn, err := connectOne(ctx, netip.AddrPortFrom(address, port), len(addresses)-i)
		if err == nil {
			return conn, nil
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			refused++
		}
		if failed == nil || !errors.Is(err, syscall.ECONNREFUSED) {
			failed = err
		}
	}
	if refused == len(addresses) {
		return nil, transport.Errorf(transport.ErrRefused, "nobody listens there")
	}
	return nil, failed
}

func resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if address, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{address}, nil
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err == nil && len(addresses) == 0 {
		err = errors.New("the host has no address")
	}
	return addresses, err
}

// connectOne gives an address its share of the time that is left for several.
func connectOne(ctx context.Context, to netip.AddrPort, several int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(several))
		defer cancel()
	}
	dialer := net.Dialer{Control: control, KeepAliveConfig: keepAlive}
	return dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(to.Addr().Unmap(), to.Port()).String())
}

// introduce proves who is at both ends, and makes the link.
func (t *Transport) introduce(ctx context.Context, raw net.Conn, to transport.Target) (transport.Link, error) {
	if err := raw.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() }) // what waits on it fails
	conn, err := t.guard.protect(raw, true)
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
