package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// A small request whose handler gives its body back allocates nothing in the server,
// whether its answer is ready at once, comes from elsewhere, or is asked for in turn.
func TestRequestAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	turns := make(chan wire.Turn, 1)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { elsewhere{turns}.run(ctx) })
	for name, h := range map[string]wire.Handler{
		"at once": handlerFunc(func(_ context.Context, c wire.Call) wire.Answer {
			c.Turn.Ready()
			return answerFixed
		}),
		"elsewhere": elsewhere{turns},
		"in turn":   handlerFunc(func(context.Context, wire.Call) wire.Answer { return answerFixed }),
	} {
		for _, size := range []int{100, smallBytes, 100 << 10} {
			t.Run(fmt.Sprintf("%s, %d bytes", name, size), func(t *testing.T) {
				s := New(testConfig(), h, memory.New(256<<20), discard(), nil)
				addr := runServer(t, s)
				nc, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				defer nc.Close()
				frame, reply := sized(0, size), make([]byte, replyBytes+headBytesMax)
				if got := testing.AllocsPerRun(1000, func() { exchange(t, nc, frame, reply) }); got > 0 {
					t.Errorf("%v allocations a request", got)
				}
			})
		}
	}
}

// exchange sends a request and waits until the reply has come, which is as long as reply.
func exchange(t testing.TB, nc net.Conn, frame, reply []byte) {
	t.Helper()
	if _, err := nc.Write(frame); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(nc, reply); err != nil {
		t.Fatal(err)
	}
}

// Requests that come together are answered together.
func TestRepliesOfABurst(t *testing.T) {
	const n = 10
	for _, name := range []string{"at once", "later"} {
		t.Run(name, func(t *testing.T) {
			var turns []wire.Turn
			begun := make(chan struct{})
			h := handlerFunc(func(_ context.Context, c wire.Call) wire.Answer {
				if name == "at once" {
					c.Turn.Ready()
				} else {
					c.Turn.Later()
					if len(turns) == n { // all before this one are in the queue
						close(begun)
					} else {
						turns = append(turns, c.Turn)
					}
				}
				return answerFixed
			})
			client := pipe(t, h)
			var frames []byte
			for i := range int32(n) {
				frames = append(frames, request(kmsg.NewPtrProduceRequest(), 9, i)...)
			}
			if _, err := client.Write(frames); err != nil {
				t.Fatal(err)
			}
			if name == "later" {
				if _, err := client.Write(request(kmsg.NewPtrProduceRequest(), 9, n)); err != nil {
					t.Fatal(err)
				}
				<-begun
				for i := range turns { // the first comes last
					turns[len(turns)-1-i].Ready()
				}
			}
			all := make([]byte, 2*n*(replyBytes+headBytesMax))
			got, err := client.Read(all) // of one write
			if want := n * (replyBytes + headBytesMax); err != nil || got != want {
				t.Fatalf("the first write had %d bytes, want %d: %v", got, want, err)
			}
			for i := range n {
				if id := binary.BigEndian.Uint32(all[i*got/n+sizeBytes:]); id != uint32(i) {
					t.Fatalf("reply %d in place %d", id, i)
				}
			}
		})
	}
}

// pipe is a connection to a server of which everything that is written is one read.
func pipe(t *testing.T, h wire.Handler) net.Conn {
	s := New(testConfig(), h, memory.New(256<<20), discard(), nil)
	client, served := net.Pipe()
	c := newConn(s, "PIPE", served)
	if !s.register(c) {
		t.Fatal("not registered")
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer s.unregister(c)
		c.run(context.Background())
	})
	t.Cleanup(func() {
		_ = client.Close()
		wg.Wait()
		s.workers.end()
	})
	return client
}

// Requests of all sizes that arrive over a socket in pieces are the ones that were sent.
func TestPieces(t *testing.T) {
	var mu sync.Mutex
	var got [][]byte
	s := start(t, testConfig(), 256<<20, handlerFunc(func(_ context.Context, c wire.Call) wire.Answer {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, bytes.Clone(c.Body))
		c.Turn.Ready()
		return answerFixed
	}))
	rapid.Check(t, func(rt *rapid.T) {
		mu.Lock()
		got = nil
		mu.Unlock()
		var all []byte
		var want [][]byte
		for i := range rapid.IntRange(1, 8).Draw(rt, "requests") {
			body := bytes.Repeat([]byte{byte(i + 1)}, rapid.OneOf(rapid.IntRange(0, 600), rapid.IntRange(3500, 4200), rapid.IntRange(0, 60<<10)).Draw(rt, "bytes"))
			head := binary.BigEndian.AppendUint32(nil, uint32(minHeaderBytes+len(body)))
			head = append(head, 0, 0, 0, 3, 0, 0, 0, byte(i), 0xff, 0xff)
			all, want = append(append(all, head...), body...), append(want, body)
		}
		c := dial(t, s.addr)
		defer c.Close()
		_ = c.Conn.(*net.TCPConn).SetNoDelay(true)
		for rest := all; len(rest) > 0; {
			n := min(len(rest), rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(1, 5000), rapid.Just(len(all))).Draw(rt, "piece"))
			c.send(rest[:n])
			rest = rest[n:]
		}
		for range want {
			c.receive()
		}
		mu.Lock()
		defer mu.Unlock()
		if len(got) != len(want) {
			rt.Fatalf("%d requests begun, want %d", len(got), len(want))
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				rt.Fatalf("request %d of %d bytes came as %d others", i, len(want[i]), len(got[i]))
			}
		}
	})
}

