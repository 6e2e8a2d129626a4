package memnet_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

func TestNetworkSettings(t *testing.T) {
	n := memnet.NewNetwork(memnet.NetworkOptions{})
	for _, c := range []struct{ settings, says string }{
		{`{"endpoit": "a"}`, "endpoit"},
		{`{"endpoint": "a"} {}`, "one object"},
		{`[]`, "object"},
		{`{"endpoint": "a b"}`, "a b"},
		{`{"endpoint": "taken"}`, "already"},
	} {
		if c.says == "already" {
			open(t, n, 1, "taken")
		}
		tr, err := n.Open(t.Context(), transport.Config{Settings: []byte(c.settings)})
		if !errors.Is(err, transport.ErrInvalid) || !strings.Contains(err.Error(), c.says) || tr != nil {
			t.Errorf("%s: the error is %v, and does not say %q", c.settings, err, c.says)
		}
	}
	for _, s := range n.Info().Settings {
		if !strings.Contains(string(memnet.Settings("a", "b")), `"`+s.Name+`"`) {
			t.Errorf("the setting %s is unknown to Settings", s.Name)
		}
	}
}

// short is a context of a time in a bubble.
func short(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantSilence fails the test if something comes on a link within an hour.
func wantSilence(t *testing.T, l transport.Link) {
	t.Helper()
	if got, err := l.Receive(short(t, time.Hour), heap); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("received %q and %v, want silence", got, err)
	}
}

func TestNetworkCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.NewNetwork(memnet.NetworkOptions{})
		a, b := open(t, n, 1, "a"), open(t, n, 2, "b")
		ab, ba := join(t, a, b)
		must(t, n.SetFaults("a", "b", memnet.Faults{Cut: true}))
		send(t, ab, "is lost")
		send(t, ba, "arrives")
		receive(t, ab, "arrives")
		wantSilence(t, ba)
		begin := time.Now()
		if _, err := a.Dial(t.Context(), target("b")); !errors.Is(err, transport.ErrRetry) || time.Since(begin) != 10*time.Second {
			t.Fatalf("a dial over a cut gives %v after %v", err, time.Since(begin))
		}
		if _, err := b.Dial(short(t, time.Second), target("a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a dial over a cut gives %v", err)
		}
		n.Heal()
		ab, ba = join(t, a, b)
		send(t, ab, "arrives again")
		receive(t, ba, "arrives again")
	})
}

func TestNetworkPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.NewNetwork(memnet.NetworkOptions{})
		a, b := open(t, n, 1, "a"), open(t, n, 2, "b")
		ab, ba := join(t, a, b)
		must(t, n.Pause("b"))
		send(t, ab, "waits")
		wantSilence(t, ba)
		must(t, n.Resume("b"))
		receive(t, ba, "waits")
		for _, err := range []error{n.Pause("c"), n.Resume("c"), n.Kill("c", memnet.Reset), n.SetFaults("a", "c", memnet.Faults{})} {
			if !errors.Is(err, transport.ErrInvalid) {
				t.Errorf("a fault where no node is gives %v", err)
			}
		}
	})
}

func TestNetworkLosesHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.NewNetwork(memnet.NetworkOptions{})
		a, b := open(t, n, 1, "a"), open(t, n, 2, "b")
		ab, _ := join(t, a, b)
		must(t, n.Kill("b", memnet.Silent))
		wantSilence(t, ab)
		send(t, ab, "to nobody")
		if _, err := a.Dial(t.Context(), target("b")); !errors.Is(err, transport.ErrRetry) {
			t.Fatalf("a dial of a host that is gone gives %v", err)
		}
		open(t, n, 2, "b")
		send(t, ab, "to somebody else")
		if _, err := ab.Receive(limit(t), heap); !errors.Is(err, transport.ErrClosed) {
			t.Fatalf("the host is back, and receiving on a link of its old life gives %v", err)
		}
		join(t, a, open(t, n, 3, ""))
	})
}

// Whatever is under way, nothing runs when every transport is closed: a bubble ends only
// when all of its goroutines have.
func TestNetworkEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &counted{}
		n := memnet.NewNetwork(memnet.NetworkOptions{Clock: clock})
		a, b := open(t, n, 1, "a"), open(t, n, 2, "b")
		ab, _ := join(t, a, b)
		must(t, n.SetFaults("a", "b", memnet.Faults{Delay: memnet.Range{Min: time.Hour, Max: time.Hour}}))
		send(t, ab, "is late")
		if clock.set.Load() == 0 {
			t.Fatal("something is under way, and no timer is set")
		}
		must(t, a.Close())
		must(t, b.Close())
		if set := clock.set.Load(); set != 0 {
			t.Fatalf("every transport is closed, and %d timers are set", set)
		}
	})
}

// counted is the real clock, and counts the timers that are set.
type counted struct{ set atomic.Int64 }

func (c *counted) Now() time.Time { return time.Now() }

func (c *counted) AfterFunc(d time.Duration, f func()) func() bool {
	c.set.Add(1)
	timer := time.AfterFunc(d, func() {
		f()
		c.set.Add(-1)
	})
	return func() bool {
		stopped := timer.Stop()
		if stopped {
			c.set.Add(-1)
		}
		return stopped
	}
}
