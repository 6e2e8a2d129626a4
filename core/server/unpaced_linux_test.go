package server

import (
	"context"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLoopbackIsNotPaced: what is sent to clients over loopback is not paced, whatever the
// machine's congestion control is; where others can come too, that is left alone.
func TestLoopbackIsNotPaced(t *testing.T) {
	machine := sentWith(t, net.ListenConfig{}, "127.0.0.1:0")
	if machine == "reno" {
		t.Skip("the machine's own congestion control is reno")
	}
	config := net.ListenConfig{Control: unpaced}
	for address, want := range map[string]string{"127.0.0.1:0": "reno", "localhost:0": "reno", "0.0.0.0:0": machine, ":0": machine} {
		if got := sentWith(t, config, address); got != want {
			t.Errorf("replies from %s are sent with %s, not %s", address, got, want)
		}
	}
}

// sentWith is the congestion control of a connection that was accepted.
func sentWith(t *testing.T, config net.ListenConfig, address string) (name string) {
	t.Helper()
	l, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("tcp", net.JoinHostPort("localhost", port))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	raw, err := accepted.(*net.TCPConn).SyscallConn()
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
