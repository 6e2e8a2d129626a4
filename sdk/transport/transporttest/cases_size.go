package transporttest

import (
	"fmt"

	"github.com/brokerd/brokerd/sdk/transport"
)

func sizeCases() []Case {
	return []Case{
		{Name: "sizes-small", About: "messages of every small size arrive whole", run: sizesSmall},
		// FR-74: a message larger than what the network carries at once put a follower out of sync for ever.
		{Name: "sizes", About: "messages of sizes around what networks carry at once arrive whole", run: sizesAround},
		{Name: "largest", About: "a message of MessageBytesMax arrives whole, and the link goes on", run: largest},
		{Name: "too-large", About: "a message larger than MessageBytesMax is ErrInvalid, and the link goes on", run: tooLarge},
	}
}

// transfer sends the message of the tag, in one part or three, while it is received.
func (e *env) transfer(from, to transport.Link, tag uint64, n int) {
	data := message(tag, n)
	parts := [][]byte{data}
	if tag%2 == 1 {
		parts = [][]byte{data[:n/2], data[n/2 : n/2], data[n/2:]}
	}
	sent := e.start(fmt.Sprintf("send %d bytes", n), func() error { return e.trySend(from, parts...) })
	if wrong := differs(sent.receive(to), tag, n); wrong != "" {
		e.failf(saidLargest, "%s", wrong)
	}
	e.must(saidLargest, sent.wait(saidTaken), fmt.Sprintf("send %d bytes", n))
}

func sizesSmall(e *env) {
	p := e.pair()
	const sizes = 600
	for _, way := range p.ways() {
		sent := e.start("send", func() error {
			for n := range sizes {
				if err := e.trySend(way[0], message(uint64(n), n)); err != nil {
					return err
				}
			}
			return nil
		})
		for n := range sizes {
			sent.receiveTag(way[1], uint64(n), n)
		}
		e.must(saidTaken, sent.wait(saidTaken), "send")
	}
}

func sizesAround(e *env) {
	p := e.pair()
	tag := uint64(0)
	for _, size := range []int{
		1 << 10, 1 << 12, 1 << 14, 1 << 15,
		64 << 10,             // frames, datagrams, socket buffers
		256 << 10, 512 << 10, // gRPC's windows
		1_000_000, 1 << 20, 2 << 20, // what NATS carries at most by default
		4 << 20, 5 << 20, 7 << 20, // gRPC's largest by default; messages of the report, and its limit
	} {
		for _, n := range []int{size - 1, size, size + 1, size + 1 + e.rng.IntN(100)} {
			for _, way := range p.ways() {
				tag++
				e.transfer(way[0], way[1], tag, n)
			}
		}
	}
	for _, way := range p.ways() { // headers beside a message that just fits
		for below := range 40 {
			tag++
			e.transfer(way[0], way[1], tag, 64<<10-below)
		}
	}
}

func largest(e *env) {
	p := e.pair()
	for _, n := range []int{transport.LinkBytesMax - 1, transport.LinkBytesMax, transport.LinkBytesMax + 1, transport.MessageBytesMax} {
		e.transfer(p.dialled, p.accepted, uint64(n), n)
	}
	e.transfer(p.accepted, p.dialled, 3, transport.MessageBytesMax-1)
	p.passes(10)
}

func tooLarge(e *env) {
	p := e.pair()
	part := make([]byte, 1<<20)
	parts := make([][]byte, transport.MessageBytesMax/len(part), transport.MessageBytesMax/len(part)+1)
	for i := range parts { // the same memory many times
		parts[i] = part
	}
	parts = append(parts, part[:1])
	for i, way := range p.ways() {
		e.sendTag(way[0], 1, 100)
		for range 2 {
			err := e.soon(saidTooLarge, "send a message that is too large", func() error { return e.trySend(way[0], parts...) })
			e.wantClass(saidTooLarge, err, fmt.Sprintf("send %d bytes, way %d", transport.MessageBytesMax+1, i), transport.ErrInvalid)
		}
		e.receiveTag(way[1], 1, 100)
	}
	for i, way := range p.ways() {
		got, err := e.tryReceiveSent(way, uint64(100+i))
		e.must(saidTooLarge, err, "use the link after a message that was too large")
		if wrong := differs(got, uint64(100+i), 100); wrong != "" {
			e.failf(saidTooLarge, "after a message that was too large: %s", wrong)
		}
	}
}

// tryReceiveSent sends the message of the tag, 100 bytes, and receives.
func (e *env) tryReceiveSent(way [2]transport.Link, tag uint64) ([]byte, error) {
	if err := e.trySend(way[0], message(tag, 100)); err != nil {
		return nil, err
	}
	return e.tryReceive(way[1])
}
