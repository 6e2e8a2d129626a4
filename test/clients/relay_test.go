package clients

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/brokerd/brokerd/test/ports"
)

// behindRelay is brokers of the case's own that tell clients to come by a relay,
// wherever they asked first. The first produce requests that come that way, so many of
// them, are served and their answers lost.
func (r *run) behindRelay(lose int) (*cluster, *relay) {
	r.Helper()
	free, err := ports.Free(suite.brokers * (portsEach + 1))
	if err != nil {
		r.Fatal(err)
	}
	own, via := free[suite.brokers:], []string(nil)
	for _, port := range free[:suite.brokers] {
		via = append(via, loopback(port))
	}
	c := r.ownClusterAt(own, via)
	p := &relay{}
	p.lose.Store(int64(lose))
	r.Cleanup(p.stop)
	for i, b := range c.brokers {
		if err := p.open(via[i], b.addr()); err != nil {
			r.Fatal(err)
		}
	}
	return c, p
}

// FR-79: clients are told to come to the advertised address, and come there, wherever
// they asked first.
func advertised(r *run, c *client, p program) {
	b, relay := r.behindRelay(0)
	first := startTime()
	topic := r.topic(b.addr(), "advertised", sentPartitions)
	came := relay.came.Load()
	r.driverProduces(p, b.addr(), topic, first)
	if relay.came.Load() == came {
		r.Errorf("the driver never came to the advertised address")
	}
	r.checkProduced(c, b.addr(), topic, first)
}

// lostAnswer: what is sent again, because the answer to it was lost, is there once and
// in order.
func lostAnswer(r *run, c *client, p program) {
	const lose = 1
	b, relay := r.behindRelay(lose)
	first := startTime()
	topic := r.topic(b.addr(), "lost", sentPartitions)
	r.driverProduces(p, b.addr(), topic, first, "idempotent=true")
	if n := relay.lost.Load(); n != lose {
		r.Errorf("%d answers were lost, want %d", n, lose)
	}
	r.checkProduced(c, b.addr(), topic, first)
}

// relay hands connections on to brokers, as the ports of a container's host do, and
// counts them.
type relay struct {
	listeners []net.Listener
	came      atomic.Int64
	lose      atomic.Int64 // answers to produce requests that are still to be lost
	lost      atomic.Int64
	wg        sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

// open hands on what comes to an address.
func (p *relay) open(addr, target string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	p.listeners = append(p.listeners, l)
	p.wg.Go(func() { p.accept(l, target) })
	return nil
}

// stop closes all connections and returns when nothing is handed on any more.
func (p *relay) stop() {
	for _, l := range p.listeners {
		l.Close()
	}
	p.mu.Lock()
	for _, c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *relay) accept(l net.Listener, target string) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		p.came.Add(1)
		to, err := net.Dial("tcp", target)
		if err != nil {
			from.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, from, to)
		p.mu.Unlock()
		c := &relayed{relay: p, client: from, broker: to}
		p.wg.Go(func() { c.pipe(from, to, c.request) })
		p.wg.Go(func() { c.pipe(to, from, c.answer) })
	}
}

// relayed is one connection.
type relayed struct {
	relay          *relay
	client, broker net.Conn
	doomed         sync.Map // correlation IDs of requests whose answers are to be lost
}

// pipe hands frames on until one side ends, or pass refuses one, and ends both.
func (c *relayed) pipe(from, to net.Conn, pass func(frame []byte) bool) {
	defer c.client.Close()
	defer c.broker.Close()
	for {
		frame := make([]byte, 4)
		if _, err := io.ReadFull(from, frame); err != nil {
			return
		}
		frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame))...)
		if _, err := io.ReadFull(from, frame[4:]); err != nil || !pass(frame) {
			return
		}
		if _, err := to.Write(frame); err != nil {
			return
		}
	}
}

// request sees a client's request: size, API key, version, correlation ID, the rest.
func (c *relayed) request(frame []byte) bool {
	if len(frame) >= 12 && binary.BigEndian.Uint16(frame[4:]) == 0 && c.relay.lose.Add(-1) >= 0 {
		c.doomed.Store(binary.BigEndian.Uint32(frame[8:]), true)
	}
	return true
}

// answer sees a broker's answer: size, correlation ID, the rest.
func (c *relayed) answer(frame []byte) bool {
	if len(frame) < 8 {
		return true
	}
	if _, doomed := c.doomed.LoadAndDelete(binary.BigEndian.Uint32(frame[4:])); !doomed {
		return true
	}
	c.relay.lost.Add(1)
	return false
}
