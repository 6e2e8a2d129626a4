package plugin

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/brokerd/brokerd/sdk/transport"
)

// servedLink is one link of a transport that is served over a lane. Its client sends one
// message at a time, and asks for one at a time, so that of each direction one is here at
// most.
type servedLink struct {
	lane   *transportServerLane
	id     uint64
	link   transport.Link
	urgent bool

	ctx    context.Context // ends with the link
	cancel context.CancelFunc
	// rooms tells a Receive that waits for it that there is room.
	rooms chan struct{}

	mu        sync.Mutex
	out       outMessage
	receiving bool
	asked     bool // the client was told of a message, and has not said yet that there is room
	ended     bool
}

// outMessage is a message that comes from the client.
type outMessage struct {
	seq   uint64 // zero: there is none
	parts [][]byte
	mems  []memory
	bytes int
	// cancel gives up its Send, once that is under way.
	cancel context.CancelFunc
}

func newServedLink(lane *transportServerLane, link transport.Link) *servedLink {
	s := &servedLink{lane: lane, link: link, urgent: link.Lane() == transport.Control, rooms: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// end ends the link.
func (s *servedLink) end() {
	s.mu.Lock()
	already := s.ended
	s.ended = true
	s.mu.Unlock()
	if already {
		return
	}
	s.cancel()
	s.lane.wg.Go(func() { _ = s.link.Close() }) // it gives no error
}

// part takes a part of a message, and sends that with the last one.
func (s *servedLink) part(u tunit, mem memory) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.out
	if m.cancel != nil || m.seq != 0 && m.seq != u.seq || len(u.body) > partBytesMax || m.bytes+len(u.body) > transport.MessageBytesMax {
		return fmt.Errorf("%w: part %d of %d bytes for a message %d", errUnit, u.seq, len(u.body), m.seq)
	}
	m.seq = u.seq
	m.bytes += len(u.body)
	switch body := u.body; {
	case len(body) == 0:
	case len(body) <= smallBytesMax: // it is not worth to hold what it lies in
		m.parts = append(m.parts, append([]byte(nil), body...))
	default:
		mem.Ref()
		m.mems = append(m.mems, mem)
		m.parts = append(m.parts, body)
	}
	if !u.last {
		return nil
	}
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(s.ctx)
	s.lane.wg.Go(func() { s.send(ctx) })
	return nil
}

// send sends the message that has come, and answers.
func (s *servedLink) send(ctx context.Context) {
	s.mu.Lock()
	m := s.out
	s.mu.Unlock()
	err := s.link.Send(ctx, m.parts...)
	s.mu.Lock()
	s.out = outMessage{}
	s.mu.Unlock()
	m.cancel()
	m.free()
	s.lane.out.put(answerTo(&tunit{kind: kindSend, seq: m.seq, link: s.id}, err), s.urgent)
}

func (m *outMessage) free() {
	for _, mem := range m.mems {
		mem.Free()
	}
}

// giveUp drops the message of a sequence, or gives up its sending.
func (s *servedLink) giveUp(seq uint64) {
	s.mu.Lock()
	m := s.out
	switch {
	case m.seq != seq:
		s.mu.Unlock()
		return
	case m.cancel != nil:
		s.mu.Unlock()
		m.cancel() // send answers
		return
	}
	s.out = outMessage{}
	s.mu.Unlock()
	m.free()
	s.lane.out.put(answerTo(&tunit{kind: kindSend, seq: seq, link: s.id}, context.Canceled), s.urgent)
}

// receive begins to receive a message.
func (s *servedLink) receive(u tunit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.receiving {
		return fmt.Errorf("%w: two messages are asked for at one time", errUnit)
	}
	s.receiving = true
	u.body = nil
	s.lane.wg.Go(func() { s.receiveOne(&u) })
	return nil
}

// room says that the client has memory for the message that it was told of. The link may have
// ended meanwhile.
func (s *servedLink) room() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked {
		s.asked = false
		s.rooms <- struct{}{} // it has a place for what was asked
	}
}

// receiveOne receives a message and passes it on.
func (s *servedLink) receiveOne(u *tunit) {
	told := false
	var free func()
	message, err := s.link.Receive(s.ctx, func(ctx context.Context, n int) ([]byte, error) {
		if n <= smallBytesMax {
			var b []byte
			b, free = s.lane.parts.get(n)
			return b, nil
		}
		told = true
		s.mu.Lock()
		s.asked = true
		s.mu.Unlock()
		s.lane.out.put(sizeAnswer(u, n), s.urgent)
		select {
		case <-s.rooms:
			return make([]byte, n), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	})
	s.mu.Lock()
	s.receiving, s.asked = false, false
	s.mu.Unlock()
	switch {
	case err == nil && !told:
		a := sizeAnswer(u, len(message))
		a.data, a.free = message, free
		s.lane.out.put(a, s.urgent)
		return
	case err == nil:
		s.pass(u, message)
		return
	}
	if told {
		u.kind = kindRoom
	}
	s.lane.out.put(answerTo(u, err), s.urgent)
}

// sizeAnswer tells of a message.
func sizeAnswer(u *tunit, n int) *tunit {
	a := answerTo(u, nil)
	a.body = binary.BigEndian.AppendUint32(a.body, uint32(n))
	return a
}

// pass passes a large message on in parts, of which one at a time waits to be sent.
func (s *servedLink) pass(u *tunit, message []byte) {
	u.kind = kindRoom
	written := make(chan struct{}, 1)
	for len(message) > 0 {
		n := min(len(message), partBytesMax)
		a := answerTo(u, nil)
		a.data, a.written = message[:n], written
		message = message[n:]
		a.last = len(message) == 0
		s.lane.out.put(a, s.urgent)
		select {
		case <-written:
		case <-s.ctx.Done():
			return
		}
	}
}
