package transporttest

import (
	"github.com/brokerd/brokerd/sdk/transport"
)

func memoryCases() []Case {
	return []Case{
		{Name: "memory", About: "a transport holds no more than LinkBytesMax of messages for each direction of a link", run: memoryOfLinks},
		{Name: "memory-empty", About: "messages of no bytes that nobody receives do not fill memory", run: memoryOfEmpties},
		{Name: "memory-idle", About: "links that are idle hold no memory for messages", run: memoryOfIdle},
	}
}

// mostHeld is the memory that links may hold whose both directions are full: a quarter more
// than their messages.
func mostHeld(directions int) int64 {
	return int64(directions)*transport.LinkBytesMax*5/4 + heapSlack
}

func memoryOfLinks(e *env) {
	const links = 4
	before := e.heap()
	a, b := e.node(1), e.node(2)
	part := message(1, 64<<10)
	var floods []*task
	for range links {
		p := join(a, b, transport.Data)
		for _, way := range p.ways() {
			floods = append(floods, e.start("send without a receiver", func() error {
				for range 8 * transport.LinkBytesMax / len(part) {
					if err := way[0].Send(e.ctx, part); err != nil {
						return err
					}
				}
				return nil
			}))
		}
	}
	for _, t := range floods {
		if !t.waits(4 * moment) {
			e.failf(saidWaits, "%d bytes were sent, nobody receives, and Send does not wait (%v)", 8*transport.LinkBytesMax, t.outcome())
		}
	}
	held := e.heap() - before
	if most := mostHeld(len(floods)); held > most {
		e.failf(saidMemory, "%d directions of links are full, and %d bytes of memory are in use", len(floods), held)
	}
	e.closeAll()
	for _, t := range floods {
		e.wantClass(saidTransportClose, t.wait(saidTransportClose), "send while the transport is closed", transport.ErrClosed)
	}
	if held := e.heap() - before; held > heapSlack {
		e.failf(saidTransportClose, "every transport is closed, and %d bytes of memory are in use", held)
	}
}

func memoryOfEmpties(e *env) {
	p := e.pair()
	before := e.heap()
	f := e.flood(p.dialled, 0, 1<<20)
	for { // until it waits, or all are under way
		taken := f.taken.Load()
		if !f.waits(4*moment) || f.taken.Load() == taken {
			break
		}
	}
	if held := e.heap() - before; held > mostHeld(1) {
		e.failf(saidBeside, "%d empty messages were sent, nobody receives, and %d bytes of memory are in use", f.taken.Load(), held)
	}
	for range f.count {
		got, err := p.accepted.Receive(e.ctx, room)
		e.must(saidBeginning, err, "receive an empty message")
		if len(got) != 0 {
			e.failf(saidBeginning, "empty messages were sent, and %d bytes came", len(got))
		}
	}
	e.must(saidTaken, f.end(saidTaken), f.act)
}

func memoryOfIdle(e *env) {
	const links, eachMost = 100, 256 << 10
	a, b := e.node(1), e.node(2)
	before := e.heap()
	for i := range links {
		p := join(a, b, transport.Data)
		e.transfer(p.dialled, p.accepted, uint64(i), 2<<20)
		e.transfer(p.accepted, p.dialled, uint64(i), 2<<20)
	}
	if held := e.heap() - before; held > links*eachMost+heapSlack {
		e.failf(saidMemory, "on %d links nothing is under way, and %d bytes of memory are in use", links, held)
	}
}
