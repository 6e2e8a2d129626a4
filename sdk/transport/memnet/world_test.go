package memnet

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

// began is when every world begins.
var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// failer is a test, of whatever kind.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// world is a machine, its time, and what its nodes were told.
type world struct {
	t   failer
	m   *Machine
	now time.Time
	// links are those that nodes know of, in the order in which they came to do so.
	links []Link
	peers map[Link]Node
	heard []string
	got   map[Link][][]byte
	ended map[Link]bool
	fails map[Link]error
	full  map[Link]bool // a message was refused as too much
	may   map[Link]int  // how often it was told that it may send
	// lazy nodes accept and receive nothing, until catchUp.
	lazy bool
}

// newWorld makes so many nodes, all up. Node i has the id i and the endpoint "n<i>".
func newWorld(t failer, seed uint64, nodes int) *world {
	t.Helper()
	w := &world{
		t: t, m: New(Options{Seed: seed, DialTimeout: time.Second}), now: began,
		peers: make(map[Link]Node), got: make(map[Link][][]byte), ended: make(map[Link]bool),
		fails: make(map[Link]error), full: make(map[Link]bool), may: make(map[Link]int),
	}
	for i := range nodes {
		id, err := w.m.AddNode(fmt.Sprintf("n%d", i))
		if err != nil {
			t.Fatalf("add a node: %v", err)
		}
		w.start(id)
	}
	return w
}

func (w *world) start(id Node) {
	w.t.Helper()
	err := w.m.Start(w.now, id, Process{Identity: transport.Identity{ClusterID: "c", NodeID: int32(id)}})
	if err != nil {
		w.t.Fatalf("start node %d: %v", id, err)
	}
}

// dial begins a link of lane Data.
func (w *world) dial(from, to Node) Link {
	w.t.Helper()
	return w.dialLane(from, to, transport.Data)
}

func (w *world) dialLane(from, to Node, lane transport.Lane) Link {
	w.t.Helper()
	l, err := w.m.Dial(w.now, from, transport.Target{
		Endpoint: fmt.Sprintf("n%d", to), Lane: lane, NodeID: int32(to), ClusterID: "c",
	})
	if err != nil {
		w.t.Fatalf("dial from node %d to node %d: %v", from, to, err)
	}
	w.peers[l] = to
	return l
}

// join makes a link in no time, and returns both of its ends. The way must be free.
func (w *world) join(from, to Node) (dials, accepts Link) {
	w.t.Helper()
	dials = w.dial(from, to)
	w.run(0)
	if w.fails[dials] != nil || !slices.Contains(w.links, dials) || !slices.Contains(w.links, dials^1) {
		w.t.Fatalf("no link from node %d to node %d (%v)", from, to, w.fails[dials])
	}
	return dials, dials ^ 1
}

func (w *world) send(l Link, message string) {
	w.t.Helper()
	if err := w.m.Send(w.now, l, []byte(message)); err != nil {
		w.t.Fatalf("send %q: %v", message, err)
	}
}

// give sends bytes that nobody changes.
func (w *world) give(l Link, data []byte) error {
	err := w.m.Give(w.now, l, data)
	if errors.Is(err, ErrFull) {
		w.full[l] = true
	}
	return err
}

// run lets everything happen that is due within a time, and receives what arrives.
func (w *world) run(d time.Duration) {
	w.t.Helper()
	by := w.now.Add(d)
	for w.step(by) {
	}
	w.now = by
}

// step lets the next thing happen, if it is due by then.
func (w *world) step(by time.Time) bool {
	w.t.Helper()
	next, more := w.m.Next()
	if !more || next.After(by) {
		return false
	}
	if next.Before(w.now) {
		w.t.Fatalf("at %v the next event is at %v", w.now.Sub(began), next.Sub(began))
	}
	w.now = next
	for {
		ev, ok := w.m.Due(w.now)
		if !ok {
			return true
		}
		w.hear(ev)
	}
}

func (w *world) hear(ev Event) {
	w.t.Helper()
	w.heard = append(w.heard, fmt.Sprint(w.now.Sub(began), ev.Kind, ev.Node, ev.Link, ev.Err))
	if n := &w.m.nodes[ev.Node]; n.paused || !n.up {
		w.t.Fatalf("node %d does not run and is told: %v", ev.Node, ev.Kind)
	}
	if (ev.Kind == Arrived || ev.Kind == Ended || ev.Kind == MaySend) && !slices.Contains(w.links, ev.Link) {
		w.t.Fatalf("node %d is told of a link that it does not have: %v", ev.Node, ev.Kind)
	}
	switch ev.Kind {
	case Incoming:
		if !w.lazy {
			w.accept(ev.Node)
		}
	case Dialled:
		w.links = append(w.links, ev.Link)
	case Failed:
		w.fails[ev.Link] = ev.Err
	case Arrived:
		if !w.lazy {
			w.drain(ev.Link)
		}
	case Ended:
		w.ended[ev.Link] = true
		if w.lazy {
			return
		}
		w.drain(ev.Link)
		if _, _, err := w.m.Receive(w.now, ev.Link); !errors.Is(err, transport.ErrClosed) {
			w.t.Fatalf("a link has ended, and receiving gives %v", err)
		}
	case MaySend:
		if !w.full[ev.Link] {
			w.t.Fatalf("a node is told that it may send what it has sent")
		}
		w.full[ev.Link] = false
		w.may[ev.Link]++
	default:
		w.t.Fatalf("an event of kind %d", ev.Kind)
	}
}

