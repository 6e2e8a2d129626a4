//go:build unix

package transporttcp

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/plugin/plugintest"
	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/transporttest"
)

// asProcess are the cases of the kit for which it matters that the plugin is a process of its
// own, or that are short. Opening one for each node takes most of the time.
var asProcess = []string{"provider", "peer", "end-arrived", "denied", "kill", "close", "idle"}

// TestConformsAsProcess runs the kit on processes, by either carrier.
func TestConformsAsProcess(t *testing.T) {
	for _, carrier := range []plugin.Carrier{plugin.CarrierFiles, plugin.CarrierSocket} {
		of := behind(map[string]any{"secret": testSecret})
		of.Provider = nil
		of.Launch = plugin.LaunchConfig{Args: []string{roleServe}}
		of.Outsider = func(transport.Identity) ([]byte, error) {
			return section(map[string]any{"secret": "another secret, which is as long as the first"})
		}
		report := transporttest.Check(t.Context(), plugintest.Transport(carrier, of), transporttest.Options{
			Filter: func(name string) bool {
				for _, prefix := range asProcess {
					if strings.HasPrefix(name, prefix) {
						return true
					}
				}
				return false
			},
		})
		for _, r := range report.Results {
			if r.Status != transporttest.Passed {
				t.Errorf("%s by %v %v: %s", r.Name, carrier, r.Status, r.Message)
			}
			t.Logf("%v %-20s %v", carrier, r.Name, r.Duration.Round(time.Millisecond))
		}
	}
}

// launched is a node whose plugin is a process.
type launched struct {
	transport.Transport
	process *plugin.Process
	session *plugin.TransportSession
}

func launch(t *testing.T, carrier plugin.Carrier) launched {
	t.Helper()
	process, err := plugin.Launch(t.Context(), plugin.LaunchConfig{Args: []string{roleServe}, Carrier: carrier})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(process.Kill)
	settings, err := section(map[string]any{"secret": testSecret})
	if err != nil {
		t.Fatal(err)
	}
	session, err := process.OpenTransport(t.Context(), transport.Config{Settings: settings, Identity: identity(1)})
	if err != nil {
		t.Fatal(err)
	}
	node := session.Transport(nil)
	t.Cleanup(func() { _ = node.Close() })
	return launched{node, process, session}
}

// passes sends a message each way.
func passes(t *testing.T, a, b transport.Link) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for _, way := range [][2]transport.Link{{a, b}, {b, a}} {
		if err := way[0].Send(ctx, []byte("there")); err != nil {
			t.Fatalf("send: %v", err)
		}
		if got, err := way[1].Receive(ctx, room); err != nil || string(got) != "there" {
			t.Fatalf("receive: %q, %v", got, err)
		}
	}
}

// linked makes a link each way between the node and another, which is in this process.
func linked(t *testing.T, here launched, there *node) (out, in [2]transport.Link) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var err error
	if out[0], err = here.Dial(ctx, transport.Target{Endpoint: there.Endpoint(), Lane: transport.Data, NodeID: 2}); err != nil {
		t.Fatal(err)
	}
	if out[1], err = there.Accept(ctx); err != nil {
		t.Fatal(err)
	}
	if in[1], err = there.Dial(ctx, transport.Target{Endpoint: here.Endpoint(), Lane: transport.Control, NodeID: 1}); err != nil {
		t.Fatal(err)
	}
	if in[0], err = here.Accept(ctx); err != nil {
		t.Fatal(err)
	}
	return out, in
}

// TestLinksOutliveThePlugin: the death of the plugin ends no link whose connection was passed,
// and nothing goes on that its process has to do.
func TestLinksOutliveThePlugin(t *testing.T) {
	here, there := launch(t, plugin.CarrierFiles), open(t, identity(2), map[string]any{"secret": testSecret})
	out, in := linked(t, here, there)
	here.process.Kill()
	<-here.session.Lost()
	passes(t, out[0], out[1])
	passes(t, in[0], in[1])
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if _, err := here.Dial(ctx, transport.Target{Endpoint: there.Endpoint(), Lane: transport.Data, NodeID: 2}); !errors.Is(err, transport.ErrRetry) {
		t.Errorf("a dial without the plugin gives %v", err)
	}
	if _, err := there.Dial(ctx, transport.Target{Endpoint: here.Endpoint(), Lane: transport.Data, NodeID: 1}); !errors.Is(err, transport.ErrRefused) {
		t.Errorf("a dial to the node whose plugin has died gives %v", err)
	}
	here.session.Abandon()
	passes(t, in[1], in[0])
	if err := here.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	for _, link := range []transport.Link{out[1], in[1]} {
		if _, err := link.Receive(ctx, room); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("the transport is closed, and its peer receives %v", err)
		}
	}
}

