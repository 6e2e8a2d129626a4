package server

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
)

// conn is one connection: a goroutine that reads its requests and begins them, and,
// while there are some, a worker that asks for their answers and sends them.
type conn struct {
	srv    *Server
	nc     net.Conn
	remote string
	from   wire.Peer
	in     input  // the reader's
	client string // the reader's: the last client ID that came
	// unasked, which is the reader's, says that it has begun requests that it is to
	// ask for their answers before it waits for anything.
	unasked bool

	mu      sync.Mutex
	mayRead sync.Cond // of mu: the reader may go on
	own     int64     // free bytes of the connection's own memory

	failed   bool // closed at once, without sending what waits
	ended    bool // its last reply was sent
	draining bool // no further request is begun
	reason   CloseReason
	why      error
	work     job                // what a worker does
	cancel   context.CancelFunc // ends answers and waits
	stopRead context.CancelFunc // ends the reader's wait for memory

	queue    queue // requests that were begun, and whose answers were not asked for
	asking   bool  // somebody asks for answers and sends them: the reader or a worker
	inFlight int   // requests begun and not yet replied to
	begun    int   // how many ever

	frame     partial
	sending   sending
	lastFetch int    // bytes of the last reply to a Fetch
	fetching  *reply // whose records are being read
	moved     int64  // bytes of requests that were answered, and of their replies
	idle      idle
}

func newConn(s *Server, listener string, nc net.Conn) *conn {
	remote := nc.RemoteAddr().String()
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	c := &conn{
		srv: s, nc: nc, remote: remote,
		from:   wire.Peer{Listener: listener, Host: host, Principal: security.Anonymous},
		own:    ownBytes,
		cancel: func() {}, stopRead: func() {},
	}
	c.mayRead.L = &c.mu
	c.in.init(nc, &s.buffers)
	return c
}

// run serves the connection until it ends, and returns after the last of its work.
func (c *conn) run(serve context.Context) {
	ctx, cancel := context.WithCancel(serve)
	defer cancel()
	reading, stopRead := context.WithCancel(ctx)
	defer stopRead()
	c.mu.Lock()
	c.work = func(one *worker) { c.write(ctx, one) }
	c.cancel, c.stopRead = cancel, stopRead
	if c.failed {
		cancel()
	}
	if c.draining {
		stopRead()
	}
	c.mu.Unlock()

	c.read(ctx, reading)
	c.in.letGo()
	c.mu.Lock()
	c.handOverLocked()
	for c.queue.first != nil || c.asking {
		c.mayRead.Wait()
	}
	c.mu.Unlock()
	c.linger()
	_ = c.nc.Close() // fail may have closed it before
	c.report()
}

// end is for after the last reply: no more is sent, and nothing more is read but
// to linger.
func (c *conn) end(reason CloseReason, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.endLocked(reason, why)
	c.cancel()
	_ = c.nc.SetReadDeadline(longAgo()) // fails only where it is closed
}

// longAgo is a deadline that interrupts at once.
func longAgo() time.Time { return time.Unix(1, 0) }

// lingerMax bounds how long a client may take to close in its turn.
const lingerMax = time.Second

// linger lets the client read what was sent before a connection that the server
// ends is closed: a close with bytes unread resets it, and takes replies from the
// client that it has not read yet.
func (c *conn) linger() {
	c.mu.Lock()
	wanted := !c.failed && (c.reason == ClosedByHandler || c.reason == ClosedProtocol)
	c.mu.Unlock()
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !wanted || !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(lingerMax)) // fails only where it is closed
	_, _ = io.Copy(io.Discard, c.nc)                    // until it closes, or time is up
}

func (c *conn) report() {
	c.mu.Lock()
	reason, why := c.reason, c.why
	c.mu.Unlock()
	c.srv.events.ConnectionClosed(c.from.Listener, reason)
	args := []any{"listener", c.from.Listener, "remote", c.remote, "reason", string(reason), "err", why}
	switch reason {
	case ClosedSlow, ClosedProtocol, ClosedByHandler:
		if ok, left := c.srv.sparse.may(string(reason), time.Now()); ok {
			c.srv.log.Info("connection closed", append(args, "left_out", left)...)
			return
		}
		c.srv.log.Debug("connection closed", args...)
	case ClosedByPanic: // logged where it happened
	default: // shortage of memory is logged once for all that it closes
		c.srv.log.Debug("connection closed", args...)
	}
}

// fail ends the connection now: what the kernel has not taken yet is not sent. Nor is what
// it has taken of a client that does not read, and would keep for minutes, in no budget,
// for as many such connections as there ever were. The first reason counts.
func (c *conn) fail(reason CloseReason, why error) {
	c.mu.Lock()
	if c.failed {
		c.mu.Unlock()
		return
	}
	c.failed = true
	c.endLocked(reason, why)
	c.cancel()
	c.mu.Unlock()
	if socket, ok := c.nc.(interface{ SetLinger(sec int) error }); ok && (reason == ClosedMemory || reason == ClosedSlow) {
		_ = socket.SetLinger(0) // fails only where it is closed
	}
	_ = c.nc.Close() // its only effect that counts is that reads and writes stop
}

// finish ends reading: requests that were begun get their replies, no more are.
func (c *conn) finish(reason CloseReason, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked(reason, why)
}

func (c *conn) endLocked(reason CloseReason, why error) {
	if c.reason == "" {
		c.reason, c.why = reason, why
	}
	c.draining = true
	c.stopRead()
	c.mayRead.Signal()
	c.handOverLocked()
}

// drain is finish for a reader that may be waiting for the client.
func (c *conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked(ClosedByShutdown, nil)
	_ = c.nc.SetReadDeadline(longAgo()) // fails only where it is closed
}

// errProtocol: what came can't be a request, or is one that can't be served.
var errProtocol = errors.New("not a request")

func (c *conn) readFailed(err error) {
	switch {
	case errors.Is(err, errProtocol), errors.Is(err, errHeader):
		c.finish(ClosedProtocol, err)
	case errors.Is(err, errDraining), c.isDraining(): // a read or a wait for memory that drain has ended
		c.finish(ClosedByShutdown, nil)
	default:
		c.fail(ClosedByClient, err)
	}
}

func (c *conn) isDraining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.draining
}
