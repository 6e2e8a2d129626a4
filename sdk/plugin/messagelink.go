package plugin

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/brokerd/brokerd/sdk/transport"
)

// messageLink is a link that a plugin runs, whose messages come over its lane. It implements
// transport.Link.
//
// Small messages go by a window for each direction: of what costs windowBytes together, the
// plugin has not told that it has sent it, and has not been told that it was received. A large
// message is sent when the plugin's Send has returned; of one that comes, the size comes first,
// and the rest when Room has given memory for it.
type messageLink struct {
	lane   *transportLane
	id     uint64
	kind   transport.Lane
	peer   transport.Peer
	urgent bool

	turn      chan struct{} // a place for the Send that is under way
	receiving atomic.Bool   // Receive is under way
	changed   chan struct{} // has a place: there is news for Receive
	taken     chan struct{} // has a place: there is news for Send
	closed    chan struct{} // closed when the link has ended here, or its lane

	mu      sync.Mutex
	reason  error // why the link has ended, or nil; there may be messages yet
	deaf    error // why nothing can be sent any more, or nil
	isDone  bool  // closed is closed
	closing bool  // it was closed here: nothing comes into anybody's memory any more
	window  int   // what small messages may still cost
	sending uint64
	acked   chan error // has a place for what came of sending, a large message
	in      inQueue
	// roomEnds ends the context of a Room that is asked. Nil: none is.
	roomEnds context.CancelCauseFunc
}

// inQueue is messages that have come from the plugin, or whose size has.
type inQueue struct {
	sizes    []int  // of all, in order
	small    []byte // the small ones, back to back, from
	from     int
	smalls   int // how many they are
	consumed int // what small ones cost that were received, and the plugin was not told

	// Of the first, if that is a large one:
	body  []byte // from Room
	given bool
	got   int
}

// coming says whether the last message is a large one that has not come whole.
func (q *inQueue) coming() bool {
	n := len(q.sizes)
	return n > 0 && q.sizes[n-1] > smallBytesMax && (n > 1 || !q.given || q.got < q.sizes[0])
}

var errRoomEnded = transport.Errorf(transport.ErrClosed, "the link has ended while a room was waited for")

func newMessageLink(lane *transportLane, id uint64, kind transport.Lane, peer transport.Peer) *messageLink {
	return &messageLink{
		lane: lane, id: id, kind: kind, peer: peer, urgent: kind == transport.Control,
		turn: make(chan struct{}, 1), changed: make(chan struct{}, 1), taken: make(chan struct{}, 1), window: windowBytes, closed: make(chan struct{}),
	}
}

// Peer implements transport.Link.
func (l *messageLink) Peer() transport.Peer { return l.peer }

// Lane implements transport.Link.
func (l *messageLink) Lane() transport.Lane { return l.kind }

// put sends a unit about the link.
func (l *messageLink) put(u *tunit) { l.lane.out.put(u, l.urgent) }

// Send implements transport.Link.
func (l *messageLink) Send(ctx context.Context, message ...[]byte) error {
	size := 0
	for _, part := range message {
		if len(part) > transport.MessageBytesMax-size {
			return transport.Errorf(transport.ErrInvalid, "the message is larger than %d bytes", transport.MessageBytesMax)
		}
		size += len(part)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case l.turn <- struct{}{}:
	default: // the cases below would be chosen from at random
		select {
		case l.turn <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.closed:
			return l.ended()
		}
	}
	if size > smallBytesMax {
		return l.sendLarge(ctx, size, message)
	}
	defer func() { <-l.turn }()
	return l.sendSmall(ctx, size, message)
}

