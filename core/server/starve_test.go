package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The attacks: so many clients, against a budget far below what they ask for.
const (
	attackers   = 500
	attackTotal = 32 << 20
	attackStall = 300 * time.Millisecond
	attackLasts = time.Second // at least, and until honest clients were served
	attackServe = 10          // so often each
	recordBytes = 1 << 20     // in a fetch response, and of a large request
)

func attackConfig() Config {
	cfg := testConfig()
	cfg.MaxConnections = attackers + 100
	cfg.MaxRequestBytes = 8 << 20
	cfg.StallTimeout = attackStall
	return cfg
}

// serveAttack answers fetches with one batch of recordBytes, read when there is
// room for it.
func serveAttack(t *testing.T) *harness {
	return start(t, attackConfig(), attackTotal, handlerFunc(func(ctx context.Context, c wire.Call) wire.Answer {
		if c.Key != keyFetch {
			return echo(ctx, c)
		}
		return func(ctx context.Context) wire.Reply { return fetchRecords(ctx, c) }
	}))
}

// fetchRecords answers a fetch with as many records as there is room for, and at
// least one batch of recordBytes.
func fetchRecords(ctx context.Context, c wire.Call) wire.Reply {
	n, err := c.Room.Reserve(ctx, recordBytes, 8*recordBytes)
	if err != nil {
		return wire.Reply{}
	}
	return wire.Reply{Body: recordsReply{make([]byte, n/recordBytes*recordBytes)}}
}

// A client that announces a large request, sends some of it at once, and then
// hardly more, comes again when it is closed.
func TestSlowClientsStarveNobody(t *testing.T) {
	const announced, atOnce = 8 << 20, 100 << 10
	s := serveAttack(t)
	opening := padded(atOnce, 1)
	binary.BigEndian.PutUint32(opening, announced-sizeBytes)
	underAttack(t, s, func(ctx context.Context, nc net.Conn) error {
		if _, err := nc.Write(opening); err != nil {
			return err
		}
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				if _, err := nc.Write(opening[:10]); err != nil {
					return err
				}
			}
		}
	})
}

// A client that asks for much and reads nothing.
func TestDeafClientsStarveNobody(t *testing.T) {
	s := serveAttack(t)
	var fetches []byte
	for i := range int32(5) {
		fetches = append(fetches, request(kmsg.NewPtrFetchRequest(), 12, i)...)
	}
	underAttack(t, s, func(ctx context.Context, nc net.Conn) error {
		_ = nc.(*net.TCPConn).SetReadBuffer(4 << 10)
		if _, err := nc.Write(fetches); err != nil {
			return err
		}
		// Never reading, it notices its end only by writing.
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				if _, err := nc.Write(fetches); err != nil {
					return err
				}
			}
		}
	})
}

// Requests that arrive side by side and together need more than there is block
// each other only for a while.
func TestParallelLargeRequests(t *testing.T) {
	s := serveAttack(t)
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	frame := padded(4<<20, 1)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			one, done := context.WithCancel(ctx)
			defer done()
			h := &honestClient{request: frame}
			h.run(one, s.addr, done) // until its second reply
			if h.served.Load() < 2 {
				t.Errorf("starved: %v", h)
			}
		})
	}
	wg.Wait()
}

// Fetches that have records and wait for more are answered when others need the
// memory.
func TestWaitingFetchesStarveNobody(t *testing.T) {
	const clients = 40 // 1 MiB each is more than the shared part
	waiting := make(chan struct{}, clients)
	s := start(t, attackConfig(), attackTotal, handlerFunc(func(ctx context.Context, c wire.Call) wire.Answer {
		if c.Key != keyFetch {
			return echo(ctx, c)
		}
		return func(ctx context.Context) wire.Reply {
			reply := fetchRecords(ctx, c)
			if c.CorrelationID == 2 {
				waiting <- struct{}{}
				select {
				case <-c.Room.Short():
				case <-ctx.Done():
				}
			}
			return reply
		}
	}))
	var wg sync.WaitGroup
	defer wg.Wait()
	for range clients {
		c := dial(t, s.addr)
		c.send(request(kmsg.NewPtrFetchRequest(), 12, 1))
		c.receive()
		c.send(request(kmsg.NewPtrFetchRequest(), 12, 2))
		wg.Go(func() { _, _, _ = receive(c) }) // until it is answered, or its connection closed
	}
	for range clients / 4 {
		<-waiting // the rest waits for memory
	}
	c := dial(t, s.addr)
	for range 3 {
		c.send(padded(recordBytes, 1))
		c.receive()
	}
	if n := s.events.count(ClosedMemory); n > 0 {
		t.Errorf("%d connections were closed for memory", n)
	}
	for _, c := range s.connections() {
		c.fail(ClosedByClient, nil)
	}
}

