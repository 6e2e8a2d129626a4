package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/brokerd/brokerd/core/model"
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
// other. Replies that are too large for the connection's own memory are sent alone, as
// are those of which a part lies in a file. It is the wire.Splice of what it encodes.
type sender struct {
	conn    *conn
	worker  *worker  // who sends; nil is the reader
	batch   []*reply // to be sent; the last one may still be made
	buf     []byte   // what is encoded, and
	cuts    []cut    // what belongs between it
	spliced int      // bytes of cuts
	inFiles int      // bytes of those that are sections
	copies  bool     // sections go through memory, which the last reply holds

	small  [sendBufferBytes]byte // buf at first
	parts  net.Buffers           // what is written together
	left   net.Buffers           // what of parts is not written yet
	moved  int64                 // bytes that were written since the last interrupt
	direct direct
}

var _ wire.Splice = (*sender)(nil)

// cut is a place in encoded bytes where others belong: records, or those of a section.
type cut struct {
	at      int
	records []byte
	section *model.Section
}

func newSenders() sync.Pool {
	return sync.Pool{New: func() any {
		s := &sender{}
		s.direct.one, s.direct.parts, s.direct.file = s.tryOne, s.tryParts, s.tryFile
		return s
	}}
}

// serve asks for answers and sends them: those from first on, and after the last what
// more gives, if it is not nil. It is one who does it, or the reader: nil.
func (c *conn) serve(ctx context.Context, one *worker, first *reply, more func() *reply) {
	s := c.srv.senders.Get().(*sender)
	s.conn, s.worker = c, one
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
	s.conn, s.worker = nil, nil
	c.srv.senders.Put(s)
}

// reset forgets what was sent.
func (s *sender) reset() {
	clear(s.batch)
	clear(s.cuts)
	clear(s.parts)
	s.batch, s.cuts, s.parts = s.batch[:0], s.cuts[:0], s.parts[:0]
	s.buf, s.left, s.spliced, s.inFiles = s.small[:0], nil, 0, 0
	s.copies, s.moved, s.direct.from = false, 0, nil
}

func (s *sender) size() int { return len(s.buf) + s.spliced }

// Records implements wire.Splice.
func (s *sender) Records(at int, records []byte) {
	if len(records) > 0 {
		s.cuts, s.spliced = append(s.cuts, cut{at: at, records: records}), s.spliced+len(records)
	}
}

// Section implements wire.Splice.
func (s *sender) Section(at int, section *model.Section) {
	if n := section.Bytes; n > 0 {
		s.cuts, s.spliced, s.inFiles = append(s.cuts, cut{at: at, section: section}), s.spliced+n, s.inFiles+n
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
	size := r.body.Size()
	size.Appended += headBytesMax
	memory := int64(size.Appended) + int64(size.Spliced)
	if all := memory + int64(size.Sections); all > math.MaxInt32 {
		return fmt.Errorf("%d bytes are beyond the protocol", all)
	}
	if size.Spliced > 0 || size.Sections > 0 || r.held != (hold{}) || len(s.buf)+size.Appended > sendBufferBytes {
		s.sendBefore(r, len(s.buf))
		if s.copies = size.Sections > 0 && !s.conn.sendsFiles(); s.copies {
			memory += copyBytes
		}
		r.size = int(memory)
		s.worker.waits()
		if err := s.conn.resize(ctx, r, memory); err != nil {
			return err
		}
		s.buf = slices.Grow(s.buf, size.Appended)
	}
	start := len(s.buf)
	flexible := s.conn.srv.flexible.of(r.header.Key, r.header.Version)
	s.buf = appendHeader(s.buf, r.header.CorrelationID, flexible && r.header.Key != keyApiVersions)
	s.buf = r.body.Encode(s.buf, s)
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
	s.worker.waits()
	return s.conn.resize(ctx, r, int64(cap(s.buf)))
}

// complete sets the size in the frame that begins at start.
func (s *sender) complete(r *reply, start int) {
	r.size, r.inFiles = s.size()-start, s.inFiles
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
		if memory := r.size - r.inFiles; r.header.Key == keyFetch && (r.inFiles == 0 || memory > c.lastFetch) {
			c.lastFetch = memory
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
