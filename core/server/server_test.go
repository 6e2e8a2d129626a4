package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestRequestAndReply(t *testing.T) {
	calls := make(chan wire.Call, 1)
	s := start(t, testConfig(), 256<<20, handlerFunc(func(ctx context.Context, c wire.Call) wire.Answer {
		calls <- c
		return echo(ctx, c)
	}))
	c := dial(t, s.addr)
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr("orders")
	req.Topics = append(req.Topics, topic)
	c.send(request(req, 12, 7))
	id, body := c.receive()
	if id != 7 || body[0] != 0 {
		t.Fatalf("correlation ID %d, header tags %d", id, body[0])
	}
	want := kmsg.NewPtrMetadataResponse()
	want.SetVersion(12)
	if !bytes.Equal(body[1:], want.AppendTo(nil)) {
		t.Fatalf("body %x", body)
	}
	got := <-calls
	if got.Header != (wire.Header{Key: 3, Version: 12, CorrelationID: 7, ClientID: "tester"}) {
		t.Fatalf("header %+v", got.Header)
	}
	if got.From.Listener != "PLAIN" || got.From.Host != "127.0.0.1" || got.From.Principal.Name != "ANONYMOUS" {
		t.Fatalf("from %+v", got.From)
	}
	if !bytes.Equal(got.Body, req.AppendTo(nil)) {
		t.Fatalf("body %x, want %x", got.Body, req.AppendTo(nil))
	}
	_ = c.Close()
	s.events.awaitClosed(t, ClosedByClient, 1)
	if len(s.events.served) != 1 || s.events.served[0].BytesOut != len(body)+8 || s.events.served[0].Key != 3 {
		t.Fatalf("served %+v", s.events.served)
	}
}

// The header of an ApiVersions response is never flexible (KIP-511), and its
// version may be another than the request's.
func TestResponseHeader(t *testing.T) {
	zero := int16(0)
	for _, test := range []struct {
		name    string
		key     int16
		version int16
		as      *int16
		tagged  bool
	}{
		{"flexible", 3, 9, nil, true},
		{"plain", 3, 8, nil, false},
		{"ApiVersions", 18, 3, nil, false},
		{"ApiVersions of an unknown version", 18, 99, &zero, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := start(t, testConfig(), 256<<20, handlerFunc(func(_ context.Context, c wire.Call) wire.Answer {
				return func(context.Context) wire.Reply {
					return wire.Reply{Response: kmsg.ResponseForKey(c.Key), Version: test.as}
				}
			}))
			c := dial(t, s.addr)
			c.send(request(kmsg.RequestForKey(test.key), test.version, 1))
			_, body := c.receive()
			resp := kmsg.ResponseForKey(test.key)
			resp.SetVersion(test.version)
			if test.as != nil {
				resp.SetVersion(*test.as)
			}
			want := resp.AppendTo(nil)
			if test.tagged {
				want = append([]byte{0}, want...)
			}
			if !bytes.Equal(body, want) {
				t.Fatalf("got %x, want %x", body, want)
			}
		})
	}
}

// All requests are begun before the first is answered; their answers come to be ready
// in the opposite order, some of them block, and one is asked for after the other in
// the order of the requests.
func TestRepliesKeepOrder(t *testing.T) {
	const n = 12
	var turns [n]wire.Turn
	var asked atomic.Int32
	gate := make(chan struct{})
	s := start(t, testConfig(), 256<<20, handlerFunc(func(_ context.Context, c wire.Call) wire.Answer {
		switch c.CorrelationID % 3 {
		case 0:
			c.Turn.Later()
			turns[c.CorrelationID] = c.Turn
		case 1:
			c.Turn.Ready()
		}
		if c.CorrelationID == n-1 {
			close(gate)
		}
		return func(context.Context) wire.Reply {
			if c.CorrelationID%3 == 2 {
				<-gate
			}
			if got := asked.Add(1) - 1; got != c.CorrelationID {
				t.Errorf("answer %d was asked for in place %d", c.CorrelationID, got)
			}
			return wire.Reply{Response: kmsg.NewPtrMetadataResponse()}
		}
	}))
	c := dial(t, s.addr)
	for i := range int32(n) {
		c.send(metadata(i))
	}
	<-gate
	for i := n - 3; i >= 0; i -= 3 {
		if asked.Load() > 0 {
			t.Fatal("an answer was asked for before the first was ready")
		}
		turns[i].Ready()
	}
	for i := range int32(n) {
		if id, _ := c.receive(); id != i {
			t.Fatalf("reply %d came in place %d", id, i)
		}
	}
}

