package server

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// deafClients dials so many clients that ask for records again and again and read nothing,
// and waits until the kernel takes no more of what is sent to any of them.
func deafClients(t *testing.T, n int) (*harness, []*client) {
	t.Helper()
	s := start(t, testConfig(), 512<<20, handlerFunc(func(_ context.Context, c wire.Call) wire.Answer {
		return func(ctx context.Context) wire.Reply {
			got, err := c.Room.Reserve(ctx, 64<<10, 700<<10)
			if err != nil {
				return wire.Reply{}
			}
			return wire.Reply{Body: recordsReply{make([]byte, got)}}
		}
	}))
	all := make([]*client, n)
	for i := range all {
		all[i] = dial(t, s.addr)
		if err := all[i].Conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		for j := range int32(10) {
			all[i].send(request(kmsg.NewPtrFetchRequest(), 12, j))
		}
	}
	await(t, func() bool { return len(s.connections()) == n && stuck(s) })
	return s, all
}

// stuck says that two replies to each client were taken by the kernel, and the third is
// under way: it does not fit any more.
func stuck(s *harness) bool {
	for _, c := range s.connections() {
		c.mu.Lock()
		still := c.begun-c.inFlight == 2 && c.sending.on && c.sending.held.shared > 0
		c.mu.Unlock()
		if !still {
			return false
		}
	}
	return true
}

// TestSwallowedIsNotMoved: what the kernel takes of replies that nobody reads makes nobody a
// tried client, for whom there is memory that newcomers can't take.
func TestSwallowedIsNotMoved(t *testing.T) {
	s, _ := deafClients(t, 10)
	for _, c := range s.connections() {
		c.mu.Lock()
		h := c.sending.held
		c.mu.Unlock()
		if h.untried < h.shared {
			t.Errorf("a client that has read nothing holds %d bytes, of which only %d are for newcomers", h.shared, h.untried)
		}
	}
	for _, c := range s.connections() {
		c.fail(ClosedByShutdown, nil)
	}
}

// TestNothingIsLeftOfDeafClients: a client that is closed because it does not read is sent
// nothing more, not even what the kernel has taken already.
func TestNothingIsLeftOfDeafClients(t *testing.T) {
	for _, reason := range []CloseReason{ClosedMemory, ClosedSlow} {
		t.Run(string(reason), func(t *testing.T) {
			s, all := deafClients(t, 3)
			for _, c := range s.connections() {
				c.fail(reason, nil)
			}
			s.events.awaitClosed(t, reason, len(all))
			for _, c := range all {
				if n, err := io.Copy(io.Discard, c.Conn); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("after %d bytes the connection ended with %v", n, err)
				}
			}
		})
	}
}

// await polls until something is so.
func await(t *testing.T, so func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !so(); pause(t.Context(), time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never came to that")
		}
	}
}
