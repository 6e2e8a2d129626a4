package transporttest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
	"github.com/brokerd/brokerd/sdk/transport/transporttest"
)

// dieSilently: the operating system tells nobody of the end of a process.
func dieSilently(_ *testing.T, target *transporttest.Target, network *memnet.Network) {
	target.Kill = func(t transport.Transport) error { return network.Kill(t.Endpoint(), memnet.Silent) }
}

func brokenDeaths() []broken {
	return []broken{
		{name: "links outlive the process", caughtBy: "kill-resets", says: "has not returned", aim: dieSilently},
		{name: "links end late", caughtBy: "kill-resets", says: "in the best of", fault: func() fault {
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				got, err := l.Link.Receive(ctx, room)
				if errors.Is(err, transport.ErrClosed) {
					ends(ctx, 120*time.Millisecond)
				}
				return got, err
			}}
		}},
		{name: "a death is told as another class", caughtBy: "kill-resets", says: "want class", fault: func() fault {
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				got, err := l.Link.Receive(ctx, room)
				return got, eof(err)
			}}
		}},
		{name: "a Send that waits is not told of a death", caughtBy: "kill-full", says: "has not returned", fault: deafSends},
		{name: "nobody is ever refused", caughtBy: "kill-refused", says: "want class", fault: dialling(nil, instead(transport.ErrRefused, transport.ErrRetry))},
		{name: "who is gone is waited for", caughtBy: "kill-refused", says: "want class", aim: dieSilently},
		{name: "it is refused late", caughtBy: "kill-refused", says: "in the best of", fault: func() fault {
			return fault{dial: func(ctx context.Context, n *brokenNode, to transport.Target) (transport.Link, error) {
				l, err := n.Transport.Dial(ctx, to)
				if errors.Is(err, transport.ErrRefused) {
					ends(ctx, 1200*time.Millisecond)
				}
				return l, err
			}}
		}},
		{name: "the dead are closed", caughtBy: "kill-nobody", says: "want class", fault: dialling(nil, instead(transport.ErrRefused, transport.ErrClosed))},
		{name: "a dead link is given again", caughtBy: "kill-again", says: "", fault: func() fault {
			var links sync.Map
			return fault{dial: func(ctx context.Context, n *brokenNode, to transport.Target) (transport.Link, error) {
				key := [3]int32{n.id.NodeID, to.NodeID, int32(to.Lane)}
				if l, again := links.Load(key); again {
					return l.(transport.Link), nil
				}
				l, err := n.Transport.Dial(ctx, to)
				if err != nil {
					return nil, err
				}
				links.Store(key, l)
				return l, nil
			}}
		}},
	}
}

func brokenCloses() []broken {
	return []broken{
		{name: "closing a transport twice is an error", caughtBy: "close", says: "close the transport", fault: func() fault {
			return fault{close: func(n *brokenNode) error {
				if n.count() > 1 {
					return transport.ErrClosed
				}
				return n.Transport.Close()
			}}
		}},
		{name: "a closed transport may be tried again", caughtBy: "close", says: "dial from a transport that is closed", fault: dialling(nil, instead(transport.ErrClosed, transport.ErrRetry))},
		{name: "links outlive their transport", caughtBy: "close", says: "of a transport that is closed", fault: func() fault {
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				got, err := l.Link.Receive(ctx, room)
				if errors.Is(err, transport.ErrClosed) {
					return nil, hang(ctx)
				}
				return got, err
			}}
		}},
		{name: "an Accept that waits is not told of Close", caughtBy: "close-waiting", says: "Accept has not returned", fault: func() fault {
			return fault{accept: func(ctx context.Context, n *brokenNode) (transport.Link, error) {
				l, err := n.Transport.Accept(ctx)
				if errors.Is(err, transport.ErrClosed) {
					return nil, hang(ctx)
				}
				return l, err
			}}
		}},
		{name: "a Dial that waits is not told of Close", caughtBy: "close-waiting", says: "has not returned", fault: func() fault {
			return fault{dial: func(ctx context.Context, n *brokenNode, to transport.Target) (transport.Link, error) {
				l, err := n.Transport.Dial(ctx, to)
				if errors.Is(err, transport.ErrClosed) {
					return nil, hang(ctx)
				}
				return l, err
			}}
		}},
		{name: "peers are not told of Close", caughtBy: "close-peers", says: "has not returned", aim: func(_ *testing.T, target *transporttest.Target, network *memnet.Network) {
			open := target.Open
			target.Open = func(ctx context.Context, id transport.Identity) (transport.Transport, error) {
				opened, err := open(ctx, id)
				if err != nil {
					return nil, err
				}
				opened.(*brokenNode).fault.close = func(n *brokenNode) error {
					if err := network.Kill(n.Endpoint(), memnet.Silent); err != nil {
						return err
					}
					return n.Transport.Close()
				}
				return opened, nil
			}
		}},
		{name: "Close hangs", caughtBy: "close", says: "close the transport has not returned", fault: func() fault {
			return fault{close: func(n *brokenNode) error {
				err := n.Transport.Close()
				if len(n.all()) > 0 { // it waits for a goroutine that nobody ends
					ends(context.Background(), 10*time.Second)
				}
				return err
			}}
		}},
		{name: "a goroutine is left", caughtBy: "close-leaves", says: "goroutines are left", fault: func() fault {
			return fault{made: func(l *brokenLink) {
				if l.node.count() == 1 {
					go ends(context.Background(), 10*time.Second)
				}
			}}
		}},
	}
}
