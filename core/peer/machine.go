package peer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/transport"
)

// Why a question has no answer, beside what the transport says.
var (
	// ErrUnknown: nobody has said where the node can be dialled.
	ErrUnknown = errors.New("nobody knows where the node is")
	// ErrBusy: too many questions, or too large ones, wait for the node already.
	ErrBusy = errors.New("too much waits for the node")
	// ErrSelf: it is this node that would be asked.
	ErrSelf = errors.New("the node is this one")
	// ErrForeign: who answers belongs to another cluster, or has not proved enough.
	ErrForeign = errors.New("the node does not belong here")
)

var errStopped = transport.Errorf(transport.ErrClosed, "this node stops")

// use is what a link is for.
type use uint8

const (
	useControl use = iota
	useBulk
	useStream
	uses
	useUnknown // a data link whose first message has not come
)

// phase is how it stands with a link.
type phase uint8

const (
	dialing phase = iota
	silent        // accepted, of the data lane, and its first message has not come
	up
	closing // CloseLink was asked for
)

// link is one link.
type link struct {
	id     LinkID
	peer   transport.Peer
	lane   transport.Lane
	use    use
	phase  phase
	route  *route // nil: a peer has dialled it
	since  time.Time
	box    *outbox
	stream model.StreamID // 0: none
	why    cause          // it is closed

	heardAt time.Time // when something came last
	// What is written is proved to have arrived by the pong to a ping that was sent after it.
	pingAt time.Time // when the next ping is due
	pinged time.Time // a ping is under way since then; zero: none
	ping   uint64    // its number
	dirty  bool      // something was written since the last ping
	owed   int64     // bytes that were written and not proved yet
	later  int64     // those of them that were written after the ping
	heard  int64     // bytes that have come since the ping
	coming int64     // bytes that have begun to arrive
	asked  []asked   // of the peer, in the order of asking
}

// cause is why a link was closed by this node.
type cause uint8

const (
	causeNone  cause = iota
	causeIdle        // nobody needs it now
	causeEnded       // its owner wants it no more, or it is silent
	causeBad         // the peer is not what it should be
)

// asked is a question of a peer that waits for its answer.
type asked struct {
	id     QuestionID
	number uint64
	at     time.Time
}

// Machine keeps a node's links to other nodes. It belongs to one goroutine.
type Machine struct {
	cfg  Config
	rand *rand.Rand

	book       map[model.NodeID]string
	targets    []*target // in the order in which they came to be
	byNode     map[model.NodeID]*target
	byEndpoint map[string]*target

	links   []*link // in the order in which they came to be
	byLink  map[LinkID]*link
	streams map[model.StreamID]*link

	lastLink     LinkID
	lastStream   model.StreamID
	lastNumber   uint64 // of questions and pings
	lastQuestion QuestionID
	next         time.Time // nothing is due before; zero: nothing at all
	stopped      bool
}

// New makes a machine that has no link. rand spreads the times of dials.
func New(cfg Config, rand *rand.Rand) (*Machine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("peers: %w", err)
	}
	return &Machine{
		cfg:        cfg,
		rand:       rand,
		book:       make(map[model.NodeID]string),
		byNode:     make(map[model.NodeID]*target),
		byEndpoint: make(map[string]*target),
		byLink:     make(map[LinkID]*link),
		streams:    make(map[model.StreamID]*link),
		lastLink:   1,
	}, nil
}

// Step takes one input and appends what it asks for to out.
func (m *Machine) Step(now time.Time, in Input, out *Effects) {
	switch in := in.(type) {
	case *Sent:
		m.sent(now, in, out)
	case *Received:
		m.received(now, in, out)
	case *Arriving:
		if l := m.byLink[in.Link]; l != nil {
			l.coming = int64(in.Bytes)
		}
	case *Post:
		m.post(now, in, out)
	case *Ask:
		m.ask(now, in, out)
	case *Answer:
		m.answer(now, in, out)
	case *Dialled:
		m.dialled(now, in, out)
	case *Failed:
		m.failed(now, in, out)
	case *Accepted:
		m.accepted(now, in, out)
	case *Ended:
		m.ended(now, in, out)
	default:
		m.owner(now, in, out)
	}
	m.tick(now, out)
}

