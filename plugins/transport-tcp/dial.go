package transporttcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

// Dial implements streams.Network.
func (n *network) Dial(ctx context.Context, endpoint string) (net.Conn, error) {
	if n.closing.Err() != nil {
		return nil, errClosed
	}
	host, port, err := checkEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(n.closing, func() { cancel(errClosed) })()
	conn, err := connect(ctx, host, port)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		var own *transport.Error
		if !errors.As(err, &own) {
			err = transport.Errorf(transport.ErrRetry, "%v", err)
		}
		return nil, err
	}
	return conn, nil
}

// checkEndpoint says whether an endpoint can be dialled, and where.
func checkEndpoint(endpoint string) (host string, port uint16, err error) {
	host, number, err := splitEndpoint(endpoint)
	if err != nil {
		return "", 0, err
	}
	n, _ := strconv.ParseUint(number, 10, 16) // it was checked
	if host == "" || n == 0 {
		return "", 0, transport.Errorf(transport.ErrInvalid, "%q names no host and port to dial", endpoint)
	}
	return host, uint16(n), nil
}

// dialTimeout is how long a dial may take whose context says nothing.
const dialTimeout = 10 * time.Second

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
	dialer := net.Dialer{Control: control}
	return dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(to.Addr().Unmap(), to.Port()).String())
}
