package server

import (
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// unpaced is a net.ListenConfig's Control. It takes the pace off what is sent to clients of
// a listener on a loopback address. A congestion control that paces what it sends, as BBR
// does, sets a timer for every few packets; within a machine, where nothing can be
// congested, that doubles what sending costs. Reno never paces, and is in every kernel. It
// has to be said before there is a connection, since a pace once begun is kept; and so it
// is not said where clients may come from elsewhere too. Where it is not allowed
// (net.ipv4.tcp_allowed_congestion_control), all stays as it is.
func unpaced(_, address string, raw syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
		return nil
	}
	return raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno") // a wish only
	})
}
