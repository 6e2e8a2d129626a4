package server

import (
	"context"
	"net"
	"testing"

	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"
)

// TestLoopbackIsNotPaced: what is sent to clients of a loopback address is not paced,
// whatever the machine's congestion control is; where others can come too, that is left
// alone.
func TestLoopbackIsNotPaced(t *testing.T) {
	machine := sentWith(t, ":0")
	if machine == "reno" {
		t.Skip("the machine's own congestion control is reno")
	}
	for address, want := range map[string]string{
		"127.0.0.1:0": "reno", "[::1]:0": "reno", "[::1%lo]:0": "reno", "localhost:0": "reno",
		"0.0.0.0:0": machine, "[::]:0": machine,
	} {
		if got := sentWith(t, address); got != want {
			t.Errorf("replies from %s are sent with %s, not %s", address, got, want)
		}
	}
}

// sentWith is the congestion control of a client's connection to a server with a listener
// on such an address.
func sentWith(t *testing.T, address string) (name string) {
	t.Helper()
	cfg := testConfig()
	cfg.Listeners[0].Address = address
	s := start(t, cfg, 256<<20, handlerFunc(func(context.Context, wire.Call) wire.Answer { return answerFixed }))
	defer s.stop()
	c := dial(t, s.addr)
	c.send(request(kmsg.NewPtrMetadataRequest(), 12, 1))
	c.receive()
	raw, err := s.connections()[0].nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		name, failed = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	}); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	return name
}
