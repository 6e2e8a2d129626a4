package transporttest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

func strangerCases() []Case {
	return []Case{
		{Name: "stranger-garbage", About: "what strangers send makes no link and harms none", Needs: Needs{Stranger: true}, run: strangerGarbage},
		{Name: "stranger-memory", About: "what strangers send is held within 64 KiB each", Needs: Needs{Stranger: true}, run: strangerMemory},
		{Name: "stranger-silent", About: "strangers who connect and say nothing keep nobody out", Needs: Needs{Stranger: true}, run: strangerSilent},
	}
}

// unprovedBytes is what a transport may hold of what is not yet authenticated.
const unprovedBytes = 64 << 10

// strangers connects n times, and returns what ends the connections.
func (e *env) strangers(to *node, n int) ([]net.Conn, func()) {
	conns := make([]net.Conn, 0, n)
	end := sync.OnceFunc(func() {
		for _, conn := range conns {
			_ = conn.Close() // a stranger's: it may have been thrown out already
		}
	})
	for range n {
		ctx, cancel := e.within()
		conn, err := e.target.Stranger(ctx, to.Endpoint())
		cancel()
		if err != nil {
			end()
			e.failf(saidStrangers, "connect to the endpoint as a stranger: %v", err)
		}
		conns = append(conns, conn)
	}
	return conns, end
}

func strangerGarbage(e *env) {
	a, b := e.node(1), e.node(2)
	p := join(a, b, transport.Data)
	random := make([]byte, 100_000)
	for i := range random {
		random[i] = byte(e.rng.Uint32())
	}
	for what, said := range map[string][]byte{
		"nothing":               {},
		"a byte":                {0},
		"zeros":                 make([]byte, 100_000),
		"ones":                  bytes.Repeat([]byte{0xFF}, 100_000),
		"greatest lengths":      bytes.Repeat([]byte{0x7F, 0xFF, 0xFF, 0xFF}, 5000),
		"HTTP":                  []byte("GET / HTTP/1.1\r\nHost: broker\r\n\r\n"),
		"TLS of a web browser":  append([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3}, random[:500]...),
		"Kafka's protocol":      {0, 0, 0, 20, 0, 18, 0, 3, 0, 0, 0, 1, 0, 4, 'k', 'c', 'a', 't', 0, 1, 'x', 1, '1', 0},
		"random bytes":          random,
		"a few random bytes":    random[:100],
		"a long text":           bytes.Repeat([]byte("a broker, perhaps? "), 5000),
		"an empty line":         []byte("\r\n"),
		"a message of the link": message(1, 1000),
	} {
		conns, end := e.strangers(b, 3)
		for i, conn := range conns {
			_ = conn.SetDeadline(time.Now().Add(min(2*time.Second, e.patience)))
			_, _ = conn.Write(said) // who is not believed may be thrown out while it speaks
			if i == 0 {
				_ = conn.Close()
			}
		}
		p.passes(1)
		join(a, b, transport.Control).passes(2)
		b.acceptsNone(saidStrangers, "a stranger said "+what)
		end()
		p.passes(3)
	}
}

func strangerMemory(e *env) {
	const count, speech = 64, 4 << 20
	a, b := e.node(1), e.node(2)
	p := join(a, b, transport.Data)
	for what, fill := range map[string]byte{"zeros": 0, "ones": 0xFF, "letters": 'A'} {
		before := e.heap()
		conns, end := e.strangers(b, count)
		said := bytes.Repeat([]byte{fill}, 64<<10)
		e.all(saidStrangers, "a stranger speaks", count, func(i int) error {
			conn := conns[i]
			for sent := 0; sent < speech; sent += len(said) {
				_ = conn.SetWriteDeadline(time.Now().Add(4 * moment))
				if _, err := conn.Write(said); err != nil {
					return nil // nobody listens to more, or it was thrown out
				}
			}
			return nil
		})
		held := e.heap() - before
		p.passes(1)
		end()
		if most := int64(count*unprovedBytes + heapSlack); held > most {
			e.failf(saidUnproved, "%d strangers have sent %s, and %d bytes of memory are in use", count, what, held)
		}
	}
	join(a, b, transport.Data).passes(2)
}

func strangerSilent(e *env) {
	const count = 200
	a, b := e.node(1), e.node(2)
	p := join(a, b, transport.Data)
	conns, end := e.strangers(b, count)
	defer end()
	for tag := range uint64(5) {
		link, err := a.tryDial(b.target(transport.Control))
		e.must(saidStrangers, err, fmt.Sprintf("dial beside %d strangers who say nothing", count))
		pair{e: e, dialled: link, accepted: b.accept()}.passes(tag)
		p.passes(tag)
	}
	b.close() // which is told nothing by those strangers either
	for _, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(e.patience))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			e.failf(saidTransportClose, "the transport is closed, and a stranger's connection is open")
		}
	}
}