// A client that reads nothing is closed in the end, also when memory suffices.
func TestDeafClientIsClosed(t *testing.T) {
	cfg := testConfig()
	cfg.WriteTimeout = 100 * time.Millisecond
	records := make([]byte, 16<<20)
	s := start(t, cfg, 256<<20, handlerFunc(func(context.Context, wire.Call) wire.Answer {
		return func(context.Context) wire.Reply {
			return wire.Reply{Body: recordsReply{records}}
		}
	}))
	dial(t, s.addr).send(request(kmsg.NewPtrFetchRequest(), 12, 1))
	s.events.awaitClosed(t, ClosedSlow, 1)
}

// wideBody is an answer that is just sent without asking for memory.
type wideBody struct{}

const wideBytes = 3 << 10

func (wideBody) Size() wire.Size { return wire.Size{Appended: wideBytes} }

func (wideBody) Encode(dst []byte, _ wire.Splice) []byte {
	return append(dst, make([]byte, wideBytes)...)
}

func (wideBody) Release() {}

// Clients that read none of their small replies keep others' from being sent no more than
// those of large ones do: there are fewer workers than such clients, until these wait.
func TestDeafClientKeepsNobodyWaiting(t *testing.T) {
	turns := make(chan wire.Turn)
	s := start(t, testConfig(), 256<<20, handlerFunc(func(_ context.Context, c wire.Call) wire.Answer {
		c.Turn.Later()
		turns <- c.Turn
		return func(context.Context) wire.Reply { return wire.Reply{Body: wideBody{}} }
	}))
	go elsewhere{turns}.run(t.Context())
	deaf := map[string]*client{}
	for range runtime.GOMAXPROCS(0) + 3 {
		c := dial(t, s.addr)
		_ = c.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		deaf[c.LocalAddr().String()] = c
	}
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	// One by one, so that each reply is one job; who has got his is the next to ask.
	waiting := func() (n int) {
		for _, c := range s.connections() {
			c.mu.Lock()
			answered := c.inFlight == 0
			c.mu.Unlock()
			if answered {
				deaf[c.remote].send(metadata(1))
			} else {
				n++
			}
		}
		s.workers.mu.Lock()
		defer s.workers.mu.Unlock()
		if s.workers.busy > 0 || s.workers.due.len() > 0 {
			return 0
		}
		return n
	}
	for waiting() < len(deaf) {
		if pause(ctx, time.Millisecond); ctx.Err() != nil {
			t.Fatalf("%d of %d clients that read nothing are waited for apart", waiting(), len(deaf))
		}
	}
	c := dial(t, s.addr)
	for i := range int32(20) {
		c.send(metadata(i))
		if id, _ := c.receive(); id != i {
			t.Fatalf("reply %d, want %d", id, i)
		}
	}
	for _, c := range s.connections() {
		c.fail(ClosedByShutdown, errors.New("the test is over"))
	}
}

