package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// sendBytesMax is how many bytes of replies are sent together, or one more reply.
	sendBytesMax = 256 << 10
	// sendBufferBytes is what replies may take together without memory being asked
	// for: that of the connection itself.
	sendBufferBytes = 4 << 10
)

// sender makes replies and sends them together. It serves one connection after the
// other. Replies that are too large for the connection's own memory are sent alone.
type sender struct {
	conn    *conn
	batch   []*reply // to be sent; the last one may still be made
	buf     []byte   // what is encoded, and
	cuts    []cut    // what belongs between it
	spliced int      // bytes of cuts

	small  [sendBufferBytes]byte // buf at first
	parts  net.Buffers           // what is written, if there are cuts
	left   net.Buffers           // what of parts is not written yet
	splice func(at int, records []byte)
}

// cut is a place in encoded bytes where others belong.
type cut struct {
	at      int
	records []byte
}

func newSenders() sync.Pool {
	return sync.Pool{New: func() any {
		s := &sender{}
		s.splice = s.addCut
		return s
	}}
}

// serve asks for answers and sends them: those from first on, and after the last what
// more gives, if it is not nil.
func (c *conn) serve(ctx context.Context, first *reply, more func() *reply) {
	s := c.srv.senders.Get().(*sender)
	s.conn = c
	s.reset()
	for r := first; r != nil; {
		next := r.next
		r.next = nil
		s.batch = append(s.batch, r)
		c.guard(r.header, func() { s.make(ctx, r) })
		if r.close || r.held != (hold{}) || s.size() >= sendBytesMax {
			s.send()
		}
		if r = next; r == nil && more != nil {
			r, more = more(), nil
		}
	}
	s.send()
	s.conn = nil
	c.srv.senders.Put(s)
}

// reset forgets what was sent.
func (s *sender) reset() {
	clear(s.batch)
	clear(s.cuts)
	clear(s.parts)
	s.batch, s.cuts, s.parts = s.batch[:0], s.cuts[:0], s.parts[:0]
	s.buf, s.left, s.spliced = s.small[:0], nil, 0
}

func (s *sender) size() int { return len(s.buf) + s.spliced }

func (s *sender) addCut(at int, records []byte) {
	if len(records) > 0 {
		s.cuts, s.spliced = append(s.cuts, cut{at, records}), s.spliced+len(records)
	}
}

// make asks for the answer and encodes it.
func (s *sender) make(ctx context.Context, r *reply) {
	defer s.conn.spend(r)
	got := r.ask(ctx)
	r.body, r.spent = got.Body, got.Spent
	if got.Close {
		r.close, r.why = true, errors.New(got.Reason)
	}
	if ctx.Err() != nil {
		return
	}
	var err error
	switch {
	case r.body != nil:
		err = s.encodeBody(ctx, r)
	case got.Response != nil:
		err = s.encode(ctx, r, got)
	}
	if err != nil {
		s.conn.fail(ClosedMemory, fmt.Errorf("reply to %s: %w", kmsg.NameForKey(r.header.Key), err))
		s.conn.tellUnkept(r, err)
	}
}

// ask asks for the answer.
func (r *reply) ask(ctx context.Context) wire.Reply {
	c := r.conn
	if r.header.Key == keyFetch {
		c.setFetching(r)
		defer c.setFetching(nil)
	}
	return r.answer(ctx)
}

func (c *conn) setFetching(r *reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fetching = r
}

// encodeBody adds a response that encodes itself. If it is large, there is memory for
// it before.
func (s *sender) encodeBody(ctx context.Context, r *reply) error {
	appended, spliced := r.body.Size()
	appended += headBytesMax
	size := int64(appended) + int64(spliced)
	if size > math.MaxInt32 {
		return fmt.Errorf("%d bytes are beyond the protocol", size)
	}
	if spliced > 0 || r.held != (hold{}) || len(s.buf)+appended > sendBufferBytes {
		r.size = int(size)
		s.sendBefore(r, len(s.buf))
		if err := s.conn.resize(ctx, r, size); err != nil {
			return err
		}
		s.buf = slices.Grow(s.buf, appended)
	}
	start := len(s.buf)
	flexible := s.conn.srv.flexible.of(r.header.Key, r.header.Version)
	s.buf = appendHeader(s.buf, r.header.CorrelationID, flexible && r.header.Key != keyApiVersions)
	s.buf = r.body.Encode(s.buf, s.splice)
	s.complete(r, start)
	return nil
}

// encode adds a response of the codec, whose size is known when it is encoded.
func (s *sender) encode(ctx context.Context, r *reply, got wire.Reply) error {
	version := r.header.Version
	if got.Version != nil {
		version = *got.Version
	}
	got.Response.SetVersion(version)
	start := len(s.buf)
	s.buf = appendHeader(s.buf, r.header.CorrelationID, got.Response.IsFlexible() && r.header.Key != keyApiVersions)
	s.buf = got.Response.AppendTo(s.buf)
	s.complete(r, start)
	if cap(s.buf) == sendBufferBytes {
		return nil
	}
	s.sendBefore(r, start)
	return s.conn.resize(ctx, r, int64(cap(s.buf)))
}

