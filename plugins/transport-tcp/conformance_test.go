package transporttcp

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/streams"
	"github.com/brokerd/brokerd/sdk/transport/transporttest"
)

// target is the transport with settings that may be other ones for each node.
func target(t *testing.T, name string, settings func(id transport.Identity) map[string]any) transporttest.Target {
	t.Helper()
	first, err := section(settings(transport.Identity{NodeID: 1}))
	if err != nil {
		t.Fatal(err)
	}
	return transporttest.Target{
		Name:     "transport-tcp, " + name,
		Provider: Provider(),
		Settings: first,
		Open: func(ctx context.Context, id transport.Identity) (transport.Transport, error) {
			return tryOpen(ctx, id, settings(id))
		},
		// What the death of a process does to its connections is what closing them does: the
		// kernel ends them, and nobody says anything.
		Kill: func(t transport.Transport) error {
			t.(*streams.Transport).Cut()
			return nil
		},
		Stranger: func(ctx context.Context, endpoint string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", endpoint)
		},
	}
}

func TestConformsPlaintext(t *testing.T) {
	transporttest.Run(t, target(t, "plaintext", func(transport.Identity) map[string]any {
		return map[string]any{"security": "plaintext"}
	}))
}

func TestConformsSecret(t *testing.T) {
	of := target(t, "secret", func(transport.Identity) map[string]any { return map[string]any{"secret": testSecret} })
	of.Outsider = func(ctx context.Context, id transport.Identity) (transport.Transport, error) {
		return tryOpen(ctx, id, map[string]any{"secret": "another secret, which is as long as the first"})
	}
	transporttest.Run(t, of)
}

func TestConformsTLS(t *testing.T) {
	ours, theirs := newTestAuthority(t), newTestAuthority(t)
	var leaves atomic.Int64
	named := func(a *testAuthority, node int32) map[string]any {
		name := fmt.Sprintf("node-%d-%d", node, leaves.Add(1))
		s := a.leaf(t, name, naming(fmt.Sprintf("brokerd://node/%d", node)))
		s["require_node_names"] = true
		return s
	}
	of := target(t, "tls", func(id transport.Identity) map[string]any { return named(ours, id.NodeID) })
	of.Outsider = func(ctx context.Context, id transport.Identity) (transport.Transport, error) {
		return tryOpen(ctx, id, named(theirs, id.NodeID))
	}
	of.Impostor = func(_ context.Context, claims transport.Identity) (transport.Transport, error) {
		return impostor(t, claims, named(ours, claims.NodeID+1), claims.NodeID+1)
	}
	transporttest.Run(t, of)
}
