package server

import (
	"context"
	"net"
	"testing"

	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/wire"
)

// TestRoomyBuffers: a large request may lie in an idle buffer that is larger than it needs,
// where there is memory for what that takes, and holds it; else it lies in one that fits.
func TestRoomyBuffers(t *testing.T) {
	const fits, larger = 1 << 20, 5 << 18
	s := New(testConfig(), nil, memory.New(256<<20), discard(), nil)
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	c := newConn(s, "test", server)
	c.moved = 1 << 30 // it is tried
	s.large.Put(s.large.Get(larger))

	first, taken := c.ask(fits)
	if !taken {
		t.Fatal("no memory")
	}
	buf, h := c.roomy(fits, first)
	if cap(buf) != larger || h.own+h.shared != larger {
		t.Errorf("%d bytes are lent, and %d held, not %d", cap(buf), h.own+h.shared, larger)
	}
	s.large.Put(buf)
	c.release(h)

	first, _ = c.ask(fits)
	rest := s.pool.shared.Total() - s.pool.shared.Used() - (larger-fits)/2
	if !s.pool.shared.TryAcquire(rest) {
		t.Fatal("no memory")
	}
	buf, h = c.roomy(fits, first)
	if cap(buf) != fits || h != first {
		t.Errorf("%d bytes are lent, and %d held, where there is memory for %d", cap(buf), h.own+h.shared, fits)
	}
	if s.large.Idle() != larger {
		t.Errorf("%d bytes are idle, not the %d that were not lent", s.large.Idle(), larger)
	}
	c.release(h)
	s.pool.shared.Release(rest)
	if used := s.pool.shared.Used(); used != 0 {
		t.Errorf("%d bytes are held by nobody", used)
	}
}

// TestRoomyRequest: requests of tried connections, each of another size, lie in the buffers of
// earlier ones.
func TestRoomyRequest(t *testing.T) {
	const larger = 3 << 20
	var took int
	s := start(t, testConfig(), 256<<20, handlerFunc(func(_ context.Context, c wire.Call) wire.Answer {
		took = c.Frame.Bytes
		return answerFixed
	}))
	c := dial(t, s.addr)
	for range 3 { // until it is tried
		c.send(sized(3, larger))
		c.receive()
	}
	idle := s.large.Idle()
	c.send(sized(3, 7*larger/10))
	c.receive()
	if took != larger || s.large.Idle() != idle {
		t.Errorf("a request was read into %d bytes, and not into the %d that an earlier one has left; %d are idle after it, %d before", took, larger, s.large.Idle(), idle)
	}
}

// TestRoomyKeepsTheRules: what a buffer takes beyond what is needed is nothing of the
// connection's own part, which is for small requests; nothing that would make the connection an
// untried one; and nothing of what is left where there is not plenty.
func TestRoomyKeepsTheRules(t *testing.T) {
	for _, c := range []struct {
		name         string
		n, larger    int
		moved, taken int64
		fits         bool
	}{
		{"plenty", 1 << 20, 7 << 18, 1 << 30, 0, false},
		{"own part", 9 << 10, 12 << 10, 1 << 30, 0, false},
		{"untried beside it", 1 << 20, 7 << 18, 1 << 20, 0, true},
		{"no plenty", 1 << 20, 7 << 18, 1 << 30, 60, true},
	} {
		s := New(testConfig(), nil, memory.New(256<<20), discard(), nil)
		client, end := net.Pipe()
		defer client.Close()
		defer end.Close()
		one := newConn(s, "test", end)
		one.moved = c.moved
		s.large.Put(s.large.Get(c.larger))
		if !s.pool.shared.TryAcquire(s.pool.shared.Total() * c.taken / 100) {
			t.Fatal("no memory")
		}
		fits := int64(memory.BufferBytes(c.n))
		held, taken := one.ask(fits)
		if !taken {
			t.Fatal("no memory")
		}
		buf, h := one.roomy(c.n, held)
		if got := int64(cap(buf)); got != h.own+h.shared || (got == fits) != c.fits || h.own != held.own || h.shared > one.moved && h.untried == 0 {
			t.Errorf("%s: %d bytes for %d, which hold %+v", c.name, got, c.n, h)
		}
	}
}
