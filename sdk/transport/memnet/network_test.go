package memnet_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open makes a transport that ends with the test.
func open(t *testing.T, n *memnet.Network, id int32, name string) transport.Transport {
	t.Helper()
	tr, err := n.Open(t.Context(), transport.Config{
		Settings: memnet.Settings(name, ""),
		Identity: transport.Identity{ClusterID: "c", NodeID: id},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

// join makes a link, and returns both of its ends.
func join(t *testing.T, from, to transport.Transport) (dialled, accepted transport.Link) {
	t.Helper()
	ctx := limit(t)
	dialled, err := from.Dial(ctx, target(to.Endpoint()))
	if err != nil {
		t.Fatal(err)
	}
	accepted, err = to.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return dialled, accepted
}

func target(endpoint string) transport.Target {
	return transport.Target{Endpoint: endpoint, Lane: transport.Control, NodeID: transport.AnyNode}
}

// limit is a context for calls that return soon.
func limit(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func heap(_ context.Context, n int) ([]byte, error) { return make([]byte, n), nil }

func send(t *testing.T, l transport.Link, message string) {
	t.Helper()
	if err := l.Send(limit(t), []byte(message)); err != nil {
		t.Fatalf("send %q: %v", message, err)
	}
}

func receive(t *testing.T, l transport.Link, want string) {
	t.Helper()
	got, err := l.Receive(limit(t), heap)
	if err != nil || string(got) != want {
		t.Fatalf("received %q and %v, want %q", got, err, want)
	}
}

func TestNetworkCarriesBothWays(t *testing.T) {
	n := memnet.NewNetwork(memnet.NetworkOptions{})
	a, b := open(t, n, 1, "a"), open(t, n, 2, "")
	ab, ba := join(t, a, b)
	if ab.Peer().NodeID != 2 || ba.Peer().NodeID != 1 || ab.Lane() != transport.Control || ba.Lane() != transport.Control {
		t.Fatalf("peers are %v and %v", ab.Peer(), ba.Peer())
	}
	if err := ab.Send(limit(t), []byte("in "), nil, []byte("parts")); err != nil {
		t.Fatal(err)
	}
	if err := ab.Send(limit(t)); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		send(t, ba, fmt.Sprint(i))
	}
	receive(t, ba, "in parts")
	receive(t, ba, "")
	for i := range 100 {
		receive(t, ab, fmt.Sprint(i))
	}
	send(t, ab, "before the end")
	ab.Close()
	ab.Close()
	if _, err := ab.Receive(limit(t), heap); !errors.Is(err, transport.ErrClosed) {
		t.Fatalf("receive on a closed link: %v", err)
	}
	for {
		_, err := ba.Receive(limit(t), heap)
		if errors.Is(err, transport.ErrClosed) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestNetworkDelays(t *testing.T) {
	n := memnet.NewNetwork(memnet.NetworkOptions{Seed: 1})
	a, b := open(t, n, 1, "a"), open(t, n, 2, "b")
	slow := memnet.Faults{Delay: memnet.Range{Min: time.Millisecond, Max: 3 * time.Millisecond}}
	for _, err := range []error{n.SetFaults("a", "b", slow), n.SetFaults("b", "a", slow)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	ab, ba := join(t, a, b)
	for i := range 20 {
		send(t, ab, fmt.Sprint(i))
	}
	for i := range 20 {
		receive(t, ba, fmt.Sprint(i))
	}
	if took := time.Since(begin); took < 3*time.Millisecond {
		t.Fatalf("a dial, its answer and a message took %v", took)
	}
}

func TestNetworkRefuses(t *testing.T) {
	n := memnet.NewNetwork(memnet.NetworkOptions{})
	a, b := open(t, n, 1, "a"), open(t, n, 2, "b")
	_, ba := join(t, a, b)
	if err := n.Kill("a", memnet.Reset); err != nil {
		t.Fatal(err)
	}
	if _, err := ba.Receive(limit(t), heap); !errors.Is(err, transport.ErrClosed) {
		t.Fatalf("receive from who was killed: %v", err)
	}
	if _, err := b.Dial(limit(t), target("a")); !errors.Is(err, transport.ErrRefused) {
		t.Fatalf("dial who was killed: %v", err)
	}
	if _, err := a.Dial(limit(t), target("b")); !errors.Is(err, transport.ErrClosed) {
		t.Fatalf("dial by who was killed: %v", err)
	}
	open(t, n, 1, "a")
}
