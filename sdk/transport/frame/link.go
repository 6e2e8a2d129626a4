package frame

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

// endWait is how long Close tries to say that the link ends.
const endWait = 2 * time.Millisecond

// Options are what a Link is made from.
type Options struct {
	// Peer is who is at the other end, and Lane what the link is for.
	Peer transport.Peer
	Lane transport.Lane
	// Sum: what is sent carries a checksum. It is for connections that protect nothing.
	Sum bool
	// Below is what lies below a TLS connection, so that it writes a message at once. It may
	// be nil.
	Below *Below
	// Ended is told once that the connection is closed. It may be nil, and must not wait.
	Ended func()
}

// Link is one end of a link over a connection on which the hellos have been said. It
// implements transport.Link.
//
// A link that nobody uses any more must be closed, also where its peer is gone: with
// nobody in a call there is nobody to see it.
type Link struct {
	conn net.Conn
	opt  Options
	in   watch
	out  watch
	// ahead is for Rooms that wait.
	ahead ahead

	closed chan struct{}
	mu     sync.Mutex
	reason error // why the link has ended, or has begun to: set before closed is closed
	done   bool  // closed is closed

	sender   sender
	receiver receiver
	// receiving keeps a second call of Receive out, which the contract forbids.
	receiving atomic.Bool
}

// New makes a link of a connection, which is the link's from now on, and has no deadline.
func New(conn net.Conn, opt Options) *Link {
	l := &Link{conn: conn, opt: opt, closed: make(chan struct{})}
	l.in.deadline = conn.SetReadDeadline
	l.out.deadline = conn.SetWriteDeadline
	l.sender = newSender(conn, opt)
	opt.Below.unbound()
	l.receiver = newReceiver(conn)
	l.ahead.link = l
	return l
}

// Peer implements transport.Link.
func (l *Link) Peer() transport.Peer { return l.opt.Peer }

// Lane implements transport.Link.
func (l *Link) Lane() transport.Lane { return l.opt.Lane }

// Send implements transport.Link. A call whose context ends when the connection has taken
// a part of the message ends the link.
func (l *Link) Send(ctx context.Context, message ...[]byte) error {
	size, err := messageBytes(message)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case l.sender.turn <- struct{}{}:
	default: // the two cases below would be chosen from at random
		select {
		case l.sender.turn <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.closed:
			return l.ended()
		}
	}
	defer func() { <-l.sender.turn }()
	return l.sendInTurn(ctx, size, message)
}

func (l *Link) sendInTurn(ctx context.Context, size int, message [][]byte) error {
	if err := l.ended(); err != nil {
		return err
	}
	l.out.begin(ctx)
	written, err := l.sender.send(size, message)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, errDeadline):
		return l.sendFailed(err)
	case written:
		l.end(transport.Errorf(transport.ErrClosed, "the link ended with a call of Send that was given up half way: %v", context.Cause(ctx)))
	}
	return context.Cause(ctx) // deadlines are those of contexts
}

// sendFailed ends the link in both directions, whatever it was that failed: the peer finds
// the end of the stream. What has arrived can still be received, where the connection can be
// shut and be read: then it is closed when that is at its end, or when the link is.
func (l *Link) sendFailed(err error) error {
	reason := transport.Errorf(transport.ErrClosed, "the link has ended: %v", err)
	l.mu.Lock()
	if l.reason == nil {
		l.reason = reason
	}
	l.mu.Unlock()
	l.ahead.close()
	raw := l.conn
	if l.opt.Below != nil {
		raw = l.opt.Below.Conn
	}
	if both, ok := raw.(interface {
		CloseRead() error
		CloseWrite() error
	}); ok {
		_, _ = both.CloseWrite(), both.CloseRead() // they fail where the connection has ended already
	} else {
		l.end(reason)
	}
	return l.ended()
}

// Receive implements transport.Link. Large messages go from the connection into the memory
// that room gives, small ones through a buffer of fixed size.
func (l *Link) Receive(ctx context.Context, room transport.Room) ([]byte, error) {
	if !l.receiving.CompareAndSwap(false, true) {
		return nil, transport.Errorf(transport.ErrInvalid, "Receive is called on a link while another call of it waits")
	}
	defer l.receiving.Store(false)
	select {
	case <-l.closed:
		return nil, l.ended()
	default:
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	l.in.begin(ctx)
	message, err := l.receiver.receive(ctx, room, &l.ahead)
	switch {
	case err == nil:
		return message, nil
	case errors.Is(err, errDeadline):
		return nil, context.Cause(ctx) // deadlines are those of contexts
	}
	return nil, l.receiveFailed(err)
}

// receiveFailed ends the link, and returns what Receive is to say.
func (l *Link) receiveFailed(err error) error {
	var room roomError
	var said *transport.Error
	switch {
	case errors.As(err, &room):
		l.say(transport.Errorf(transport.ErrClosed, "it has no room for a message"))
		l.end(transport.Errorf(transport.ErrClosed, "the link ended because there was no room for a message: %v", room.err))
		return room.err
	case errors.Is(err, errHeader), errors.Is(err, errSum):
		reason := transport.Errorf(transport.ErrClosed, "what arrived was damaged: %v", err)
		l.say(reason)
		l.end(reason)
	case errors.Is(err, io.EOF):
		l.end(transport.Errorf(transport.ErrClosed, "the peer has ended the link"))
	case errors.As(err, &said):
		l.end(said)
	default:
		l.end(transport.Errorf(transport.ErrClosed, "the link has ended: %v", err))
	}
	return l.ended()
}

// Close implements transport.Link.
func (l *Link) Close() error {
	l.say(nil)
	l.end(transport.Errorf(transport.ErrClosed, "the link was closed here"))
	return nil
}

// Cut closes the connection, and says nothing of it to the peer but what the kernel does.
func (l *Link) Cut() {
	l.end(transport.Errorf(transport.ErrClosed, "the link was closed here"))
}

// say tells the peer that the link ends, and why, unless a call of Send is under way. The
// link must end after it: no other call gets its turn any more.
func (l *Link) say(reason error) {
	select {
	case l.sender.turn <- struct{}{}:
	default:
		return
	}
	if l.ended() != nil {
		return
	}
	l.out.close()
	if l.conn.SetWriteDeadline(time.Now().Add(endWait)) == nil {
		_, _ = l.conn.Write(encodeEnd(reason)) // a courtesy
	}
}

// end closes the connection. The first reason counts.
func (l *Link) end(reason error) {
	l.mu.Lock()
	if l.done {
		l.mu.Unlock()
		return
	}
	if l.reason == nil {
		l.reason = reason
	}
	l.done = true
	close(l.closed)
	l.mu.Unlock()
	l.in.close()
	l.out.close()
	l.ahead.close()
	_ = l.raw().Close() // what has not been sent is lost, as it may be
	if l.opt.Ended != nil {
		l.opt.Ended()
	}
}

// raw is the connection, or what lies below it: TLS would wait for the peer when it is
// closed.
func (l *Link) raw() net.Conn {
	if l.opt.Below != nil {
		return l.opt.Below
	}
	return l.conn
}

// ended returns why the link has ended, or nil.
func (l *Link) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason
}
