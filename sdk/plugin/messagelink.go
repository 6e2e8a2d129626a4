package plugin

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

// messageLink is a link that a plugin runs, whose messages come over its lane. It implements
// transport.Link.
//
// Of each direction one message at most is on the lane: Send returns when the plugin's has,
// and the next message is asked for when one was received. A small message comes at once and
// waits here; of a large one comes its size, and the rest when Room has given memory for it.
type messageLink struct {
	lane   *transportLane
	id     uint64
	kind   transport.Lane
	peer   transport.Peer
	urgent bool

	turn      chan struct{} // a place for the Send that is under way
	receiving atomic.Bool   // Receive is under way
	changed   chan struct{} // has a place: there is news for Receive
	closed    chan struct{} // closed when the link has ended here, or its lane

	mu      sync.Mutex
	reason  error // why the link has ended, or nil; there may be a message yet
	isDone  bool  // closed is closed
	closing bool  // it was closed here: nothing comes into anybody's memory any more
	sending uint64
	acked   chan error // has a place for what came of sending
	in      inMessage
	ahead   inMessage // the one after it, asked for while a Room waits; its seq is 0: not
	// roomEnds ends the context of a Room that is asked. Nil: none is.
	roomEnds context.CancelCauseFunc
	timer    *time.Timer // for Rooms that wait
}

// aheadAfter is how long a Room waits before the next message is asked for beside it, since
// that is how the end of a link is seen.
const aheadAfter = 5 * time.Millisecond

// inMessage is a message that comes from the plugin.
type inMessage struct {
	seq  uint64
	told bool // its size is known
	size int
	// small is a message that came at once.
	small []byte
	body  []byte // from Room
	given bool
	got   int
}

// whole says whether everything has come.
func (m *inMessage) whole() bool {
	return m.told && m.given && m.got == m.size
}

var errRoomEnded = transport.Errorf(transport.ErrClosed, "the link has ended while a room was waited for")

