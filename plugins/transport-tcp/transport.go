package transporttcp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/frame"
)

const (
	// acceptMax is how many links of each lane may be dialled to this node and not be
	// accepted.
	acceptMax = 64
	// waitersMax is how many more of each lane may wait for a place among those, each for
	// acceptWait.
	waitersMax = 64
	acceptWait = 3 * time.Second
	// strangersMax is how many connections may have proved nothing yet.
	strangersMax = 256
	// helloTimeout is how long one may take to prove who its peer is, and to say hello.
	helloTimeout = 5 * time.Second
	// dialTimeout is how long a dial may take whose context says nothing.
	dialTimeout = 10 * time.Second
	// warnEvery is how often refused peers are worth a warning.
	warnEvery = time.Second
)

// Transport carries messages over TCP. It implements transport.Transport.
type Transport struct {
	identity transport.Identity
	guard    guard
	log      *slog.Logger
	listener net.Listener
	endpoint string

	closing context.Context // ends with Close
	close   context.CancelCauseFunc
	work    sync.WaitGroup // its goroutines, and calls of Dial

	control, data queue
	links         chan transport.Link // that are not accepted; it has room for all places
	warned        atomic.Int64        // when, in nanoseconds
	strangers     *strangers          // connections that have proved nothing
	ended         chan struct{}       // closed when nothing is left

	mu     sync.Mutex
	closed bool
	open   map[*frame.Link]struct{}
}

// queue bounds the links of one lane that are not accepted.
type queue struct {
	places  chan struct{} // of acceptMax: taken by those
	waiters atomic.Int32  // that wait for a place
}

func (t *Transport) queue(lane transport.Lane) *queue {
	if lane == transport.Control {
		return &t.control
	}
	return &t.data
}

// listen makes a transport that listens.
func listen(ctx context.Context, s settings, g guard, cfg transport.Config) (*Transport, error) {
	config := net.ListenConfig{Control: control, KeepAliveConfig: keepAlive}
	listener, err := config.Listen(ctx, "tcp", s.Listen)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, transport.Errorf(transport.ErrRetry, "somebody listens on %s already", s.Listen)
	case err != nil:
		return nil, wrong("listen on %s: %v", s.Listen, err)
	}
	t := &Transport{
		identity:  cfg.Identity,
		guard:     g,
		log:       cfg.Logger,
		listener:  listener,
		endpoint:  s.endpoint(listener.Addr().String()),
		control:   queue{places: make(chan struct{}, acceptMax)},
		data:      queue{places: make(chan struct{}, acceptMax)},
		links:     make(chan transport.Link, 2*acceptMax),
		strangers: newStrangers(strangersMax),
		ended:     make(chan struct{}),
		open:      make(map[*frame.Link]struct{}),
	}
	t.closing, t.close = context.WithCancelCause(context.Background())
	if s.Security == securityPlaintext {
		t.log.Warn("links to peers are neither protected nor proved: security is plaintext", "endpoint", t.endpoint)
	}
	t.work.Add(1)
	go t.listen()
	return t, nil
}

// errClosed is what calls say after Close.
var errClosed = transport.Errorf(transport.ErrClosed, "the transport is closed")

// Capabilities implements transport.Transport.
func (t *Transport) Capabilities() transport.Capabilities {
	return transport.Capabilities{Refuses: true, Resets: true, Proof: t.guard.proof()}
}

// Endpoint implements transport.Transport.
func (t *Transport) Endpoint() string { return t.endpoint }

// Accept implements transport.Transport.
func (t *Transport) Accept(ctx context.Context) (transport.Link, error) {
	switch {
	case t.closing.Err() != nil:
		return nil, errClosed
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	select {
	case link := <-t.links:
		<-t.queue(link.Lane()).places
		return link, nil
	case <-t.closing.Done():
		return nil, errClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close implements transport.Transport.
func (t *Transport) Close() error {
	t.shut(func(l *frame.Link) { _ = l.Close() }) // it gives no error
	return nil
}

// shut ends everything, and each link by end.
func (t *Transport) shut(end func(*frame.Link)) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		<-t.ended
		return
	}
	t.closed = true
	open := make([]*frame.Link, 0, len(t.open))
	for l := range t.open {
		open = append(open, l)
	}
	t.mu.Unlock()
	t.close(errClosed)
	_ = t.listener.Close() // there is nothing to do about it
	t.strangers.close()
	for _, l := range open {
		end(l)
	}
	t.work.Wait()
	close(t.ended)
}

// begin counts a call that Close waits for. It fails after Close.
func (t *Transport) begin() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return errClosed
	}
	t.work.Add(1)
	return nil
}

// link makes a link of a connection whose peer has agreed to it.
func (t *Transport) link(conn *protected, peer transport.Peer, lane transport.Lane) (transport.Link, error) {
	var l *frame.Link
	l = frame.New(conn.Conn, frame.Options{
		Peer: peer, Lane: lane, Sum: conn.sum, Below: conn.below,
		Ended: func() { t.forget(l) },
	})
	t.mu.Lock()
	closed := t.closed
	if !closed {
		t.open[l] = struct{}{}
	}
	t.mu.Unlock()
	if closed {
		l.Cut()
		return nil, errClosed
	}
	return l, nil
}

func (t *Transport) forget(l *frame.Link) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, l)
}

// hungUp says whether an error is that the other end is there no more, or too slow.
func hungUp(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, os.ErrDeadlineExceeded, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
