package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Replies are sent together, up to so many and so many bytes.
const (
	sendRepliesMax = 64
	sendBytesMax   = 256 << 10
)

// reply is one request from its beginning until its reply is sent. What is
// below made is the answer's until made is closed, then the writer's.
type reply struct {
	header  wire.Header
	bytesIn int
	since   time.Time

	later bool // the answer is asked for when ready is closed
	ready chan struct{}

	made  chan struct{}
	body  wire.Body   // of frame, or nil
	frame net.Buffers // its parts; none sends nothing
	size  int         // of frame in bytes
	held  hold        // memory of frame, and of what it is made from
	close bool
	why   error // of close
}

// begin hands a request to the handler and starts its answer.
func (c *conn) begin(ctx context.Context, r *reply, call wire.Call, held hold, wg *sync.WaitGroup) {
	c.replies <- r
	var answer wire.Answer
	if !c.guard(call.Header, func() { answer = c.srv.handler.Begin(ctx, call) }) || answer == nil {
		c.release(held)
		c.fail(ClosedByHandler, errors.New("the request was not begun"))
		close(r.made)
		return
	}
	wg.Go(func() {
		defer close(r.made)
		if r.later {
			select {
			case <-r.ready:
			case <-ctx.Done():
			}
		}
		c.guard(r.header, func() { c.make(ctx, r, answer, held) })
	})
}

// guard runs the handler's code. A panic in it ends the connection, and nothing
// else.
func (c *conn) guard(h wire.Header, f func()) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			err := fmt.Errorf("panic: %v", p)
			c.srv.log.Error("a request could not be served because of a defect", "api_key", h.Key, "api_version", h.Version,
				"listener", c.from.Listener, "remote", c.remote, "err", err, "stack", string(debug.Stack()))
			c.fail(ClosedByPanic, err)
		}
	}()
	f()
	return true
}

// make waits for the answer and encodes it.
func (c *conn) make(ctx context.Context, r *reply, answer wire.Answer, request hold) {
	got := func() wire.Reply {
		defer c.release(request)
		if r.header.Key == keyFetch {
			defer c.fetched()
		}
		return answer(ctx)
	}()
	if got.Close {
		r.close, r.why = true, errors.New(got.Reason)
	}
	r.body = got.Body
	if ctx.Err() != nil {
		return
	}
	if got.Body != nil {
		c.made(r, c.encodeBody(ctx, r, got.Body))
		return
	}
	if got.Response == nil {
		return
	}
	version := r.header.Version
	if got.Version != nil {
		version = *got.Version
	}
	got.Response.SetVersion(version)
	c.made(r, c.encode(ctx, r, got.Response))
}

func (c *conn) made(r *reply, err error) {
	if err != nil {
		c.fail(ClosedMemory, fmt.Errorf("reply to %s: %w", kmsg.NameForKey(r.header.Key), err))
		c.tellUnkept(r, int64(r.size), err)
		return
	}
	c.queued(r)
}

// Later implements wire.Turn.
func (r *reply) Later() { r.later = true }

// Ready implements wire.Turn.
func (r *reply) Ready() { close(r.ready) }

// encodeBody makes the frame of a response that encodes itself.
func (c *conn) encodeBody(ctx context.Context, r *reply, body wire.Body) error {
	appended, spliced := body.Size()
	size := int64(appended) + int64(spliced) + sizeBytes + correlationBytes + 1
	if size > math.MaxInt32 {
		return fmt.Errorf("%d bytes are beyond the protocol", size)
	}
	r.size = int(size)
	if err := c.resize(ctx, r, size); err != nil {
		return err
	}
	type cut struct {
		at      int
		records []byte
	}
	var cuts []cut
	dst := make([]byte, sizeBytes, int(size)-spliced)
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.header.CorrelationID))
	if c.srv.flexible.of(r.header.Key, r.header.Version) && r.header.Key != keyApiVersions {
		dst = append(dst, 0)
	}
	dst = body.Encode(dst, func(at int, records []byte) { cuts = append(cuts, cut{at, records}) })
	r.size = len(dst)
	from := 0
	for _, cut := range cuts {
		r.frame, from = append(r.frame, dst[from:cut.at], cut.records), cut.at
		r.size += len(cut.records)
	}
	r.frame = append(r.frame, dst[from:])
	binary.BigEndian.PutUint32(dst, uint32(r.size-sizeBytes))
	return c.resize(ctx, r, int64(r.size))
}

// tellUnkept logs a reply that there was no memory for, which its client only sees as
// the end of its connection.
func (c *conn) tellUnkept(r *reply, size int64, err error) {
	if !errors.Is(err, errNoMemory) {
		return
	}
	if ok, left := c.srv.sparse.may("unkept", time.Now()); ok {
		c.srv.log.Warn("a reply does not fit the memory, its connection is closed; raise memory, or ask for less at once",
			"api", kmsg.NameForKey(r.header.Key), "bytes", size, "client", r.header.ClientID,
			"listener", c.from.Listener, "remote", c.remote, "left_out", left)
	}
}

