package transporttest

import (
	"errors"

	"github.com/brokerd/brokerd/sdk/transport"
)

func endCases() []Case {
	return []Case{
		{Name: "end", About: "a link that either end closes has ended at both, and what has arrived is a beginning", run: end},
		{Name: "end-arrived", About: "a link that has ended gives what had arrived", run: endArrived},
		{Name: "end-waiting", About: "the end of a link ends the calls that wait on it, at both ends", run: endWaiting},
		{Name: "end-full", About: "Close does not wait for the peer", run: endFull},
		{Name: "end-twice", About: "closing twice is no error, and a link that has ended stays so", run: endTwice},
		{Name: "end-alone", About: "the end of a link ends no other", run: endAlone},
	}
}

// closes closes the link.
func (e *env) closes(link transport.Link) {
	e.must(saidLinkClose, e.soon(saidLinkClose, "close a link", link.Close), "close a link")
}

func end(e *env) {
	const count, n = 20, 500
	a, b := e.node(1), e.node(2)
	for round := range 8 {
		p := join(a, b, transport.Data)
		way := p.ways()[round%2]
		for tag := range uint64(count) {
			e.sendTag(way[0], tag, n)
		}
		received := round / 2
		for tag := range uint64(received) {
			e.receiveTag(way[1], tag, n)
		}
		e.closes(way[round/4])
		e.receivesBeginning(way[1], uint64(received), n, count-received)
		e.receivesBeginning(way[0], 0, 0, 0)
		e.findsEnd(way[0], "a link that was closed")
		e.findsEnd(way[1], "a link that was closed")
	}
}

// endArrived: what was sent may be late, so one of many has to be in time.
func endArrived(e *env) {
	const tries, count, n = 20, 4, 300
	a, b := e.node(1), e.node(2)
	for i := range 2 {
		most := 0
		for try := 0; try < tries && most < count-1; try++ {
			p := join(a, b, transport.Data)
			way := p.ways()[i]
			for tag := range uint64(count) {
				e.sendTag(way[0], tag, n)
			}
			// When the answer to the first is here, the others should have arrived.
			e.receiveTag(way[1], 0, n)
			e.sendTag(way[1], 99, n)
			e.receiveTag(way[0], 99, n)
			beside := join(a, b, transport.Data)
			for tag := range uint64(try + 1) {
				beside.passes(tag)
			}
			e.closes(beside.dialled)
			e.closes(way[0])
			most = max(most, e.receivesBeginning(way[1], 1, n, count-1))
		}
		if most < count-1 {
			e.failf(saidArrived, "of %d messages that were under way when their sender closed the link %d were received at most, in %d tries", count-1, most, tries)
		}
	}
}

func endWaiting(e *env) {
	a, b := e.node(1), e.node(2)
	for round := range 4 {
		p := join(a, b, transport.Data)
		calls := []*task{
			e.start("Receive at the end that dialled", func() error { _, err := p.dialled.Receive(e.ctx, room); return err }),
			e.start("Receive at the end that accepted", func() error { _, err := p.accepted.Receive(e.ctx, room); return err }),
		}
		for _, call := range calls {
			if !call.waits(moment / 2) {
				e.failf(saidReceive, "nothing was sent, and Receive gives %v", call.outcome())
			}
		}
		e.closes(p.ways()[round%2][0])
		for _, call := range calls {
			e.wantClass(saidFinds, call.wait(saidFinds), call.act, transport.ErrClosed)
		}
		e.ended(p.dialled, "a link that was closed")
		e.ended(p.accepted, "a link that was closed")
	}
}

func endFull(e *env) {
	for round := range 2 {
		a, b := e.node(1), e.node(2)
		p := join(a, b, transport.Data)
		var floods []*flood
		for _, way := range p.ways() {
			floods = append(floods, e.flood(way[0], 256<<10, 1000))
		}
		for _, f := range floods {
			f.stalls()
		}
		e.closes(p.ways()[round][0])
		for i, way := range p.ways() {
			e.receivesBeginning(way[1], 0, 256<<10, floods[i].count)
		}
		for _, f := range floods {
			if err := f.wait(saidFinds); !errors.Is(err, transport.ErrClosed) {
				e.failf(saidFinds, "a link was closed, and a Send that waited gives %v", err)
			}
		}
		for _, way := range p.ways() {
			e.ended(way[1], "a link that was closed")
		}
		join(a, b, transport.Data).passes(1)
		e.closeAll()
	}
}

func endTwice(e *env) {
	a, b := e.node(1), e.node(2)
	p := join(a, b, transport.Control)
	for range 3 {
		e.closes(p.dialled)
	}
	e.findsEnd(p.accepted, "a link that was closed")
	for range 3 {
		e.closes(p.accepted)
	}
	next := join(a, b, transport.Control)
	next.passes(1)
	e.closes(p.dialled) // which is not the next one
	for _, link := range []transport.Link{p.dialled, p.accepted} {
		err := e.trySend(link, message(1, 10))
		e.wantClass(saidStays, err, "send on a link that has ended, beside a new one", transport.ErrClosed)
		_, err = e.tryReceive(link)
		e.wantClass(saidStays, err, "receive on a link that has ended, beside a new one", transport.ErrClosed)
	}
	next.passes(2)
}

func endAlone(e *env) {
	const links = 8
	a, b := e.node(1), e.node(2)
	var left []pair
	for i := range links {
		left = append(left, join(a, b, transport.Control+transport.Lane(i%2)))
	}
	for len(left) > 1 {
		i := e.rng.IntN(len(left))
		gone := left[i]
		left = append(left[:i], left[i+1:]...)
		e.closes(gone.ways()[e.rng.IntN(2)][0])
		for tag, p := range left {
			p.passes(uint64(tag))
		}
		e.findsEnd(gone.dialled, "a link that was closed")
		e.findsEnd(gone.accepted, "a link that was closed")
	}
}
