package plugintest

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/streams"
	"github.com/brokerd/brokerd/sdk/transport/transporttest"
)

// TransportConfig says which transport a target is of, and how it is opened.
type TransportConfig struct {
	Name string
	// Provider is served within this process. Nil: Launch says which process serves it.
	Provider transport.Provider
	Launch   plugin.LaunchConfig
	// Settings are those of a node.
	Settings func(id transport.Identity) ([]byte, error)
	// Outsider are the settings of a node that cannot prove what those of Settings demand.
	// It may be nil.
	Outsider func(id transport.Identity) ([]byte, error)
	// Kill ends a transport that Provider has opened as the death of its process does. It is
	// needed where links are Provider's own, within this process.
	Kill func(t transport.Transport) error
	// Stranger is transporttest.Target's. It may be nil.
	Stranger func(ctx context.Context, endpoint string) (net.Conn, error)
}

// Transport is a transport behind a lane of that carrier. With a provider of connections,
// plugin.CarrierFiles has them passed; otherwise it is plugin.CarrierSocket.
//
// The kit's Kill is the death of a broker with its plugin: that of the plugin alone ends no
// link that the broker runs.
func Transport(carrier plugin.Carrier, cfg TransportConfig) transporttest.Target {
	t := &transportTarget{cfg: cfg, carrier: carrier}
	target := transporttest.Target{
		Name:     cfg.Name + " over " + carrier.String(),
		Open:     t.with(cfg.Settings),
		Stranger: cfg.Stranger,
		Kill:     func(of transport.Transport) error { return of.(*openedTransport).kill() },
	}
	if cfg.Provider == nil {
		target.Name += ", as a process"
	} else if _, passes := cfg.Provider.(streams.Provider); cfg.Kill == nil && (carrier != plugin.CarrierFiles || !passes) {
		target.Kill = nil
	}
	if cfg.Outsider != nil {
		target.Outsider = t.with(cfg.Outsider)
	}
	if first, err := cfg.Settings(transport.Identity{NodeID: 1}); err == nil {
		target.Provider, target.Settings = t, first
	}
	return target
}

type transportTarget struct {
	cfg     TransportConfig
	carrier plugin.Carrier
}

// with returns what opens a transport of a node.
func (t *transportTarget) with(settings func(transport.Identity) ([]byte, error)) func(context.Context, transport.Identity) (transport.Transport, error) {
	return func(ctx context.Context, id transport.Identity) (transport.Transport, error) {
		s, err := settings(id)
		if err != nil {
			return nil, err
		}
		return t.Open(ctx, transport.Config{Settings: s, Identity: id})
	}
}

// Info implements transport.Provider.
func (t *transportTarget) Info() transport.Info {
	if t.cfg.Provider != nil {
		return t.cfg.Provider.Info()
	}
	process, err := plugin.Launch(context.Background(), t.cfg.Launch)
	if err != nil {
		return transport.Info{}
	}
	defer process.Kill()
	i, err := process.Info(context.Background())
	if err != nil || i.Kind != plugin.KindTransport {
		return transport.Info{}
	}
	out := transport.Info{Name: i.Name, Version: i.Version, About: i.About}
	for _, s := range i.Settings {
		out.Settings = append(out.Settings, transport.Setting(s))
	}
	return out
}

// Open implements transport.Provider: it serves the transport, and opens it by a lane.
func (t *transportTarget) Open(ctx context.Context, cfg transport.Config) (transport.Transport, error) {
	o := &openedTransport{target: t}
	var client interface {
		OpenTransport(ctx context.Context, cfg transport.Config) (*plugin.TransportSession, error)
	}
	if t.cfg.Provider == nil {
		launch := t.cfg.Launch
		launch.Carrier = t.carrier
		process, err := plugin.Launch(ctx, launch)
		if err != nil {
			return nil, err
		}
		client, o.down = process, process.Kill
	} else {
		link, err := ConnectTransport(o.recording(t.cfg.Provider), t.carrier)
		if err != nil {
			return nil, err
		}
		client, o.down = link, link.Break
	}
	var err error
	if o.session, err = client.OpenTransport(ctx, cfg); err != nil {
		o.down()
		return nil, err
	}
	o.Transport = o.session.Transport(cfg.Logger)
	return o, nil
}

// openedTransport ends with its lane, and its process.
type openedTransport struct {
	transport.Transport
	target  *transportTarget
	session *plugin.TransportSession
	down    func() // ends the lane or the process
	once    sync.Once
	err     error

	mu    sync.Mutex
	inner transport.Transport // that the provider has opened within this process
}

// Close implements transport.Transport.
func (o *openedTransport) Close() error {
	o.once.Do(func() {
		o.err = o.Transport.Close()
		o.session.Abandon()
		o.down()
	})
	return o.err
}

// kill ends the transport as the death of its broker and its plugin does.
func (o *openedTransport) kill() error {
	var err error
	o.once.Do(func() {
		o.mu.Lock()
		inner := o.inner
		o.mu.Unlock()
		if inner != nil {
			err = o.target.cfg.Kill(inner)
		}
		if o.target.cfg.Provider == nil {
			o.down()
		}
		if links, ours := o.Transport.(*streams.Transport); ours {
			links.Cut()
		}
		o.session.Abandon()
		o.down()
	})
	return err
}

// recording is a provider that has what it opens noted.
func (o *openedTransport) recording(p transport.Provider) transport.Provider {
	if s, ok := p.(streams.Provider); ok {
		return recordingStreams{recordingProvider{p, o}, s}
	}
	return recordingProvider{p, o}
}

type recordingProvider struct {
	transport.Provider
	of *openedTransport
}

func (p recordingProvider) Open(ctx context.Context, cfg transport.Config) (transport.Transport, error) {
	t, err := p.Provider.Open(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open at the far end: %w", err)
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.of.inner = t
	return t, nil
}

type recordingStreams struct {
	recordingProvider
	streams streams.Provider
}

func (p recordingStreams) OpenNetwork(ctx context.Context, cfg transport.Config) (streams.Network, error) {
	return p.streams.OpenNetwork(ctx, cfg)
}
