package transporttest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

func contextCases() []Case {
	return []Case{
		{Name: "context-over", About: "a call whose context has ended already gives its cause, and the next goes on", run: contextOver},
		{Name: "context-receive", About: "a Receive that waits ends with its context, and loses nothing", run: contextReceive},
		{Name: "context-receive-race", About: "a Receive whose context ends while a message arrives gives it, or leaves it to the next", run: contextReceiveRace},
		{Name: "context-receive-large", About: "a Receive that is given up in the middle of a message is taken up by the next, without another room", run: contextReceiveLarge},
		{Name: "context-send", About: "a Send that waits ends with its context, and has sent its message, or nothing of it, or ended the link", run: contextSend},
		{Name: "context-send-race", About: "a Send whose context ends at any time has sent its message, or nothing of it, or ended the link", run: contextSendRace},
		{Name: "context-accept", About: "an Accept that waits ends with its context, and the next gives the link", run: contextAccept},
	}
}

var errCause = errors.New("the cause of this context's end")

// wantCause fails the case unless the error is the context's.
func (e *env) wantCause(err error, act string) {
	if !errors.Is(err, errCause) {
		e.failf(saidContexts, "the context of %s has ended because of %q, and it gives %v", act, errCause, err)
	}
}

// over returns a context that has ended.
func (e *env) over() context.Context {
	ctx, cancel := context.WithCancelCause(e.ctx)
	cancel(errCause)
	return ctx
}

func contextOver(e *env) {
	a, b := e.node(1), e.node(2)
	p := join(a, b, transport.Data)
	ctx := e.over()
	for act, call := range map[string]func() error{
		"Accept":  func() error { _, err := b.Accept(ctx); return err },
		"Receive": func() error { _, err := p.accepted.Receive(ctx, room); return err },
	} {
		e.wantCause(e.soon(saidContexts, act, call), act)
	}
	// These may do what they are called for at once, or nothing.
	err := e.soon(saidContexts, "Dial", func() error { _, err := a.Dial(ctx, b.target(transport.Data)); return err })
	if err != nil {
		e.wantCause(err, "Dial")
	}
	p.passes(1)
	err = e.soon(saidContexts, "Send", func() error { return p.dialled.Send(ctx, message(5, 100)) })
	if err != nil {
		e.wantCause(err, "Send")
	}
	e.endsOrGoesOn(p, 5, 100, err == nil)
	e.acceptOf(a, b)
}

// endsOrGoesOn receives what is there when a Send's context has ended: the message of that
// Send or not, and then the next one, or the end of the link. It says whether the link goes on.
func (e *env) endsOrGoesOn(p pair, tag uint64, n int, sent bool) bool {
	const next = 1 << 40
	if err := e.trySend(p.dialled, message(next, 64)); err != nil {
		e.wantClass(saidSendOrNot, err, "send after a Send whose context has ended", transport.ErrClosed)
	}
	got, err := e.tryReceive(p.accepted)
	if err == nil && differs(got, tag, n) == "" {
		got, err = e.tryReceive(p.accepted)
	} else if sent && err == nil {
		e.failf(saidBeginning, "a Send returned without an error, and its message did not arrive: %s", differs(got, tag, n))
	}
	if err != nil {
		e.wantClass(saidSendOrNot, err, "receive after a Send whose context has ended", transport.ErrClosed)
		e.findsEnd(p.dialled, "a link that a Send has ended")
		return false
	}
	if wrong := differs(got, next, 64); wrong != "" {
		e.failf(saidSendOrNot, "behind a Send whose context has ended: %s", wrong)
	}
	return true
}

func contextReceive(e *env) {
	p := e.pair()
	for i, way := range p.ways() {
		for round := range uint64(5) {
			ctx, cancel := context.WithCancelCause(e.ctx)
			received := e.start("Receive", func() error { _, err := way[1].Receive(ctx, room); return err })
			if !received.waits(moment / 2) {
				e.failf(saidReceive, "nothing was sent, and Receive gives %v", received.outcome())
			}
			cancel(errCause)
			e.wantCause(received.wait(saidContexts), "Receive")
			if round%2 == 1 { // one more, which has ended before it began
				_, err := way[1].Receive(ctx, room)
				e.wantCause(err, "Receive")
			}
			for tag := range round {
				e.sendTag(way[0], tag, 1000)
			}
			for tag := range round {
				got, err := e.tryReceive(way[1])
				e.must(saidNothing, err, fmt.Sprintf("receive after one whose context has ended, way %d", i))
				if wrong := differs(got, tag, 1000); wrong != "" {
					e.failf(saidNothing, "after a Receive whose context has ended: %s", wrong)
				}
			}
		}
	}
	ctx, cancel := context.WithTimeout(e.ctx, moment/2)
	defer cancel()
	_, err := p.accepted.Receive(ctx, room)
	if !errors.Is(err, context.DeadlineExceeded) {
		e.failf(saidContexts, "the deadline of a Receive has passed, and it gives %v", err)
	}
	p.passes(1)
}

