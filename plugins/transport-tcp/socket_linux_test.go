package transporttcp

import (
	"context"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/brokerd/brokerd/sdk/transport"
)

// TestSockets: both ends of a connection send without a pace over loopback and without
// delay, and their buffers hold no more than may be under way.
func TestSockets(t *testing.T) {
	config := net.ListenConfig{Control: control, KeepAliveConfig: keepAlive}
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	near, err := connect(context.Background(), "127.0.0.1", uint16(listener.Addr().(*net.TCPAddr).Port))
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	for name, conn := range map[string]net.Conn{"dialled": near, "accepted": far} {
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) {
			if got, err := unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil || got != "reno" {
				t.Errorf("%s: congestion control is %q, %v", name, got, err)
			}
			for what, option := range map[string][2]int{
				"no delay":   {unix.IPPROTO_TCP, unix.TCP_NODELAY},
				"keep-alive": {unix.SOL_SOCKET, unix.SO_KEEPALIVE},
			} {
				if on, err := unix.GetsockoptInt(int(fd), option[0], option[1]); err != nil || on == 0 {
					t.Errorf("%s: %s is %d, %v", name, what, on, err)
				}
			}
			receive, _ := buffers()
			size, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF)
			if err != nil || size > transport.LinkBytesMax/2 || receive && size < 64<<10 {
				t.Errorf("%s: the receive buffer has %d bytes, %v", name, size, err)
			}
		})
	}
}
