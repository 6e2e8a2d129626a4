package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/wire"
)

// errDraining: no further request is begun.
var errDraining = errors.New("the connection is ending")

// read frames requests and begins them, until the connection ends.
func (c *conn) read(ctx, reading context.Context) {
	for {
		r, body, err := c.next(ctx, reading)
		if err != nil {
			c.readFailed(err)
			return
		}
		c.begin(ctx, r, body)
	}
}

// next reads one request, whose memory is in its hold.
func (c *conn) next(ctx, reading context.Context) (r *reply, body []byte, err error) {
	if err := c.need(ctx, sizeBytes); err != nil {
		return nil, nil, fmt.Errorf("read size of request: %w", err)
	}
	size := int(int32(binary.BigEndian.Uint32(c.in.bytes())))
	if size < minHeaderBytes || size > int(c.srv.cfg.MaxRequestBytes) {
		return nil, nil, fmt.Errorf("%w: size %d, from %d to %d are served", errProtocol, size, minHeaderBytes, c.srv.cfg.MaxRequestBytes)
	}
	if size+sizeBytes <= readBufferBytes {
		return c.nextSmall(ctx, reading, size)
	}
	return c.nextLarge(ctx, reading, size)
}

// need waits until n bytes of a request are there, which fit the buffer.
func (c *conn) need(ctx context.Context, n int) error {
	for c.in.len() < n {
		c.flush(ctx)
		if c.in.len() > 0 {
			c.frameWaits()
		}
		if err := c.in.fill(); err != nil {
			return err
		}
	}
	return nil
}

// nextSmall cuts a request from the buffer.
func (c *conn) nextSmall(ctx, reading context.Context, size int) (*reply, []byte, error) {
	if err := c.need(ctx, sizeBytes+size); err != nil {
		return nil, nil, fmt.Errorf("read request of %d bytes: %w", size, err)
	}
	frame := c.in.bytes()[sizeBytes : sizeBytes+size]
	header, inFrame, err := c.srv.flexible.parseHeader(frame, c.client)
	if err != nil {
		return nil, nil, err
	}
	_, n := spareClass(len(inFrame))
	held, err := c.admit(ctx, reading, int64(n))
	if err != nil {
		return nil, nil, err
	}
	r := c.newReply(header, size, len(inFrame), held)
	body := r.spare[:len(inFrame)]
	copy(body, inFrame)
	c.in.take(sizeBytes + size)
	return r, body, nil
}

// nextLarge reads a request into memory of its own, most of it without a copy.
func (c *conn) nextLarge(ctx, reading context.Context, size int) (*reply, []byte, error) {
	if _, err := c.admit(ctx, reading, 0); err != nil {
		return nil, nil, err
	}
	c.flush(ctx) // it may take a while
	c.in.take(sizeBytes)
	frame, held, err := c.readLarge(reading, size)
	if err == nil {
		var header wire.Header
		var body []byte
		if header, body, err = c.srv.flexible.parseHeader(frame, c.client); err == nil {
			r := c.newReply(header, size, 0, held)
			r.lent = c.srv.lend(frame)
			return r, body, nil
		}
	}
	c.srv.large.Put(frame)
	c.release(held)
	return nil, nil, err
}

func (c *conn) newReply(h wire.Header, size, spare int, held hold) *reply {
	c.client = h.ClientID
	r := c.srv.replies.get(spare)
	r.conn, r.header, r.bytesIn, r.since, r.request = c, h, size+sizeBytes, c.in.at, held
	return r
}

// admit waits until another request may be in flight, and takes n bytes of memory for
// it.
func (c *conn) admit(ctx, reading context.Context, n int64) (hold, error) {
	c.mu.Lock()
	c.frame = partial{}
	for !c.draining && c.inFlight >= c.srv.cfg.MaxInFlight {
		if c.unasked {
			c.mu.Unlock()
			c.flush(ctx)
			c.mu.Lock()
			continue
		}
		c.mayRead.Wait()
	}
	if c.draining {
		c.mu.Unlock()
		return hold{}, errDraining
	}
	c.inFlight++
	c.begun++
	if n <= c.own {
		c.own -= n
		c.mu.Unlock()
		return hold{own: n}, nil
	}
	c.mu.Unlock()
	if h, taken := c.ask(n); taken {
		return h, nil
	}
	c.flush(ctx) // it may take a while
	return c.holdFrame(reading, n)
}

// readLarge reads a request that does not fit the buffer, into a buffer of the large
// ones. Its memory is in the hold. Both are there also with an error.
func (c *conn) readLarge(reading context.Context, size int) (frame []byte, held hold, err error) {
	defer c.frameHeld(hold{}, 0)
	step, plenty := firstStep(size), c.mayHaveAll(int64(size))
	if plenty {
		step = size
	}
	for have := 0; ; step = nextStep(size, step) {
		next, err := c.holdFrame(reading, int64(memory.BufferBytes(step)))
		if err != nil {
			return frame, held, fmt.Errorf("memory for a request of %d bytes: %w", size, err)
		}
		var grown []byte
		if plenty {
			grown, next = c.roomy(step, next)
		} else {
			grown = c.srv.large.Get(step)
		}
		copy(grown, frame)
		c.srv.large.Put(frame)
		c.release(held)
		frame, held = grown, next
		c.frameHeld(held, size-step)
		if err := c.readInto(frame[have:]); err != nil {
			return frame, held, fmt.Errorf("read request of %d bytes: %w", size, err)
		}
		if have = step; have == size {
			return frame, held, nil
		}
	}
}

// roomy gets a buffer for n bytes, for which there is memory in h, and adds what it takes
// beyond that, of the shared part. One that takes more is got only while there is plenty.
func (c *conn) roomy(n int, h hold) ([]byte, hold) {
	buf := c.srv.large.GetRoomy(n)
	beyond := cap(buf) - memory.BufferBytes(n)
	if beyond == 0 {
		return buf, h
	}
	if more := (hold{shared: int64(beyond)}); c.mayHaveAll(int64(cap(buf))) && c.srv.pool.try(more) {
		return buf, h.plus(more)
	}
	c.srv.large.Put(buf)
	return c.srv.large.Get(n), h
}

// readInto fills b, as long as the client moves on.
func (c *conn) readInto(b []byte) error {
	n := copy(b, c.in.bytes())
	c.in.take(n)
	if b = b[n:]; len(b) == 0 {
		return nil
	}
	c.in.letGo()
	moved := 0
	for len(b) > 0 {
		n, err := c.nc.Read(b)
		b, moved = b[n:], moved+n
		if err != nil && len(b) > 0 {
			return err
		}
		if moved >= progressBytes {
			moved = 0
			c.frameMoved()
		}
	}
	c.in.at = time.Now()
	return nil
}

// partial is a request of which not everything is here.
type partial struct {
	held    hold
	missing int       // its bytes that there is no room for yet
	moved   time.Time // zero where nothing of a request is here
	queued  bool      // it waits for memory
}

// frameWaits says that some of a small request is here.
func (c *conn) frameWaits() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frame.moved.IsZero() {
		c.frame.moved = time.Now()
	}
}

func (c *conn) frameMoved() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frame.moved = time.Now()
}

// frameHeld says what a large request holds; the zero hold says that it is here.
func (c *conn) frameHeld(h hold, missing int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frame = partial{held: h, missing: missing}
	if h != (hold{}) {
		c.frame.moved = time.Now()
	}
}

func (c *conn) frameQueued(queued bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frame.queued = queued
	if c.frame.held != (hold{}) {
		c.frame.moved = time.Now()
	}
}