// owner takes what owners ask of links as such.
func (m *Machine) owner(now time.Time, in Input, out *Effects) {
	switch in := in.(type) {
	case *Locate:
		m.locate(now, in, out)
	case *Want:
		m.want(now, in, out)
	case *End:
		if l := m.streams[in.Stream]; l != nil {
			m.close(l, causeEnded, out)
		}
	case *Stop:
		m.stop(out)
	}
}

// Deadline is when Step is to be called though nothing has happened, with a Tick; false
// for never. It may be earlier than anything is due.
func (m *Machine) Deadline() (time.Time, bool) { return m.next, !m.next.IsZero() }

// Send queues a message of a stream, as Streams of core/replica has it: false, where there
// is no such stream or its queue is full, and then it ends and sent is not called.
func (m *Machine) Send(now time.Time, s model.StreamID, parts [][]byte, sent func(taken bool), out *Effects) bool {
	l := m.streams[s]
	if l == nil || l.phase != up {
		return false
	}
	n := 0
	for _, part := range parts {
		n += len(part)
	}
	if n < StreamMessageBytesLeast || n > transport.MessageBytesMax || !l.box.fits(n, m.cfg.StreamBytesMax) {
		m.close(l, causeEnded, out)
		return false
	}
	l.box.push(message{parts: parts, bytes: n, at: now, sent: sent})
	m.pump(now, l, out)
	return true
}

// Stream says which stream a link is, if it is one: what arrives on it then needs memory of
// its owner.
func (m *Machine) Stream(id LinkID) (model.StreamID, bool) {
	l := m.byLink[id]
	if l == nil || l.stream == 0 {
		return 0, false
	}
	return l.stream, true
}

// MessageBytesMax is the largest message that may arrive on a link.
func (m *Machine) MessageBytesMax(id LinkID) int {
	l := m.byLink[id]
	switch {
	case l == nil || l.phase == closing:
		return 0
	case l.phase == silent:
		return HelloBytesMax
	case l.use == useControl:
		return ControlBytesMax
	default:
		return BulkBytesMax
	}
}

// wake sees to it that Step is called by a time.
func (m *Machine) wake(at time.Time) {
	if m.next.IsZero() || at.Before(m.next) {
		m.next = at
	}
}

// addLink makes a link known.
func (m *Machine) addLink(l *link) {
	m.links = append(m.links, l)
	m.byLink[l.id] = l
}

// dropLink forgets a link that has ended.
func (m *Machine) dropLink(l *link) {
	m.links = slices.DeleteFunc(m.links, func(other *link) bool { return other == l })
	delete(m.byLink, l.id)
	if l.stream != 0 {
		delete(m.streams, l.stream)
	}
}

// close ends a link from this side.
func (m *Machine) close(l *link, why cause, out *Effects) {
	if l.phase == closing {
		return
	}
	l.why = why
	if l.phase == dialing {
		l.why = causeBad // it never stood
	}
	l.phase = closing
	out.add(Effect{Kind: CloseLink, Link: l.id})
}

// reject ends a link whose peer is not what it should be.
func (m *Machine) reject(l *link, err error, out *Effects) {
	out.add(Effect{Kind: Told, Event: Event{Kind: Rejected, Address: l.address(), Peer: l.peer, Err: err}})
	m.close(l, causeBad, out)
}

// address is where the link was dialled.
func (l *link) address() model.Address {
	if l.route == nil {
		return model.Address{Node: model.NodeID(l.peer.NodeID)}
	}
	return l.route.target.address()
}

