package transporttest

import (
	"context"
	"errors"
	"runtime"
	"slices"

	"github.com/brokerd/brokerd/sdk/transport"
)

func roomCases() []Case {
	return []Case{
		{Name: "room-once", About: "room is asked once for each message, from Receive, for its size", run: roomOnce},
		{Name: "room-first", About: "memory for a large message is asked for before it is received", run: roomFirst},
		{Name: "room-error", About: "an error of room is returned and ends the link, and no other", run: roomError},
		{Name: "room-waits", About: "a room that waits holds up its link alone", run: roomWaits},
		{Name: "room-ends", About: "room is told that the context of its Receive has ended", run: roomEnds},
		{Name: "room-closed", About: "room is told that its link was closed, or has ended", run: roomClosed},
		{Name: "room-wrong", About: "a room that gives the wrong length, or none, does no harm", run: roomWrong},
	}
}

func roomOnce(e *env) {
	p := e.pair()
	sizes := []int{1, 100, 65536, 10, 1 << 20, 3 << 20, 7}
	for _, way := range p.ways() {
		sent := e.start("send", func() error {
			for tag, n := range sizes {
				if err := e.trySend(way[0], message(uint64(tag), n)); err != nil {
					return err
				}
			}
			return nil
		})
		for tag, size := range sizes {
			var asked []int
			inside := true
			ctx, cancel := e.within()
			got, err := way[1].Receive(ctx, func(_ context.Context, n int) ([]byte, error) {
				if !inside {
					return nil, errors.New("room is called after Receive has returned")
				}
				asked = append(asked, n)
				return make([]byte, n), nil
			})
			inside = false
			cancel()
			e.must(saidRoomOnce, err, "receive")
			if !slices.Equal(asked, []int{size}) {
				e.failf(saidRoomOnce, "for a message of %d bytes room was asked for %v", size, asked)
			}
			if wrong := differs(got, uint64(tag), size); wrong != "" {
				e.failf(saidRoom, "%s", wrong)
			}
		}
		e.must(saidTaken, sent.wait(saidTaken), "send")
	}
}