// underAttack measures how honest clients fare while attackers do their worst.
func underAttack(t *testing.T, s *harness, attack func(context.Context, net.Conn) error) {
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	before := liveHeap()
	honest := map[string]*honestClient{
		"small":   {request: metadata(1)},
		"produce": {request: padded(recordBytes, 1)},
		"fetch":   {request: request(kmsg.NewPtrFetchRequest(), 12, 1)},
	}
	var wg, known sync.WaitGroup
	known.Add(len(honest))
	for _, h := range honest {
		wg.Go(func() { h.run(ctx, s.addr, known.Done) })
	}
	known.Wait()
	newcomer := &honestClient{request: padded(recordBytes, 1), newcomer: true}
	wg.Go(func() { newcomer.run(ctx, s.addr, func() {}) })
	var attacks atomic.Int64
	for range attackers {
		wg.Go(func() {
			for ctx.Err() == nil {
				nc, err := net.Dial("tcp", s.addr)
				if err != nil {
					return
				}
				attacks.Add(1)
				end := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
				_ = attack(ctx, nc)
				end()
				_ = nc.Close()
				pause(ctx, 50*time.Millisecond)
			}
		})
	}
	heap, used := measure(ctx, s, before, func() bool {
		for _, h := range honest {
			if h.served.Load() < attackServe {
				return false
			}
		}
		return true
	})
	stop()
	wg.Wait()
	t.Logf("%d attacks; memory used at most %d KiB, live heap grew by at most %d KiB; closed for memory: %d, slow: %d",
		attacks.Load(), used>>10, heap>>10, s.events.count(ClosedMemory), s.events.count(ClosedSlow))
	for name, h := range honest {
		t.Logf("%-8s %v", name, h)
		if h.served.Load() < attackServe {
			t.Errorf("%s: starved: %v", name, h)
		}
		if most := 20 * attackStall; h.slowest > most {
			t.Errorf("%s: the slowest took %v, more than %v", name, h.slowest, most)
		}
	}
	t.Logf("newcomer %v", newcomer)
	// Clients live in the same process, and what is allocated while the collector
	// runs counts as live.
	if most := int64(3 * attackTotal); heap > most { // what they announce is a hundred times as much
		t.Errorf("the live heap grew by %d bytes, more than %d", heap, most)
	}
	if used > attackTotal {
		t.Errorf("%d bytes used of %d", used, attackTotal)
	}
	if s.events.count(ClosedMemory) == 0 {
		t.Error("memory was never short: the attack is none")
	}
}

// measure samples until enough was served and the attack has lasted, or ctx ends.
func measure(ctx context.Context, s *harness, before int64, enough func() bool) (heap, used int64) {
	sample := time.NewTicker(250 * time.Millisecond)
	defer sample.Stop()
	for began := time.Now(); ctx.Err() == nil && (time.Since(began) < attackLasts || !enough()); {
		select {
		case <-ctx.Done():
		case <-sample.C:
			used, heap = max(used, s.budget.Used()), max(heap, liveHeap()-before)
		}
	}
	return heap, used
}

// liveHeap is what a collection finds in use, without what was let go since.
func liveHeap() int64 {
	runtime.GC()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return int64(live[0].Value.Uint64())
}

// honestClient sends one request after the other, reads the replies, and connects
// again when it has to, as real clients do.
type honestClient struct {
	request    []byte
	served     atomic.Int64
	reconnects int
	slowest    time.Duration // from the first attempt to the reply
	newcomer   bool          // it connects anew for each request
}

func (h *honestClient) String() string {
	return fmt.Sprintf("%d requests served, the slowest in %v, %d reconnects", h.served.Load(), h.slowest, h.reconnects)
}

// run works until ctx ends. It calls known after its second reply.
func (h *honestClient) run(ctx context.Context, addr string, known func()) {
	var nc net.Conn
	defer func() {
		if nc != nil {
			_ = nc.Close()
		}
	}()
	for since := time.Now(); ctx.Err() == nil; {
		if nc == nil {
			var err error
			if nc, err = net.Dial("tcp", addr); err != nil {
				return
			}
			this := nc
			defer context.AfterFunc(ctx, func() { _ = this.Close() })()
		}
		if err := h.roundTrip(nc); err != nil {
			if ctx.Err() != nil {
				h.slowest = max(h.slowest, time.Since(since))
				return
			}
			h.reconnects++
			_ = nc.Close()
			nc = nil
			continue
		}
		if h.served.Add(1) == 2 {
			known()
		}
		h.slowest = max(h.slowest, time.Since(since))
		if h.newcomer {
			_ = nc.Close()
			nc = nil
		}
		pause(ctx, 5*time.Millisecond)
		since = time.Now()
	}
}

func (h *honestClient) roundTrip(nc net.Conn) error {
	if _, err := nc.Write(h.request); err != nil {
		return err
	}
	id, _, err := receive(nc)
	if err == nil && id != 1 {
		return errors.New("another request's reply")
	}
	return err
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
