package transporttcp

import (
	"context"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/brokerd/brokerd/sdk/transport"
)

// TestSockets: both ends of a connection send without a pace over loopback and without
// delay, and their buffers hold no more than may be under way.
func TestSockets(t *testing.T) {
	config := net.ListenConfig{Control: control}
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
			receive, send := buffers()
			for _, b := range []struct {
				what   string
				set    bool
				option int
				most   string // what the system permits to set
			}{
				{"receive", receive, unix.SO_RCVBUF, "/proc/sys/net/core/rmem_max"},
				{"send", send, unix.SO_SNDBUF, "/proc/sys/net/core/wmem_max"},
			} {
				size, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, b.option)
				if err != nil || size > transport.LinkBytesMax/2 {
					t.Errorf("%s: the %s buffer has %d bytes, %v", name, b.what, size, err)
				}
				if want := 2 * min(number(t, b.most), bufferBytesMax/2); b.set && size != want {
					t.Errorf("%s: the %s buffer, which would grow too much, has %d bytes; want %d", name, b.what, size, want)
				}
			}
		})
	}
}

// number reads a file that holds one.
func number(t *testing.T, file string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
