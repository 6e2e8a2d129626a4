package e2e

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between a client and a broker, and can lose an answer: the
// request reaches the broker, and the connection breaks instead of the reply.
type proxy struct {
	listener net.Listener
	target   string
	drop     atomic.Bool
	lost     atomic.Int64
	wg       sync.WaitGroup
}

// startProxy listens on loopback until the test ends.
func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target}
	p.wg.Go(p.accept)
	t.Cleanup(func() { l.Close(); p.wg.Wait() })
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// dial leads every connection of a client through the proxy, whatever address
// the broker advertises.
func (p *proxy) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, p.addr())
}

// dropNextAnswer loses the next answer to a produce request.
func (p *proxy) dropNextAnswer() { p.drop.Store(true) }

// dropped is how many answers were lost.
func (p *proxy) dropped() int64 { return p.lost.Load() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		broker, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		p.wg.Go(func() { p.carry(client, broker) })
	}
}

// carry copies frames both ways, remembering which request each answer is for.
func (p *proxy) carry(client, broker net.Conn) {
	defer client.Close()
	defer broker.Close()
	keys := make(chan int16, 1000) // of requests without their answer; a client has far fewer in flight
	p.wg.Go(func() {
		defer broker.Close()
		for {
			frame, err := readFrame(client)
			if err != nil {
				return
			}
			keys <- int16(binary.BigEndian.Uint16(frame[4:]))
			if _, err := broker.Write(frame); err != nil {
				return
			}
		}
	})
	for {
		frame, err := readFrame(broker)
		if err != nil {
			return
		}
		if key := <-keys; key == 0 && p.drop.CompareAndSwap(true, false) {
			p.lost.Add(1)
			return
		}
		if _, err := client.Write(frame); err != nil {
			return
		}
	}
}

// readFrame reads one frame with its length.
func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, 4+binary.BigEndian.Uint32(size[:]))
	copy(frame, size[:])
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}
