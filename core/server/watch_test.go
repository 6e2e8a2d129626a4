package server

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/memory"
)

// watched is a connection that was never opened, and a time for it.
func watched(t *testing.T) (*conn, func(after time.Duration)) {
	t.Helper()
	cfg := testConfig()
	cfg.IdleTimeout, cfg.FrameTimeout, cfg.WriteTimeout = 10*time.Second, 2*time.Second, 4*time.Second
	s := New(cfg, handlerFunc(echo), memory.New(256<<20), discard(), nil)
	client, served := net.Pipe()
	t.Cleanup(func() { _, _ = client.Close(), served.Close() })
	c, now := newConn(s, "PLAIN", served), time.Now()
	return c, func(after time.Duration) { c.watch(now.Add(after)) }
}

// Nobody is closed before his time, and everybody within two sweeps after it.
func TestWatch(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		name  string
		steps func(c *conn, watch func(time.Duration))
		want  CloseReason
	}{
		{"idle for less than the timeout", func(_ *conn, watch func(time.Duration)) {
			watch(0)
			watch(9900 * time.Millisecond)
		}, ""},
		{"idle", func(_ *conn, watch func(time.Duration)) {
			watch(0)
			watch(10 * time.Second)
		}, ClosedIdle},
		{"a request in between", func(c *conn, watch func(time.Duration)) {
			watch(0)
			c.begun++
			watch(9 * time.Second)
			watch(18 * time.Second)
		}, ""},
		{"a reply that takes long", func(c *conn, watch func(time.Duration)) {
			watch(0)
			c.inFlight = 1
			watch(time.Hour)
			c.inFlight = 0
			watch(time.Hour + 9*time.Second)
		}, ""},
		{"half a request", func(c *conn, watch func(time.Duration)) {
			c.frame.moved = now
			watch(1900 * time.Millisecond)
		}, ""},
		{"half a request for long", func(c *conn, watch func(time.Duration)) {
			c.frame.moved = now
			watch(2100 * time.Millisecond)
		}, ClosedSlow},
		{"half a request that waits for memory", func(c *conn, watch func(time.Duration)) {
			c.frame.moved, c.frame.queued = now, true
			watch(time.Hour)
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, watch := watched(t)
			test.steps(c, watch)
			if c.reason != test.want {
				t.Errorf("closed for %q, want %q", c.reason, test.want)
			}
		})
	}
}

// A write is slow that has not moved progressBytes since it was first seen, or since it
// did; what was seen of the write before does not count.
func TestSendingMoves(t *testing.T) {
	c, watch := watched(t)
	now := time.Now()
	step := func(n int64, after time.Duration, want bool) {
		t.Helper()
		if got := c.sendingMoves(n, now.Add(after)); got != want {
			t.Errorf("%d bytes after %v: it moves: %v", n, after, got)
		}
	}
	c.beginSending(nil)
	watch(0)
	step(progressBytes-1, 3*time.Second, true)
	step(1, 3900*time.Millisecond, true) // together they are enough
	step(progressBytes-1, 7800*time.Millisecond, true)
	c.beginSending(nil)
	step(0, 20*time.Second, true) // the interrupt of the one before
	step(0, 23*time.Second, true)
	step(progressBytes-1, 25*time.Second, false)
}

// Idle connections have no worker, and get one with their next request.
func TestIdleConnectionHasNoWorker(t *testing.T) {
	s := start(t, testConfig(), 256<<20, handlerFunc(echo))
	c := dial(t, s.addr)
	for i := range int32(5) {
		c.send(metadata(i))
		if id, _ := c.receive(); id != i {
			t.Fatalf("reply %d, want %d", id, i)
		}
		for idle := -1; idle != 0; runtime.Gosched() {
			s.workers.trim()
			s.workers.mu.Lock()
			idle = len(s.workers.idle)
			s.workers.mu.Unlock()
		}
	}
}

// Workers work at once however many they are, and those that are not needed end.
func TestWorkers(t *testing.T) {
	var w workers
	defer w.end()
	gate, working := make(chan struct{}), make(chan struct{})
	const n = 10
	for range n {
		w.do(func() {
			working <- struct{}{}
			<-gate
		})
	}
	for range n {
		<-working
	}
	close(gate)
	idle := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.idle)
	}
	for idle() < n {
		runtime.Gosched()
	}
	w.trim() // from now on it counts who is needed
	for range 3 {
		w.do(func() { working <- struct{}{} })
	}
	for range 3 {
		<-working
	}
	for idle() < n {
		runtime.Gosched()
	}
	if w.trim(); idle() != 3 {
		t.Errorf("%d workers are left of %d, of whom 3 were needed", idle(), n)
	}
}
