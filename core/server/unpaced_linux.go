package server

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unpaced is a net.ListenConfig's Control. It takes the pace off what is sent to clients
// that come over a loopback address. A congestion control that paces what it sends, as BBR
// does, sets a timer for every few packets; within a machine, where nothing can be
// congested, that doubles what sending costs. Reno never paces, is in every kernel, and is
// open to every process. It has to be said before there is a connection: a pace once begun
// is kept.
func unpaced(_, address string, raw syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil || !net.ParseIP(host).IsLoopback() {
		return nil
	}
	return raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno") // a wish only
	})
}