// roomFirst: while room waits, no more of a large message is held than may be under way.
func roomFirst(e *env) {
	const size = transport.MessageBytesMax
	data := message(1, size)
	p := e.pair()
	before := e.heap()
	sent := e.start("send", func() error { return e.trySend(p.dialled, data) })
	asked, give := make(chan int, 1), make(chan struct{})
	var got []byte
	received := e.start("receive", func() error {
		ctx, cancel := e.within()
		defer cancel()
		var err error
		got, err = p.accepted.Receive(ctx, func(ctx context.Context, n int) ([]byte, error) {
			asked <- n
			select {
			case <-give:
				return make([]byte, n), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		return err
	})
	if n := e.asked(asked); n != size {
		e.failf(saidRoom, "for a message of %d bytes room was asked for %d", size, n)
	}
	received.waits(2 * moment)
	// The sender may have taken the one message that is larger; the receiver has no memory yet.
	held := e.heap() - before
	runtime.KeepAlive(data) // it was there before, and is not to be taken off
	if most := int64(size + transport.LinkBytesMax + heapSlack); held > most {
		e.failf(saidMemory, "while room waits for the memory of one message of %d bytes, %d bytes are held", size, held)
	}
	close(give)
	e.must(saidRoom, received.wait(saidRoom), "receive")
	if wrong := differs(got, 1, size); wrong != "" {
		e.failf(saidRoom, "%s", wrong)
	}
	e.must(saidTaken, sent.wait(saidTaken), "send")
}

// asked waits until room is asked, and says for how much.
func (e *env) asked(asked <-chan int) int {
	ctx, cancel := e.within()
	defer cancel()
	select {
	case n := <-asked:
		return n
	case <-ctx.Done():
		e.failf(saidRoom, "a message was sent, Receive called, and room not asked within %v", e.patience)
		return 0
	}
}

func roomError(e *env) {
	a, b := e.node(1), e.node(2)
	other := join(a, b, transport.Data)
	full := errors.New("no memory for this peer")
	for i := range 2 {
		p := join(a, b, transport.Data)
		way := p.ways()[i]
		e.sendTag(way[0], 1, 100)
		e.sendTag(way[0], 2, 100)
		ctx, cancel := e.within()
		_, err := way[1].Receive(ctx, func(context.Context, int) ([]byte, error) { return nil, full })
		cancel()
		if !errors.Is(err, full) {
			e.failf(saidRoomError, "room gives the error %q, and Receive gives %v", full, err)
		}
		_, err = e.tryReceive(way[1])
		e.wantClass(saidRoomError, err, "receive after an error of room", transport.ErrClosed)
		e.findsEnd(way[1], "a link that an error of room has ended")
		e.findsEnd(way[0], "a link that an error of its peer's room has ended")
		other.passes(20)
	}
}

func roomWaits(e *env) {
	a, b := e.node(1), e.node(2)
	p, other, control := join(a, b, transport.Data), join(a, b, transport.Data), join(a, b, transport.Control)
	e.sendTag(p.dialled, 1, 1000)
	e.sendTag(p.dialled, 2, 10)
	asked, give := make(chan int, 1), make(chan struct{})
	var got []byte
	received := e.start("receive", func() error {
		var err error
		got, err = p.accepted.Receive(e.ctx, func(ctx context.Context, n int) ([]byte, error) {
			asked <- n
			select {
			case <-give:
				return make([]byte, n), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		return err
	})
	e.asked(asked)
	for tag := range uint64(20) {
		for _, l := range []pair{other, control} {
			for _, way := range l.ways() {
				e.sendTag(way[0], tag, 50_000)
				got, err := e.tryReceive(way[1])
				e.must(saidRoomWaits, err, "receive on another link while room waits")
				if wrong := differs(got, tag, 50_000); wrong != "" {
					e.failf(saidBeginning, "%s", wrong)
				}
			}
		}
	}
	e.sendTag(p.accepted, 7, 10) // the other way of the same link
	close(give)
	e.must(saidRoomWaits, received.wait(saidRoomWaits), "receive with a room that waits")
	if wrong := differs(got, 1, 1000); wrong != "" {
		e.failf(saidRoomWaits, "%s", wrong)
	}
	e.receiveTag(p.accepted, 2, 10)
	e.receiveTag(p.dialled, 7, 10)
}

func roomEnds(e *env) {
	p := e.pair()
	e.sendTag(p.dialled, 1, 1000)
	cause := errors.New("the broker stops")
	ctx, cancel := context.WithCancelCause(e.ctx)
	defer cancel(nil)
	asked := make(chan int, 1)
	received := e.start("receive", func() error {
		_, err := p.accepted.Receive(ctx, func(ctx context.Context, n int) ([]byte, error) {
			asked <- n
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		return err
	})
	e.asked(asked)
	cancel(cause)
	if err := received.wait(saidContexts); !errors.Is(err, cause) {
		e.failf(saidContexts, "the context of a Receive whose room waits has ended because %q, and it gives %v", cause, err)
	}
	for range 2 { // room cannot be asked again, and so nothing can follow
		_, err := e.tryReceive(p.accepted)
		e.wantClass(saidRoomError, err, "receive after the context of a room has ended", transport.ErrClosed)
	}
	e.findsEnd(p.dialled, "a link that an error of its peer's room has ended")
}

func roomClosed(e *env) {
	a, b := e.node(1), e.node(2)
	for round, who := range []string{"the receiver", "the sender"} {
		p := join(a, b, transport.Data)
		e.sendTag(p.dialled, 1, 1000)
		asked := make(chan int, 1)
		received := e.start("Receive, whose room waits", func() error {
			_, err := p.accepted.Receive(e.ctx, func(ctx context.Context, n int) ([]byte, error) {
				asked <- n
				<-ctx.Done()
				return nil, context.Cause(ctx)
			})
			return err
		})
		e.asked(asked)
		e.closes([]transport.Link{p.accepted, p.dialled}[round])
		if err := received.wait(saidRoomEnds); err == nil {
			e.failf(saidRoomError, "%s closes a link, and a Receive whose room waited gives no error", who)
		}
		e.findsEnd(p.accepted, "a link that was closed while a room waited")
	}
}

func roomWrong(e *env) {
	a, b := e.node(1), e.node(2)
	other := join(a, b, transport.Data)
	for _, wrong := range []transport.Room{
		nil,
		func(context.Context, int) ([]byte, error) { return nil, nil },
		func(_ context.Context, n int) ([]byte, error) { return make([]byte, n-1), nil },
		func(_ context.Context, n int) ([]byte, error) { return make([]byte, 0, n), nil },
		func(_ context.Context, n int) ([]byte, error) { return make([]byte, n+1), nil },
	} {
		p := join(a, b, transport.Data)
		e.sendTag(p.dialled, 1, 100)
		err := e.soon(saidPanics, "Receive with a room that gives the wrong length", func() error {
			ctx, cancel := e.within()
			defer cancel()
			got, err := p.accepted.Receive(ctx, wrong)
			if err == nil && string(got) == string(message(1, 100)) {
				return nil // it found a way
			}
			if err == nil {
				e.failf(saidBeginning, "a room gives the wrong length, and Receive %d bytes of 100, without an error", len(got))
			}
			return err
		})
		if err != nil && errors.Is(err, context.DeadlineExceeded) {
			e.failf(saidRoomError, "a room gives the wrong length, and Receive gives %v", err)
		}
		other.passes(3)
	}
}
