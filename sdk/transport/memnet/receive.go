package memnet

import (
	"context"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

// part is the message that a Receive has begun to receive. The turn to receive guards it.
type part struct {
	begun  bool
	memory []byte // of its Room
	cut    bool   // only half of it is in the memory yet
	rest   time.Time
}

// Receive implements transport.Link.
func (l *link) Receive(ctx context.Context, room transport.Room) ([]byte, error) {
	if room == nil {
		return nil, transport.Errorf(transport.ErrInvalid, "a message needs a room")
	}
	if err := enter(ctx, l.receiving); err != nil {
		return nil, err
	}
	defer func() { <-l.receiving }()
	arrived, err := l.await(ctx)
	if err != nil {
		return nil, err
	}
	if !l.part.begun {
		memory, err := l.ask(ctx, room, len(arrived))
		if err == nil && len(memory) != len(arrived) {
			err = transport.Errorf(transport.ErrInvalid, "a room of %d bytes for a message of %d", len(memory), len(arrived))
		}
		if err != nil {
			_ = l.Close()
			return nil, err
		}
		l.begin(memory, arrived)
	}
	if err := l.awaitRest(ctx); err != nil {
		return nil, err
	}
	memory, has := l.part.memory, 0
	if l.part.cut {
		has = len(memory) / 2
	}
	l.part = part{}
	copy(memory[has:], arrived[has:])
	n := l.net
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.clock.Now()
	_, ok, err := n.machine.Receive(now, l.handle)
	n.pump(now)
	if !ok && err == nil {
		err = errClosed
	}
	if err != nil {
		return nil, err
	}
	return memory, nil
}

// ask asks for memory, in a context that ends with the link too.
func (l *link) ask(ctx context.Context, room transport.Room, n int) ([]byte, error) {
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	l.setLeave(leave)
	defer l.setLeave(nil)
	return room(ctx, n)
}

func (l *link) setLeave(leave context.CancelCauseFunc) {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	l.leave = leave
	if leave != nil && l.over {
		leave(errClosed)
	}
}

// await waits for the next message, and leaves it where it is.
func (l *link) await(ctx context.Context) ([]byte, error) {
	n := l.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		arrived, ok, err := n.machine.Peek(l.handle)
		switch {
		case err != nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case ok:
			return arrived, nil
		}
		if err := n.wait(ctx, &l.changed); err != nil {
			return nil, err
		}
	}
}

// begin receives the beginning of a message, which is all of it or half.
func (l *link) begin(memory, arrived []byte) {
	n := l.net
	n.mu.Lock()
	defer n.mu.Unlock()
	l.part = part{begun: true, memory: memory, cut: n.machine.chance(n.restChance)}
	if l.part.cut {
		copy(memory, arrived[:len(arrived)/2])
		l.part.rest = n.clock.Now().Add(time.Duration(n.machine.between(n.rest)))
	}
}

// awaitRest waits for the rest of the message that was begun.
func (l *link) awaitRest(ctx context.Context) error {
	if !l.part.cut {
		return nil
	}
	n := l.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		if _, _, err := n.machine.Peek(l.handle); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		left := l.part.rest.Sub(n.clock.Now())
		if left <= 0 {
			return nil
		}
		if err := n.waitAtMost(ctx, &l.changed, left); err != nil {
			return err
		}
	}
}