// While MaxInFlight requests are without reply, no more are begun.
func TestMaxInFlight(t *testing.T) {
	var begun, running atomic.Int32
	gate := make(chan struct{})
	cfg := testConfig()
	cfg.MaxInFlight = 3
	full := make(chan struct{}, 100)
	s := start(t, cfg, 256<<20, handlerFunc(func(context.Context, wire.Call) wire.Answer {
		begun.Add(1)
		if n := running.Add(1); n > 3 {
			t.Errorf("%d requests at once", n)
		}
		full <- struct{}{}
		return func(context.Context) wire.Reply {
			<-gate
			running.Add(-1)
			return wire.Reply{Response: kmsg.NewPtrMetadataResponse()}
		}
	}))
	c := dial(t, s.addr)
	const n = 20
	for i := range int32(n) {
		c.send(metadata(i))
	}
	for range 3 {
		<-full
	}
	if got := begun.Load(); got != 3 {
		t.Fatalf("%d requests begun", got)
	}
	for range n {
		gate <- struct{}{}
	}
	for i := range int32(n) {
		if id, _ := c.receive(); id != i {
			t.Fatalf("reply %d in place %d", id, i)
		}
	}
}

// acks=0: no bytes at all.
func TestNoResponse(t *testing.T) {
	s := start(t, testConfig(), 256<<20, handlerFunc(func(ctx context.Context, c wire.Call) wire.Answer {
		if c.Key == 0 {
			return func(context.Context) wire.Reply { return wire.Reply{} }
		}
		return echo(ctx, c)
	}))
	c := dial(t, s.addr)
	for i := range int32(40) { // more than may be in flight
		c.send(request(kmsg.NewPtrProduceRequest(), 9, i))
	}
	c.send(metadata(100))
	if id, _ := c.receive(); id != 100 {
		t.Fatalf("got a reply to request %d", id)
	}
}

// What was asked before is answered, then the connection ends.
func TestReplyCloses(t *testing.T) {
	gate := make(chan struct{})
	s := start(t, testConfig(), 256<<20, handlerFunc(func(_ context.Context, c wire.Call) wire.Answer {
		if c.CorrelationID == 3 {
			close(gate)
		}
		return func(context.Context) wire.Reply {
			switch c.CorrelationID {
			case 1:
				<-gate
			case 2:
				return wire.Reply{Response: kmsg.NewPtrMetadataResponse(), Close: true, Reason: "enough"}
			}
			return wire.Reply{Response: kmsg.NewPtrMetadataResponse()}
		}
	}))
	c := dial(t, s.addr)
	for i := range int32(3) {
		c.send(metadata(i + 1))
	}
	for want := int32(1); want <= 2; want++ {
		if id, _ := c.receive(); id != want {
			t.Fatalf("reply %d, want %d", id, want)
		}
	}
	if rest := c.closed(); len(rest) > 0 {
		t.Fatalf("then came %x", rest)
	}
	s.events.awaitClosed(t, ClosedByHandler, 1)
}

// What the client sent meanwhile, and nobody will read, takes no reply from it.
func TestLastReplyIsNotLost(t *testing.T) {
	large := strings.Repeat("x", 1<<20) // more than the kernel has delivered when it is sent
	s := start(t, testConfig(), 256<<20, handlerFunc(func(_ context.Context, c wire.Call) wire.Answer {
		return func(context.Context) wire.Reply {
			resp := kmsg.NewPtrMetadataResponse()
			resp.ClusterID = &large
			return wire.Reply{Response: resp, Close: c.CorrelationID == 1}
		}
	}))
	frames := metadata(1)
	for len(frames) < 64<<10 {
		frames = append(frames, metadata(2)...)
	}
	for range 3 {
		c := dial(t, s.addr)
		if err := c.Conn.(*net.TCPConn).SetReadBuffer(32 << 10); err != nil {
			t.Fatal(err)
		}
		c.send(frames)
		if id, _ := c.receive(); id != 1 {
			t.Fatalf("reply %d", id)
		}
		if rest := c.closed(); len(rest) > 0 {
			t.Fatalf("then came %d bytes", len(rest))
		}
	}
}

