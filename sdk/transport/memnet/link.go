package memnet

import (
	"errors"
	"slices"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

// ErrFull: as much of a link's messages is under way as may be. A MaySend event tells when
// to try again.
var ErrFull = errors.New("as much is under way on the link as may be")

var (
	errClosed  = transport.Errorf(transport.ErrClosed, "the link has ended")
	errStopped = transport.Errorf(transport.ErrClosed, "the node is down")
)

// Link is one link, as one end has it; its other end has another. It means that link for
// ever: when it has ended, and what had arrived has been received, all calls say
// ErrClosed.
type Link uint64

// state is how it stands with an end of a link.
type state uint8

const (
	absent  state = iota // nobody has it (yet)
	dialing              // it waits for an answer
	asked                // the other end dials, and waits for a place among those to accept
	open
	ended // nothing comes and nothing goes any more; some has arrived and is not received
	left  // whom it belonged to has no part in it any more
)

// pair is both ends of a link. The one that dials is the first.
type pair [2]end

// end is one end of a link.
type end struct {
	gen        uint32
	state      state
	queued     bool // it is to be accepted
	lane       transport.Lane
	node       Node
	prev, next int32 // in the list of the node
	peer       transport.Peer
	target     transport.Target // of the one that dials

	out   ring[item] // under way from here
	last  int64      // when the last of it arrives
	sent  int64      // what of it counts: sent and not received, or lost
	want  int        // how large the smallest message is that was refused as too much; -1: none
	lost  bool       // a message was: none arrives any more
	over  bool       // the end of the link is under way, or has arrived
	in    ring[[]byte]
	place [alarmKinds]int32

	probing bool // a probe is under way
}

// item is something under way.
type item struct {
	at   int64
	kind itemKind
	data []byte
	err  error // of a refusal
}

type itemKind uint8

const (
	message itemKind = iota
	finish           // the link has ended
	knock            // somebody dials
	agree            // and is let in
	refuse           // or not
	probe            // is anybody there?
)

// laneIndex numbers the lanes from zero.
func laneIndex(l transport.Lane) int { return int(l - transport.Control) }

func (m *Machine) end(e int32) *end { return &m.pairs[e>>1][e&1] }

// handle makes the Link of an end.
func (m *Machine) handle(e int32) Link { return Link(m.end(e).gen)<<32 | Link(uint32(e)) }

// find returns the end of a Link, while it is somebody's.
func (m *Machine) find(l Link) (int32, bool) {
	e := int32(uint32(l))
	if e < 0 || int(e>>1) >= len(m.pairs) {
		return 0, false
	}
	end := m.end(e)
	return e, end.gen == uint32(l>>32) && end.state != absent && end.state != left
}

// Dial begins to make a link from a node. A Dialled event tells that it is made, or a
// Failed one why not. Closing it before that gives it up. ErrInvalid: the target makes no
// sense; ErrRetry: the network has no such endpoint; ErrClosed: the node is down.
func (m *Machine) Dial(now time.Time, from Node, to transport.Target) (Link, error) {
	m.tick(now)
	if err := checkTarget(to); err != nil {
		return 0, err
	}
	if !m.nodes[from].up {
		return 0, errStopped
	}
	node, found := m.names[to.Endpoint]
	if !found {
		return 0, transport.Errorf(transport.ErrRetry, "the network has no node at %s", to.Endpoint)
	}
	e := m.alloc()
	dials, asked := m.end(e), m.end(e^1)
	dials.lane, asked.lane = to.Lane, to.Lane
	dials.state, dials.target = dialing, to
	asked.peer = m.nodes[from].peer()
	m.enlist(e, from)
	m.enlist(e^1, node)
	m.set(e, expiry, m.now+int64(m.opt.DialTimeout))
	m.depart(e, item{kind: knock})
	return m.handle(e), nil
}

func checkTarget(to transport.Target) error {
	if to.Lane != transport.Control && to.Lane != transport.Data {
		return transport.Errorf(transport.ErrInvalid, "%d is not a lane", to.Lane)
	}
	if to.NodeID < transport.AnyNode {
		return transport.Errorf(transport.ErrInvalid, "%d is not a node's id", to.NodeID)
	}
	return checkEndpoint(to.Endpoint)
}

// Accept gives the link that has waited longest of those that were dialled to a node. Of
// what arrives on it before, no event tells.
func (m *Machine) Accept(now time.Time, at Node) (Link, bool) {
	m.tick(now)
	n := &m.nodes[at]
	if len(n.accepts) == 0 {
		return 0, false
	}
	e := n.accepts[0]
	n.accepts = slices.Delete(n.accepts, 0, 1)
	m.end(e).queued = false
	n.queued[laneIndex(m.end(e).lane)]--
	m.unset(e, wake)
	m.admit(at)
	return m.handle(e), true
}

// Peer returns who is at the other end of a link, and which lane it is of.
func (m *Machine) Peer(l Link) (transport.Peer, transport.Lane, error) {
	e, ok := m.find(l)
	if !ok {
		return transport.Peer{}, 0, errClosed
	}
	return m.end(e).peer, m.end(e).lane, nil
}

// Send sends a copy of a message, given in parts. See Give.
func (m *Machine) Send(now time.Time, l Link, parts ...[]byte) error {
	n := 0
	for _, part := range parts {
		n += len(part)
	}
	if err := m.MaySend(l, n); err != nil {
		return err
	}
	data := make([]byte, 0, n)
	for _, part := range parts {
		data = append(data, part...)
	}
	return m.Give(now, l, data)
}

// Give sends a message, whose bytes are the network's from then on. ErrFull, and ErrInvalid
// where it is larger than MessageBytesMax: nothing was done. ErrClosed: the link has ended,
// or is not made yet.
func (m *Machine) Give(now time.Time, l Link, data []byte) error {
	m.tick(now)
	if err := m.MaySend(l, len(data)); err != nil {
		return err
	}
	e, _ := m.find(l)
	s := m.end(e)
	sloppy := &m.ways[s.node][m.end(e^1).node].Sloppy
	if m.chance(sloppy.DropChance) {
		return nil
	}
	twice := m.chance(sloppy.TwiceChance)
	s.sent += cost(len(data))
	m.depart(e, item{kind: message, data: data})
	if twice && fits(s.sent, len(data)) {
		s.sent += cost(len(data))
		m.depart(e, item{kind: message, data: slices.Clone(data)})
	}
	if m.chance(sloppy.SwapChance) {
		m.swap(s)
	}
	return nil
}

// MaySend says whether a message of n bytes would be taken now; see Give. When the answer
// is ErrFull, a MaySend event tells when it would be.
func (m *Machine) MaySend(l Link, n int) error {
	e, ok := m.find(l)
	if !ok || m.end(e).state != open {
		return errClosed
	}
	if n > transport.MessageBytesMax {
		return transport.Errorf(transport.ErrInvalid, "a message of %d bytes; at most %d fit", n, transport.MessageBytesMax)
	}
	s := m.end(e)
	if fits(s.sent, n) {
		return nil
	}
	if s.want < 0 || n < s.want {
		s.want = n
	}
	return ErrFull
}

// cost is what a message of n bytes counts.
func cost(n int) int64 { return int64(max(n, messageBytesLeast)) }

// fits says whether a message of n bytes may be sent where so much is under way: at most
// LinkBytesMax, beside one message that is larger.
func fits(sent int64, n int) bool {
	if n > transport.LinkBytesMax {
		return sent <= transport.LinkBytesMax
	}
	return sent+cost(n) <= transport.LinkBytesMax
}

// swap lets the newest message under way change places with another.
func (m *Machine) swap(s *end) {
	n := s.out.n
	if n < 2 {
		return
	}
	newest, other := s.out.at(n-1), s.out.at(m.rand.IntN(n-1))
	if newest.kind == message && other.kind == message {
		newest.data, other.data = other.data, newest.data
	}
}

// Peek returns the next message that has arrived on a link, which stays the network's; ok
// is false when there is none yet. ErrClosed: none will come.
func (m *Machine) Peek(l Link) (data []byte, ok bool, err error) {
	e, found := m.find(l)
	if !found {
		return nil, false, errClosed
	}
	if in := &m.end(e).in; in.n > 0 {
		return *in.at(0), true, nil
	}
	return nil, false, nil
}

// Receive takes the next message that has arrived on a link; it is the caller's. See Peek.
func (m *Machine) Receive(now time.Time, l Link) (data []byte, ok bool, err error) {
	m.tick(now)
	e, found := m.find(l)
	if !found {
		return nil, false, errClosed
	}
	r, s := m.end(e), m.end(e^1)
	if r.in.n == 0 {
		return nil, false, nil
	}
	data = r.in.pop()
	m.held -= int64(len(data))
	s.sent -= cost(len(data))
	if s.want >= 0 && fits(s.sent, s.want) && s.state == open {
		s.want = -1
		m.set(e^1, wake, m.now)
	}
	if r.state == ended && r.in.n == 0 {
		m.leave(e)
	}
	return data, true, nil
}

// Close ends a link at this end at once, and at the other when it hears of it. What is
// under way to the other may be lost. Closing one that has ended does nothing.
func (m *Machine) Close(now time.Time, l Link) {
	m.tick(now)
	e, ok := m.find(l)
	if !ok {
		return
	}
	m.hangUp(e)
	m.leave(e)
}

// hangUp tells the other end that this one is not there any more.
func (m *Machine) hangUp(e int32) {
	s := m.end(e)
	if s.over {
		return
	}
	// The end comes behind what was sent, or instead of it.
	if s.state == open && m.rand.IntN(2) == 0 {
		at := m.travel(&m.ways[s.node][m.end(e^1).node], laneIndex(s.lane), 0)
		for s.out.n > 0 && s.out.at(s.out.n-1).at > at && s.out.at(s.out.n-1).kind == message {
			m.held -= int64(len(s.out.drop().data))
		}
		s.last = at
		if s.out.n > 0 {
			s.last = max(at, s.out.at(s.out.n-1).at)
		} else {
			m.unset(e, arrival)
		}
	}
	m.depart(e, item{kind: finish})
}
