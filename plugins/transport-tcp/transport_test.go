package transporttcp

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/streams"
)

const testSecret = "a secret of the tests, long enough to be one"

// within is longer than any wait of a test that passes.
const within = 10 * time.Second

func identity(node int32) transport.Identity {
	id := transport.Identity{ClusterID: "cluster-1", NodeID: node}
	id.DirectoryID[0] = byte(node)
	return id
}

// node is a transport, and who it says it is.
type node struct {
	*streams.Transport
	identity transport.Identity
}

// open opens a transport with these settings, which listens on a free port.
func open(tb testing.TB, id transport.Identity, settings map[string]any) *node {
	tb.Helper()
	t, err := tryOpen(tb.Context(), id, settings)
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	tb.Cleanup(func() { _ = t.Close() })
	return &node{t, id}
}

func tryOpen(ctx context.Context, id transport.Identity, settings map[string]any) (*streams.Transport, error) {
	b, err := section(settings)
	if err != nil {
		return nil, err
	}
	t, err := Provider().Open(ctx, transport.Config{Settings: b, Identity: id, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return t.(*streams.Transport), nil
}

// section is the plugin's section of a configuration, with a free port where none is said.
func section(settings map[string]any) ([]byte, error) {
	all := map[string]any{"listen": "127.0.0.1:0"}
	for k, v := range settings {
		all[k] = v
	}
	return json.Marshal(all)
}

// join makes a link, and returns both ends.
func join(tb testing.TB, from, to *node, lane transport.Lane) (dialled, accepted transport.Link) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), within)
	defer cancel()
	dialled, err := from.Dial(ctx, transport.Target{Endpoint: to.Endpoint(), Lane: lane, NodeID: to.identity.NodeID})
	if err != nil {
		tb.Fatalf("dial: %v", err)
	}
	if accepted, err = to.Accept(ctx); err != nil {
		tb.Fatalf("accept: %v", err)
	}
	return dialled, accepted
}