// What a handler does not give back, or somebody keeps by its frame, is not read into;
// what it gives back is used again.
func TestBodiesAreKept(t *testing.T) {
	const n = 200
	type kept struct {
		body  []byte
		frame *model.Frame
	}
	var mu sync.Mutex
	var all []kept
	seen := map[*byte]int{}
	s := start(t, testConfig(), 256<<20, handlerFunc(func(_ context.Context, c wire.Call) wire.Answer {
		keep := c.CorrelationID%3 == 0
		byFrame := keep && c.Frame != nil && c.CorrelationID%2 == 0
		mu.Lock()
		defer mu.Unlock()
		seen[&c.Body[0]]++
		if byFrame {
			c.Frame.Keep()
		}
		if keep {
			all = append(all, kept{body: c.Body})
			if byFrame {
				all[len(all)-1].frame = c.Frame
			}
		}
		return func(context.Context) wire.Reply {
			return wire.Reply{Body: fixedBody{}, Spent: !keep || byFrame}
		}
	}))
	c := dial(t, s.addr)
	sizes := []int{300, 3000, 30_000, 300_000}
	for i := range n {
		b := sized(3, sizes[i%len(sizes)])
		binary.BigEndian.PutUint32(b[8:], uint32(i))
		for j := len(b) - 200; j < len(b); j++ {
			b[j] = byte(i)
		}
		c.send(b)
		c.receive()
	}
	mu.Lock()
	defer mu.Unlock()
	for i, k := range all {
		if end := k.body[len(k.body)-200:]; !bytes.Equal(end, bytes.Repeat([]byte{byte(3 * i)}, 200)) {
			t.Fatalf("the body of request %d has changed", 3*i)
		}
		if k.frame != nil {
			k.frame.Drop()
		}
	}
	if len(seen) == n && !raceEnabled {
		t.Error("nothing is used again")
	}
}

// Replies of all kinds arrive as they are, however often their writes are interrupted.
func TestInterruptedWrites(t *testing.T) {
	large := make([]byte, 3<<20)
	for i := range large {
		large[i] = byte(i * 7)
	}
	var released atomic.Int32
	s := start(t, testConfig(), 256<<20, handlerFunc(func(_ context.Context, c wire.Call) wire.Answer {
		if c.CorrelationID%2 == 0 {
			c.Turn.Ready()
		}
		return func(context.Context) wire.Reply {
			if c.CorrelationID%3 == 0 {
				resp, text := kmsg.NewPtrMetadataResponse(), string(large[:1<<20])
				resp.ClusterID = &text
				return wire.Reply{Response: resp}
			}
			return wire.Reply{Body: &partsBody{[][]byte{[]byte("a"), large, []byte("b"), large[:c.CorrelationID*1000]}, &released}}
		}
	}))
	c := dial(t, s.addr)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	wg.Go(func() {
		for ctx.Err() == nil {
			for _, c := range s.connections() {
				c.watch(time.Now())
			}
		}
	})
	const n = 12
	for i := range int32(n) {
		c.send(metadata(i))
	}
	for i := range int32(n) {
		id, body := c.receive()
		if id != i {
			t.Fatalf("reply %d in place %d", id, i)
		}
		if i%3 == 0 {
			resp := kmsg.NewPtrMetadataResponse()
			resp.SetVersion(12)
			if err := resp.ReadFrom(body[1:]); err != nil || *resp.ClusterID != string(large[:1<<20]) {
				t.Fatalf("reply %d is another: %v", i, err)
			}
			continue
		}
		if want := bytes.Join([][]byte{{0, 'a'}, large, {'b'}, large[:i*1000]}, nil); !bytes.Equal(body, want) {
			t.Fatalf("reply %d has %d bytes, want %d, or others", i, len(body), len(want))
		}
	}
}

// A Turn that comes after its connection has ended does nothing, and whoever is asked
// before it knows by the context.
func TestLateTurn(t *testing.T) {
	turns := make(chan wire.Turn, 1)
	gaveUp := make(chan error, 1)
	var released atomic.Int32
	s := start(t, testConfig(), 256<<20, handlerFunc(func(_ context.Context, c wire.Call) wire.Answer {
		if c.CorrelationID == 1 {
			c.Turn.Later()
			turns <- c.Turn
			return func(ctx context.Context) wire.Reply {
				gaveUp <- ctx.Err()
				return wire.Reply{Body: &partsBody{released: &released}}
			}
		}
		c.Turn.Ready()
		return answerFixed
	}))
	gone := dial(t, s.addr)
	gone.send(metadata(1))
	turn := <-turns
	_ = gone.Close()
	if err := <-gaveUp; err == nil {
		t.Error("the answer was asked for as if it were ready")
	}
	s.events.awaitClosed(t, ClosedByClient, 1)
	if released.Load() != 1 {
		t.Error("the response was not let go of")
	}
	other := dial(t, s.addr)
	for i := range int32(100) {
		other.send(metadata(2 + i))
		other.receive()
		if i == 50 {
			turn.Ready()
		}
	}
}