// sendSmall sends a small message when there is room in the window. The caller has the turn.
func (l *messageLink) sendSmall(ctx context.Context, size int, message [][]byte) error {
	for {
		l.mu.Lock()
		err := cmp.Or(l.reason, l.deaf)
		fits := l.window >= smallCost(size)
		if err == nil && fits {
			l.window -= smallCost(size)
		}
		l.mu.Unlock()
		switch {
		case err != nil:
			return err
		case fits:
			u := transportRequest(kindSend, l.lane.next(), l.id)
			u.last = true
			if size > 0 {
				u.data, u.free = l.lane.parts.get(size)
				fill(u.data, message)
			}
			l.put(u)
			return nil
		}
		select {
		case <-l.taken:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.closed:
		}
	}
}

// sendLarge sends a large message, and returns when the plugin has. The caller has the turn,
// which the plugin's answer gives up.
func (l *messageLink) sendLarge(ctx context.Context, size int, message [][]byte) error {
	acked := make(chan error, 1)
	seq := l.lane.next()
	l.mu.Lock()
	err := cmp.Or(l.reason, l.deaf)
	if err == nil {
		l.sending, l.acked = seq, acked
	}
	l.mu.Unlock()
	if err != nil {
		<-l.turn
		return err
	}
	if l.sendParts(ctx, seq, size, message) {
		select {
		case err := <-acked:
			return err
		case <-ctx.Done():
		case <-l.closed:
		}
	}
	if l.isClosed() {
		return l.ended()
	}
	l.put(transportRequest(kindCancel, seq, l.id))
	return context.Cause(ctx)
}

// took takes the news that small messages were sent, or that nothing can be any more.
func (l *messageLink) took(u *tunit) error {
	b, err := u.result()
	if errors.Is(err, errUnit) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.deaf = closedError(err)
	case len(b) != sizeBytes || uint64(binary.BigEndian.Uint32(b))+uint64(l.window) > windowBytes:
		return fmt.Errorf("%w: more was taken than was sent", errUnit)
	default:
		l.window += int(binary.BigEndian.Uint32(b))
	}
	nudge(l.taken)
	return nil
}

// closedError is an error of the plugin's link as the end of this one.
func closedError(err error) error {
	if errors.Is(err, transport.ErrClosed) {
		return err
	}
	return transport.Errorf(transport.ErrClosed, "the link has ended: %v", err)
}

// sendParts sends the parts of a message, and says whether all are on their way.
func (l *messageLink) sendParts(ctx context.Context, seq uint64, size int, message [][]byte) bool {
	var written chan struct{}
	for {
		u := transportRequest(kindSend, seq, l.id)
		n := min(size, partBytesMax)
		if n > 0 {
			u.data, u.free = l.lane.parts.get(n)
			message = fill(u.data, message)
		}
		if size -= n; size == 0 {
			u.last = true
			l.put(u)
			return true
		}
		if written == nil {
			written = make(chan struct{}, 1)
		}
		u.written = written
		l.put(u)
		select {
		case <-written:
		case <-ctx.Done():
			return false
		case <-l.closed:
			return false
		}
	}
}

// fill fills b from a message, and returns what is left of that.
func fill(b []byte, message [][]byte) [][]byte {
	for len(b) > 0 {
		n := copy(b, message[0])
		b = b[n:]
		if n == len(message[0]) {
			message = message[1:]
			continue
		}
		rest := append([][]byte(nil), message...) // the caller's stay as they are
		rest[0] = rest[0][n:]
		message = rest
	}
	return message
}

// sent takes the answer to a message that was sent.
func (l *messageLink) sent(u *tunit) error {
	_, err := u.result()
	if errors.Is(err, errUnit) {
		return err
	}
	l.mu.Lock()
	mine := l.sending == u.seq && l.acked != nil
	acked := l.acked
	if mine {
		l.acked = nil
	}
	l.mu.Unlock()
	if !mine {
		return fmt.Errorf("%w: an answer to message %d, which was not sent", errUnit, u.seq)
	}
	acked <- err // it has a place
	<-l.turn
	return nil
}

