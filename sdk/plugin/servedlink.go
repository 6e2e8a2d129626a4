package plugin

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/brokerd/brokerd/sdk/transport"
)

// servedLink is one link of a transport that is served over a lane. What it holds of either
// direction is windowBytes of small messages, which its client keeps to, and one large one.
type servedLink struct {
	lane   *transportServerLane
	id     uint64
	link   transport.Link
	urgent bool

	ctx    context.Context // ends with the link
	cancel context.CancelFunc
	// rooms tells a Receive that waits for it that there is room, and credits one that waits
	// for credit that there is more.
	rooms, credits chan struct{}

	mu     sync.Mutex
	ended  bool
	coming outMessage // of which not all parts have come
	wait   outQueue   // whole messages, to be sent
	held   int        // what small ones that were not sent yet cost
	busy   bool       // somebody sends
	// now is the large message that is being sent, and giveUpNow gives that up.
	now       uint64
	giveUpNow context.CancelFunc
	credit    int  // what the client takes of small messages
	asked     bool // the client was told of a large message, and has not said yet that there is room
}

// outMessage is a message that comes from the client.
type outMessage struct {
	seq   uint64 // zero: there is none
	parts [][]byte
	mems  []memory
	bytes int
	small bool // its bytes are in outQueue.small
}

// outQueue is messages to be sent, in order.
type outQueue struct {
	messages []outMessage
	small    []byte // the small ones, back to back
}

func newServedLink(lane *transportServerLane, link transport.Link) *servedLink {
	s := &servedLink{
		lane: lane, link: link, urgent: link.Lane() == transport.Control,
		rooms: make(chan struct{}, 1), credits: make(chan struct{}, 1), credit: windowBytes,
	}
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

// part takes a part of a message, and has that sent with the last one.
func (s *servedLink) part(u tunit, mem memory) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.coming
	if m.seq != 0 && m.seq != u.seq || len(u.body) > partBytesMax || m.bytes+len(u.body) > transport.MessageBytesMax {
		return fmt.Errorf("%w: part %d of %d bytes of a message %d", errUnit, u.seq, len(u.body), m.seq)
	}
	if m.seq == 0 && u.last && len(u.body) <= smallBytesMax {
		if s.held += smallCost(len(u.body)); s.held > windowBytes {
			return fmt.Errorf("%w: small messages beyond the window", errUnit)
		}
		s.wait.small = append(s.wait.small, u.body...)
		s.wait.messages = append(s.wait.messages, outMessage{seq: u.seq, bytes: len(u.body), small: true})
		s.begin()
		return nil
	}
	m.seq = u.seq
	m.bytes += len(u.body)
	if len(u.body) > 0 {
		mem.Ref()
		m.mems = append(m.mems, mem)
		m.parts = append(m.parts, u.body)
	}
	if !u.last {
		return nil
	}
	if s.now != 0 {
		return fmt.Errorf("%w: two large messages at one time", errUnit)
	}
	s.now = u.seq
	s.wait.messages = append(s.wait.messages, *m)
	s.coming = outMessage{}
	s.begin()
	return nil
}

// begin has somebody send what waits. The lock is held.
func (s *servedLink) begin() {
	if !s.busy {
		s.busy = true
		s.lane.wg.Go(s.send)
	}
}

// send sends what waits, until nothing does.
func (s *servedLink) send() {
	var q outQueue
	took := 0
	for {
		s.mu.Lock()
		q, s.wait = s.wait, outQueue{messages: q.messages[:0], small: q.small[:0]}
		if len(q.messages) == 0 {
			s.busy = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		rest := q.small
		for i := range q.messages {
			m := &q.messages[i]
			if !m.small {
				s.sendLarge(m)
				continue
			}
			err := s.link.Send(s.ctx, rest[:m.bytes:m.bytes])
			rest = rest[m.bytes:]
			took += smallCost(m.bytes)
			if err != nil || took >= windowBytes/2 || i == len(q.messages)-1 {
				s.took(took, err)
				took = 0
			}
		}
		clear(q.messages)
		if took > 0 { // a large one was the last
			s.took(took, nil)
			took = 0
		}
	}
}

// took tells the client that small messages were sent, or that no more can be.
func (s *servedLink) took(cost int, err error) {
	s.mu.Lock()
	s.held -= cost
	s.mu.Unlock()
	a := answerTo(&tunit{kind: kindTook, link: s.id}, err)
	if err == nil {
		a.body = binary.BigEndian.AppendUint32(a.body, uint32(cost))
	}
	s.lane.out.put(a, s.urgent)
}

// sendLarge sends a large message, and answers.
func (s *servedLink) sendLarge(m *outMessage) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	s.mu.Lock()
	given := s.now != m.seq // it was given up already
	s.giveUpNow = cancel
	s.mu.Unlock()
	err := context.Canceled
	if !given {
		err = s.link.Send(ctx, m.parts...)
	}
	s.mu.Lock()
	s.now, s.giveUpNow = 0, nil
	s.mu.Unlock()
	m.free()
	s.lane.out.put(answerTo(&tunit{kind: kindSend, seq: m.seq, link: s.id}, err), s.urgent)
}

