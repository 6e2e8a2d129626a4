package transporttest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

func dialCases() []Case {
	return []Case{
		{Name: "endpoint", About: "transports have endpoints of their own, which stay, and Capabilities that stay", run: endpoints},
		{Name: "dial-early", About: "a dial needs no Accept, and what is sent before it arrives", run: dialEarly},
		{Name: "dial-unaccepted", About: "links that nobody accepts are bounded, and cost no other link", run: dialUnaccepted},
		{Name: "dial-nobody", About: "nobody at an endpoint is a refusal or a retry", run: dialNobody},
		{Name: "dial-again", About: "a node that comes back is dialled again", run: dialAgain},
	}
}

func endpoints(e *env) {
	a, b := e.node(1), e.node(2)
	if a.Endpoint() == "" || a.Endpoint() == b.Endpoint() {
		e.failf(saidEndpoint, "two transports have the endpoints %q and %q", a.Endpoint(), b.Endpoint())
	}
	before := a.Endpoint()
	p := join(a, b, transport.Data)
	p.passes(1)
	if after := a.Endpoint(); after != before {
		e.failf(saidEndpoint, "the endpoint was %q, and is %q", before, after)
	}
	for _, n := range []*node{a, b} {
		if has := n.Capabilities(); has != e.has {
			e.failf(saidCapabilities, "Capabilities were %+v, and are %+v", e.has, has)
		}
	}
	join(b, a, transport.Data).passes(1)
}

func dialEarly(e *env) {
	a, b := e.node(1), e.node(2)
	const links = 5
	dialled := map[uint64]transport.Link{}
	for i := range uint64(links) {
		dialled[i] = a.dial(b.target(transport.Data))
		e.send(dialled[i], message(i, 100), message(i, 100))
		e.sendTag(dialled[i], i+100, 50)
	}
	for range links {
		accepted := b.accept()
		got := e.receive(accepted)
		found := false
		for i, link := range dialled { // links of one pair may overtake each other
			if string(got) == string(append(message(i, 100), message(i, 100)...)) {
				e.receiveTag(accepted, i+100, 50)
				e.sendTag(accepted, i+200, 50)
				e.receiveTag(link, i+200, 50)
				delete(dialled, i)
				found = true
				break
			}
		}
		if !found {
			e.failf(saidDialled, "what was sent before the link was accepted did not arrive: %d bytes came, which begin as message %s does", len(got), tagOf(got))
		}
	}
}

// unacceptedMost is how many links that nobody accepts a transport may keep for the kit to
// call them bounded.
const unacceptedMost = 2048

func dialUnaccepted(e *env) {
	a, b := e.node(1), e.node(2)
	before := join(a, b, transport.Data)
	var links []transport.Link
	var err error
	for err == nil {
		if len(links) == unacceptedMost {
			e.failf(saidUnaccepted, "nobody accepts, and %d links were dialled", unacceptedMost)
		}
		var link transport.Link
		if link, err = e.dialBriefly(a, b); err == nil {
			links = append(links, link)
		}
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		e.wantClass(saidUnaccepted, err, fmt.Sprintf("dial, with %d links unaccepted", len(links)), transport.ErrRetry)
	}
	if len(links) == 0 {
		e.failf(saidDialled, "nobody accepts, and no link can be dialled: %v", err)
	}
	before.passes(1)
	join(b, a, transport.Data).passes(2)
	control, err := a.tryDial(b.target(transport.Control))
	e.must(saidLaneBound, err, "dial for another lane than that of the links that nobody accepts")

	cause := errors.New("somebody else is leader now")
	ctx, cancel := context.WithCancelCause(e.ctx)
	defer cancel(nil)
	dial := e.start("dial", func() error { _, err := a.Dial(ctx, b.target(transport.Data)); return err })
	if dial.waits(moment) {
		cancel(cause)
		if err := dial.wait(saidContexts); !errors.Is(err, cause) && !errors.Is(err, transport.ErrRetry) {
			e.failf(saidContexts, "the context of a Dial that waits has ended because %q, and it gives %v", cause, err)
		}
	}

	for range len(links) + 1 { // accepting them makes room
		b.accept()
	}
	e.acceptOf(a, b)
	e.closes(control)
}

// dialBriefly dials with the patience for a dial that nobody will accept.
func (e *env) dialBriefly(a, b *node) (transport.Link, error) {
	ctx, cancel := context.WithTimeout(e.ctx, min(time.Second, e.patience))
	defer cancel()
	return a.Dial(ctx, b.target(transport.Data))
}

// acceptOf dials, and accepts until the link that was dialled comes: dials that were given
// up may have left links that have ended.
func (e *env) acceptOf(a, b *node) {
	dialled := a.dial(b.target(transport.Data))
	e.sendTag(dialled, 4711, 30)
	for {
		accepted := b.accept()
		got, err := e.tryReceive(accepted)
		if err == nil && differs(got, 4711, 30) == "" {
			pair{e: e, dialled: dialled, accepted: accepted}.passes(5)
			return
		}
	}
}

func dialNobody(e *env) {
	a, b := e.node(1), e.node(2)
	gone := b.target(transport.Data)
	join(a, b, transport.Data).passes(1)
	b.close()
	e.wantNobody(a, gone)
}

// wantNobody dials a node that is not there any more.
func (e *env) wantNobody(a *node, gone transport.Target) {
	ctx, cancel := context.WithTimeout(e.ctx, min(5*time.Second, e.patience))
	defer cancel()
	var link transport.Link
	err := e.soon(saidContexts, "dial a node that is gone", func() (err error) {
		link, err = a.Dial(ctx, gone)
		return err
	})
	switch {
	case err == nil:
		e.failf(saidDialled, "a node is gone, and Dial gives a link to %+v", link.Peer())
	case errors.Is(err, transport.ErrRefused) && !e.has.Refuses:
		e.failf(saidNotRefused, "a transport that does not promise it gives ErrRefused: %v", err)
	case ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded): // nobody answers
	default:
		e.wantClass(saidUnreached, err, "dial a node that is gone", transport.ErrRefused, transport.ErrRetry)
	}
}

func dialAgain(e *env) {
	a, b := e.node(1), e.node(2)
	for round := range 3 {
		p := join(a, b, transport.Data)
		p.passes(uint64(round))
		b.close()
		e.findsEnd(p.dialled, "the link to a node that has gone")
		b = e.node(2)
	}
	join(a, b, transport.Control).passes(9)
	join(b, a, transport.Control).passes(9)
}
