package transporttest

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/brokerd/brokerd/sdk/transport"
)

func linkCases() []Case {
	return []Case{
		{Name: "both-ways", About: "a link carries messages both ways, for either lane", run: bothWays},
		{Name: "empty", About: "an empty message is a message, in whatever parts it is given", run: emptyMessages},
		{Name: "parts", About: "a message in many parts arrives as one", run: manyParts},
		{Name: "sender-bytes", About: "the bytes of a message are the sender's again after Send, which has not changed them", run: senderBytes},
		{Name: "receiver-bytes", About: "the bytes of a received message are the receiver's for ever", run: receiverBytes},
	}
}

func bothWays(e *env) {
	a, b := e.node(1), e.node(2)
	for i, lane := range []transport.Lane{transport.Control, transport.Data} {
		p := join(a, b, lane)
		for way, l := range p.ways() {
			tag := uint64(10*i + way)
			e.sendTag(l[0], tag, 1000)
			if wrong := differs(e.receive(l[1]), tag, 1000); wrong != "" {
				e.failf(saidLink, "on lane %v, way %d: %s", lane, way, wrong)
			}
		}
	}
}

func emptyMessages(e *env) {
	p := e.pair()
	empties := [][][]byte{nil, {nil}, {{}}, {nil, {}, nil}, make([][]byte, 100)}
	for _, way := range p.ways() {
		for i, parts := range empties {
			e.send(way[0], parts...)
			e.sendTag(way[0], uint64(i), 10) // an empty message is not joined to another
		}
		for i := range empties {
			if got := e.receive(way[1]); len(got) != 0 {
				e.failf(saidParts, "an empty message was sent in %d parts, and %d bytes came", len(empties[i]), len(got))
			}
			e.receiveTag(way[1], uint64(i), 10)
		}
	}
	e.send(p.dialled)
	e.send(p.dialled)
	for range 2 {
		if got := e.receive(p.accepted); len(got) != 0 {
			e.failf(saidBeginning, "two empty messages were sent, one behind the other, and %d bytes came", len(got))
		}
	}
}

// partsMax is more parts than operating systems write in one call (1024).
const partsMax = 3000

func manyParts(e *env) {
	p := e.pair()
	for round, parts := range []int{2, 3, 16, 17, 1023, 1024, 1025, partsMax} {
		for i, way := range p.ways() {
			tag := uint64(2*round + i)
			whole := message(tag, 5*parts)
			var given [][]byte
			for rest := whole; len(given) < parts-1; { // of none to ten bytes each, and the rest
				n := min(e.rng.IntN(11), len(rest))
				given, rest = append(given, rest[:n]), rest[n:]
				if len(given) == parts-1 {
					given = append(given, rest)
					break
				}
			}
			kept := slices.Clone(given)
			sent := e.start("send in parts", func() error { return e.trySend(way[0], given...) })
			if wrong := differs(sent.receive(way[1]), tag, len(whole)); wrong != "" {
				e.failf(saidParts, "in %d parts: %s", len(given), wrong)
			}
			e.must(saidParts, sent.wait(saidTaken), fmt.Sprintf("send a message in %d parts", len(given)))
			for i := range given {
				if len(given[i]) != len(kept[i]) || !bytes.Equal(given[i], kept[i]) {
					e.failf(saidSendBytes, "Send has changed part %d of its caller's parts", i)
				}
			}
		}
	}
}

func senderBytes(e *env) {
	p := e.pair()
	sizes := []int{8, 100, 4 << 10, 20 << 10, 64 << 10, 1 << 20}
	for _, way := range p.ways() {
		sent := e.start("send and use the bytes again", func() error {
			for tag, n := range sizes {
				data := message(uint64(tag), n)
				whole := [][]byte{data[:n/3], data[n/3 : n/2], data[n/2:]}
				if err := e.trySend(way[0], whole...); err != nil {
					return err
				}
				if wrong := differs(data, uint64(tag), n); wrong != "" {
					e.failf(saidSendBytes, "Send has changed its caller's bytes: %s", wrong)
				}
				for i := range data { // the memory is used for something else
					data[i] = 0xEE
				}
				clear(whole)
			}
			return nil
		})
		// As much as can be is under way while the bytes are used again.
		sent.waits(moment)
		for tag, n := range sizes {
			if wrong := differs(sent.receive(way[1]), uint64(tag), n); wrong != "" {
				e.failf(saidSendBytes, "its sender used the memory of a message again after Send: %s", wrong)
			}
		}
		e.must(saidTaken, sent.wait(saidTaken), "send")
	}
}

func receiverBytes(e *env) {
	p := e.pair()
	const rounds = 40
	sizes := []int{8, 100, 5000, 70_000, 1 << 20}
	for _, way := range p.ways() {
		var held [][]byte
		for i := range rounds {
			n := sizes[i%len(sizes)]
			sent := e.start("send", func() error { return e.trySend(way[0], message(uint64(i), n)) })
			var given []byte
			ctx, cancel := e.within()
			got, err := way[1].Receive(ctx, func(_ context.Context, n int) ([]byte, error) {
				given = make([]byte, n, n+100)
				return given, nil
			})
			cancel()
			e.must(saidReceive, err, "receive")
			e.must(saidTaken, sent.wait(saidTaken), "send")
			if len(got) != n || len(given) != n || &got[0] != &given[0] {
				e.failf(saidReceive, "a message of %d bytes is returned as %d bytes which are not the %d that room gave", n, len(got), len(given))
			}
			held = append(held, got)
		}
		for i, got := range held {
			if wrong := differs(got, uint64(i), sizes[i%len(sizes)]); wrong != "" {
				e.failf(saidReceive, "a message has changed after its receipt: %s", wrong)
			}
		}
	}
}