func TestPanic(t *testing.T) {
	for _, where := range []string{"begin", "answer", "encode", "no answer"} {
		t.Run(where, func(t *testing.T) {
			s := start(t, testConfig(), 256<<20, handlerFunc(func(ctx context.Context, c wire.Call) wire.Answer {
				if c.CorrelationID == 1 {
					return echo(ctx, c)
				}
				switch where {
				case "begin":
					panic("broken")
				case "no answer":
					return nil
				}
				return func(context.Context) wire.Reply {
					if where == "answer" {
						panic("broken")
					}
					return wire.Reply{Response: (*kmsg.MetadataResponse)(nil)}
				}
			}))
			c, other := dial(t, s.addr), dial(t, s.addr)
			c.send(metadata(2))
			c.closed()
			if where != "no answer" {
				s.events.awaitClosed(t, ClosedByPanic, 1)
				if out := s.log.String(); !strings.Contains(out, "level=ERROR") || !strings.Contains(out, "api_key=3") {
					t.Fatalf("the log says %s", out)
				}
			}
			other.send(metadata(1))
			other.receive()
		})
	}
}

func TestBadFrames(t *testing.T) {
	cfg := testConfig()
	cfg.MaxRequestBytes = 1000
	s := start(t, cfg, 16<<20, handlerFunc(echo))
	flexible := metadata(1)
	flexible = flexible[:len("sizekyvrcorrcltester")]
	cut := func(b ...byte) []byte {
		b = append(bytes.Clone(flexible), b...)
		binary.BigEndian.PutUint32(b, uint32(len(b)-4))
		return b
	}
	for _, test := range []struct {
		name  string
		frame []byte
	}{
		{"negative size", []byte{0xff, 0xff, 0xff, 0xff}},
		{"size above the limit", []byte{0, 0, 3, 0xe9}},
		{"greatest size", []byte{0x7f, 0xff, 0xff, 0xff}},
		{"no room for a header", []byte{0, 0, 0, 9, 0, 3, 0, 1, 0, 0, 0, 1, 0}},
		{"client ID beyond the end", []byte{0, 0, 0, 10, 0, 3, 0, 1, 0, 0, 0, 1, 0, 1}},
		{"client ID of negative length", []byte{0, 0, 0, 10, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xfe}},
		{"no tags", cut()},
		{"tags without end", cut(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)},
		{"2^60 tags", cut(0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10)},
		{"tag beyond the end", cut(1, 0, 5)},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := s.events.count(ClosedProtocol)
			c := dial(t, s.addr)
			c.send(test.frame)
			if got := c.closed(); len(got) > 0 {
				t.Fatalf("answered %x", got)
			}
			s.events.awaitClosed(t, ClosedProtocol, before+1)
		})
	}
}