// told takes a small message, or the size of a large one, or the end of the link.
func (l *messageLink) told(u *tunit) error {
	b, err := u.result()
	if errors.Is(err, errUnit) {
		return err
	}
	if err != nil {
		l.over(err)
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	q := &l.in
	if l.closing {
		return nil
	}
	if len(b) < sizeBytes || q.coming() {
		return fmt.Errorf("%w: a message that is not due", errUnit)
	}
	size, b := uint64(binary.BigEndian.Uint32(b)), b[sizeBytes:]
	small := size <= smallBytesMax
	if size > transport.MessageBytesMax || small && size != uint64(len(b)) || !small && len(b) > 0 {
		return fmt.Errorf("%w: a message of %d bytes with %d", errUnit, size, len(b))
	}
	if !small {
		q.sizes = append(q.sizes, int(size))
	} else if !q.add(b) {
		return fmt.Errorf("%w: small messages beyond the window", errUnit)
	}
	nudge(l.changed)
	return nil
}

// add puts a small message behind those that wait, if the window permits it.
func (q *inQueue) add(b []byte) bool {
	held := q.consumed + smallCost(len(b)) + len(q.small) - q.from + q.smalls*smallCost(0)
	if held > windowBytes {
		return false
	}
	if q.from > 0 && len(q.small)+len(b) > cap(q.small) {
		q.small = q.small[:copy(q.small, q.small[q.from:])]
		q.from = 0
	}
	q.small = append(q.small, b...)
	q.sizes = append(q.sizes, len(b))
	q.smalls++
	return true
}

// pop takes the first message, a small one, into memory, and returns what the plugin is to be
// told to have been received, if it is time.
func (q *inQueue) pop(into []byte) (credit int) {
	n := q.sizes[0]
	copy(into, q.small[q.from:q.from+n])
	q.from += n
	q.drop()
	if q.smalls--; q.smalls == 0 {
		q.small, q.from = q.small[:0], 0
	}
	if q.consumed += smallCost(n); q.consumed >= windowBytes/2 {
		credit, q.consumed = q.consumed, 0
	}
	return credit
}

// popLarge takes the first message, a large one that has come whole.
func (q *inQueue) popLarge() []byte {
	body := q.body
	q.drop()
	q.body, q.given, q.got = nil, false, 0
	return body
}

func (q *inQueue) drop() { q.sizes = q.sizes[:copy(q.sizes, q.sizes[1:])] }

// part takes a part of a large message.
func (l *messageLink) part(u *tunit) error {
	b, err := u.result()
	if errors.Is(err, errUnit) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	q := &l.in
	switch {
	case l.closing:
		return nil // the memory is the caller's again
	case err != nil || !q.given || len(b) > len(q.body)-q.got || u.last != (len(b) == len(q.body)-q.got):
		return fmt.Errorf("%w: a part of %d bytes, which is not due", errUnit, len(b))
	}
	q.got += copy(q.body[q.got:], b)
	if u.last {
		nudge(l.changed)
	}
	return nil
}

// over notes that the link has ended. What has come whole can be received yet.
func (l *messageLink) over(err error) {
	l.mu.Lock()
	if l.reason == nil {
		l.reason = closedError(err)
	}
	l.endRoom()
	l.mu.Unlock()
	nudge(l.changed)
	nudge(l.taken)
	if l.lane.isGone() { // nothing answers what waits
		l.done()
	}
}

// endRoom ends the context of a Room that waits. The lock is held.
func (l *messageLink) endRoom() {
	if l.roomEnds != nil {
		l.roomEnds(errRoomEnded)
	}
}

// done ends what waits in Send.
func (l *messageLink) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isDone {
		l.isDone = true
		close(l.closed)
	}
}

