package streams

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
	// introduceTimeout is how long it may take who has dialled, when there is a connection.
	introduceTimeout = 10 * time.Second
	// warnEvery is how often refused peers are worth a warning.
	warnEvery = time.Second
)

// keepAlive is how the kernel asks whether the host of an idle connection is there: one that
// is gone is noticed after 25 s.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

// Transport carries messages over the streams of a network. It implements
// transport.Transport.
type Transport struct {
	network  Network
	has      transport.Capabilities
	identity transport.Identity
	log      *slog.Logger

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

// Options are what a Transport is made from.
type Options struct {
	// Network connects. It is the transport's, which closes it.
	Network Network
	// Identity is who this node says it is.
	Identity transport.Identity
	// Logger takes what there is to say to an operator. Nil: nothing is said.
	Logger *slog.Logger
}

// CheckIdentity says whether a node can be who identity says: nil, or ErrInvalid.
func CheckIdentity(identity transport.Identity) error {
	switch {
	case identity.NodeID < 0:
		return transport.Errorf(transport.ErrInvalid, "a node's ID is %d; it cannot be negative", identity.NodeID)
	case len(identity.ClusterID) > frame.ClusterBytesMax:
		return transport.Errorf(transport.ErrInvalid, "the ID of the cluster is longer than %d bytes", frame.ClusterBytesMax)
	}
	return nil
}

// New makes a transport, whose identity has been checked. Its goroutines start here and end
// with Close, which waits for them.
func New(opt Options) *Transport {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	t := &Transport{
		network:   opt.Network,
		has:       opt.Network.Capabilities(),
		identity:  opt.Identity,
		log:       opt.Logger,
		control:   queue{places: make(chan struct{}, acceptMax)},
		data:      queue{places: make(chan struct{}, acceptMax)},
		links:     make(chan transport.Link, 2*acceptMax),
		strangers: newStrangers(strangersMax),
		ended:     make(chan struct{}),
		open:      make(map[*frame.Link]struct{}),
	}
	t.closing, t.close = context.WithCancelCause(context.Background())
	if t.has.Proof == transport.ProofNone {
		t.log.Warn("links to peers are neither protected nor proved", "endpoint", t.Endpoint())
	}
	t.work.Add(1)
	go t.listen()
	return t
}

// errClosed is what calls say after Close.
var errClosed = transport.Errorf(transport.ErrClosed, "the transport is closed")

// Capabilities implements transport.Transport.
func (t *Transport) Capabilities() transport.Capabilities {
	return t.has
}

// Endpoint implements transport.Transport.
func (t *Transport) Endpoint() string { return t.network.Endpoint() }

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

// Cut is Close that says nothing to peers but what the system does, as the death of this
// process would.
func (t *Transport) Cut() { t.shut((*frame.Link).Cut) }

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
	_ = t.network.Close() // there is nothing to do about it
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
	if tcp, ok := conn.raw.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(keepAlive) // it fails where the connection has ended
	}
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
