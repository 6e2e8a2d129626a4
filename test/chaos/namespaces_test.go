package main

import (
	"net"
	"testing"
	"time"
)

// TestNamespacesAreCut: what is sent in a direction that is cut, or to a port, comes when it is
// mended, and the rest goes on meanwhile.
func TestNamespacesAreCut(t *testing.T) {
	if !inHub() {
		t.Skip("the tests were asked to do without network namespaces")
	}
	s, err := newNamespaces(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	near, far, port := joined(t, s)
	other, otherFar, _ := joined(t, s)
	if !arrives(t, near, far, 'a', soon) || !arrives(t, far, near, 'b', soon) || !arrives(t, other, otherFar, 'c', soon) {
		t.Fatal("a byte does not come before the cut")
	}
	if err := s.sever(1, 2); err != nil {
		t.Fatal(err)
	}
	if arrives(t, near, far, 'd', never) {
		t.Error("a byte came through the cut")
	}
	if _, err := s.mend(false); err != nil {
		t.Fatal(err)
	}
	if !comes(t, far, 'd', soon) {
		t.Error("what was dropped is not sent again")
	}
	if err := s.severPort(1, 2, port); err != nil {
		t.Fatal(err)
	}
	if arrives(t, near, far, 'e', never) {
		t.Error("a byte came to the port")
	}
	if !arrives(t, other, otherFar, 'f', soon) || !arrives(t, otherFar, other, 'g', soon) {
		t.Error("a byte does not come to another port")
	}
}

// joined are both ends of a connection from broker 1 to broker 2, and its port.
func joined(t *testing.T, s between) (near, far net.Conn, port int) {
	t.Helper()
	hosts := s.(interface {
		on(n int, do func() error) error
	})
	var l net.Listener
	if err := hosts.on(2, func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(s.host(2), "0"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := hosts.on(1, func() (err error) {
		near, err = net.DialTimeout("tcp", l.Addr().String(), time.Minute)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far, l.Addr().(*net.TCPAddr).Port
}
