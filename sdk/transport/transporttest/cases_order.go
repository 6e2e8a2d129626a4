package transporttest

import (
	"fmt"

	"github.com/brokerd/brokerd/sdk/transport"
)

func orderCases() []Case {
	return []Case{
		{Name: "order", About: "messages arrive in the order in which they were sent, once each", run: order},
		{Name: "order-sizes", About: "messages of all sizes keep their order, both ways at one time", run: orderSizes},
		{Name: "order-backlog", About: "messages that wait for their receiver keep their order", run: orderBacklog},
	}
}

// sendAll sends messages of the given sizes, tagged 0 and on.
func (e *env) sendAll(link transport.Link, sizes []int) error {
	for tag, n := range sizes {
		if err := e.trySend(link, message(uint64(tag), n)); err != nil {
			return fmt.Errorf("send message %d of %d bytes: %w", tag, n, err)
		}
	}
	return nil
}

// receiveAll receives the messages of a task that is sendAll.
func (t *task) receiveAll(link transport.Link, sizes []int) {
	for tag, n := range sizes {
		t.receiveTag(link, uint64(tag), n)
	}
	t.e.must(saidTaken, t.end(saidTaken), t.act)
}

func order(e *env) {
	p := e.pair()
	sizes := make([]int, 20_000)
	for i := range sizes {
		sizes[i] = wordBytes + e.rng.IntN(100)
	}
	for _, way := range p.ways() {
		sent := e.start("send", func() error { return e.sendAll(way[0], sizes) })
		sent.receiveAll(way[1], sizes)
	}
}

func orderSizes(e *env) {
	p := e.pair()
	sizes := make([]int, 600)
	for i := range sizes {
		sizes[i] = wordBytes + e.rng.IntN(1<<e.rng.IntN(21))
	}
	ways := p.ways()
	e.all(saidBeginning, "carry messages, way", 2, func(i int) error {
		e.start("send", func() error { return e.sendAll(ways[i][0], sizes) }).receiveAll(ways[i][1], sizes)
		return nil
	})
}

func orderBacklog(e *env) {
	p := e.pair()
	sizes := make([]int, 2000)
	for i := range sizes {
		sizes[i] = wordBytes + e.rng.IntN(20_000)
	}
	for _, way := range p.ways() {
		sent := e.start("send", func() error { return e.sendAll(way[0], sizes) })
		sent.waits(2 * moment)
		sent.receiveAll(way[1], sizes)
	}
}
