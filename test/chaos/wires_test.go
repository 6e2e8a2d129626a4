package main

import (
	"io"
	"net"
	"os"
	"strconv"
	"testing"
	"time"
)

// carried starts wires from this process, which is broker 1, to broker 2, and returns both ends
// of a connection.
func carried(t *testing.T) (w *wires, near, far net.Conn) {
	t.Helper()
	w = newWires(func(inode string) int {
		if holds(os.Getpid(), inode) {
			return 1
		}
		return 0
	})
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g, err := w.gate(2, target.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := g.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.close(); target.Close(); w.stop() })
	if near, err = net.Dial("tcp", g.addr); err != nil {
		t.Fatal(err)
	}
	if far, err = target.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return w, near, far
}

// arrives sends a byte, and reports whether it comes.
func arrives(t *testing.T, from, to net.Conn, b byte, within time.Duration) bool {
	t.Helper()
	if _, err := from.Write([]byte{b}); err != nil {
		t.Fatal(err)
	}
	return comes(t, to, b, within)
}

func comes(t *testing.T, to net.Conn, b byte, within time.Duration) bool {
	t.Helper()
	_ = to.SetReadDeadline(time.Now().Add(within))
	var got [1]byte
	if _, err := io.ReadFull(to, got[:]); err != nil {
		return false
	}
	if got[0] != b {
		t.Fatalf("%q came, want %q", got[0], b)
	}
	return true
}

const (
	soon  = 10 * time.Second
	never = 100 * time.Millisecond
)

// TestWiresAreCutOneWay: what is sent in a direction that is cut comes when it is mended, and
// the other direction goes on meanwhile.
func TestWiresAreCutOneWay(t *testing.T) {
	w, near, far := carried(t)
	if !arrives(t, near, far, 'a', soon) || !arrives(t, far, near, 'b', soon) {
		t.Fatal("a byte does not come before the cut")
	}
	_ = w.sever(1, 2)
	if arrives(t, near, far, 'c', never) {
		t.Error("a byte came through the cut")
	}
	if !arrives(t, far, near, 'd', soon) {
		t.Error("a byte does not come the other way")
	}
	_, _ = w.mend(false)
	if !comes(t, far, 'c', soon) {
		t.Error("what was kept does not come")
	}
}

// TestWiresLoseWhatTheyKept: a cut that ends with connections lost keeps nothing.
func TestWiresLoseWhatTheyKept(t *testing.T) {
	w, near, far := carried(t)
	_ = w.sever(1, 2)
	if arrives(t, near, far, 'a', never) {
		t.Error("a byte came through the cut")
	}
	_, _ = w.mend(true)
	_ = far.SetReadDeadline(time.Now().Add(soon))
	if rest, err := io.ReadAll(far); len(rest) != 0 || os.IsTimeout(err) {
		t.Errorf("%q came, %v", rest, err)
	}
}

// TestProcAddress: addresses are those of /proc/net/tcp.
func TestProcAddress(t *testing.T) {
	if got, want := procAddress(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 0x1F90}), "0100007F:"+strconv.FormatInt(0x1F90, 16); got != "0100007F:1F90" {
		t.Errorf("%s, want %s", got, want)
	}
}