// An unknown key, an unknown version and tags in a header are the handler's.
func TestHeadersHandedOver(t *testing.T) {
	calls := make(chan wire.Call, 1)
	s := start(t, testConfig(), 256<<20, handlerFunc(func(_ context.Context, c wire.Call) wire.Answer {
		calls <- c
		return func(context.Context) wire.Reply { return wire.Reply{Close: true} }
	}))
	for _, test := range []struct {
		name  string
		frame []byte
		want  wire.Header
		body  string
	}{
		{"unknown key", []byte{0, 0, 0, 12, 0x7f, 0, 0, 1, 0, 0, 0, 9, 0xff, 0xff, 'h', 'i'}, wire.Header{Key: 0x7f00, Version: 1, CorrelationID: 9}, "hi"},
		{"negative key", []byte{0, 0, 0, 12, 0xff, 0, 0, 1, 0, 0, 0, 9, 0xff, 0xff, 'h', 'i'}, wire.Header{Key: -256, Version: 1, CorrelationID: 9}, "hi"},
		{"negative version", []byte{0, 0, 0, 12, 0, 3, 0xff, 0xff, 0, 0, 0, 9, 0, 0, 'h', 'i'}, wire.Header{Key: 3, Version: -1, CorrelationID: 9}, "hi"},
		{"high version", []byte{0, 0, 0, 13, 0, 3, 0x7f, 0xff, 0, 0, 0, 9, 0, 0, 0, 'h', 'i'}, wire.Header{Key: 3, Version: 0x7fff, CorrelationID: 9}, "hi"},
		{"tags", []byte{0, 0, 0, 17, 0, 3, 0, 12, 0, 0, 0, 9, 0, 0, 1, 5, 2, 'x', 'y', 'h', 'i'}, wire.Header{Key: 3, Version: 12, CorrelationID: 9}, "hi"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := dial(t, s.addr)
			c.send(test.frame)
			c.closed()
			if got := <-calls; got.Header != test.want || string(got.Body) != test.body {
				t.Fatalf("header %+v, body %q", got.Header, got.Body)
			}
		})
	}
}

func TestLargeRequestAndReply(t *testing.T) {
	const n = 5<<20 + 13
	s := start(t, testConfig(), 256<<20, handlerFunc(func(_ context.Context, c wire.Call) wire.Answer {
		return func(context.Context) wire.Reply {
			return wire.Reply{Body: recordsReply{c.Body}}
		}
	}))
	c := dial(t, s.addr)
	b := request(kmsg.NewPtrFetchRequest(), 12, 1)
	head := len(b)
	b = append(b, make([]byte, n-head)...)
	for i := head; i < n; i++ {
		b[i] = byte(i * 7)
	}
	binary.BigEndian.PutUint32(b, n-4)
	sent := make(chan error, 1)
	go func() { _, err := c.Write(b); sent <- err }()
	_, body := c.receive()
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(body, b[head:]) {
		t.Fatalf("%d bytes came back changed", len(body))
	}
}

func TestIdle(t *testing.T) {
	cfg := testConfig()
	cfg.IdleTimeout = 50 * time.Millisecond
	gate := make(chan struct{})
	s := start(t, cfg, 256<<20, handlerFunc(func(context.Context, wire.Call) wire.Answer {
		return func(context.Context) wire.Reply {
			<-gate
			return wire.Reply{Response: kmsg.NewPtrMetadataResponse()}
		}
	}))
	busy := dial(t, s.addr)
	busy.send(metadata(1))
	dial(t, s.addr).closed()
	s.events.awaitClosed(t, ClosedIdle, 1)
	close(gate)
	if id, _ := busy.receive(); id != 1 {
		t.Fatal("a connection that waited for its reply was taken for idle")
	}
	busy.closed()
	s.events.awaitClosed(t, ClosedIdle, 2)
}

func TestSlowFrame(t *testing.T) {
	cfg := testConfig()
	cfg.FrameTimeout = 50 * time.Millisecond
	s := start(t, cfg, 256<<20, handlerFunc(echo))
	for _, part := range []int{2, 10, 6000} {
		c := dial(t, s.addr)
		c.send(padded(20000, 1)[:part])
		c.closed()
	}
	s.events.awaitClosed(t, ClosedSlow, 3)
}

func TestMaxConnections(t *testing.T) {
	cfg := testConfig()
	cfg.MaxConnections = 2
	s := start(t, cfg, 256<<20, handlerFunc(echo))
	a, b := dial(t, s.addr), dial(t, s.addr)
	for _, c := range []*client{a, b} {
		c.send(metadata(1))
		c.receive()
	}
	dial(t, s.addr).closed()
	s.events.awaitClosed(t, ClosedByLimit, 1)
	_ = a.Close()
	s.events.awaitClosed(t, ClosedByClient, 1)
	for range 100 { // the place is free a moment after the event
		c := dial(t, s.addr)
		c.send(metadata(2))
		if _, _, err := receive(c); err == nil {
			return
		}
	}
	t.Fatal("no place was freed")
}

