package memnet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

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

// A Receive can be given up in the middle of a message. The next goes on, in the same
// memory, and asks no room.
func TestReceiveInPieces(t *testing.T) {
	second := memnet.Range{Min: time.Second, Max: time.Second}
	for _, reuse := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := memnet.NewNetwork(memnet.NetworkOptions{RestChance: 1, Rest: second})
			a, b := open(t, n, 1, "a"), open(t, n, 2, "b")
			ab, ba := join(t, a, b)
			send(t, ab, "message")
			send(t, ab, "")
			memory := make([]byte, len("message"))
			var asked []int
			room := func(_ context.Context, n int) ([]byte, error) {
				asked = append(asked, n)
				return memory[:n], nil
			}
			begin := time.Now()
			for range 3 {
				if _, err := ba.Receive(short(t, 300*time.Millisecond), room); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("half of a message has come, and Receive gives %v", err)
				}
				if !slices.Equal(asked, []int{len(memory)}) {
					t.Fatalf("for one message room was asked for %v", asked)
				}
			}
			want := "message"
			if reuse {
				copy(memory, "another")
				want = "anosage"
			}
			got, err := ba.Receive(limit(t), room)
			if err != nil || string(got) != want || &got[0] != &memory[0] || time.Since(begin) != time.Second {
				t.Fatalf("after %v Receive gives %q and %v, want %q", time.Since(begin), got, err, want)
			}
			if got, err := ba.Receive(limit(t), room); err != nil || len(got) != 0 || len(asked) != 2 || time.Since(begin) != 2*time.Second {
				t.Fatalf("after %v Receive gives %q and %v, and room was asked for %v", time.Since(begin), got, err, asked)
			}
		})
	}
}

// The seed says which messages come in pieces; none do unless it is asked for.
func TestReceiveInPiecesByChance(t *testing.T) {
	for chance, most := range map[float64]int{0: 0, 0.5: 80, 1: 100} {
		n := memnet.NewNetwork(memnet.NetworkOptions{Seed: 1, RestChance: chance})
		a, b := open(t, n, 1, "a"), open(t, n, 2, "b")
		ab, ba := join(t, a, b)
		cut := 0
		for i := range 100 {
			send(t, ab, fmt.Sprint(i))
			ctx, cancel := context.WithCancel(t.Context())
			got, err := ba.Receive(ctx, func(_ context.Context, n int) ([]byte, error) {
				cancel()
				return make([]byte, n), nil
			})
			if err != nil {
				cut++
				receive(t, ba, fmt.Sprint(i))
			} else if string(got) != fmt.Sprint(i) {
				t.Fatalf("received %q, want %d", got, i)
			}
		}
		if cut > most || cut < most/4 {
			t.Errorf("the chance is %v, and %d of 100 messages came in pieces", chance, cut)
		}
	}
}

// Who waits for the rest of a message is told at once that its link was closed, and
// nothing is left of it; that the peer has closed it takes nothing that had arrived.
func TestReceiveInPiecesEnds(t *testing.T) {
	for _, first := range []string{"nobody", "the peer", "the peer's process"} {
		for _, closes := range []string{"the transport", "the link"} {
			synctest.Test(t, func(t *testing.T) {
				clock := &counted{}
				hour := memnet.Range{Min: time.Hour, Max: time.Hour}
				n := memnet.NewNetwork(memnet.NetworkOptions{Clock: clock, RestChance: 1, Rest: hour})
				a, b := open(t, n, 1, "a"), open(t, n, 2, "b")
				ab, ba := join(t, a, b)
				send(t, ab, "message")
				send(t, ab, "another")
				failed := make(chan error, 1)
				begin := time.Now()
				go func() {
					if _, err := ba.Receive(context.Background(), heap); err != nil {
						failed <- err
						return
					}
					_, err := ba.Receive(context.Background(), heap)
					failed <- err
				}()
				synctest.Wait()
				switch first {
				case "the peer":
					must(t, ab.Close())
				case "the peer's process":
					must(t, a.Close())
				}
				<-short(t, 90*time.Minute).Done() // the first has come, and half of the other
				if len(failed) != 0 {
					t.Fatalf("%s has ended the link, and what had arrived is lost: %v", first, <-failed)
				}
				must(t, a.Close())
				if closes == "the link" {
					must(t, ba.Close())
				}
				must(t, b.Close())
				if set := clock.set.Load(); set != 0 {
					t.Errorf("every transport is closed, and %d timers are set", set)
				}
				if err := <-failed; !errors.Is(err, transport.ErrClosed) || time.Since(begin) != 90*time.Minute {
					t.Fatalf("after %v Receive gives %v", time.Since(begin), err)
				}
			})
		}
	}
}
