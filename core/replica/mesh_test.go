package replica

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/replica/streamwire"
)

// mesh joins managers by streams in memory, which end when they are told to.
type mesh struct {
	t testing.TB

	mu    sync.Mutex
	nodes map[model.NodeID]*meshNode
	last  StreamID
	ends  map[StreamID]*meshEnd
	cuts  map[[2]model.NodeID]bool // from the one that dials to the other
	quiet bool                     // the test is over
	going sync.WaitGroup
	seen  meshCounts
	// said is what the follower has said on some streams, to be said again.
	said map[*meshEnd][][]byte
}

// meshCounts is what the mesh has seen.
type meshCounts struct {
	messages int // with batches
	asks     int // subscriptions
	ended    int // streams, by End
	repeats  int // streams that were said again
	most     int64
}

// meshNode is the Streams of one manager.
type meshNode struct {
	mesh   *mesh
	node   model.NodeID
	to     Receiver // nil: it is down
	wanted map[model.NodeID]bool
}

// meshEnd is one end of a stream.
type meshEnd struct {
	id      StreamID
	owner   *meshNode
	peer    *meshEnd
	dialled bool

	// Guarded by the mesh: what is to be told to the owner, in order. nil ends it.
	queue  []*meshMessage
	wake   chan struct{} // capacity 1
	closed bool

	// Of the end that was accepted: what its owner may send by what it was told.
	sent, released, window int64
}

type meshMessage struct {
	data []byte
	sent func(bool)
}

func newMesh(t testing.TB) *mesh {
	m := &mesh{t: t, nodes: map[model.NodeID]*meshNode{}, ends: map[StreamID]*meshEnd{}, cuts: map[[2]model.NodeID]bool{}, said: map[*meshEnd][][]byte{}}
	t.Cleanup(m.stop)
	return m
}

func (m *mesh) stop() {
	m.mu.Lock()
	m.quiet = true
	for _, e := range m.ends {
		m.closeLocked(e)
	}
	m.mu.Unlock()
	m.going.Wait()
}

func (m *mesh) streams(node model.NodeID) *meshNode {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[node]
	if n == nil {
		n = &meshNode{mesh: m, node: node, wanted: map[model.NodeID]bool{}}
		m.nodes[node] = n
	}
	return n
}

// attach connects a node's manager, or disconnects it.
func (m *mesh) attach(node model.NodeID, to Receiver) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[node]
	n.to = to
	clear(n.wanted)
	for _, e := range m.ends {
		if e.owner == n || e.peer != nil && e.peer.owner == n {
			m.closeLocked(e)
		}
	}
	m.dialLocked()
}

// Want implements Streams.
func (n *meshNode) Want(node model.NodeID, wanted bool) {
	n.mesh.mu.Lock()
	defer n.mesh.mu.Unlock()
	n.wanted[node] = wanted
	n.mesh.dialLocked()
}

// dialLocked makes the streams that are wanted and missing.
func (m *mesh) dialLocked() {
	if m.quiet {
		return
	}
	for _, n := range m.nodes {
		for to, wanted := range n.wanted {
			peer := m.nodes[to]
			if !wanted || n.to == nil || peer == nil || peer.to == nil || m.cuts[[2]model.NodeID{n.node, to}] || m.haveLocked(n, peer) {
				continue
			}
			m.joinLocked(n, peer)
		}
	}
}

func (m *mesh) haveLocked(n, peer *meshNode) bool {
	for _, e := range m.ends {
		if e.dialled && e.owner == n && e.peer.owner == peer && !e.closed {
			return true
		}
	}
	return false
}

func (m *mesh) joinLocked(from, to *meshNode) (dialled, accepted *meshEnd) {
	m.last += 2
	dialled = &meshEnd{id: m.last, owner: from, dialled: true, wake: make(chan struct{}, 1)}
	accepted = &meshEnd{id: m.last + 1, owner: to, peer: dialled, wake: make(chan struct{}, 1)}
	dialled.peer = accepted
	for _, e := range []*meshEnd{dialled, accepted} {
		m.ends[e.id] = e
		receiver := e.owner.to
		m.going.Go(func() { m.run(e, receiver) })
	}
	return dialled, accepted
}

// run tells the owner of one end what happens.
func (m *mesh) run(e *meshEnd, to Receiver) {
	to.StreamUp(e.id, e.peer.owner.node, e.dialled)
	for range e.wake {
		for {
			m.mu.Lock()
			if len(e.queue) == 0 {
				m.mu.Unlock()
				break
			}
			msg := e.queue[0]
			e.queue = e.queue[1:]
			if msg != nil {
				m.learnLocked(e, msg.data)
			}
			m.mu.Unlock()
			if msg == nil {
				to.StreamDown(e.id)
				m.ended(e)
				return
			}
			m.deliver(e, to, msg)
		}
	}
}

func (m *mesh) deliver(e *meshEnd, to Receiver, msg *meshMessage) {
	room := to.StreamRoom(e.id, len(msg.data))
	if room == nil {
		if msg.sent != nil {
			msg.sent(false)
		}
		e.owner.End(e.id)
		return
	}
	copy(room, msg.data)
	if msg.sent != nil {
		msg.sent(true)
	}
	to.StreamMessage(e.id, room)
}

