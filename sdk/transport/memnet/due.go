package memnet

import (
	"slices"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

// EventKind is what an Event tells.
type EventKind uint8

// The kinds of event.
const (
	Dialled  EventKind = 1 // the link that the node has dialled is made
	Failed   EventKind = 2 // or not, and the Link is over: Err says why
	Incoming EventKind = 3 // a link waits for Accept at the node; the event does not say which
	Arrived  EventKind = 4 // a message can be received
	Ended    EventKind = 5 // the link has ended; what has arrived can be received
	MaySend  EventKind = 6 // there is room for a message that was refused with ErrFull
)

// String returns the kind's name, as in traces.
func (k EventKind) String() string {
	switch k {
	case Dialled:
		return "dialled"
	case Failed:
		return "failed"
	case Incoming:
		return "incoming"
	case Arrived:
		return "arrived"
	case Ended:
		return "ended"
	case MaySend:
		return "may send"
	default:
		return "unknown"
	}
}

// Event is something that a node is told.
type Event struct {
	Kind EventKind
	Node Node
	Link Link
	Err  error // of Failed; it carries a class of package transport
}

// Due gives the next event that is due by now, in the order of their times, and at one
// time in the order in which they came to be. False: nothing more is due.
func (m *Machine) Due(now time.Time) (Event, bool) {
	m.tick(now)
	for len(m.alarms) > 0 && m.alarms[0].at <= m.now {
		a := m.alarms[0]
		m.unset(a.end, a.kind)
		if ev := m.ring(a.end, a.kind); ev.Kind != 0 {
			return ev, true
		}
	}
	return Event{}, false
}

// ring does what an alarm was set for. The event's kind is zero where nobody is to be told.
func (m *Machine) ring(e int32, kind alarmKind) Event {
	end, other := m.end(e), m.end(e^1)
	at := end.node
	if kind == arrival {
		at = other.node
	}
	if m.nodes[at].paused || (kind == arrival && m.ways[end.node][at].Hold) {
		end.place[kind] = waiting
		return Event{}
	}
	switch {
	case kind == arrival:
		return m.arrive(e)
	case kind == expiry:
		return m.expire(e)
	case end.queued:
		return Event{Kind: Incoming, Node: at}
	default:
		return Event{Kind: MaySend, Node: at, Link: m.handle(e)}
	}
}

// expire ends a dialling that nobody has answered, or a link that has lost a message.
func (m *Machine) expire(e int32) Event {
	end := m.end(e)
	if end.state == dialing {
		return m.fail(e, transport.Errorf(transport.ErrRetry, "%s does not answer", end.target.Endpoint))
	}
	m.hangUp(e)
	return m.finish(e, false)
}

// fail ends a dialling.
func (m *Machine) fail(e int32, err error) Event {
	ev := Event{Kind: Failed, Node: m.end(e).node, Link: m.handle(e), Err: err}
	m.hangUp(e)
	m.leave(e)
	return ev
}

// arrive lets the first of what is under way from an end arrive.
func (m *Machine) arrive(e int32) Event {
	s, r := m.end(e), m.end(e^1)
	it := s.out.pop()
	m.held -= int64(len(it.data))
	if s.out.n > 0 {
		m.set(e, arrival, s.out.at(0).at)
	}
	if m.ways[s.node][r.node].Cut || m.nodes[r.node].gone {
		m.lose(e, it.kind)
		m.purge(e)
		return Event{}
	}
	switch it.kind {
	case message:
		return m.deliver(e, it.data)
	case probe:
		s.probing = false
		if r.state != open {
			m.hangUp(e ^ 1)
		}
	case finish:
		return m.finish(e^1, true)
	case knock:
		m.knock(e ^ 1)
	case agree:
		if r.state != dialing {
			m.hangUp(e ^ 1)
			break
		}
		r.state = open
		m.unset(e^1, expiry)
		return Event{Kind: Dialled, Node: r.node, Link: m.handle(e ^ 1)}
	case refuse:
		if r.state == dialing {
			r.over = true
			return m.fail(e^1, it.err)
		}
	}
	return Event{}
}

// deliver puts a message where its receiver finds it. A receiver that is not there any
// more says so.
func (m *Machine) deliver(e int32, data []byte) Event {
	r := m.end(e ^ 1)
	if r.state != open {
		m.hangUp(e ^ 1)
		return Event{}
	}
	r.in.push(data)
	m.held += int64(len(data))
	if r.queued {
		return Event{}
	}
	return Event{Kind: Arrived, Node: r.node, Link: m.handle(e ^ 1)}
}

// finish lets an end hear that its link has ended, from the other or not.
func (m *Machine) finish(e int32, heard bool) Event {
	end := m.end(e)
	if end.state == dialing {
		end.over = true
		return m.fail(e, transport.Errorf(transport.ErrRetry, "%s has ended the link before it was made", end.target.Endpoint))
	}
	if end.state != open {
		return Event{}
	}
	if heard {
		end.over = true
	}
	ev := Event{Kind: Ended, Node: end.node, Link: m.handle(e)}
	if end.queued {
		ev = Event{}
	}
	end.state = ended
	m.unset(e, wake)
	m.unset(e, expiry)
	if end.queued || end.in.n == 0 {
		m.leave(e)
	}
	return ev
}

// knock lets a node hear that somebody dials it: e is the end that it is to have.
func (m *Machine) knock(e int32) {
	here, target := m.end(e), &m.end(e^1).target
	n := &m.nodes[here.node]
	var err error
	switch {
	case !n.up:
		err = n.nobody()
	case n.Secret != m.nodes[m.end(e^1).node].Secret:
		// Who has not the secret is told nothing of who is there.
		err = transport.Errorf(transport.ErrDenied, "%s has another secret", n.endpoint)
	case target.NodeID != transport.AnyNode && target.NodeID != n.Identity.NodeID:
		err = transport.Errorf(transport.ErrOther, "node %d answers at %s, not node %d", n.Identity.NodeID, n.endpoint, target.NodeID)
	case target.ClusterID != "" && target.ClusterID != n.Identity.ClusterID:
		err = transport.Errorf(transport.ErrOther, "%s belongs to the cluster %q, not to %q", n.endpoint, n.Identity.ClusterID, target.ClusterID)
	default:
		here.state = asked
		n.dials = append(n.dials, e)
		m.admit(here.node)
		return
	}
	m.depart(e, item{kind: refuse, err: err})
}

// admit lets dials in for which their lane has a place.
func (m *Machine) admit(at Node) {
	n := &m.nodes[at]
	for i := 0; i < len(n.dials); {
		e := n.dials[i]
		here := m.end(e)
		queued := &n.queued[laneIndex(here.lane)]
		if *queued >= AcceptMax {
			i++
			continue
		}
		n.dials = slices.Delete(n.dials, i, i+1)
		n.accepts = append(n.accepts, e)
		*queued++
		here.state, here.queued = open, true
		m.end(e ^ 1).peer = n.peer()
		m.depart(e, item{kind: agree})
		m.set(e, wake, m.now)
	}
}

// peer is what others know of a node.
func (n *node) peer() transport.Peer {
	p := transport.Peer{Identity: n.Identity}
	if n.Secret != "" {
		p.Proof = transport.ProofMember
	}
	return p
}

// nobody is what who dials a node hears where no process is.
func (n *node) nobody() error {
	return transport.Errorf(transport.ErrRefused, "nobody listens at %s", n.endpoint)
}
