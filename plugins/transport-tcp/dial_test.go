package transporttcp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

// TestSilent: a host that answers nothing is what the context says, and can be tried again.
func TestSilent(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, way := range map[string]map[string]any{"plaintext": {"security": "plaintext"}, "secret": {"secret": testSecret}} {
		node := open(t, identity(1), way)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := node.Dial(ctx, transport.Target{Endpoint: silent.Addr().String(), Lane: transport.Data, NodeID: 2})
		cancel()
		if !errors.Is(err, transport.ErrRetry) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestRefusedByAll: a host has refused only if each of its addresses has.
func TestRefusedByAll(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := gone.Addr().(*net.TCPAddr).AddrPort()
	gone.Close()
	node := open(t, identity(1), map[string]any{"security": "plaintext"})
	_, err = node.Dial(t.Context(), transport.Target{Endpoint: at.String(), Lane: transport.Data, NodeID: 2})
	if !errors.Is(err, transport.ErrRefused) {
		t.Errorf("got %v", err)
	}
	nowhere := netip.MustParseAddr("fe80::1%nowhere") // there is no such interface
	for _, addresses := range [][]netip.Addr{{at.Addr(), nowhere}, {nowhere, at.Addr()}} {
		_, err := connectAny(t.Context(), addresses, at.Port())
		if err == nil || errors.Is(err, transport.ErrRefused) {
			t.Errorf("%v: got %v", addresses, err)
		}
	}
}

// TestOtherIsTold: both nodes are told that another one was dialled.
func TestOtherIsTold(t *testing.T) {
	told := make(lines, 16)
	there, err := Provider().Open(t.Context(), transport.Config{
		Settings: []byte(`{"listen": "127.0.0.1:0", "security": "plaintext"}`),
		Identity: identity(2),
		Logger:   slog.New(slog.NewTextHandler(told, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	here := open(t, identity(1), map[string]any{"security": "plaintext"})
	_, err = here.Dial(t.Context(), transport.Target{Endpoint: there.Endpoint(), Lane: transport.Data, NodeID: 3})
	const want = "node 3 was dialled, and this is node 2"
	if !errors.Is(err, transport.ErrOther) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
	for late := time.After(within); ; {
		select {
		case line := <-told:
			if strings.Contains(line, want) {
				return
			}
		case <-late:
			t.Fatal("it was not logged")
		}
	}
}

// lines takes what is logged.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// TestTakenPort: an address that somebody listens on may be free later.
func TestTakenPort(t *testing.T) {
	first := open(t, identity(1), map[string]any{"security": "plaintext"})
	second, err := tryOpen(t.Context(), identity(2), map[string]any{"security": "plaintext", "listen": first.Endpoint()})
	if second != nil {
		_ = second.Close()
	}
	if !errors.Is(err, transport.ErrRetry) {
		t.Errorf("got %v", err)
	}
}