// encode makes the frame, in which large records stay where they are. Of a Fetch
// there is memory for them already; for other replies it is taken when their size
// is known.
func (c *conn) encode(ctx context.Context, r *reply, response kmsg.Response) error {
	size := sizeOf(response)
	if size > math.MaxInt32 {
		return fmt.Errorf("%d bytes are beyond the protocol", size)
	}
	if err := c.resize(ctx, r, size); err != nil {
		return err
	}
	frame := c.srv.splicer.frame(r.header.CorrelationID, response)
	for _, part := range frame {
		r.size += len(part)
	}
	r.frame = frame
	took := max(size, int64(r.size))
	if len(frame) == 1 {
		took = int64(cap(frame[0]))
	}
	if err := c.resize(ctx, r, took); err != nil {
		r.frame = nil
		return err
	}
	if r.header.Key == keyFetch {
		c.mu.Lock()
		c.lastFetch = r.size
		c.mu.Unlock()
	}
	return nil
}

// resize makes the reply's hold fit n bytes.
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
	r.held = hold{}
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

func (c *conn) queued(r *reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsent += int64(r.size)
	c.unsentHeld = c.unsentHeld.plus(r.held)
}

// done lets go of a reply that was sent, or will not be.
func (c *conn) done(r *reply, sent bool) {
	c.mu.Lock()
	if sent {
		c.moved += int64(r.bytesIn) + int64(r.size)
	}
	if r.frame != nil {
		c.unsent -= int64(r.size)
		c.unsentHeld = c.unsentHeld.minus(r.held)
	}
	c.inFlight--
	if r.header.Key == keyFetch {
		c.fetches--
	}
	c.cond.Broadcast()
	c.mu.Unlock()
	r.frame = nil
	if r.body != nil {
		r.body.Release()
	}
	c.release(r.held)
}

// write sends replies in the order of their requests, until there are no more.
// After the connection failed it only lets go of them.
func (c *conn) write() {
	var batch []*reply
	var next *reply
	for {
		if next == nil {
			var open bool
			if next, open = <-c.replies; !open {
				return
			}
		}
		<-next.made
		batch, next = c.gather(append(batch[:0], next))
		c.send(batch)
	}
}

// gather adds the replies that are made already, and returns the first that is
// not, if it took one.
func (c *conn) gather(batch []*reply) ([]*reply, *reply) {
	bytes := batch[0].size
	for len(batch) < sendRepliesMax && bytes < sendBytesMax && !batch[len(batch)-1].close {
		select {
		case r, open := <-c.replies:
			if !open {
				return batch, nil // write sees it again
			}
			select {
			case <-r.made:
				batch = append(batch, r)
				bytes += r.size
			default:
				return batch, r
			}
		default:
			return batch, nil
		}
	}
	return batch, nil
}

// send sends replies, and ends the connection where one asks for it.
func (c *conn) send(batch []*reply) {
	var out net.Buffers
	for _, r := range batch {
		out = append(out, r.frame...)
	}
	sent := !c.sendsNoMore() && c.sendAll(out)
	for _, r := range batch {
		served := Served{Listener: c.from.Listener, Key: r.header.Key, Version: r.header.Version,
			Duration: time.Since(r.since), BytesIn: r.bytesIn, BytesOut: r.size}
		if sent {
			c.srv.events.RequestServed(served)
		}
		c.done(r, sent)
	}
	if last := batch[len(batch)-1]; last.close {
		c.end(ClosedByHandler, last.why)
	}
}

func (c *conn) sendsNoMore() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed || c.ended
}

// sendAll writes everything, as long as the client takes some of it in time.
func (c *conn) sendAll(out net.Buffers) bool {
	if len(out) == 0 {
		return true
	}
	c.setSending(true)
	defer c.setSending(false)
	last, moved := time.Now(), int64(0)
	tick := min(c.srv.cfg.StallTimeout, c.srv.cfg.WriteTimeout) / 2
	for {
		_ = c.nc.SetWriteDeadline(time.Now().Add(tick)) // fails only where it is closed
		n, err := out.WriteTo(c.nc)
		if err == nil {
			return true
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			c.fail(ClosedByClient, fmt.Errorf("send reply: %w", err))
			return false
		}
		now := time.Now()
		if moved += n; moved >= progressBytes {
			last, moved = now, 0
			c.setSending(true)
		}
		if now.Sub(last) >= c.srv.cfg.WriteTimeout {
			c.fail(ClosedSlow, fmt.Errorf("send reply: %w", err))
			return false
		}
	}
}

func (c *conn) setSending(sending bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sending, c.sendMoved = sending, time.Now()
}
