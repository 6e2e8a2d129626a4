package pluginhost

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/streams"
)

// Transport is the broker's transport, over every life of its plugin's process. It
// implements transport.Transport, with these additions:
//
//   - While no process serves, Dial gives ErrRetry at once, and Accept waits for the next
//     process, which listens where the one before did.
//   - Where the plugin passes its connections, links go on when its process dies. Otherwise
//     they end with it.
//   - Before the plugin has served for the first time (WaitReady), Capabilities and Endpoint
//     are empty.
type Transport struct {
	keeper
	cfg transport.Config

	// closing ends with Close.
	closing context.Context
	close   context.CancelFunc

	// Guarded by keeper.mu. Of the first life, and the same in all:
	has      transport.Capabilities
	endpoint string
	carrier  plugin.Carrier

	lives lives

	once sync.Once
	err  error
}

// lives is the process that serves, to those who wait for one.
type lives struct {
	mu      sync.Mutex
	session *plugin.TransportSession // nil while no process serves
	last    *plugin.TransportSession // that served, also when it does not any more
	// links are those of the session where their messages go through the plugin; those of
	// connections that the plugin passes are of every life.
	links   transport.Transport
	streams *streams.Transport
	changed chan struct{} // closed when one of those changes
}

var _ transport.Transport = (*Transport)(nil)

func newTransport(tc transport.Config) *Transport {
	t := &Transport{cfg: tc, lives: lives{changed: make(chan struct{})}}
	t.closing, t.close = context.WithCancel(context.Background())
	return t
}

// prepare implements role.
func (t *Transport) prepare(cfg *plugin.LaunchConfig) {
	cfg.Carrier, _ = plugin.CarrierNamed(t.host.cfg.TransportCarrier) // it is known, see Validate
}

// open implements role.
func (t *Transport) open(ctx context.Context, process *plugin.Process) (served, error) {
	cfg := t.cfg
	cfg.Endpoint = t.Endpoint()
	session, err := process.OpenTransport(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := t.begin(session); err != nil {
		process.Kill()
		session.Abandon()
		return nil, err
	}
	return session, nil
}

// begin makes a session the one that serves. What has changed of it the core could not know.
func (t *Transport) begin(session *plugin.TransportSession) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hasServed && (session.Capabilities() != t.has || session.Endpoint() != t.endpoint || session.Carrier() != t.carrier) {
		return fmt.Errorf("%w: it listens at %s instead of %s, by %v instead of %v, or offers something else",
			errChanged, session.Endpoint(), t.endpoint, session.Carrier(), t.carrier)
	}
	if !t.hasServed {
		t.has, t.endpoint, t.carrier = session.Capabilities(), session.Endpoint(), session.Carrier()
	}
	t.lives.begin(t, session)
	t.began()
	return nil
}

// begin lets a session serve.
func (l *lives) begin(t *Transport, session *plugin.TransportSession) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session, l.last = session, session
	switch {
	case session.Carrier() != plugin.CarrierDescriptors:
		l.links = session.Transport(t.log)
	case l.streams == nil && t.closing.Err() == nil:
		l.streams = streams.New(streams.Options{Network: passed{t}, Identity: t.cfg.Identity, Logger: t.log})
	}
	l.change()
}

// change wakes those who wait. The lock is held.
func (l *lives) change() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// down implements role.
func (t *Transport) down() {
	t.lives.mu.Lock()
	defer t.lives.mu.Unlock()
	t.lives.session, t.lives.links = nil, nil
	t.lives.change()
}

// now returns what serves, and what is closed when that changes.
func (l *lives) now() (now lives, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return lives{session: l.session, last: l.last, links: l.links, streams: l.streams}, l.changed
}

// unavailable says why no process serves.
func (t *Transport) unavailable() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.quarantined {
		return transport.Errorf(transport.ErrRetry, "plugin %s is in quarantine: %v", t.plugin, t.lastErr)
	}
	return transport.Errorf(transport.ErrRetry, "plugin %s does not serve at the moment", t.plugin)
}

var errTransportClosed = transport.Errorf(transport.ErrClosed, "the transport is closed")

// Capabilities implements transport.Transport.
func (t *Transport) Capabilities() transport.Capabilities {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.has
}

// Endpoint implements transport.Transport.
func (t *Transport) Endpoint() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.endpoint
}

// Carrier is what carries links, "" before the plugin has served.
func (t *Transport) Carrier() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.hasServed {
		return ""
	}
	return t.carrier.String()
}

// Dial implements transport.Transport.
func (t *Transport) Dial(ctx context.Context, to transport.Target) (transport.Link, error) {
	now, _ := t.lives.now()
	switch {
	case t.closing.Err() != nil:
		return nil, errTransportClosed
	case now.streams != nil:
		return now.streams.Dial(ctx, to)
	case now.links != nil:
		return now.links.Dial(ctx, to)
	}
	return nil, t.unavailable()
}

// Accept implements transport.Transport.
func (t *Transport) Accept(ctx context.Context) (transport.Link, error) {
	for {
		now, changed := t.lives.now()
		switch {
		case t.closing.Err() != nil:
			return nil, errTransportClosed
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case now.streams != nil:
			return now.streams.Accept(ctx)
		case now.links != nil:
			link, err := now.links.Accept(ctx)
			if err == nil || !isLost(now.session) {
				return link, err
			}
		}
		if err := t.wait(ctx, changed); err != nil {
			return nil, err
		}
	}
}

// isLost says whether a session is over.
func isLost(s *plugin.TransportSession) bool {
	select {
	case <-s.Lost():
		return true
	default:
		return false
	}
}

// wait waits for another life.
func (t *Transport) wait(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-t.closing.Done():
		return errTransportClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close implements transport.Transport. It also ends the plugin's process, and returns when
// that has ended. Run must be running, or have ended.
func (t *Transport) Close() error {
	t.once.Do(func() {
		t.close()
		now, _ := t.lives.now()
		if now.streams != nil {
			t.err = now.streams.Close()
		}
		if now.session != nil && !isLost(now.session) {
			t.err = now.session.Close()
		}
		if t.shut() {
			close(t.shutting)
		}
		<-t.ended
	})
	return t.err
}

// passed is the network of a plugin that passes its connections, over every life of its
// process. It implements streams.Network.
type passed struct{ t *Transport }

// Capabilities implements streams.Network. The lock of keeper is held.
func (p passed) Capabilities() transport.Capabilities { return p.t.has }

// Endpoint implements streams.Network.
func (p passed) Endpoint() string { return p.t.endpoint }

// Material implements streams.Network. What the last process has told is used when there is
// none.
func (p passed) Material(ctx context.Context) (*streams.Material, error) {
	now, _ := p.t.lives.now()
	return now.last.Network().Material(ctx)
}

// Dial implements streams.Network.
func (p passed) Dial(ctx context.Context, endpoint string) (net.Conn, error) {
	now, _ := p.t.lives.now()
	if now.session == nil {
		return nil, p.t.unavailable()
	}
	return now.session.Network().Dial(ctx, endpoint)
}

// Accept implements streams.Network.
func (p passed) Accept(ctx context.Context) (net.Conn, error) {
	for {
		now, changed := p.t.lives.now()
		if now.session != nil {
			conn, err := now.session.Network().Accept(ctx)
			if err == nil || !isLost(now.session) {
				return conn, err
			}
		}
		if err := p.t.wait(ctx, changed); err != nil {
			return nil, err
		}
	}
}

// Close implements streams.Network: what is below ends with the transport.
func (p passed) Close() error { return nil }