// accept accepts a link, if one waits.
func (w *world) accept(at Node) bool {
	w.t.Helper()
	l, ok := w.m.Accept(w.now, at)
	if !ok {
		return false
	}
	peer, _, err := w.m.Peer(l)
	if err != nil {
		w.t.Fatalf("the peer of a new link: %v", err)
	}
	w.peers[l] = Node(peer.NodeID)
	w.links = append(w.links, l)
	w.drain(l)
	return true
}

// catchUp accepts and receives everything that was left.
func (w *world) catchUp() {
	w.t.Helper()
	for id := range w.m.nodes {
		for w.accept(Node(id)) {
		}
	}
	for _, l := range w.links {
		w.drain(l)
	}
}

// drain receives what has arrived.
func (w *world) drain(l Link) {
	w.t.Helper()
	for {
		data, ok, err := w.m.Receive(w.now, l)
		if err != nil && !errors.Is(err, transport.ErrClosed) {
			w.t.Fatalf("receive: %v", err)
		}
		if !ok {
			return
		}
		w.got[l] = append(w.got[l], data)
	}
}

// has fails the test unless these messages were received on a link so far.
func (w *world) has(l Link, want ...string) {
	w.t.Helper()
	var got []string
	for _, data := range w.got[l] {
		got = append(got, string(data))
	}
	if !slices.Equal(got, want) {
		w.t.Fatalf("received %q, want %q", got, want)
	}
}

// faults sets faults both ways.
func (w *world) faults(a, b Node, f Faults) {
	w.m.SetFaults(w.now, a, b, f)
	w.m.SetFaults(w.now, b, a, f)
}

// check fails the test unless the machine's parts agree.
func (w *world) check() {
	w.t.Helper()
	m := w.m
	for i := 1; i < len(m.alarms); i++ {
		if m.alarms[i].before(&m.alarms[(i-1)/2]) {
			w.t.Fatalf("alarm %d is before its parent", i)
		}
	}
	for i, a := range m.alarms {
		if m.end(a.end).place[a.kind] != int32(i) {
			w.t.Fatalf("alarm %d is not where its end says", i)
		}
	}
	listed := 0
	for id := range m.nodes {
		n := &m.nodes[id]
		var accepts, dials [2]int
		for _, e := range n.accepts {
			accepts[laneIndex(m.end(e).lane)]++
		}
		for _, e := range n.dials {
			dials[laneIndex(m.end(e).lane)]++
		}
		if accepts != n.queued {
			w.t.Fatalf("%d links wait to be accepted, and %d are counted", accepts, n.queued)
		}
		for lane := range accepts {
			if accepts[lane] > AcceptMax || (dials[lane] > 0 && accepts[lane] < AcceptMax) {
				w.t.Fatalf("of lane %d %d links wait to be accepted, and %d for a place", lane, accepts[lane], dials[lane])
			}
		}
		for _, e := range n.dials {
			if m.end(e).state != asked || m.end(e^1).state != dialing {
				w.t.Fatalf("a dial waits, and nobody dials")
			}
		}
		for e, before := n.first, unset; e >= 0; before, e = e, m.end(e).next {
			if listed++; m.end(e).prev != before || m.end(e).node != Node(id) {
				w.t.Fatalf("the list of node %d is broken at %d", id, e)
			}
		}
	}
	if used := len(m.pairs) - len(m.unused); listed != 2*used {
		w.t.Fatalf("%d links, and %d ends in the lists of nodes", used, listed)
	}
	w.checkBytes()
}

// checkBytes fails the test when more is held than may be, or other than is counted.
func (w *world) checkBytes() {
	w.t.Helper()
	held := int64(0)
	for i, p := range w.m.pairs {
		for side := range p {
			s, r := &p[side], &p[1-side]
			way, large, counts := int64(0), 0, int64(0)
			add := func(data []byte, isMessage bool) {
				if !isMessage {
					return
				}
				held += int64(len(data))
				if counts += cost(len(data)); len(data) > transport.LinkBytesMax {
					large++
				} else {
					way += int64(len(data))
				}
			}
			for i := range s.out.n {
				add(s.out.at(i).data, s.out.at(i).kind == message)
			}
			for i := range r.in.n {
				add(*r.in.at(i), true)
			}
			if way > transport.LinkBytesMax || large > 1 {
				w.t.Fatalf("link %d holds %d bytes for one direction, and %d larger messages", i, way, large)
			}
			if counts > s.sent {
				w.t.Fatalf("link %d counts %d bytes under way, and holds %d", i, s.sent, counts)
			}
			if s.out.n > 0 && s.place[arrival] == unset {
				w.t.Fatalf("link %d: something is under way, and nothing lets it arrive", i)
			}
			if s.out.n == 0 && s.place[arrival] != unset {
				w.t.Fatalf("link %d: nothing is under way, and it arrives", i)
			}
		}
	}
	if held != w.m.Held() {
		w.t.Fatalf("%d bytes are held, and %d counted", held, w.m.Held())
	}
}

func TestWorldChecks(t *testing.T) {
	w := newWorld(t, 1, 3)
	ab, ba := w.join(0, 1)
	w.send(ab, "one")
	w.send(ab, "two")
	w.send(ba, "three")
	w.check()
	w.run(0)
	w.has(ba, "one", "two")
	w.has(ab, "three")
	w.m.Close(w.now, ab)
	w.run(0)
	w.check()
	if !w.ended[ba] || len(w.m.unused) != len(w.m.pairs) {
		t.Fatalf("a link was closed and is not over")
	}
}