// complete sets the size in the frame that begins at start.
func (s *sender) complete(r *reply, start int) {
	r.size = s.size() - start
	binary.BigEndian.PutUint32(s.buf[start:], uint32(r.size-sizeBytes))
}

// sendBefore sends what is before r, the last of the batch, whose own bytes begin at
// start.
func (s *sender) sendBefore(r *reply, start int) {
	if start == 0 {
		return
	}
	rest := s.buf[start:]
	s.batch, s.buf = s.batch[:len(s.batch)-1], s.buf[:start]
	s.send()
	s.batch = append(s.batch, r)
	if len(rest) > 0 {
		s.buf = rest
	}
}

// resize makes the reply's hold fit n bytes. It holds nothing while it waits for them.
func (c *conn) resize(ctx context.Context, r *reply, n int64) (err error) {
	have := r.held.own + r.held.shared
	if n <= have {
		c.shrink(r, n)
		return nil
	}
	if more, taken := c.askMore(n-have, have); taken {
		r.held = r.held.plus(more)
		return nil
	}
	c.release(r.held)
	c.release(r.request)
	r.held, r.request = hold{}, hold{}
	r.held, err = c.holdReply(ctx, n)
	return err
}

// shrink gives back what the reply's hold has beyond n bytes.
func (c *conn) shrink(r *reply, n int64) {
	keep := max(0, n-r.held.own)
	if keep >= r.held.shared {
		return
	}
	rest := hold{shared: r.held.shared - keep, untried: max(0, r.held.untried-keep)}
	r.held = r.held.minus(rest)
	c.release(rest)
}

// tellUnkept logs a reply that there was no memory for, which its client only sees as
// the end of its connection.
func (c *conn) tellUnkept(r *reply, err error) {
	if !errors.Is(err, errNoMemory) {
		return
	}
	if ok, left := c.srv.sparse.may("unkept", time.Now()); ok {
		c.srv.log.Warn("a reply does not fit the memory, its connection is closed; raise memory, or ask for less at once",
			"api", kmsg.NameForKey(r.header.Key), "bytes", r.size, "client", r.header.ClientID,
			"listener", c.from.Listener, "remote", c.remote, "left_out", left)
	}
}

// send sends the replies that are made, and ends the connection where the last one
// asks for it.
func (s *sender) send() {
	if len(s.batch) == 0 {
		return
	}
	last := s.batch[len(s.batch)-1]
	end, why := last.close, last.why
	s.done(s.write())
	if end {
		s.conn.end(ClosedByHandler, why)
	}
	s.reset()
}

// write writes everything, as long as the client takes some of it in time.
func (s *sender) write() (sent bool) {
	c := s.conn
	if !c.beginSending(s.batch) {
		return false
	}
	from := 0
	for _, cut := range s.cuts {
		if cut.at > from {
			s.parts = append(s.parts, s.buf[from:cut.at])
		}
		s.parts, from = append(s.parts, cut.records), cut.at
	}
	rest := s.buf[from:]
	if len(s.parts) > 0 {
		s.parts = append(s.parts, rest)
		s.left = s.parts
	}
	for s.size() > 0 {
		var n int64
		var err error
		if len(s.parts) > 0 {
			n, err = s.left.WriteTo(c.nc)
		} else {
			var m int
			m, err = c.nc.Write(rest)
			rest, n = rest[m:], int64(m)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			c.fail(ClosedByClient, fmt.Errorf("send reply: %w", err))
			return false
		}
		if !c.sendingMoves(n, time.Now()) {
			c.fail(ClosedSlow, fmt.Errorf("send reply: %w", err))
			return false
		}
	}
	return true
}

// done lets go of replies that were sent, or will not be.
func (s *sender) done(sent bool) {
	c, now := s.conn, time.Now()
	for _, r := range s.batch {
		if r.body != nil {
			c.guard(r.header, r.body.Release)
		}
	}
	c.mu.Lock()
	c.sending.on, c.sending.held = false, hold{}
	for _, r := range s.batch {
		c.own += r.request.own + r.held.own
		if sent {
			c.moved += int64(r.bytesIn) + int64(r.size)
		}
		if r.header.Key == keyFetch {
			c.lastFetch = r.size
		}
	}
	c.inFlight -= len(s.batch)
	c.mayRead.Signal()
	c.mu.Unlock()
	for _, r := range s.batch {
		if r.held.shared > 0 {
			c.srv.pool.release(r.held)
		}
		if sent {
			c.srv.events.RequestServed(Served{Listener: c.from.Listener, Key: r.header.Key, Version: r.header.Version,
				Duration: now.Sub(r.since), BytesIn: r.bytesIn, BytesOut: r.size})
		}
		c.srv.replies.put(r)
	}
}
