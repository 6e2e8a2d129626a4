package memnet_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
)

// Whatever ends a link ends the wait of a Room that is asked on it.
func TestRoomEndsWithItsLink(t *testing.T) {
	for name, end := range map[string]func(n *memnet.Network, b transport.Transport, ab, ba transport.Link) error{
		"the link is closed":      func(_ *memnet.Network, _ transport.Transport, _, ba transport.Link) error { return ba.Close() },
		"the transport is closed": func(_ *memnet.Network, b transport.Transport, _, _ transport.Link) error { return b.Close() },
		"the process is killed": func(n *memnet.Network, _ transport.Transport, _, _ transport.Link) error {
			return n.Kill("b", memnet.Reset)
		},
		"the peer closes it": func(_ *memnet.Network, _ transport.Transport, ab, _ transport.Link) error { return ab.Close() },
		"the peer is killed": func(n *memnet.Network, _ transport.Transport, _, _ transport.Link) error {
			return n.Kill("a", memnet.Reset)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := memnet.NewNetwork(memnet.NetworkOptions{})
				a, b := open(t, n, 1, "a"), open(t, n, 2, "b")
				ab, ba := join(t, a, b)
				send(t, ab, "x")
				send(t, ab, "y")
				ctx := limit(t)
				failed := make(chan error, 1)
				go func() {
					_, err := ba.Receive(ctx, func(ctx context.Context, _ int) ([]byte, error) {
						<-ctx.Done()
						return nil, context.Cause(ctx)
					})
					failed <- err
				}()
				synctest.Wait()
				if len(failed) != 0 {
					t.Fatalf("nothing has happened, and Receive gives %v", <-failed)
				}
				must(t, end(n, b, ab, ba))
				if err := <-failed; !errors.Is(err, transport.ErrClosed) || ctx.Err() != nil {
					t.Fatalf("Receive gives %v", err)
				}
				if _, err := ba.Receive(ctx, heap); !errors.Is(err, transport.ErrClosed) {
					t.Fatalf("receive after an error of room: %v", err)
				}
			})
		})
	}
}

// What has arrived before the end is received after it, by whose room need not wait.
func TestRoomAfterTheEnd(t *testing.T) {
	n := memnet.NewNetwork(memnet.NetworkOptions{})
	a, b := open(t, n, 1, "a"), open(t, n, 2, "b")
	ab, ba := join(t, a, b)
	send(t, ab, "x")
	send(t, ab, "y")
	must(t, ab.Close())
	receive(t, ba, "x")
	if _, err := ba.Receive(limit(t), func(ctx context.Context, _ int) ([]byte, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}); !errors.Is(err, transport.ErrClosed) {
		t.Fatalf("a link has ended, and a Receive whose room waits gives %v", err)
	}
}