// TestMessagesDieWithThePlugin: links whose messages go through the plugin end with it.
func TestMessagesDieWithThePlugin(t *testing.T) {
	for _, carrier := range []plugin.Carrier{plugin.CarrierSocket, plugin.CarrierGRPC} {
		here, there := launch(t, carrier), open(t, identity(2), map[string]any{"secret": testSecret})
		out, in := linked(t, here, there)
		passes(t, out[0], out[1])
		here.process.Kill()
		ctx, cancel := context.WithTimeout(t.Context(), within)
		for _, link := range append(out[:], in[:]...) {
			if _, err := link.Receive(ctx, room); !errors.Is(err, transport.ErrClosed) {
				t.Errorf("%v: the plugin has died, and a link's end receives %v", carrier, err)
			}
		}
		if err := out[0].Send(ctx, []byte("x")); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("%v: the plugin has died, and Send gives %v", carrier, err)
		}
		_, err := here.Dial(ctx, transport.Target{Endpoint: there.Endpoint(), Lane: transport.Data, NodeID: 2})
		cancel()
		if !errors.Is(err, transport.ErrRetry) {
			t.Errorf("%v: a dial without the plugin gives %v", carrier, err)
		}
	}
}

// TestNothingIsKept: the plugin keeps no copy of a connection that it has passed, so that the
// broker's close is its end.
func TestNothingIsKept(t *testing.T) {
	here, there := launch(t, plugin.CarrierFiles), open(t, identity(2), map[string]any{"secret": testSecret})
	out, in := linked(t, here, there)
	here.Transport.(interface{ Cut() }).Cut() // which says nothing
	select {
	case <-here.process.Done():
		t.Fatal("the plugin has ended by itself")
	default:
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for _, link := range []transport.Link{out[1], in[1]} {
		if _, err := link.Receive(ctx, room); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("a connection was closed by the broker, and its peer receives %v", err)
		}
	}
}

const (
	goneWithin = 50 * time.Millisecond // the contract's; the best of a few tries keeps it
	goneTries  = 8
)

// TestDeathOfTheBroker: when the broker is killed, its links have ended at its peers within
// 50 ms, and nobody listens at its endpoint.
func TestDeathOfTheBroker(t *testing.T) {
	for _, carrier := range []plugin.Carrier{plugin.CarrierFiles, plugin.CarrierSocket} {
		best := [2]time.Duration{time.Hour, time.Hour}
		for try := 0; try < goneTries && max(best[0], best[1]) > goneWithin; try++ {
			ended, refused := killBroker(t, carrier)
			best[0], best[1] = min(best[0], ended), min(best[1], refused)
		}
		t.Logf("%v: links ended after %v, dials were refused after %v", carrier, best[0], best[1])
		if best[0] > goneWithin || best[1] > goneWithin {
			t.Errorf("%v: links of a broker that was killed ended after %v, and dials were refused after %v", carrier, best[0], best[1])
		}
	}
}

// killBroker kills a broker, and returns after which time its links had ended, and dials were
// refused.
func killBroker(t *testing.T, carrier plugin.Carrier) (ended, refused time.Duration) {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	broker := exec.CommandContext(t.Context(), executable, roleBroker, carrier.String())
	broker.Stderr = os.Stderr
	said, err := broker.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = broker.Process.Kill()
		_ = broker.Wait()
	}()
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	peer := open(t, identity(2), map[string]any{"secret": testSecret})
	defer peer.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*within)
	defer cancel()
	to := transport.Target{Endpoint: strings.TrimSpace(line), Lane: transport.Data, NodeID: 1}
	const links = 3
	var ends [links]chan time.Time
	for i := range links {
		link, err := peer.Dial(ctx, to)
		if err != nil {
			t.Fatal(err)
		}
		if err := link.Send(ctx, []byte("back")); err != nil {
			t.Fatal(err)
		}
		if got, err := link.Receive(ctx, room); err != nil || string(got) != "back" {
			t.Fatalf("receive: %q, %v", got, err)
		}
		ends[i] = make(chan time.Time, 1)
		go func() {
			_, err := link.Receive(ctx, room)
			if !errors.Is(err, transport.ErrClosed) {
				t.Errorf("a link of a broker that was killed receives %v", err)
			}
			ends[i] <- time.Now()
		}()
	}
	killed := time.Now()
	if err := broker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err = peer.Dial(ctx, to); errors.Is(err, transport.ErrRefused) || ctx.Err() != nil {
			break
		}
	}
	if !errors.Is(err, transport.ErrRefused) {
		t.Fatalf("a broker was killed, and a dial gives %v", err)
	}
	refused = time.Since(killed)
	for i := range ends {
		ended = max(ended, (<-ends[i]).Sub(killed))
	}
	return ended, refused
}

// TestListensAgain: a process that follows another listens where that did, also where the
// settings leave that open.
func TestListensAgain(t *testing.T) {
	first := launch(t, plugin.CarrierFiles)
	endpoint := first.Endpoint()
	first.process.Kill()
	settings, err := section(map[string]any{"secret": testSecret})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ before, want string }{{endpoint, endpoint}, {"nowhere", ""}} {
		again, err := Provider().Open(t.Context(), transport.Config{Settings: settings, Identity: identity(1), Endpoint: c.before})
		if err != nil {
			t.Fatal(err)
		}
		if got := again.Endpoint(); c.want != "" && got != c.want {
			t.Errorf("it listens at %s, and did at %s", got, c.want)
		}
		if c.want != "" { // who listens there already is not driven out
			_, err := Provider().Open(t.Context(), transport.Config{Settings: settings, Identity: identity(1), Endpoint: c.before})
			if !errors.Is(err, transport.ErrRetry) {
				t.Errorf("a second one gives %v", err)
			}
		}
		_ = again.Close()
	}
}
