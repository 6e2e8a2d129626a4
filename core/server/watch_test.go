package server

import (
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
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

// Jobs that wait have a worker each, and those that are not needed end.
func TestWorkers(t *testing.T) {
	var w workers
	defer w.end()
	gate, working := make(chan struct{}), make(chan struct{})
	const n = 10
	for range n {
		w.do(func(one *worker) {
			one.waits()
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
	again := make(chan struct{})
	for range 3 {
		w.do(func(one *worker) {
			one.waits()
			working <- struct{}{}
			<-again
		})
	}
	for range 3 {
		<-working
	}
	close(again)
	for idle() < n {
		runtime.Gosched()
	}
	if w.trim(); idle() != 3 {
		t.Errorf("%d workers are left of %d, of whom 3 were needed", idle(), n)
	}
}

// Jobs that do not wait share few workers; one that turns out to wait holds up none, and
// all are done, in whatever order they come and turn out.
func TestWorkersAreShared(t *testing.T) {
	w := workers{processors: 2}
	const posters, each = 4, 2000
	gate := make(chan struct{})
	var waiting atomic.Int64
	var done sync.WaitGroup
	done.Add(posters * each)
	var posting sync.WaitGroup
	for range posters {
		posting.Go(func() {
			for i := range each {
				w.do(func(one *worker) {
					defer done.Done()
					if i%500 == 0 {
						waiting.Add(1)
						one.waits()
						<-gate
						one.waits()
					}
				})
			}
		})
	}
	posting.Wait()
	const all = posters * each / 500
	for waiting.Load() < all { // they would never be, if one that waits held up another
		runtime.Gosched()
	}
	w.mu.Lock()
	busy := w.busy
	w.mu.Unlock()
	if busy > 2 {
		t.Errorf("%d workers are busy, beside those that wait", busy)
	}
	close(gate)
	done.Wait()
	w.end()
	if w.busy != 0 || w.due.len() != 0 || len(w.idle) != 0 {
		t.Errorf("in the end %d are busy, %d idle, %d jobs left", w.busy, len(w.idle), w.due.len())
	}
}

// A queue gives what it was given, in that order, and keeps no more room than it needed.
func TestJobs(t *testing.T) {
	var q jobs
	var got []int
	put, taken := 0, 0
	for round := range 1000 {
		for range 1 + round%7 {
			n := put
			q.push(func(*worker) { got = append(got, n) })
			put++
		}
		for q.len() > round%5 {
			q.take()(nil)
			taken++
		}
	}
	for ; q.len() > 0; taken++ {
		q.take()(nil)
	}
	if !slices.IsSorted(got) || len(got) != put || taken != put || cap(q.all) > 64 {
		t.Fatalf("%d put, %d taken, room for %d, in order: %v", put, taken, cap(q.all), slices.IsSorted(got))
	}
}