func newMessageLink(lane *transportLane, id uint64, kind transport.Lane, peer transport.Peer) *messageLink {
	return &messageLink{
		lane: lane, id: id, kind: kind, peer: peer, urgent: kind == transport.Control,
		turn: make(chan struct{}, 1), changed: make(chan struct{}, 1), closed: make(chan struct{}),
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
	if err := l.ended(); err != nil {
		<-l.turn
		return err
	}
	acked := make(chan error, 1)
	seq := l.lane.next()
	l.mu.Lock()
	l.sending, l.acked = seq, acked
	l.mu.Unlock()
	if l.sendParts(ctx, seq, size, message) {
		select {
		case err := <-acked: // which has given up the turn
			return err
		case <-ctx.Done():
		case <-l.closed:
			return l.ended()
		}
	}
	if l.isClosed() {
		return l.ended()
	}
	l.put(transportRequest(kindCancel, seq, l.id)) // the answer gives up the turn
	return context.Cause(ctx)
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

// ask asks the plugin for the next message, unless it was asked already.
func (l *messageLink) ask() {
	l.mu.Lock()
	l.in, l.ahead = l.ahead, inMessage{}
	asked := l.in.seq != 0
	if !asked {
		l.in.seq = l.lane.next()
	}
	seq := l.in.seq
	l.mu.Unlock()
	if !asked {
		l.put(transportRequest(kindReceive, seq, l.id))
	}
}

// lookAhead asks for the message after the one that waits for a Room. Of a large one the
// plugin sees the end itself: it has not received it yet.
func (l *messageLink) lookAhead() {
	l.mu.Lock()
	seq := uint64(0)
	if l.roomEnds != nil && l.ahead.seq == 0 && l.in.told && l.in.size <= smallBytesMax && !l.closing {
		seq = l.lane.next()
		l.ahead = inMessage{seq: seq}
	}
	l.mu.Unlock()
	if seq != 0 {
		l.put(transportRequest(kindReceive, seq, l.id))
	}
}

// told takes the answer to ask: a message, or its size, or the end of the link.
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
	m := &l.in
	if l.ahead.seq == u.seq {
		m = &l.ahead
	}
	if l.closing {
		return nil
	}
	if len(b) < sizeBytes || u.seq != m.seq || m.told {
		return fmt.Errorf("%w: message %d was not asked for", errUnit, u.seq)
	}
	size, b := uint64(binary.BigEndian.Uint32(b)), b[sizeBytes:]
	small := size <= smallBytesMax
	if size > transport.MessageBytesMax || small && size != uint64(len(b)) || !small && len(b) > 0 {
		return fmt.Errorf("%w: a message of %d bytes with %d", errUnit, size, len(b))
	}
	m.told, m.size = true, int(size)
	if small {
		m.small = append([]byte(nil), b...)
	}
	nudge(l.changed)
	return nil
}

// part takes a part of a large message.
func (l *messageLink) part(u *tunit) error {
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
	m := &l.in
	switch {
	case l.closing:
		return nil // the memory is the caller's again
	case u.seq != m.seq || !m.given || m.small != nil || len(b) > m.size-m.got || u.last != (len(b) == m.size-m.got):
		return fmt.Errorf("%w: a part of %d bytes of message %d, which is not due", errUnit, len(b), u.seq)
	}
	m.got += copy(m.body[m.got:], b)
	if u.last {
		nudge(l.changed)
	}
	return nil
}

// over notes that the link has ended. What has come whole can be received yet.
func (l *messageLink) over(err error) {
	if !errors.Is(err, transport.ErrClosed) {
		err = transport.Errorf(transport.ErrClosed, "the link has ended: %v", err)
	}
	l.mu.Lock()
	if l.reason == nil {
		l.reason = err
	}
	l.endRoom()
	l.mu.Unlock()
	nudge(l.changed)
	select {
	case <-l.lane.gone: // nothing answers what waits
		l.done()
	default:
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
	m := &l.in
	lost := l.reason != nil && !(m.told && (m.small != nil || m.size == 0 || m.whole()))
	switch {
	case l.closing, lost:
		err := l.reason
		m.body, m.given = nil, false // the caller's again
		l.mu.Unlock()
		return nil, false, err
	case m.told && !m.given:
		n := m.size
		inner, cancel := context.WithCancelCause(ctx)
		l.roomEnds = cancel
		if l.timer == nil {
			l.timer = time.AfterFunc(aheadAfter, l.lookAhead)
		} else {
			l.timer.Reset(aheadAfter)
		}
		l.mu.Unlock()
		err := l.askRoom(inner, room, n)
		l.timer.Stop()
		cancel(nil)
		if err != nil {
			return nil, false, err
		}
		l.mu.Lock()
	}
	if !m.whole() {
		l.mu.Unlock()
		return nil, false, nil
	}
	message = m.body
	l.mu.Unlock()
	l.ask()
	return message, true, nil
}

// askRoom asks for memory, and lets the message come into it.
func (l *messageLink) askRoom(ctx context.Context, room transport.Room, n int) error {
	if room == nil {
		return l.roomFailed(transport.Errorf(transport.ErrInvalid, "Receive was given no Room"))
	}
	body, err := room(ctx, n)
	l.mu.Lock()
	l.roomEnds = nil
	l.mu.Unlock()
	if err != nil {
		return l.roomFailed(err)
	}
	if len(body) != n {
		return l.roomFailed(transport.Errorf(transport.ErrInvalid, "Room gave %d bytes of memory for a message of %d", len(body), n))
	}
	l.mu.Lock()
	if l.closing {
		l.mu.Unlock()
		return l.ended()
	}
	m := &l.in
	m.body, m.given = body, true
	small := m.small != nil || n == 0
	if small {
		m.got = copy(body, m.small)
	}
	seq := m.seq
	l.mu.Unlock()
	if !small {
		l.put(transportRequest(kindRoom, seq, l.id))
	}
	return nil
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
	l.in, l.ahead = inMessage{}, inMessage{}
	l.endRoom()
	if !l.isDone {
		l.isDone = true
		close(l.closed)
	}
	l.mu.Unlock()
	nudge(l.changed)
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
