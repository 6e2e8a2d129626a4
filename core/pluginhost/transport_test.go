package pluginhost_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/pluginhost"
	transporttcp "github.com/brokerd/brokerd/plugins/transport-tcp"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
	"github.com/brokerd/brokerd/sdk/transport"
)

// within is longer than any wait of a test that passes.
const within = 20 * time.Second

// linksConfig is what a node's transport is opened with.
func linksConfig(node int32) transport.Config {
	return transport.Config{
		Settings: []byte(`{"listen": "127.0.0.1:0", "secret": "a secret of the tests, long enough to be one"}`),
		Identity: transport.Identity{ClusterID: "cluster", NodeID: node, DirectoryID: transport.DirectoryID{byte(node)}},
	}
}

// linkConfig is config with a transport.
func linkConfig() pluginhost.Config {
	cfg := config()
	cfg.Builtin["transport-tcp"] = []string{roleLinks}
	return cfg
}

// linking is a host whose transport serves, by that carrier, and a peer within this process.
func linking(t *testing.T, carrier string) (*pluginhost.Transport, transport.Transport, *watcher) {
	t.Helper()
	w := newWatcher()
	cfg := linkConfig()
	cfg.TransportCarrier = carrier
	h := newHost(t, cfg, w)
	here := h.Transport("transport-tcp", linksConfig(1))
	start(t, h)
	t.Cleanup(func() { _ = here.Close() }) // before Run ends
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := here.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	there, err := transporttcp.Provider().Open(ctx, linksConfig(2))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = there.Close() })
	return here, there, w
}

func to(at transport.Transport, node int32) transport.Target {
	return transport.Target{Endpoint: at.Endpoint(), Lane: transport.Data, NodeID: node, ClusterID: "cluster"}
}

// join makes a link from one to the other.
func join(t *testing.T, from, at transport.Transport, node int32) (dialled, accepted transport.Link) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	dialled, err := from.Dial(ctx, to(at, node))
	if err != nil {
		t.Fatalf("dial node %d: %v", node, err)
	}
	if accepted, err = at.Accept(ctx); err != nil {
		t.Fatalf("node %d accepts: %v", node, err)
	}
	return dialled, accepted
}

// passes says whether messages pass both ways.
func passes(t *testing.T, a, b transport.Link) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for _, way := range [][2]transport.Link{{a, b}, {b, a}} {
		if err := way[0].Send(ctx, []byte("there")); err != nil {
			return err
		}
		got, err := way[1].Receive(ctx, func(_ context.Context, n int) ([]byte, error) { return make([]byte, n), nil })
		if err != nil {
			return err
		}
		if string(got) != "there" {
			t.Fatalf("received %q", got)
		}
	}
	return nil
}