// A stop lets begun requests be answered, and ends the rest.
func TestStopDrains(t *testing.T) {
	begun, gate := make(chan struct{}, 10), make(chan struct{})
	s := start(t, testConfig(), 256<<20, handlerFunc(func(context.Context, wire.Call) wire.Answer {
		begun <- struct{}{}
		return func(ctx context.Context) wire.Reply {
			select {
			case <-gate:
			case <-ctx.Done():
				t.Error("the answer was interrupted")
			}
			return wire.Reply{Response: kmsg.NewPtrMetadataResponse()}
		}
	}))
	busy, idle, half := dial(t, s.addr), dial(t, s.addr), dial(t, s.addr)
	busy.send(metadata(1))
	busy.send(metadata(2))
	half.send(metadata(1)[:10])
	<-begun
	<-begun
	stopped := make(chan struct{})
	go func() { s.stop(); close(stopped) }()
	idle.closed()
	half.closed()
	close(gate)
	for want := int32(1); want <= 2; want++ {
		if id, _ := busy.receive(); id != want {
			t.Fatalf("reply %d, want %d", id, want)
		}
	}
	busy.closed()
	<-stopped
}

func TestStopDoesNotWaitForEver(t *testing.T) {
	cfg := testConfig()
	cfg.DrainTimeout = 50 * time.Millisecond
	begun := make(chan struct{})
	s := start(t, cfg, 256<<20, handlerFunc(func(context.Context, wire.Call) wire.Answer {
		close(begun)
		return func(ctx context.Context) wire.Reply {
			<-ctx.Done()
			return wire.Reply{}
		}
	}))
	c := dial(t, s.addr)
	c.send(metadata(1))
	<-begun
	s.stop()
	c.closed()
}

// A client that goes away ends the wait of its answers.
func TestClientGone(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	s := start(t, testConfig(), 256<<20, handlerFunc(func(context.Context, wire.Call) wire.Answer {
		close(begun)
		return func(ctx context.Context) wire.Reply {
			<-ctx.Done()
			close(ended)
			return wire.Reply{}
		}
	}))
	c := dial(t, s.addr)
	c.send(metadata(1))
	<-begun
	_ = c.Close()
	<-ended
}

func TestListen(t *testing.T) {
	s := start(t, testConfig(), 256<<20, handlerFunc(echo))
	for _, test := range []struct {
		name   string
		change func(*Config)
		total  int64
		want   string
	}{
		{"address taken", func(c *Config) { c.Listeners[0].Address = s.addr }, 256 << 20, "address already in use"},
		{"no listeners", func(c *Config) { c.Listeners = nil }, 256 << 20, "none given"},
		{"same name", func(c *Config) { c.Listeners = append(c.Listeners, c.Listeners[0]) }, 256 << 20, "taken"},
		{"no port", func(c *Config) { c.Listeners[0].Address = "localhost" }, 256 << 20, "host:port"},
		{"no timeout", func(c *Config) { c.IdleTimeout = 0 }, 256 << 20, "idle timeout"},
		{"little memory", func(*Config) {}, 64 << 20, "maximum request bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := testConfig()
			test.change(&cfg)
			err := New(cfg, handlerFunc(echo), memory.New(test.total), discard(), nil).Listen()
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, want something about %q", err, test.want)
			}
		})
	}
	if err := New(testConfig(), handlerFunc(echo), memory.New(256<<20), discard(), nil).Run(t.Context()); err == nil {
		t.Fatal("Run without Listen went unnoticed")
	}
}

func TestTwoListeners(t *testing.T) {
	cfg := testConfig()
	cfg.Listeners = append(cfg.Listeners, Listener{"OTHER", "127.0.0.1:0"})
	from := make(chan string, 2)
	s := start(t, cfg, 256<<20, handlerFunc(func(ctx context.Context, c wire.Call) wire.Answer {
		from <- c.From.Listener
		return echo(ctx, c)
	}))
	for _, name := range []string{"PLAIN", "OTHER"} {
		c := dial(t, s.Addrs()[name].String())
		c.send(metadata(1))
		c.receive()
		if got := <-from; got != name {
			t.Fatalf("a request to %s came from %s", name, got)
		}
	}
}
