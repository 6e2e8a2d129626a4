package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
)

const readBufferBytes = 4 << 10

// conn is one connection: a reader, a writer, and an answer for each request in
// between.
type conn struct {
	srv    *Server
	nc     net.Conn
	in     *bufio.Reader // the reader's
	remote string
	from   wire.Peer

	// replies are in the order of their requests. It has room for every request
	// in flight, so that the reader never waits for it.
	replies chan *reply

	mu   sync.Mutex
	cond sync.Cond // of mu; signalled when the reader may go on
	own  int64     // free bytes of the connection's own memory

	failed   bool // closed at once, without sending what waits
	ended    bool // its last reply was sent
	draining bool // no further request is begun
	reason   CloseReason
	why      error
	cancel   context.CancelFunc // ends answers and waits
	stopRead context.CancelFunc // ends the reader's wait for memory

	frame struct {
		held    hold // of the request being read
		missing int  // its bytes that there is no room for yet
		moved   time.Time
		queued  bool // it waits for memory
	}
	inFlight   int   // requests begun and not yet replied to
	fetches    int   // of them Fetch
	lastFetch  int   // bytes of the last reply to a Fetch
	fetching   *room // of the Fetch that is being answered
	unsent     int64
	unsentHeld hold  // of it
	moved      int64 // bytes of requests that were answered, and of their replies
	sending    bool
	sendMoved  time.Time
}

func newConn(s *Server, listener string, nc net.Conn) *conn {
	remote := nc.RemoteAddr().String()
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	c := &conn{
		srv: s, nc: nc, in: bufio.NewReaderSize(nc, readBufferBytes), remote: remote,
		from:    wire.Peer{Listener: listener, Host: host, Principal: security.Anonymous},
		replies: make(chan *reply, s.cfg.MaxInFlight),
		own:     ownBytes,
		cancel:  func() {}, stopRead: func() {},
	}
	c.cond.L = &c.mu
	return c
}

// run serves the connection until it ends, and returns after all its goroutines.
func (c *conn) run(serve context.Context) {
	ctx, cancel := context.WithCancel(serve)
	defer cancel()
	reading, stopRead := context.WithCancel(ctx)
	defer stopRead()
	c.mu.Lock()
	c.cancel, c.stopRead = cancel, stopRead
	if c.failed {
		cancel()
	}
	if c.draining {
		stopRead()
	}
	c.mu.Unlock()

	var wg sync.WaitGroup
	wg.Go(c.write)
	c.read(ctx, reading, &wg)
	close(c.replies)
	wg.Wait()
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
	_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // fails only where it is closed
}

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

// fail ends the connection now: what is not sent yet is not sent. The first
// reason counts.
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
	_ = c.nc.Close() // its only effect that counts is that reader and writer stop
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
	c.cond.Broadcast()
}

// drain is finish for a reader that may be waiting for the client.
func (c *conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked(ClosedByShutdown, nil)
	_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // fails only where it is closed
}

// deadline sets the time until which the client has to send something.
func (c *conn) deadline(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.draining {
		_ = c.nc.SetReadDeadline(time.Now().Add(d)) // fails only where it is closed
	}
}

// read frames requests and begins them, until the connection ends.
func (c *conn) read(ctx, reading context.Context, wg *sync.WaitGroup) {
	for c.mayRead() {
		frame, held, err := c.readFrame(reading)
		if err != nil {
			c.release(held)
			c.readFailed(err)
			return
		}
		header, body, err := c.srv.flexible.parseHeader(frame)
		if err != nil {
			c.release(held)
			c.finish(ClosedProtocol, err)
			return
		}
		if !c.mayBegin(header.Key) {
			c.release(held)
			return
		}
		r := &reply{header: header, bytesIn: len(frame) + sizeBytes, since: time.Now(), made: make(chan struct{}), ready: make(chan struct{})}
		call := wire.Call{Header: header, Body: body, From: c.from, Turn: r}
		if header.Key == keyFetch {
			call.Room = c.newRoom(r)
		}
		c.begin(ctx, r, call, held, wg)
	}
}