func contextReceiveRace(e *env) {
	const rounds = 300
	p := e.pair()
	for _, way := range p.ways() {
		sent := e.start("send", func() error {
			for tag := range uint64(rounds) {
				if err := e.trySend(way[0], message(tag, 10+int(tag)%50*2000)); err != nil {
					return err
				}
			}
			return nil
		})
		for tag := uint64(0); tag < rounds; {
			ctx, cancel := context.WithCancelCause(e.ctx)
			ender := e.start("end the context", func() error {
				for range (tag * 37) % 500 { // some time
					if ctx.Err() != nil {
						break
					}
				}
				cancel(errCause)
				return nil
			})
			// Room does not look at its context: who is asked has the message.
			got, err := way[1].Receive(ctx, room)
			e.must(saidContexts, ender.wait(saidContexts), "end the context")
			if err != nil {
				e.wantCause(err, "Receive")
				got = e.receive(way[1])
			}
			if wrong := differs(got, tag, 10+int(tag)%50*2000); wrong != "" {
				e.failf(saidNothing, "beside the end of a Receive's context: %s", wrong)
			}
			tag++
		}
		e.must(saidTaken, sent.end(saidTaken), "send")
	}
}

// contextReceiveLarge gives up Receives while a message arrives.
func contextReceiveLarge(e *env) {
	p := e.pair()
	for round := range 10 {
		way := p.ways()[round%2]
		tag, size := uint64(round), transport.LinkBytesMax>>(round%4)+round
		sent := e.start("send a large message", func() error { return e.trySend(way[0], message(tag, size)) })
		asked := 0
		var got []byte
		for try := 0; ; try++ {
			ctx, cancel := context.WithCancelCause(sent.ctx)
			received := e.start("Receive", func() (err error) {
				got, err = way[1].Receive(ctx, func(_ context.Context, n int) ([]byte, error) {
					asked++
					if round%3 == 0 {
						cancel(errCause) // there is memory, and nobody who waits for the message
					}
					return make([]byte, n), nil
				})
				return err
			})
			if try < 5 {
				received.waits(time.Duration(round*try) * moment / 1000)
				cancel(errCause)
			}
			err := received.wait(saidContexts)
			cancel(nil)
			if err == nil {
				break
			}
			e.wantCause(err, "Receive")
		}
		if wrong := differs(got, tag, size); wrong != "" {
			e.failf(saidNothing, "a Receive was given up in the middle of a message: %s", wrong)
		}
		if asked != 1 {
			e.failf(saidStaysGiven, "a Receive was given up in the middle of a message, and room was asked %d times for it", asked)
		}
		e.must(saidTaken, sent.wait(saidTaken), sent.act)
	}
	p.passes(100)
}

func contextSend(e *env) {
	for _, size := range []int{64 << 10, 1 << 20, transport.LinkBytesMax + 1} {
		e.contextSendOf(size)
		e.closeAll()
	}
}

// contextSendOf ends the context of a Send of a size that waits.
func (e *env) contextSendOf(size int) {
	a, b := e.node(1), e.node(2)
	p := join(a, b, transport.Data)
	ctx, cancel := context.WithCancelCause(e.ctx)
	defer cancel(nil)
	const count = 2000
	taken := 0
	send := e.start("Send", func() error {
		for ; taken < count; taken++ {
			if err := p.dialled.Send(ctx, message(uint64(taken), size)); err != nil {
				return err
			}
		}
		return nil
	})
	if !send.waits(6 * moment) {
		e.failf(saidWaits, "%d messages of %d bytes were sent, nobody receives, and Send gives %v", taken, size, send.outcome())
	}
	cancel(errCause)
	e.wantCause(send.wait(saidContexts), "Send")
	for tag := range taken {
		got, err := e.tryReceive(p.accepted)
		if err != nil {
			e.wantClass(saidSendOrNot, err, "receive what was sent before", transport.ErrClosed)
			break
		}
		if wrong := differs(got, uint64(tag), size); wrong != "" {
			e.failf(saidSendOrNot, "%s", wrong)
		}
	}
	if e.endsOrGoesOn(p, uint64(taken), size, false) {
		p.passes(1 << 41)
	}
	join(a, b, transport.Data).passes(1)
}

func contextSendRace(e *env) {
	const rounds = 150
	a, b := e.node(1), e.node(2)
	p := join(a, b, transport.Data)
	for round := range uint64(rounds) {
		size := []int{10, 5000, 100_000, 1 << 20}[round%4]
		ctx, cancel := context.WithCancelCause(e.ctx)
		ender := e.start("end the context", func() error {
			for range (round * 37) % 1000 { // some time
				if ctx.Err() != nil {
					break
				}
			}
			cancel(errCause)
			return nil
		})
		err := p.dialled.Send(ctx, message(round, size))
		e.must(saidContexts, ender.wait(saidContexts), "end the context")
		if err != nil {
			e.wantCause(err, "Send")
		}
		if !e.endsOrGoesOn(p, round, size, err == nil) {
			p = join(a, b, transport.Data)
		}
	}
}

func contextAccept(e *env) {
	a, b := e.node(1), e.node(2)
	for round := range uint64(20) {
		ctx, cancel := context.WithCancelCause(e.ctx)
		var accepted transport.Link
		accept := e.start("Accept", func() (err error) { accepted, err = b.Accept(ctx); return err })
		if round < 3 && !accept.waits(moment/2) {
			e.failf(saidAccept, "nobody has dialled, and Accept gives %v", accept.outcome())
		}
		var dialled transport.Link
		dial := e.start("Dial", func() (err error) { dialled, err = a.tryDial(b.target(transport.Data)); return err })
		if round%2 == 0 {
			e.must(saidDialled, dial.wait(saidDialled), "dial")
			accept.waits(time.Duration(round) * moment / 200) // it may be about to give the link
		}
		cancel(errCause)
		err := accept.wait(saidContexts)
		e.must(saidDialled, dial.wait(saidDialled), "dial")
		if err != nil {
			e.wantCause(err, "Accept")
			accepted = b.accept()
		}
		pair{e: e, dialled: dialled, accepted: accepted}.passes(round)
	}
}
