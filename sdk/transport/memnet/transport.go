package memnet

import (
	"context"
	"slices"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

// signal wakes who waits. The network's lock guards it.
type signal struct{ ch chan struct{} }

// wait returns what the next broadcast closes.
func (s *signal) wait() <-chan struct{} {
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) broadcast() {
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

// endpoint is the transport of one node.
type endpoint struct {
	net   *Network
	node  Node
	name  string
	proof transport.Proof

	// The network's lock guards these.
	closed bool
	links  signal // one may be there to accept, or the transport has ended
}

var errTransportClosed = transport.Errorf(transport.ErrClosed, "the transport has ended")

// Capabilities implements transport.Transport.
func (t *endpoint) Capabilities() transport.Capabilities {
	return transport.Capabilities{Refuses: true, Resets: true, Proof: t.proof}
}

// Endpoint implements transport.Transport.
func (t *endpoint) Endpoint() string { return t.name }

// Dial implements transport.Transport.
func (t *endpoint) Dial(ctx context.Context, to transport.Target) (transport.Link, error) {
	n := t.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if t.closed {
		return nil, errTransportClosed
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	now := n.clock.Now()
	handle, err := n.machine.Dial(now, t.node, to)
	if err != nil {
		return nil, err
	}
	l := t.link(handle)
	l.lane = to.Lane
	n.pump(now)
	for !l.made && l.err == nil && !t.closed {
		if err := n.wait(ctx, &l.changed); err != nil {
			l.close()
			return nil, err
		}
	}
	switch {
	case t.closed:
		return nil, errTransportClosed
	case l.err != nil:
		return nil, l.err
	}
	return l, nil
}

// Accept implements transport.Transport.
func (t *endpoint) Accept(ctx context.Context) (transport.Link, error) {
	n := t.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		if t.closed {
			return nil, errTransportClosed
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		now := n.clock.Now()
		if handle, ok := n.machine.Accept(now, t.node); ok {
			l := t.link(handle)
			l.made = true
			l.peer, l.lane, _ = n.machine.Peer(handle)
			n.pump(now)
			return l, nil
		}
		if err := n.wait(ctx, &t.links); err != nil {
			return nil, err
		}
	}
}

// Close implements transport.Transport.
func (t *endpoint) Close() error {
	n := t.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if !t.closed {
		now := n.clock.Now()
		n.end(now, t.node, Reset)
		n.pump(now)
	}
	for n.open == 0 && n.timers > 0 {
		_ = n.wait(context.Background(), &n.quiet) // the timer's function is running
	}
	return nil
}

// wait waits for a signal, without the lock, which the caller holds.
func (n *Network) wait(ctx context.Context, s *signal) error {
	ch := s.wait()
	n.mu.Unlock()
	defer n.mu.Lock()
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// waitAtMost waits for a signal as wait does, and gives it itself after d.
func (n *Network) waitAtMost(ctx context.Context, s *signal, d time.Duration) error {
	n.timers++
	stop := n.clock.AfterFunc(d, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		s.broadcast()
		n.timers--
		n.quiet.broadcast()
	})
	err := n.wait(ctx, s)
	if stop() {
		n.timers--
		n.quiet.broadcast()
	}
	return err
}

// link makes the link of a handle known to the network. The caller holds the lock.
func (t *endpoint) link(handle Link) *link {
	l := &link{net: t.net, from: t, handle: handle, sending: make(chan struct{}, 1), receiving: make(chan struct{}, 1)}
	t.net.links[handle] = l
	return l
}

// link is one end of a link.
type link struct {
	net    *Network
	from   *endpoint
	handle Link
	lane   transport.Lane
	peer   transport.Peer
	// sending and receiving hold one value each while a call does so.
	sending, receiving chan struct{}
	part               part

	// The network's lock guards these.
	made    bool
	err     error  // of the dialling
	changed signal // it is made, has failed, has ended, or a message has arrived
	room    signal // there may be room to send, or it has ended
	over    bool   // it has ended; some that has arrived may be left
	// leave ends the context of a Room that is asked; nil: none is.
	leave context.CancelCauseFunc
}

// Peer implements transport.Link.
func (l *link) Peer() transport.Peer { return l.peer }

// Lane implements transport.Link.
func (l *link) Lane() transport.Lane { return l.lane }

// Send implements transport.Link.
func (l *link) Send(ctx context.Context, parts ...[]byte) error {
	if err := enter(ctx, l.sending); err != nil {
		return err
	}
	defer func() { <-l.sending }()
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	if err := l.awaitRoom(ctx, size); err != nil {
		return err
	}
	data := slices.Concat(parts...)
	n := l.net
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.clock.Now()
	err := n.machine.Give(now, l.handle, data)
	n.pump(now)
	return err
}

// awaitRoom waits until a message of that size may be sent.
func (l *link) awaitRoom(ctx context.Context, size int) error {
	n := l.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		switch err := n.machine.MaySend(l.handle, size); {
		case err == nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != ErrFull: //nolint:errorlint // it is the machine's own
			return err
		}
		if err := n.wait(ctx, &l.room); err != nil {
			return err
		}
	}
}

// Close implements transport.Link.
func (l *link) Close() error {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	l.close()
	return nil
}

// close ends the link. The caller holds the lock.
func (l *link) close() {
	now := l.net.clock.Now()
	l.net.machine.Close(now, l.handle)
	delete(l.net.links, l.handle)
	l.finish()
	l.net.pump(now)
}

// finish wakes all who wait for a link that has ended. The caller holds the network's lock.
func (l *link) finish() {
	l.over = true
	if l.leave != nil {
		l.leave(errClosed)
	}
	l.changed.broadcast()
	l.room.broadcast()
}

// enter waits for the turn that a gate gives.
func enter(ctx context.Context, gate chan struct{}) error {
	select {
	case gate <- struct{}{}:
		return nil
	default:
	}
	select {
	case gate <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