// ended dials again, a little later.
func (m *mesh) ended(e *meshEnd) {
	m.mu.Lock()
	delete(m.ends, e.id)
	again := !m.quiet
	m.mu.Unlock()
	if again {
		time.AfterFunc(time.Millisecond, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.dialLocked()
		})
	}
}

// Send implements Streams.
func (n *meshNode) Send(s StreamID, parts [][]byte, sent func(bool)) bool {
	m := n.mesh
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.ends[s]
	if e == nil || e.closed || e.owner != n {
		return false
	}
	data := slices.Concat(parts...)
	m.checkCreditLocked(e, data)
	if e.peer == nil { // one that is said again
		m.going.Go(func() { sent(true) })
		return true
	}
	if e.dialled && len(m.said[e]) < saidMax {
		m.said[e] = append(m.said[e], data)
	}
	m.putLocked(e.peer, &meshMessage{data: data, sent: sent})
	return true
}

// saidMax is how many messages of a stream are kept to be said again.
const saidMax = 50

// repeat has followers say again what they said on earlier streams, each on a new one.
func (m *mesh) repeat() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for e, said := range m.said {
		if !e.closed || e.peer.owner.to == nil {
			continue
		}
		delete(m.said, e)
		m.last += 2
		to, again := e.peer.owner, &meshEnd{id: m.last, owner: e.peer.owner}
		m.ends[again.id] = again
		receiver := to.to
		m.going.Go(func() {
			receiver.StreamUp(again.id, e.owner.node, false)
			for _, data := range said {
				if room := receiver.StreamRoom(again.id, len(data)); room != nil {
					copy(room, data)
					receiver.StreamMessage(again.id, room)
				}
			}
			receiver.StreamDown(again.id)
			m.mu.Lock()
			defer m.mu.Unlock()
			m.seen.repeats++
			delete(m.ends, again.id)
		})
	}
}

func (m *mesh) putLocked(e *meshEnd, msg *meshMessage) {
	if e.closed {
		return
	}
	e.queue = append(e.queue, msg)
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// End implements Streams.
func (n *meshNode) End(s StreamID) {
	n.mesh.mu.Lock()
	defer n.mesh.mu.Unlock()
	if e := n.mesh.ends[s]; e != nil {
		n.mesh.seen.ended++
		n.mesh.closeLocked(e)
	}
}

// closeLocked ends both ends of a stream, and loses what is on its way.
func (m *mesh) closeLocked(e *meshEnd) {
	for _, e := range []*meshEnd{e, e.peer} {
		if e == nil || e.peer == nil || e.closed {
			continue
		}
		for _, msg := range e.queue {
			if msg != nil && msg.sent != nil {
				m.going.Go(func() { msg.sent(false) })
			}
		}
		e.queue = nil
		m.putLocked(e, nil)
		e.closed = true
	}
}

// cut ends the streams that a node has dialled to another, and lets it dial no more, or
// lets it again.
func (m *mesh) cut(from, to model.NodeID, cut bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cuts[[2]model.NodeID{from, to}] = cut
	for _, e := range m.ends {
		if cut && e.dialled && e.owner.node == from && e.peer.owner.node == to {
			m.closeLocked(e)
		}
	}
	m.dialLocked()
}

// sections calls f for each section of a message.
func sections(t testing.TB, message []byte, f func(s streamwire.Section)) {
	for rest := message; len(rest) > 0; {
		s, after, err := streamwire.Next(rest)
		if err != nil {
			t.Errorf("a message that cannot be read was sent: %v", err)
			return
		}
		f(s)
		rest = after
	}
}

func hasBatches(t testing.TB, message []byte) (has bool) {
	sections(t, message, func(s streamwire.Section) {
		if s.Kind == streamwire.KindData {
			_, batches, err := streamwire.ReadData(s.Body)
			has = has || len(batches) > 0 || err != nil
		}
	})
	return has
}

// checkCreditLocked sees that a leader sends no more than it was granted, but for one
// message that has all for itself.
func (m *mesh) checkCreditLocked(e *meshEnd, data []byte) {
	if e.dialled || e.peer == nil || !hasBatches(m.t, data) {
		return
	}
	under := e.sent - e.released
	if under > 0 && under+int64(len(data)) > e.window {
		m.t.Errorf("%d bytes are sent, %d are under way, %d were granted", len(data), under, e.window)
	}
	e.sent += int64(len(data))
	m.seen.messages++
	m.seen.most = max(m.seen.most, e.sent-e.released)
}

// learnLocked notes what a leader is granted.
func (m *mesh) learnLocked(e *meshEnd, data []byte) {
	if e.dialled {
		return
	}
	sections(m.t, data, func(s streamwire.Section) {
		for body := s.Body; s.Kind == streamwire.KindSubscribe && len(body) > 0; m.seen.asks++ {
			var err error
			if _, body, err = streamwire.ReadSubscribe(body); err != nil {
				m.t.Error(err)
			}
		}
		if s.Kind == streamwire.KindCredit {
			c, err := streamwire.ReadCredit(s.Body)
			if err != nil {
				m.t.Error(err)
			}
			e.released, e.window = max(e.released, int64(c.Released)), max(e.window, int64(c.Window))
		}
	})
}

func (m *mesh) counts() meshCounts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen
}

func (m *mesh) String() string { return fmt.Sprintf("%+v", m.counts()) }