// TestTransportIsStartedAgain: a transport whose plugin dies, again and again, is dialled and
// dials again, at the same endpoint. Links whose connections were passed go on.
func TestTransportIsStartedAgain(t *testing.T) {
	for carrier, survive := range map[string]bool{"files": true, "socket": false, "grpc": false} {
		here, there, w := linking(t, carrier)
		endpoint, has := here.Endpoint(), here.Capabilities()
		if !has.Resets || !has.Refuses || has.Proof != transport.ProofMember {
			t.Errorf("%s: capabilities %+v", carrier, has)
		}
		out, far := join(t, here, there, 2)
		back, near := join(t, there, here, 1)
		for n := 1; n <= 3; n++ {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			type accepted struct {
				link transport.Link
				err  error
			}
			waiting := make(chan accepted, 1) // an Accept that waits meanwhile
			go func() {
				link, err := here.Accept(ctx)
				waiting <- accepted{link, err}
			}()
			kill(t, w.wait(t, pluginhost.Started, n).Pid, syscall.SIGKILL)
			if e := w.wait(t, pluginhost.Ended, n); !e.Transport {
				t.Errorf("%s: the event is no transport's: %+v", carrier, e)
			}
			for {
				link, err := here.Dial(ctx, to(there, 2))
				if err == nil {
					_ = link.Close()
					if link, err = there.Accept(ctx); err == nil {
						_ = link.Close()
					}
					break
				}
				if !errors.Is(err, transport.ErrRetry) || ctx.Err() != nil {
					t.Fatalf("%s: a dial meanwhile gives %v", carrier, err)
				}
			}
			w.wait(t, pluginhost.Started, n+1)
			if got := here.Endpoint(); got != endpoint || here.Capabilities() != has {
				t.Errorf("%s: the endpoint was %s and is %s; capabilities %+v", carrier, endpoint, got, here.Capabilities())
			}
			for _, link := range [][2]transport.Link{{out, far}, {near, back}} {
				err := passes(t, link[0], link[1])
				if survive && err != nil || !survive && !errors.Is(err, transport.ErrClosed) {
					t.Errorf("%s: on a link from before it is %v", carrier, err)
				}
			}
			again, err := there.Dial(ctx, to(here, 1))
			if err != nil {
				t.Fatalf("%s: it is dialled again: %v", carrier, err)
			}
			got := <-waiting
			cancel()
			if got.err != nil {
				t.Fatalf("%s: an Accept that has waited gives %v", carrier, got.err)
			}
			if err := passes(t, again, got.link); err != nil {
				t.Errorf("%s: on a new link: %v", carrier, err)
			}
		}
		if err := here.Close(); err != nil {
			t.Errorf("%s: close: %v", carrier, err)
		}
	}
}

// TestTransportCloses: Close ends the plugin's process and everything else, also calls.
func TestTransportCloses(t *testing.T) {
	for _, carrier := range []string{"files", "socket", "grpc"} {
		here, there, w := linking(t, carrier)
		out, far := join(t, here, there, 2)
		pid := w.wait(t, pluginhost.Started, 1).Pid
		waiting := make(chan error, 1)
		go func() {
			_, err := here.Accept(context.Background())
			waiting <- err
		}()
		if err := here.Close(); err != nil {
			t.Errorf("%s: close: %v", carrier, err)
		}
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s: the process is there after Close: %v", carrier, err)
		}
		if err := <-waiting; !errors.Is(err, transport.ErrClosed) {
			t.Errorf("%s: an Accept that waited gives %v", carrier, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		for _, link := range []transport.Link{out, far} {
			if _, err := link.Receive(ctx, nil); !errors.Is(err, transport.ErrClosed) {
				t.Errorf("%s: a link of a closed transport receives %v", carrier, err)
			}
		}
		if _, err := here.Dial(ctx, to(there, 2)); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("%s: a dial after Close gives %v", carrier, err)
		}
		if _, err := there.Dial(ctx, to(here, 1)); !errors.Is(err, transport.ErrRefused) {
			t.Errorf("%s: a dial to a closed one gives %v", carrier, err)
		}
		cancel()
		if err := here.Close(); err != nil {
			t.Errorf("%s: close again: %v", carrier, err)
		}
	}
}

// TestOtherKind: a plugin that is of another kind than is needed is told so in one sentence,
// and is not tried again and again.
func TestOtherKind(t *testing.T) {
	h := newHost(t, linkConfig(), newWatcher())
	links := h.Transport("storage-memory", linksConfig(1))
	store := h.Store("main", "transport-tcp", storeConfig(memstore.Settings("disk")))
	stop := start(t, h)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for want, err := range map[string]error{
		`plugin memstore is of kind "storage", and one of kind "transport" is needed here`:      links.WaitReady(ctx),
		`plugin transport-tcp is of kind "transport", and one of kind "storage" is needed here`: store.WaitReady(ctx),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := links.Dial(ctx, to(links, 2)); !errors.Is(err, transport.ErrRetry) {
		t.Errorf("a dial without a plugin gives %v", err)
	}
	stop()
	if err := links.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}
