package transporttest

import (
	"errors"

	"github.com/brokerd/brokerd/sdk/transport"
)

func closeCases() []Case {
	return []Case{
		{Name: "close", About: "after the transport's Close every call gives ErrClosed; twice is no error", run: closeCalls},
		{Name: "close-waiting", About: "Close ends every call that waits", run: closeWaiting},
		{Name: "close-peers", About: "the peers of a transport that was closed find their links ended", run: closePeers},
		{Name: "close-leaves", About: "nothing of a transport is left after Close, whatever it was doing", run: closeLeaves},
	}
}

// closedCalls are all the calls that a closed transport refuses.
func (e *env) closedCalls(a *node, to transport.Target, links ...transport.Link) {
	_, err := a.tryDial(to)
	e.wantClass(saidTransportClose, err, "dial from a transport that is closed", transport.ErrClosed)
	ctx, cancel := e.within()
	defer cancel()
	_, err = a.Accept(ctx)
	e.wantClass(saidTransportClose, err, "accept of a transport that is closed", transport.ErrClosed)
	for _, link := range links {
		_, err = link.Receive(ctx, room)
		e.wantClass(saidTransportClose, err, "receive on a link of a transport that is closed", transport.ErrClosed)
		err = link.Send(ctx, message(1, 10))
		e.wantClass(saidTransportClose, err, "send on a link of a transport that is closed", transport.ErrClosed)
		e.must(saidLinkClose, link.Close(), "close a link of a transport that is closed")
	}
}

func closeCalls(e *env) {
	a, b := e.node(1), e.node(2)
	p, back := join(a, b, transport.Data), join(b, a, transport.Control)
	p.passes(1)
	endpoint := a.Endpoint()
	for range 3 {
		a.close()
		e.closedCalls(a, b.target(transport.Data), p.dialled, back.accepted)
	}
	if has := a.Capabilities(); has != e.has {
		e.failf(saidCapabilities, "Capabilities were %+v, and are %+v after Close", e.has, has)
	}
	_ = e.soon(saidPanics, "ask a closed transport for its endpoint", func() error { _ = a.Endpoint(); return nil })
	if endpoint != "" {
		e.wantNobody(b, transport.Target{Endpoint: endpoint, Lane: transport.Data, NodeID: 1, ClusterID: cluster})
	}
}

func closeWaiting(e *env) {
	a, b := e.node(1), e.node(2)
	p, full := join(a, b, transport.Data), join(a, b, transport.Data)
	f := e.flood(full.dialled, 1<<20, 1000)
	f.stalls()
	calls := []*task{
		f.task,
		e.start("Accept", func() error { _, err := a.Accept(e.ctx); return err }),
		e.start("another Accept", func() error { _, err := a.Accept(e.ctx); return err }),
		e.start("Receive", func() error { _, err := p.dialled.Receive(e.ctx, room); return err }),
	}
	dials := e.start("dial whom nobody accepts", func() error {
		for {
			_, err := a.Dial(e.ctx, b.target(transport.Data))
			if err != nil && (e.ctx.Err() != nil || !errors.Is(err, transport.ErrRetry)) {
				return err
			}
		}
	})
	calls = append(calls, dials)
	for _, call := range calls {
		if !call.waits(moment) {
			e.failf(saidTransportClose, "%s does not wait: %v", call.act, call.outcome())
		}
	}
	a.close()
	for _, call := range calls {
		e.wantClass(saidTransportClose, call.wait(saidTransportClose), call.act+", when the transport is closed", transport.ErrClosed)
	}
}

func closePeers(e *env) {
	for round := range 2 {
		a, b := e.node(1), e.node(2)
		pairs := []pair{join(a, b, transport.Data), join(b, a, transport.Data), join(a, b, transport.Control)}
		unaccepted := b.dial(a.target(transport.Data))
		far := []transport.Link{pairs[0].accepted, pairs[1].dialled, pairs[2].accepted, unaccepted}
		var calls []*task
		for _, link := range far {
			calls = append(calls, e.start("Receive", func() error { _, err := link.Receive(e.ctx, room); return err }))
		}
		if round == 1 {
			calls[0].waits(moment / 2)
		}
		a.close()
		for _, call := range calls {
			e.wantClass(saidFinds, call.wait(saidFinds), "receive when the peer's transport was closed", transport.ErrClosed)
		}
		for _, link := range far {
			e.ended(link, "a link whose peer's transport was closed")
		}
		c := e.node(3)
		join(c, b, transport.Data).passes(1)
		e.closeAll()
	}
}

// closeLeaves leaves all kinds of things open; what is left is found when the case ends.
func closeLeaves(e *env) {
	for round := range 4 {
		a, b := e.node(1), e.node(2)
		var floods []*flood
		for i := range 6 {
			p := join(a, b, transport.Control+transport.Lane(i%2))
			way := p.ways()[i%2]
			switch i % 3 {
			case 0:
				floods = append(floods, e.flood(way[0], 300_000, 1000))
			case 1:
				e.closes(way[0])
			default:
				e.sendTag(way[0], 1, 100)
			}
		}
		for range 3 {
			a.dial(b.target(transport.Data))
			b.dial(a.target(transport.Control))
		}
		other := b.target(transport.Data)
		other.NodeID = 77
		_, err := a.tryDial(other)
		e.wantClass(saidOther, err, "dial another node", transport.ErrOther)
		_, err = a.Dial(e.over(), b.target(transport.Data))
		if err != nil {
			e.wantCause(err, "Dial")
		}
		for _, f := range floods {
			f.waits(moment)
		}
		nodes := []*node{a, b}
		e.all(saidTransportClose, "close", 2+round, func(i int) error { return nodes[i%2].Close() })
		for _, f := range floods {
			e.wantClass(saidTransportClose, f.wait(saidTransportClose), "a Send that waits when the transport is closed", transport.ErrClosed)
		}
		e.closeAll()
	}
}