// Receive implements transport.Link.
func (l *messageLink) Receive(ctx context.Context, room transport.Room) ([]byte, error) {
	if !l.receiving.CompareAndSwap(false, true) {
		return nil, transport.Errorf(transport.ErrInvalid, "Receive is called on a link while another call of it waits")
	}
	defer l.receiving.Store(false)
	if ctx.Err() != nil && !l.isClosed() {
		return nil, context.Cause(ctx)
	}
	for {
		message, ok, err := l.step(ctx, room)
		if ok || err != nil {
			return message, err
		}
		select {
		case <-l.changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// step gives a message that has come whole, or an error, or goes on towards one.
func (l *messageLink) step(ctx context.Context, room transport.Room) (message []byte, ok bool, err error) {
	l.mu.Lock()
	q := &l.in
	n, small, told := 0, false, len(q.sizes) > 0
	if told {
		n = q.sizes[0]
		small = n <= smallBytesMax
	}
	whole := told && !small && q.given && q.got == n
	switch {
	case l.closing, l.reason != nil && !small && !whole:
		err := l.reason
		q.body, q.given = nil, false // the caller's again
		l.mu.Unlock()
		return nil, false, err
	case whole:
		message = q.popLarge()
		l.mu.Unlock()
		return message, true, nil
	case !told || q.given:
		credit := q.consumed
		q.consumed = 0
		l.mu.Unlock()
		l.giveCredit(credit)
		return nil, false, nil
	}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l.roomEnds = cancel
	l.mu.Unlock()
	body, err := l.askRoom(inner, room, n)
	if err != nil {
		return nil, false, err
	}
	l.mu.Lock()
	if l.closing {
		l.mu.Unlock()
		return nil, false, l.ended()
	}
	if small {
		credit := q.pop(body)
		l.mu.Unlock()
		l.giveCredit(credit)
		return body, true, nil
	}
	q.body, q.given = body, true
	l.mu.Unlock()
	l.put(transportRequest(kindRoom, l.lane.next(), l.id))
	return nil, false, nil
}

// giveCredit tells the plugin that small messages were received, if any were.
func (l *messageLink) giveCredit(n int) {
	if n == 0 {
		return
	}
	u := transportRequest(kindCredit, l.lane.next(), l.id)
	u.body = binary.BigEndian.AppendUint32(nil, uint32(n))
	l.put(u)
}

// askRoom asks for memory. Without it the link ends.
func (l *messageLink) askRoom(ctx context.Context, room transport.Room, n int) ([]byte, error) {
	if room == nil {
		return nil, l.roomFailed(transport.Errorf(transport.ErrInvalid, "Receive was given no Room"))
	}
	body, err := room(ctx, n)
	l.mu.Lock()
	l.roomEnds = nil
	l.mu.Unlock()
	switch {
	case err != nil:
		return nil, l.roomFailed(err)
	case len(body) != n:
		return nil, l.roomFailed(transport.Errorf(transport.ErrInvalid, "Room gave %d bytes of memory for a message of %d", len(body), n))
	}
	return body, nil
}

// roomFailed ends the link because a Room has failed, with the error that Receive gives.
func (l *messageLink) roomFailed(err error) error {
	l.end(transport.Errorf(transport.ErrClosed, "the link ended because there was no room for a message: %v", err))
	return err
}

// Close implements transport.Link.
func (l *messageLink) Close() error {
	l.end(transport.Errorf(transport.ErrClosed, "the link was closed here"))
	return nil
}

// end ends the link here, and tells the plugin.
func (l *messageLink) end(reason error) {
	l.mu.Lock()
	already := l.closing
	if !already {
		l.closing, l.reason = true, reason
	}
	l.in = inQueue{}
	l.endRoom()
	if !l.isDone {
		l.isDone = true
		close(l.closed)
	}
	l.mu.Unlock()
	nudge(l.changed)
	nudge(l.taken)
	l.lane.forget(l.id)
	if !already {
		l.put(transportRequest(kindClose, l.lane.next(), l.id))
	}
}

// isClosed says whether the link has ended here.
func (l *messageLink) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// ended returns why the link has ended, or nil.
func (l *messageLink) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason
}
