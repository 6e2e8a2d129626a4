package api

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	listener = "PLAINTEXT"
	self     = model.NodeID(1)
)

// events counts what it is told.
type events struct {
	mu       sync.Mutex
	answered int
	produced int
	fetched  int
	sessions int
	evicted  int
	software string
}

func (e *events) Answered(int16, int16, time.Duration) { e.add(func() { e.answered++ }) }
func (e *events) Produced(_ string, records, _ int)    { e.add(func() { e.produced += records }) }
func (e *events) Fetched(_ string, bytes int)          { e.add(func() { e.fetched += bytes }) }
func (e *events) FetchSessions(open int, evicted bool) {
	e.add(func() {
		e.sessions = open
		if evicted {
			e.evicted++
		}
	})
}
func (e *events) ClientSeen(software, version string) {
	e.add(func() { e.software = software + "/" + version })
}

func (e *events) add(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

type errorPair struct{ kind, cause error }

func errorOf(kind, cause error) error   { return errorPair{kind, cause} }
func (e errorPair) Error() string       { return e.cause.Error() }
func (e errorPair) Is(other error) bool { return other == e.kind }

// testTime is when everything happens, in tests that do not say otherwise.
func testTime() time.Time { return time.UnixMilli(1_700_000_000_000) }

func newHandler(c *cluster, change ...func(*Config, *Deps)) *Handler {
	cfg := Config{NodeID: self, AutoCreateTopics: true}
	deps := Deps{Partitions: c, Controller: c, Groups: c.groups, Metadata: c, Operations: c, Quorum: c, Authorizer: c, Events: &events{}, Logger: slog.New(slog.DiscardHandler), Now: testTime}
	for _, f := range change {
		f(&cfg, &deps)
	}
	return New(cfg, deps)
}

func callOf(req kmsg.Request) wire.Call {
	return wire.Call{
		Header: wire.Header{Key: req.Key(), Version: req.GetVersion(), ClientID: "test"},
		Body:   req.AppendTo(nil),
		From:   wire.Peer{Listener: listener, Host: "192.0.2.1", Principal: security.Anonymous},
	}
}

// ask sends a request through its real encoding, and reads the answer through
// its real encoding.
func ask[R kmsg.Response](t testing.TB, h *Handler, version int16, req kmsg.Request) R {
	t.Helper()
	req.SetVersion(version)
	return decoded[R](t, req, begin(t.Context(), h, callOf(req))(t.Context()))
}

// turn is a wire.Turn.
type turn struct {
	later bool
	ready chan struct{}
}

func (t *turn) Later() { t.later = true }
func (t *turn) Ready() { close(t.ready) }

// begin begins a request as the server does: its Answer is asked when it is there.
func begin(ctx context.Context, h wire.Handler, call wire.Call) wire.Answer {
	turn := &turn{ready: make(chan struct{})}
	call.Turn = turn
	answer := h.Begin(ctx, call)
	return func(ctx context.Context) wire.Reply {
		if turn.later {
			select {
			case <-turn.ready:
			case <-ctx.Done():
			}
		}
		return answer(ctx)
	}
}

// encoded is the response's body, which is released; nil where there is none.
func encoded(version int16, reply wire.Reply) []byte {
	if reply.Version != nil {
		version = *reply.Version
	}
	switch {
	case reply.Body != nil:
		defer reply.Body.Release()
		var parts spliced
		out := reply.Body.Encode(nil, &parts)
		body, from := []byte{}, 0
		for i, at := range parts.places {
			body = append(append(body, out[from:at]...), parts.records[i]...)
			from = at
		}
		return append(body, out[from:]...)
	case reply.Response != nil:
		reply.Response.SetVersion(version)
		return reply.Response.AppendTo([]byte{})
	}
	return nil
}

// spliced is what belongs between the bytes of a response.
type spliced struct {
	places  []int
	records [][]byte
}

func (s *spliced) Records(at int, records []byte) {
	s.places, s.records = append(s.places, at), append(s.records, records)
}

func (s *spliced) Section(at int, section *model.Section) {
	b := make([]byte, section.Bytes)
	if _, err := section.File.ReadAt(b, section.Pos); err != nil {
		panic(err)
	}
	s.Records(at, b)
}

func decoded[R kmsg.Response](t testing.TB, req kmsg.Request, reply wire.Reply) R {
	t.Helper()
	body := encoded(req.GetVersion(), reply)
	if reply.Close || body == nil {
		t.Fatalf("%s version %d: no response: %+v", kmsg.NameForKey(req.Key()), req.GetVersion(), reply)
	}
	version := req.GetVersion()
	if reply.Version != nil {
		version = *reply.Version
	}
	return read(t, req.Key(), version, body).(R)
}

func records(t testing.TB, opts batch.Options, values ...string) []byte {
	t.Helper()
	var rs []batch.Record
	for _, v := range values {
		rs = append(rs, batch.Record{Timestamp: testTime().UnixMilli(), Key: []byte("k"), Value: []byte(v)})
	}
	b, err := batch.Build(opts, rs...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// serve runs a listener until the test ends, and returns its address. It frames
// as core/server does, with none of its care.
func serve(t *testing.T, h wire.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				stop := context.AfterFunc(ctx, func() { conn.Close() })
				defer stop()
				defer conn.Close()
				serveConn(ctx, conn, h)
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		l.Close()
		conns.Wait()
	})
	return l.Addr().String()
}

func serveConn(ctx context.Context, conn net.Conn, h wire.Handler) {
	for {
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(conn, frame); err != nil {
			return
		}
		call, ok := parseFrame(frame)
		if !ok {
			return
		}
		reply := begin(ctx, h, call)(ctx)
		if body := encoded(call.Version, reply); body != nil {
			if _, err := conn.Write(encodeFrame(call, body)); err != nil {
				return
			}
		}
		if reply.Close {
			return
		}
	}
}

func parseFrame(frame []byte) (wire.Call, bool) {
	if len(frame) < 10 {
		return wire.Call{}, false
	}
	c := wire.Call{From: wire.Peer{Listener: listener, Host: "127.0.0.1", Principal: security.Anonymous}}
	c.Key, c.Version = int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))
	c.CorrelationID = int32(binary.BigEndian.Uint32(frame[4:]))
	rest := frame[10:]
	if n := int(int16(binary.BigEndian.Uint16(frame[8:]))); n > 0 {
		c.ClientID, rest = string(rest[:n]), rest[n:]
	}
	if req := kmsg.RequestForKey(c.Key); req != nil {
		req.SetVersion(c.Version)
		if req.IsFlexible() {
			rest = rest[1:] // no tags in the header
		}
	}
	c.Body = rest
	return c, true
}

func encodeFrame(c wire.Call, body []byte) []byte {
	out := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 0}, uint32(c.CorrelationID))
	req := kmsg.RequestForKey(c.Key)
	if req.SetVersion(c.Version); req.IsFlexible() && c.Key != wire.KeyAPIVersions {
		out = append(out, 0)
	}
	out = append(out, body...)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out
}

func ptr[T any](v T) *T { return &v }
