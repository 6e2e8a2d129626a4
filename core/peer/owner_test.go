package peer

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// letter is what owners send each other: who says it to whom, in which life, and the number.
// Whatever fills it up comes behind.
type letter struct {
	from, to model.NodeID
	life     uint64
	number   uint64
}

func (l letter) bytes(size int) []byte {
	b := make([]byte, 0, 32+size)
	b = binary.LittleEndian.AppendUint32(b, uint32(l.from))
	b = binary.LittleEndian.AppendUint32(b, uint32(l.to))
	b = binary.LittleEndian.AppendUint64(b, l.life)
	b = binary.LittleEndian.AppendUint64(b, l.number)
	return append(b, make([]byte, size)...)
}

func read(b []byte) letter {
	return letter{
		from: model.NodeID(binary.LittleEndian.Uint32(b)), to: model.NodeID(binary.LittleEndian.Uint32(b[4:])),
		life: binary.LittleEndian.Uint64(b[8:]), number: binary.LittleEndian.Uint64(b[16:]),
	}
}

// own is what the owners of a node do with what it is told.
func (n *node) own(e Effect) {
	w := n.w
	switch e.Kind {
	case Posted:
		l := read(e.Message)
		n.same("a post", l, e)
		w.posts++
	case Asked:
		l := read(e.Message)
		n.same("a question", l, e)
		n.reply(e.Question, l)
	case Answered:
		e.Done(e.Message, e.Err)
	case StreamUp:
		if n.streams[e.Stream] != nil {
			w.t.Fatalf("stream %d comes up twice", e.Stream)
		}
		n.streams[e.Stream] = &stream{peer: model.NodeID(e.Peer.NodeID), dialled: e.Was}
		w.ups++
		w.say("%d stream %d up with %d", n.id, e.Stream, e.Peer.NodeID)
	case StreamMessage:
		n.streamed(e)
	case StreamDown:
		if n.streams[e.Stream] == nil {
			w.t.Fatalf("stream %d goes down, and was not up", e.Stream)
		}
		delete(n.streams, e.Stream)
		w.say("%d stream %d down", n.id, e.Stream)
	case Settled:
		e.Sent(e.Was)
	case Told:
		n.told(e.Event)
	default:
		w.t.Fatalf("nobody knows what to do with %s", e.Kind)
	}
}

func (n *node) told(e Event) {
	n.w.say("%d told %s of %d %q", n.id, e.Kind, e.Address.Node, e.Address.Endpoint)
	switch e.Kind {
	case Rejected:
		n.w.rejected = append(n.w.rejected, e.Err)
	case Refused:
		n.w.refusals++
	case Lost:
		n.w.lost++
	}
}

// same sees that a message is from whom the link says, and to this node.
func (n *node) same(what string, l letter, e Effect) {
	n.w.say("%d got %s %d of %d", n.id, what, l.number, l.from)
	if l.from != model.NodeID(e.Peer.NodeID) || l.to != n.id {
		n.w.t.Fatalf("%s of node %d to node %d came to node %d as of node %d", what, l.from, l.to, n.id, e.Peer.NodeID)
	}
}

func (n *node) streamed(e Effect) {
	s, l := n.streams[e.Stream], read(e.Message)
	switch {
	case s == nil:
		n.w.t.Fatalf("a message of stream %d, which is not up", e.Stream)
	case l.from != s.peer || l.to != n.id:
		n.w.t.Fatalf("a message of node %d to node %d on the stream of node %d to node %d", l.from, l.to, s.peer, n.id)
	case s.in > 0 && s.peerLife != l.life:
		n.w.t.Fatalf("a message of life %d on the stream of life %d", l.life, s.peerLife)
	case l.number != s.in:
		n.w.t.Fatalf("message %d on a stream, after %d", l.number, s.in)
	}
	s.in++
	s.peerLife = l.life
	n.w.messages++
}

// ask puts a question, of whose end the world is told.
func (n *node) ask(to model.Address, size int, timeout time.Duration) {
	w := n.w
	w.nextAsked++
	number, life, due := w.nextAsked, n.life, w.now.Add(timeout)
	n.asks[number] = true
	l := letter{from: n.id, to: to.Node, life: n.life, number: number}
	n.step(&Ask{To: to, Question: l.bytes(size), Timeout: timeout, Done: func(answer []byte, err error) {
		w.done[number]++
		if w.done[number] > 1 || n.life != life || !n.up {
			w.t.Fatalf("question %d of life %d was ended %d times, in life %d", number, life, w.done[number], n.life)
		}
		delete(n.asks, number)
		if err != nil {
			w.failed++
			w.say("%d question %d failed: %v", n.id, number, err)
			return
		}
		if w.now.After(due) && timeout > 0 {
			w.t.Fatalf("question %d was answered after its time", number)
		}
		got := read(answer)
		if got.number != number || got.from != to.Node || got.to != n.id {
			w.t.Fatalf("question %d to node %d was answered by node %d to %d, for question %d", number, to.Node, got.from, got.to, got.number)
		}
		w.answered++
		w.say("%d question %d answered", n.id, number)
	}})
}

// reply answers a question, at once or later, or never.
func (n *node) reply(q QuestionID, l letter) {
	answer := func() {
		n.step(&Answer{Question: q, Answer: letter{from: n.id, to: l.from, life: n.life, number: l.number}.bytes(int(l.number % 100))})
	}
	switch l.number % 5 {
	case 0:
		n.late = append(n.late, answer)
	case 1:
		if l.number%25 == 1 {
			return
		}
		answer()
		answer() // twice is no harm
	default:
		answer()
	}
}

// send sends a message on each stream of a node.
func (n *node) send(size int) {
	for id := model.StreamID(1); id <= n.m.lastStream; id++ {
		s := n.streams[id]
		if s == nil {
			continue
		}
		l := letter{from: n.id, to: s.peer, life: n.life, number: s.out}
		n.sends++
		number, life := n.sends, n.life
		n.settled[number] = true
		whole := l.bytes(size)
		ok := n.m.Send(n.w.now, id, [][]byte{whole[:5], whole[5:]}, func(bool) {
			if !n.settled[number] || n.life != life {
				n.w.t.Fatalf("message %d was settled twice, or in another life", number)
			}
			delete(n.settled, number)
		}, &n.out)
		if ok {
			s.out++
		} else {
			delete(n.settled, number)
		}
		n.perform()
		n.w.say("%d sends on %d: %v", n.id, id, ok)
	}
}

// answerLate gives the answers that wait.
func (n *node) answerLate() {
	late := n.late
	n.late = nil
	for _, answer := range late {
		answer()
	}
}

// linked says what is missing between nodes: of each wanted stream, one at both ends.
func (w *world) linked() error {
	for _, n := range w.nodes {
		for i := range w.nodes {
			to := model.NodeID(i)
			if !n.want[to] {
				continue
			}
			if n.count(to, true) != 1 {
				return fmt.Errorf("node %d has %d streams to node %d", n.id, n.count(to, true), to)
			}
			if w.nodes[i].count(n.id, false) == 0 {
				return fmt.Errorf("node %d has no stream of node %d", to, n.id)
			}
		}
	}
	return nil
}

func (n *node) count(peer model.NodeID, dialled bool) (c int) {
	for _, s := range n.streams {
		if s.peer == peer && s.dialled == dialled {
			c++
		}
	}
	return c
}
