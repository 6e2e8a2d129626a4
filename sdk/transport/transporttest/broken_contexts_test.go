package transporttest_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

// ends says whether the context ends within a moment.
func ends(ctx context.Context, moment time.Duration) bool {
	timer := time.NewTimer(moment)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return true
	case <-timer.C:
		return false
	}
}

// hang waits for the end of ctx, and no longer than a test may take.
func hang(ctx context.Context) error {
	ends(ctx, 10*time.Second)
	return context.Cause(ctx)
}

func brokenContexts() []broken {
	return []broken{
		{name: "Receive has no context", caughtBy: "context-over", says: "Receive has not returned", fault: func() fault {
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				return l.Link.Receive(context.WithoutCancel(ctx), room)
			}}
		}},
		{name: "Accept has no context", caughtBy: "context-over", says: "Accept has not returned", fault: func() fault {
			return fault{accept: func(ctx context.Context, n *brokenNode) (transport.Link, error) {
				return n.Transport.Accept(context.WithoutCancel(ctx))
			}}
		}},
		{name: "the cause of a context is not told", caughtBy: "context-over", says: "context canceled", fault: func() fault {
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				got, err := l.Link.Receive(ctx, room)
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				return got, err
			}}
		}},
		{name: "a Receive that was given up goes on", caughtBy: "context-receive", says: "after one whose context has ended", fault: func() fault {
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				got, err := l.Link.Receive(ctx, room)
				if ctx.Err() != nil {
					l.count()
					return got, err
				}
				l.mu.Lock()
				lost := l.n
				l.n = 0
				l.mu.Unlock()
				if err == nil && lost > 0 { // the one that was given up got it
					return l.Link.Receive(ctx, room)
				}
				return got, err
			}}
		}},
		{name: "a Receive that was given up ends the link", caughtBy: "context-receive", says: "closed", fault: func() fault {
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				got, err := l.Link.Receive(ctx, room)
				if ctx.Err() != nil {
					l.Link.Close()
				}
				return got, err
			}}
		}},
		{name: "a message is lost when the context ends", caughtBy: "context-receive-race", says: "beside the end", fault: func() fault {
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				got, err := l.Link.Receive(ctx, room)
				if err == nil && ends(ctx, 100*time.Microsecond) {
					return nil, context.Cause(ctx)
				}
				return got, err
			}}
		}},
		{name: "room is asked again for a message that was given up", caughtBy: "context-receive-large", says: "room was asked 2 times", fault: func() fault {
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				if given := l.take(); len(given) > 0 { // what has arrived meanwhile
					data, err := room(ctx, len(given[0]))
					copy(data, given[0])
					return data, err
				}
				got, err := l.Link.Receive(ctx, room)
				if err == nil && ctx.Err() != nil {
					l.keep(got)
					return nil, context.Cause(ctx)
				}
				return got, err
			}}
		}},
		{name: "a message that was given up begins again", caughtBy: "context-receive-large", says: "Receive has not returned", fault: func() fault {
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				got, err := l.Link.Receive(ctx, room)
				if err == nil && ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				return got, err
			}}
		}},
		{name: "half of a message is sent", caughtBy: "context-send", says: "message", fault: func() fault {
			return fault{send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
				message := slices.Concat(parts...)
				half := slices.Concat(l.take()...)
				err := l.Link.Send(ctx, half, message)
				if ctx.Err() != nil {
					l.keep(message[:len(message)/2])
				}
				return err
			}}
		}},
		{name: "a Send that waits has no context", caughtBy: "context-send", says: "Send has not returned", fault: func() fault {
			return fault{send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
				return l.Link.Send(context.WithoutCancel(ctx), parts...)
			}}
		}},
		{name: "half of a message is sent when the context ends", caughtBy: "context-send-race", says: "message", fault: func() fault {
			return fault{send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
				message := slices.Concat(parts...)
				if len(message) > 64 && ends(ctx, time.Millisecond) {
					if err := l.Link.Send(context.WithoutCancel(ctx), message[:len(message)/2]); err != nil {
						return err
					}
					return context.Cause(ctx)
				}
				return l.Link.Send(ctx, message)
			}}
		}},
		{name: "a link is lost when the context ends", caughtBy: "context-accept", says: "accepts a link", fault: func() fault {
			return fault{accept: func(ctx context.Context, n *brokenNode) (transport.Link, error) {
				link, err := n.Transport.Accept(ctx)
				if err == nil && ends(ctx, 50*time.Millisecond) {
					return nil, context.Cause(ctx)
				}
				return link, err
			}}
		}},
	}
}

// over is a context that has ended.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// hasEnded says whether the link of the memory network has.
func (l *brokenLink) hasEnded() bool { return errors.Is(l.Link.Send(over()), transport.ErrClosed) }

func brokenEnds() []broken {
	return []broken{
		{name: "Close does nothing", caughtBy: "end", says: "deadline", fault: func() fault {
			return fault{end: func(*brokenLink) error { return nil }}
		}},
		{name: "a message is lost at the end, and the next is not", caughtBy: "end", says: "message", fault: func() fault {
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				got, err := l.Link.Receive(ctx, room)
				if err == nil && l.hasEnded() && l.count() == 1 {
					return l.Link.Receive(ctx, room)
				}
				return got, err
			}}
		}},
		{name: "what had arrived is lost at the end", caughtBy: "end-arrived", says: "0 were received at most", fault: func() fault {
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				if l.hasEnded() {
					return nil, transport.ErrClosed
				}
				return l.Link.Receive(ctx, room)
			}}
		}},
		{name: "a Receive that waits is not told of the end", caughtBy: "end-waiting", says: "has not returned", fault: func() fault {
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				got, err := l.Link.Receive(ctx, room)
				if errors.Is(err, transport.ErrClosed) {
					return nil, hang(ctx)
				}
				return got, err
			}}
		}},
		{name: "Close waits for the peer", caughtBy: "end-full", says: "close a link has not returned", fault: func() fault {
			return fault{end: func(l *brokenLink) error {
				ends(context.Background(), 10*time.Second) // it has what was sent
				return l.Link.Close()
			}}
		}},
		{name: "a Send that waits is not told of the end", caughtBy: "end-full", says: "has not returned", fault: deafSends},
		{name: "closing twice is an error", caughtBy: "end-twice", says: "close a link", fault: func() fault {
			return fault{end: func(l *brokenLink) error {
				if l.count() > 1 {
					return transport.ErrClosed
				}
				return l.Link.Close()
			}}
		}},
		{name: "a new link goes on with the old one", caughtBy: "end-twice", says: "want an error of class", fault: func() fault {
			return fault{send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
				if links := l.node.all(); l.hasEnded() {
					return links[len(links)-1].Link.Send(ctx, parts...)
				}
				return l.Link.Send(ctx, parts...)
			}}
		}},
		{name: "the end of a link ends the connection", caughtBy: "end-alone", says: "closed", fault: func() fault {
			return fault{end: func(l *brokenLink) error {
				for _, other := range l.node.all() {
					if other.Lane() == l.Lane() {
						other.Link.Close()
					}
				}
				return nil
			}}
		}},
	}
}

// deafSends: a Send that waits is not told that its link has ended.
func deafSends() fault {
	return fault{send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
		err := l.Link.Send(ctx, parts...)
		if errors.Is(err, transport.ErrClosed) {
			return hang(ctx)
		}
		return err
	}}
}
