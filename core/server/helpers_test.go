package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

// limit is how long a test waits for what must happen.
const limit = 15 * time.Second

// handlerFunc is a wire.Handler.
type handlerFunc func(ctx context.Context, c wire.Call) wire.Answer

func (f handlerFunc) Begin(ctx context.Context, c wire.Call) wire.Answer { return f(ctx, c) }

// echo answers at once, with an empty response of the request's key.
func echo(_ context.Context, c wire.Call) wire.Answer {
	return func(context.Context) wire.Reply { return wire.Reply{Response: kmsg.ResponseForKey(c.Key)} }
}

// recorder keeps events.
type recorder struct {
	mu     sync.Mutex
	opened int
	closed []CloseReason
	served []Served
	wake   chan struct{}
}

func newRecorder() *recorder { return &recorder{wake: make(chan struct{}, 1)} }

func (r *recorder) ConnectionOpened(string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened++
}

func (r *recorder) ConnectionClosed(_ string, reason CloseReason) {
	r.mu.Lock()
	r.closed = append(r.closed, reason)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *recorder) RequestServed(s Served) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.served = append(r.served, s)
}

// count is how many connections were closed for a reason.
func (r *recorder) count(reason CloseReason) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.countLocked(reason)
}

// awaitClosed waits until so many connections were closed for a reason.
func (r *recorder) awaitClosed(t *testing.T, reason CloseReason, n int) {
	t.Helper()
	deadline := time.After(limit)
	for r.count(reason) < n {
		select {
		case <-r.wake:
		case <-deadline:
			r.mu.Lock()
			defer r.mu.Unlock()
			t.Fatalf("%d connections closed for %q, want %d; all: %v", r.countLocked(reason), reason, n, r.closed)
		}
	}
}

func (r *recorder) countLocked(reason CloseReason) (n int) {
	for _, c := range r.closed {
		if c == reason {
			n++
		}
	}
	return n
}

// harness is a running server.
type harness struct {
	*Server
	addr   string
	budget *memory.Budget
	events *recorder
	log    *syncBuffer
	stop   func() // ends Run and waits for it; may be called more than once
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func testConfig() Config {
	cfg := DefaultConfig()
	cfg.Listeners = []Listener{{Name: "PLAIN", Address: "127.0.0.1:0"}}
	cfg.MaxConnections = 100
	cfg.DrainTimeout = limit
	return cfg
}

// start runs a server until the test ends, and then checks that nothing is left.
func start(t *testing.T, cfg Config, total int64, h wire.Handler) *harness {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	hs := &harness{budget: memory.New(total), events: newRecorder(), log: &syncBuffer{}}
	hs.Server = New(cfg, h, hs.budget, slog.New(slog.NewTextHandler(hs.log, nil)), hs.events)
	if err := hs.Listen(); err != nil {
		t.Fatal(err)
	}
	hs.addr = hs.Addrs()[cfg.Listeners[0].Name].String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- hs.Run(ctx) }()
	var once sync.Once
	hs.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		hs.stop()
		if used := hs.budget.Used(); used != 0 {
			t.Errorf("%d bytes of memory left", used)
		}
		goleak.VerifyNone(t, leaks)
	})
	return hs
}

// client is one side of a connection.
type client struct {
	t *testing.T
	net.Conn
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(2 * limit)); err != nil {
		t.Fatal(err)
	}
	return &client{t, nc}
}

// request encodes a whole frame.
func request(r kmsg.Request, version int16, correlation int32) []byte {
	r.SetVersion(version)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("tester")).AppendRequest(nil, r, correlation)
}

func metadata(correlation int32) []byte {
	return request(kmsg.NewPtrMetadataRequest(), 12, correlation)
}

// padded is a metadata request of so many bytes.
func padded(n int, correlation int32) []byte {
	b := metadata(correlation)
	b = append(b, make([]byte, n-len(b))...)
	binary.BigEndian.PutUint32(b, uint32(n-sizeBytes))
	return b
}

func (c *client) send(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

// receive reads one frame: correlation ID and what follows it.
func (c *client) receive() (int32, []byte) {
	c.t.Helper()
	id, body, err := receive(c)
	if err != nil {
		c.t.Fatalf("receive: %v", err)
	}
	return id, body
}

func receive(r io.Reader) (int32, []byte, error) {
	var size [sizeBytes]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return 0, nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		return 0, nil, err
	}
	return int32(binary.BigEndian.Uint32(b)), b[correlationBytes:], nil
}

// closed waits for the server to close, and returns what it sent before.
func (c *client) closed() []byte {
	c.t.Helper()
	b, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatal("the connection was not closed")
	}
	_ = c.Close()
	return b
}