// check says what is wrong with who is at the other end.
func (m *Machine) check(p transport.Peer) error {
	mine := &m.cfg.Identity
	switch {
	case p.NodeID == mine.NodeID && p.DirectoryID == mine.DirectoryID:
		return ErrSelf
	case p.ClusterID != "" && mine.ClusterID != "" && p.ClusterID != mine.ClusterID:
		return fmt.Errorf("node %d is of the cluster %q, not of %q: %w", p.NodeID, p.ClusterID, mine.ClusterID, ErrForeign)
	case p.NodeID == mine.NodeID:
		return fmt.Errorf("another node says that it is node %d: %w", p.NodeID, ErrForeign)
	case p.NodeID < 0:
		return fmt.Errorf("node %d is none: %w", p.NodeID, ErrForeign)
	case p.Proof < m.cfg.Proof:
		return fmt.Errorf("node %d has proved %s, and %s is demanded: %w", p.NodeID, p.Proof, m.cfg.Proof, ErrForeign)
	}
	return nil
}

// push queues a message of this machine or of an owner on a link, which ends if its peer lets
// too much wait.
func (m *Machine) push(now time.Time, l *link, msg message, out *Effects) {
	if !l.box.fits(msg.bytes, m.cfg.QueueBytesMax) {
		m.reject(l, fmt.Errorf("more waits for node %d than it takes: %w", l.peer.NodeID, ErrBusy), out)
		return
	}
	msg.at = now
	if msg.kind == kindPing || msg.kind == kindPong {
		l.box.pushFirst(msg)
	} else {
		l.box.push(msg)
	}
	m.pump(now, l, out)
}

// pump gives the driver what it may have.
func (m *Machine) pump(now time.Time, l *link, out *Effects) {
	if l.phase != up {
		return
	}
	for {
		msg, ok := l.box.next()
		if !ok {
			return
		}
		if msg.kind == kindQuestion {
			l.route.written(now, msg.number, l)
		}
		if msg.kind != kindPing && msg.kind != kindPong {
			m.owe(now, l, msg.bytes)
		}
		out.add(Effect{Kind: Write, Link: l.id, Parts: msg.parts})
	}
}

// owe notes that something is to be proved to have arrived.
func (m *Machine) owe(now time.Time, l *link, n int) {
	l.owed += int64(n)
	if !l.pinged.IsZero() {
		l.later += int64(n)
	}
	if !l.dirty {
		l.dirty = true
		if due := now.Add(m.cfg.PingAfter); l.pingAt.Before(due) {
			l.pingAt = due
		}
		m.wake(l.pingAt)
	}
}

// sent: the driver is done with the oldest.
func (m *Machine) sent(now time.Time, in *Sent, out *Effects) {
	l := m.byLink[in.Link]
	if l == nil || l.box == nil || l.box.written == 0 {
		return
	}
	if msg := l.box.pop(); msg.sent != nil {
		out.add(Effect{Kind: Settled, Sent: msg.sent, Was: true})
	}
	m.pump(now, l, out)
}

// ended: a link is over, and what was written and not taken is lost.
func (m *Machine) ended(now time.Time, in *Ended, out *Effects) {
	l := m.byLink[in.Link]
	if l == nil {
		return
	}
	m.dropLink(l)
	for l.box.written > 0 {
		m.lose(l.box.pop(), out)
	}
	if l.route != nil && l.use != useStream {
		m.unlink(now, l, out)
		return
	}
	for l.box.len() > 0 {
		l.box.next()
		m.lose(l.box.pop(), out)
	}
	if l.stream != 0 {
		out.add(Effect{Kind: StreamDown, Link: l.id, Stream: l.stream, Peer: l.peer})
	}
	if l.route != nil {
		m.unlink(now, l, out)
	}
}

func (m *Machine) lose(msg message, out *Effects) {
	if msg.sent != nil {
		out.add(Effect{Kind: Settled, Sent: msg.sent})
	}
}

// stop ends everything.
func (m *Machine) stop(out *Effects) {
	m.stopped = true
	for _, t := range m.targets {
		for u := range t.routes {
			r := &t.routes[u]
			r.wanted, r.probe = false, false
			m.giveUp(r, errStopped, out)
			if r.link == nil {
				r.box = outbox{}
			}
		}
	}
	for _, l := range m.links {
		m.close(l, causeIdle, out)
	}
}