func (m *outMessage) free() {
	for _, mem := range m.mems {
		mem.Free()
	}
}

// giveUp drops the large message of a sequence, or gives up its sending.
func (s *servedLink) giveUp(seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case seq == 0:
	case s.coming.seq == seq:
		s.coming.free()
		s.coming = outMessage{}
		s.lane.out.put(answerTo(&tunit{kind: kindSend, seq: seq, link: s.id}, context.Canceled), s.urgent)
	case s.now != seq:
	case s.giveUpNow != nil:
		s.giveUpNow() // sendLarge answers
	default:
		s.now = noMessage // as before, when its turn comes
	}
}

// noMessage is the sequence of no message.
const noMessage = ^uint64(0)

// addCredit lets more small messages go to the client.
func (s *servedLink) addCredit(u tunit) error {
	if len(u.body) != sizeBytes {
		return fmt.Errorf("%w: credit of %d bytes", errUnit, len(u.body))
	}
	n := binary.BigEndian.Uint32(u.body)
	s.mu.Lock()
	defer s.mu.Unlock()
	if uint64(s.credit)+uint64(n) > windowBytes {
		return fmt.Errorf("%w: credit beyond the window", errUnit)
	}
	s.credit += int(n)
	nudge(s.credits)
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

// receive passes on what the link receives, until that has ended.
func (s *servedLink) receive() {
	for {
		message, err := s.link.Receive(s.ctx, s.memory)
		switch {
		case err != nil:
			s.lane.out.put(answerTo(&tunit{kind: kindMessage, link: s.id}, err), s.urgent)
			return
		case len(message) <= smallBytesMax:
			a := s.tell(len(message))
			a.data = message
			s.lane.out.put(a, s.urgent)
		case !s.pass(message):
			return
		}
	}
}

// tell makes the unit that tells of a message.
func (s *servedLink) tell(n int) *tunit {
	a := answerTo(&tunit{kind: kindMessage, link: s.id}, nil)
	a.body = binary.BigEndian.AppendUint32(a.body, uint32(n))
	return a
}

// memory is the Room of what is received: when the client takes a small message, and has room
// for a large one.
func (s *servedLink) memory(ctx context.Context, n int) ([]byte, error) {
	ready := s.credits
	if n > smallBytesMax {
		s.mu.Lock()
		s.asked = true
		s.mu.Unlock()
		s.lane.out.put(s.tell(n), s.urgent)
		ready = s.rooms
	}
	for !s.mayPass(n) {
		select {
		case <-ready:
			if n > smallBytesMax {
				return make([]byte, n), nil
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return make([]byte, n), nil
}

// mayPass takes the credit that a small message costs.
func (s *servedLink) mayPass(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > smallBytesMax || s.credit < smallCost(n) {
		return false
	}
	s.credit -= smallCost(n)
	return true
}

// pass passes a large message on in parts, of which one at a time waits to be sent. It says
// whether all went.
func (s *servedLink) pass(message []byte) bool {
	written := make(chan struct{}, 1)
	for len(message) > 0 {
		n := min(len(message), partBytesMax)
		a := answerTo(&tunit{kind: kindRoom, link: s.id}, nil)
		a.data, a.written = message[:n], written
		message = message[n:]
		a.last = len(message) == 0
		s.lane.out.put(a, s.urgent)
		select {
		case <-written:
		case <-s.ctx.Done():
			return false
		}
	}
	return true
}
