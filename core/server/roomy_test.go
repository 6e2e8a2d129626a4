package server

import (
	"net"
	"testing"

	"github.com/brokerd/brokerd/core/memory"
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
