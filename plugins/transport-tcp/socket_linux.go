package transporttcp

import (
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/brokerd/brokerd/sdk/transport"
)

// bufferBytesMax is how large a socket's buffer for one direction may become: two of
// them are under way.
const bufferBytesMax = transport.LinkBytesMax / 2

// buffers says which of a socket's buffers the system would let grow beyond
// bufferBytesMax. It does not change while a process runs, to be the same for all links.
var buffers = sync.OnceValues(func() (receive, send bool) {
	return grows("/proc/sys/net/ipv4/tcp_rmem"), grows("/proc/sys/net/ipv4/tcp_wmem")
})

// grows reads the system's least, first and greatest size of a buffer.
func grows(file string) bool {
	b, err := os.ReadFile(file)
	sizes := strings.Fields(string(b))
	if err != nil || len(sizes) != 3 {
		return false
	}
	n, err := strconv.ParseInt(sizes[2], 10, 64)
	return err != nil || n > bufferBytesMax
}

// control sets a socket before it is bound or connected; accepted ones have what their
// listener has.
//
// It takes the pace off what goes over a loopback address. A congestion control that paces
// what it sends, as BBR does, sets a timer for every few packets; within a machine, where
// nothing can be congested, that doubles what sending costs. Reno never paces, is in every
// kernel, and is open to every process. It has to be said before there is a connection: a
// pace once begun is kept.
func control(_, address string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) {
		receive, send := buffers()
		if receive { // the kernel doubles what it is told, for what it needs itself
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, bufferBytesMax/2)
		}
		if send {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, bufferBytesMax/2)
		}
		if host, _, err := net.SplitHostPort(address); err == nil && net.ParseIP(host).IsLoopback() {
			_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno") // a wish only
		}
	})
}