// mayRead waits until there is room for another request. False: read no more.
func (c *conn) mayRead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.draining && (c.inFlight >= c.srv.cfg.MaxInFlight || c.unsent > c.srv.cfg.MaxUnsentBytes) {
		c.cond.Wait()
	}
	return !c.draining
}

// mayBegin waits until a Fetch is the connection's only one, and counts the
// request. False: begin no more.
func (c *conn) mayBegin(key int16) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.draining && key == keyFetch && c.fetches > 0 {
		c.cond.Wait()
	}
	if c.draining {
		return false
	}
	c.inFlight++
	if key == keyFetch {
		c.fetches++
	}
	return true
}

// errProtocol: what came can't be a request, or is one that can't be served.
var errProtocol = errors.New("not a request")

// errIdle: nothing came in time, between two requests.
var errIdle = errors.New("no request came in time")

func (c *conn) readFailed(err error) {
	switch {
	case errors.Is(err, errProtocol):
		c.finish(ClosedProtocol, err)
	case errors.Is(err, errIdle):
		c.fail(ClosedIdle, err)
	case c.isDraining(): // deadline or memory wait ended by drain
		c.finish(ClosedByShutdown, nil)
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.fail(ClosedSlow, err)
	default:
		c.fail(ClosedByClient, err)
	}
}

func (c *conn) isDraining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.draining
}

// readFrame reads one request. Its memory is in the hold, also with an error.
func (c *conn) readFrame(ctx context.Context) (frame []byte, held hold, err error) {
	if err := c.awaitFrame(); err != nil {
		return nil, held, err
	}
	if c.in.Buffered() < sizeBytes {
		c.deadline(c.srv.cfg.FrameTimeout)
	}
	var prefix [sizeBytes]byte
	if _, err := io.ReadFull(c.in, prefix[:]); err != nil {
		return nil, held, fmt.Errorf("read size of request: %w", err)
	}
	size := int(int32(binary.BigEndian.Uint32(prefix[:])))
	if size < minHeaderBytes || size > int(c.srv.cfg.MaxRequestBytes) {
		return nil, held, fmt.Errorf("%w: size %d, from %d to %d are served", errProtocol, size, minHeaderBytes, c.srv.cfg.MaxRequestBytes)
	}
	defer c.frameHeld(hold{}, 0)
	for have, step := 0, firstStep(size); ; step = nextStep(size, step) {
		next, err := c.holdFrame(ctx, int64(step))
		if err != nil {
			return nil, held, fmt.Errorf("memory for a request of %d bytes: %w", size, err)
		}
		grown := make([]byte, step)
		copy(grown, frame)
		c.release(held)
		frame, held = grown, next
		c.frameHeld(held, size-step)
		if err := c.readInto(frame[have:]); err != nil {
			return nil, held, fmt.Errorf("read request of %d bytes: %w", size, err)
		}
		if have = step; have == size {
			return frame, held, nil
		}
	}
}

// awaitFrame waits for the first byte of a request. A connection that waits for
// replies is not idle.
func (c *conn) awaitFrame() error {
	for {
		c.deadline(c.srv.cfg.IdleTimeout)
		_, err := c.in.Peek(1)
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		c.mu.Lock()
		busy, draining := c.inFlight > 0, c.draining
		c.mu.Unlock()
		switch {
		case draining:
			return err
		case !busy:
			return errIdle
		}
	}
}

// readInto fills b, as long as the client moves on.
func (c *conn) readInto(b []byte) error {
	moved := 0
	if c.in.Buffered() < len(b) {
		c.frameMoved()
	}
	for len(b) > 0 {
		n, err := c.in.Read(b)
		b, moved = b[n:], moved+n
		if err != nil && len(b) > 0 {
			return err
		}
		if moved >= progressBytes {
			moved = 0
			c.frameMoved()
		}
	}
	return nil
}

func (c *conn) frameMoved() {
	c.deadline(c.srv.cfg.FrameTimeout)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frame.moved = time.Now()
}

func (c *conn) frameHeld(h hold, missing int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frame.held, c.frame.missing = h, missing
	c.frame.moved = time.Now()
}

func (c *conn) frameQueued(queued bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frame.queued = queued
	c.frame.moved = time.Now()
}
