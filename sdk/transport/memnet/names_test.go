package memnet

import (
	"testing"

	"github.com/brokerd/brokerd/sdk/transport"
)

// openChosen opens a transport whose endpoint is chosen.
func openChosen(t *testing.T, n *Network) transport.Transport {
	t.Helper()
	tr, err := n.Open(t.Context(), transport.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

// Endpoints that were chosen are used again, but only those of which nothing is left, and
// not at once, and with no faults.
func TestChosenEndpoints(t *testing.T) {
	n := NewNetwork(NetworkOptions{})
	if _, err := n.Open(t.Context(), transport.Config{Settings: Settings("memory-2", "")}); err != nil {
		t.Fatal(err)
	}
	stays := openChosen(t, n)
	// Who was killed leaves a link at its peer, which has not closed it.
	killed := openChosen(t, n)
	link, err := killed.Dial(t.Context(), transport.Target{Endpoint: stays.Endpoint(), Lane: transport.Data})
	if err != nil {
		t.Fatal(err)
	}
	if err := link.Send(t.Context(), []byte("is not received")); err != nil {
		t.Fatal(err)
	}
	left, err := stays.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Kill(killed.Endpoint(), Silent); err != nil {
		t.Fatal(err)
	}

	var ended []string
	used := map[string]int{"memory-2": 1, stays.Endpoint(): 1, killed.Endpoint(): 1}
	next := func() string {
		t.Helper()
		tr := openChosen(t, n)
		name := tr.Endpoint()
		if err := n.SetFaults(stays.Endpoint(), name, Faults{Cut: true}); err != nil {
			t.Fatal(err)
		}
		if err := n.SetFaults(name, stays.Endpoint(), Faults{Hold: true}); err != nil {
			t.Fatal(err)
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
		ended = append(ended, name)
		return name
	}
	for range chosenMax {
		name := next()
		if used[name]++; used[name] != 1 {
			t.Fatalf("%s is used again, and %d endpoints are free", name, len(ended))
		}
	}
	for i := range 3 * chosenMax {
		if name := next(); name != ended[i] {
			t.Fatalf("%s is used again, want %s", name, ended[i])
		}
	}
	if most := 3 + chosenMax; len(n.machine.nodes) != most || len(n.local) != most || len(n.chosen) != most-1 {
		t.Fatalf("at most 3 nodes were up, and there are %d, %d and %d", len(n.machine.nodes), len(n.local), len(n.chosen))
	}

	// As good as new.
	again := openChosen(t, n)
	if _, err := again.Dial(t.Context(), transport.Target{Endpoint: stays.Endpoint(), Lane: transport.Data}); err != nil {
		t.Fatalf("dial from an endpoint that is used again: %v", err)
	}
	accepted, err := stays.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	if err := accepted.Close(); err != nil {
		t.Fatal(err)
	}
	if id, _ := n.machine.NodeAt(killed.Endpoint()); !n.machine.idle(id) {
		t.Fatal("nobody has a link of a node that was killed any more, and its endpoint is not free")
	}
}
