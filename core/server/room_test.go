package server

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/brokerd/brokerd/core/memory"
)

// roomConn is a connection that was never opened, and the reply to its Fetch.
func roomConn(t *testing.T, total int64) (*conn, *reply, *room) {
	t.Helper()
	cfg := testConfig()
	cfg.MaxConnections, cfg.MaxRequestBytes = 10, 1<<20
	s := New(cfg, handlerFunc(echo), memory.New(total), discard(), nil)
	client, served := net.Pipe()
	t.Cleanup(func() { _, _ = client.Close(), served.Close() })
	c := newConn(s, "PLAIN", served)
	r := &reply{conn: c}
	r.room.init(r)
	return c, r, &r.room
}

func reserve(t *testing.T, m *room, least, most int) int {
	t.Helper()
	n, err := m.Reserve(t.Context(), least, most)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A room is what it holds: it grows with what its connection has read, is cut to
// what is free, and gives back what it is not.
func TestRoom(t *testing.T) {
	c, r, m := roomConn(t, 16<<20)
	pool := c.srv.pool
	if n := reserve(t, m, 100, 50<<20); n != firstFetchBytes || pool.shared.Used() < firstFetchBytes {
		t.Fatalf("a first fetch got %d bytes with %d held", n, pool.shared.Used())
	}
	if n := reserve(t, m, 5000, 5000); n != 5000 || pool.shared.Used() > 5000+m.besides {
		t.Fatalf("cut to 5000: %d bytes with %d held", n, pool.shared.Used())
	}
	c.lastFetch = 1 << 20
	if n := reserve(t, m, 5000, 50<<20); n != 2<<20 {
		t.Fatalf("after a fetch of 1 MiB the next got %d bytes", n)
	}
	if n := reserve(t, m, 0, 0); n != 0 || pool.shared.Used() != 0 || r.held != (hold{}) {
		t.Fatalf("given back: %d bytes with %d held", n, pool.shared.Used())
	}
	// Nothing is free but a little: that is what it gets.
	rest := hold{shared: pool.shared.Total() - 300<<10}
	if !pool.try(rest) {
		t.Fatal("the rest is not free")
	}
	if n := reserve(t, m, 10, 4<<20); n < leastReserved || n > 300<<10 {
		t.Fatalf("of 300 KiB it got %d bytes", n)
	}
	// Who would have to wait holds nothing meanwhile.
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := m.Reserve(ctx, 1<<20, 1<<20); !errors.Is(err, context.Canceled) {
		t.Fatalf("waited for more than is free: %v", err)
	}
	if pool.shared.Used() != rest.shared || r.held != (hold{}) {
		t.Fatalf("%d bytes held after waiting in vain", pool.shared.Used()-rest.shared)
	}
	pool.release(rest)
	// One batch above all there is goes nevertheless.
	if n := reserve(t, m, 64<<20, 64<<20); n != 64<<20 {
		t.Fatalf("a batch of 64 MiB got %d bytes", n)
	}
	c.release(r.held)
	if used := pool.shared.Used() + pool.untried.Used() + pool.budget.Used(); used != 0 {
		t.Fatalf("%d bytes left", used)
	}
}
