package server

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/wire"
)

// reply is one request from its beginning until its reply is sent. Then it is used
// for another.
type reply struct {
	conn    *conn
	header  wire.Header
	bytesIn int
	since   time.Time // the last byte of the request came
	request hold      // memory of the request
	answer  wire.Answer
	room    room // of a Fetch

	later bool   // the answer is not asked for before it is ready; set in Begin
	ready bool   // it does not wait; guarded by conn.mu
	next  *reply // in the queue, or of those that are asked

	class int    // of spare
	spare []byte // the body of a small request; nil if somebody has kept it
	lent  *lent  // memory of a large one, or nil

	// What is below is the asker's.
	body    wire.Body // or nil
	size    int       // of the frame in bytes; 0 sends nothing
	inFiles int       // what of size lies in files
	held    hold      // memory of the frame, and of what it is made from
	spent   bool      // nobody uses the request's body
	close   bool
	why     error // of close
	stray   bool  // somebody may still know it, so that it is not used again
}

var _ wire.Turn = (*reply)(nil)

// spareBytes are the sizes of memory for small requests, which is used again with its
// reply object.
func spareBytes() [spareClasses]int { return [...]int{512, 1 << 10, 3 << 9, 2 << 10, 3 << 10, 4 << 10} }

const spareClasses = 6

// spareClass is the least that n bytes fit.
func spareClass(n int) (class, size int) {
	for class, size = range spareBytes() {
		if n <= size {
			break
		}
	}
	return class, size
}

type replies [spareClasses]sync.Pool // of *reply

// get returns an object with room for n bytes, which are few.
func (p *replies) get(n int) *reply {
	class, size := spareClass(n)
	r, ok := p[class].Get().(*reply)
	if !ok {
		r = &reply{class: class}
	}
	if r.spare == nil && n > 0 {
		r.spare = make([]byte, 0, size)
	}
	return r
}

// put makes the object ready for another request, if nobody knows it any more.
func (p *replies) put(r *reply) {
	if r.stray {
		return
	}
	class, spare := r.class, r.spare
	if !r.spent {
		spare = nil
	}
	*r = reply{class: class, spare: spare}
	p[class].Put(r)
}

// lent is the memory of a large request.
type lent struct {
	frame *model.Frame
	bytes []byte
}

// lend makes the server a keeper of a large request's memory, which was got from its
// buffers and goes back to them when nobody keeps it.
func (s *Server) lend(b []byte) *lent {
	l, ok := s.lents.Get().(*lent)
	if !ok {
		l = &lent{}
		l.frame = model.NewFrame(0, func() {
			s.large.Put(l.bytes)
			l.bytes = nil
			s.lents.Put(l)
		})
	}
	l.bytes, l.frame.Bytes = b, cap(b)
	l.frame.Keep()
	return l
}

// spend lets go of a request after its reply was made.
func (c *conn) spend(r *reply) {
	if r.request.shared > 0 {
		c.release(r.request)
		r.request = hold{}
	}
	if r.lent != nil && r.spent {
		r.lent.frame.Drop()
	}
	r.lent = nil
}

// Later implements wire.Turn.
func (r *reply) Later() { r.later = true }

// Ready implements wire.Turn.
func (r *reply) Ready() {
	c := r.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	r.ready = true
	if c.queue.first == r {
		c.handOverLocked()
	}
}

// queue has requests in their order.
type queue struct{ first, last *reply }

func (q *queue) push(r *reply) {
	if q.first == nil {
		q.first = r
	} else {
		q.last.next = r
	}
	q.last = r
}

// takeReady takes the first ones, as far as their answers are ready.
func (q *queue) takeReady() (first *reply) {
	var last *reply
	for r := q.first; r != nil && r.ready; r = r.next {
		last = r
	}
	return q.takeUntil(last)
}

// takeAll takes all. The Turn of some may still be called.
func (q *queue) takeAll() (first *reply) {
	for r := q.first; r != nil; r = r.next {
		r.stray = r.stray || (r.later && !r.ready)
	}
	return q.takeUntil(q.last)
}

// takeUntil takes all up to last; none if it is nil.
func (q *queue) takeUntil(last *reply) (first *reply) {
	if last == nil {
		return nil
	}
	first, q.first = q.first, last.next
	last.next = nil
	return first
}

// begin hands a request to the handler, and sees to it that it is asked for its
// answer: by the reader itself, before it waits for anything, if nothing is before it
// and it need not wait; else by a worker.
func (c *conn) begin(ctx context.Context, r *reply, body []byte) {
	call := wire.Call{Header: r.header, Body: body, From: c.from, Turn: r}
	if r.lent != nil {
		call.Frame = r.lent.frame
	}
	if r.header.Key == keyFetch {
		r.room.init(r)
		call.Room = &r.room
	}
	if !c.guard(r.header, func() { r.answer = c.srv.handler.Begin(ctx, call) }) || r.answer == nil {
		c.fail(ClosedByHandler, errors.New("the request was not begun"))
		r.answer, r.stray = notBegun, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue.push(r)
	switch {
	case c.queue.first != r: // whoever asks for the one before comes to this one
	case r.ready && !c.asking:
		c.unasked = true
	default:
		c.handOverLocked()
	}
}

func notBegun(context.Context) wire.Reply { return wire.Reply{} }

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

// flush asks for the answers that the reader is to ask for.
func (c *conn) flush(ctx context.Context) {
	if !c.unasked {
		return
	}
	c.unasked = false
	c.mu.Lock()
	var first *reply
	if !c.asking { // else a worker comes to them
		first = c.queue.takeReady()
		c.asking = first != nil
	}
	c.mu.Unlock()
	if first == nil {
		return
	}
	c.serve(ctx, nil, first, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asking = false
	c.handOverLocked()
}

// handOverLocked lets a worker ask for answers, if the first one of the queue is to be
// asked for now, and nobody does it.
func (c *conn) handOverLocked() {
	if !c.asking && c.mayAskLocked() {
		c.asking = true
		c.srv.workers.do(c.work)
	}
}

// mayAskLocked says whether the first of the queue is to be asked now.
func (c *conn) mayAskLocked() bool {
	r := c.queue.first
	return r != nil && (r.ready || !r.later || c.failed || c.ended)
}

// write is a worker's: it asks for answers and sends them, until there is nothing to be
// asked for. After the connection failed it only lets go of requests.
func (c *conn) write(ctx context.Context, one *worker) {
	for n := 0; ; n++ {
		first, blocking := c.takeFirst()
		switch {
		case first == nil:
			return
		case blocking:
			one.waits()
			c.serve(ctx, one, first, c.takeMore)
		default:
			if n > 0 { // there may be no end of them
				one.waits()
			}
			c.serve(ctx, one, first, nil)
		}
	}
}

// takeFirst takes the requests that are to be asked now: those that are ready, or one
// that may have to be waited for. Nil: nobody asks any more.
func (c *conn) takeFirst() (first *reply, blocking bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.mayAskLocked():
		c.asking = false
		c.mayRead.Signal()
		return nil, false
	case c.failed || c.ended:
		return c.queue.takeAll(), true
	}
	if first = c.queue.takeReady(); first != nil {
		return first, false
	}
	return c.queue.takeUntil(c.queue.first), true
}

// takeMore takes those that became ready while one was waited for.
func (c *conn) takeMore() *reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue.takeReady()
}
