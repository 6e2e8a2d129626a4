package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
)

// world is several machines on a network in memory, in a time of its own.
type world struct {
	t     *testing.T
	net   *memnet.Machine
	now   time.Time
	nodes []*node
	trace uint64 // of all that happened
	lines []string
	keep  bool // the lines of the trace

	// What the owners have seen.
	done      map[uint64]int // by question: how often it was ended
	answered  int
	failed    int
	posts     int
	messages  int
	ups       int
	rejected  []error
	refusals  int
	lost      int
	nextAsked uint64
}

// node is one machine with its driver, as doc.go has it.
type node struct {
	w       *world
	id      model.NodeID
	at      memnet.Node
	life    uint64
	cfg     Config
	m       *Machine
	out     Effects
	busy    bool // out is being performed
	paused  bool
	up      bool
	last    LinkID
	links   map[LinkID]memnet.Link
	ids     map[memnet.Link]LinkID
	made    map[LinkID]bool
	blocked map[LinkID][][][]byte // writes for which there is no room
	streams map[model.StreamID]*stream
	want    map[model.NodeID]bool
	late    []func() // answers that are given later
	asks    map[uint64]bool
	settled map[uint64]bool // messages of streams that wait for it
	sends   uint64
}

// stream is one, as its owner sees it.
type stream struct {
	peer     model.NodeID
	dialled  bool
	peerLife uint64
	in       uint64 // messages that have come
	out      uint64
}

func newWorld(t *testing.T, seed uint64, n int, change func(*Config)) *world {
	w := &world{
		t: t, now: time.Unix(1000, 0), done: map[uint64]int{},
		net: memnet.New(memnet.Options{Seed: seed}),
	}
	for i := range n {
		at, err := w.net.AddNode(endpoint(model.NodeID(i)))
		if err != nil {
			t.Fatal(err)
		}
		nd := &node{w: w, id: model.NodeID(i), at: at, cfg: Defaults(), want: map[model.NodeID]bool{}}
		nd.cfg.Identity = transport.Identity{ClusterID: "c", NodeID: int32(i), DirectoryID: transport.DirectoryID{byte(i + 1)}}
		if change != nil {
			change(&nd.cfg)
		}
		w.nodes = append(w.nodes, nd)
	}
	for _, nd := range w.nodes {
		nd.start(seed)
	}
	return w
}

func endpoint(id model.NodeID) string { return fmt.Sprintf("n%d", id) }

func address(id model.NodeID) model.Address {
	return model.Address{Endpoint: endpoint(id), Node: id}
}

func (w *world) say(format string, args ...any) {
	line := fmt.Sprintf("%s "+format, append([]any{w.now.Sub(time.Unix(1000, 0))}, args...)...)
	h := fnv.New64a()
	var before [8]byte
	binary.LittleEndian.PutUint64(before[:], w.trace)
	_, _ = h.Write(before[:])
	_, _ = h.Write([]byte(line))
	w.trace = h.Sum64()
	if w.keep {
		w.lines = append(w.lines, line)
	}
}

// start begins a life of a node.
func (n *node) start(seed uint64) {
	n.life++
	m, err := New(n.cfg, rand.New(rand.NewPCG(seed, uint64(n.id)<<32|n.life)))
	if err != nil {
		n.w.t.Fatal(err)
	}
	*n = node{
		w: n.w, id: n.id, at: n.at, life: n.life, cfg: n.cfg, m: m, up: true, want: n.want,
		links: map[LinkID]memnet.Link{}, ids: map[memnet.Link]LinkID{}, made: map[LinkID]bool{},
		blocked: map[LinkID][][][]byte{}, streams: map[model.StreamID]*stream{}, asks: map[uint64]bool{},
		settled: map[uint64]bool{},
	}
	if err := n.w.net.Start(n.w.now, n.at, memnet.Process{Identity: n.cfg.Identity}); err != nil {
		n.w.t.Fatal(err)
	}
	n.w.say("start %d", n.id)
	for i := range n.w.nodes {
		n.step(&Locate{Node: model.NodeID(i), Endpoint: endpoint(model.NodeID(i))})
		n.step(&Want{Node: model.NodeID(i), Wanted: n.want[model.NodeID(i)]})
	}
}

// kill ends a life. Nobody is told of what it has asked.
func (n *node) kill(how memnet.Death) {
	n.w.say("kill %d %d", n.id, how)
	n.w.net.Stop(n.w.now, n.at, how)
	n.up, n.paused = false, false
}

func (n *node) step(in Input) {
	n.m.Step(n.w.now, in, &n.out)
	n.perform()
}

// perform does what was asked, in order, also of what comes of it.
func (n *node) perform() {
	if n.busy {
		return
	}
	n.busy = true
	for i := 0; i < len(n.out.List); i++ {
		n.do(n.out.List[i])
	}
	n.out.Reset()
	n.busy = false
}

func (n *node) do(e Effect) {
	w := n.w
	switch e.Kind {
	case Dial:
		l, err := w.net.Dial(w.now, n.at, e.Target)
		if err != nil {
			n.step(&Failed{Link: e.Link, Err: err})
			return
		}
		n.links[e.Link], n.ids[l] = l, e.Link
	case Write:
		n.blocked[e.Link] = append(n.blocked[e.Link], e.Parts)
		n.flush(e.Link)
	case CloseLink:

		l, known := n.links[e.Link]
		if !known {
			return
		}
		w.net.Close(w.now, l)
		n.over(e.Link)
	default:
		n.own(e)
	}
}

// flush writes what there is room for.
func (n *node) flush(id LinkID) {
	for len(n.blocked[id]) > 0 {
		err := n.w.net.Send(n.w.now, n.links[id], n.blocked[id][0]...)
		if errors.Is(err, memnet.ErrFull) || errors.Is(err, transport.ErrClosed) {
			return
		}
		if err != nil {
			n.w.t.Fatal(err)
		}
		n.blocked[id] = n.blocked[id][1:]
		n.step(&Sent{Link: id})
	}
}

// over forgets a link, which is closed.
func (n *node) over(id LinkID) {
	made := n.made[id]
	delete(n.ids, n.links[id])
	delete(n.links, id)
	delete(n.made, id)
	delete(n.blocked, id)
	if made {
		n.step(&Ended{Link: id})
	} else {
		n.step(&Failed{Link: id, Err: transport.Errorf(transport.ErrRetry, "given up")})
	}
}

// receive takes what has arrived, until the link is empty, or over.
func (n *node) receive(id LinkID) {
	for {
		l, known := n.links[id]
		if !known {
			return
		}
		data, ok, err := n.w.net.Receive(n.w.now, l)
		if err != nil {
			n.w.net.Close(n.w.now, l)
			n.over(id)
			return
		}
		if !ok {
			return
		}
		if most := n.m.MessageBytesMax(id); len(data) > most {
			n.w.t.Fatalf("a message of %d bytes, and at most %d fit", len(data), most)
		}
		n.w.say("%d receives %d bytes on %d", n.id, len(data), id)
		n.step(&Received{Link: id, Data: data})
	}
}

// event is what the network tells a node.
func (n *node) event(e memnet.Event) {
	id := n.ids[e.Link]
	switch e.Kind {
	case memnet.Dialled:
		peer, _, err := n.w.net.Peer(e.Link)
		if err != nil {
			n.w.t.Fatal(err)
		}
		n.made[id] = true
		n.step(&Dialled{Link: id, Peer: peer})
	case memnet.Failed:
		delete(n.ids, e.Link)
		delete(n.links, id)
		n.step(&Failed{Link: id, Err: e.Err})
	case memnet.Incoming:
		for {
			l, ok := n.w.net.Accept(n.w.now, n.at)
			if !ok {
				return
			}
			peer, lane, err := n.w.net.Peer(l)
			if err != nil {
				continue
			}
			n.last += 2
			id := n.last
			n.links[id], n.ids[l], n.made[id] = l, id, true
			n.step(&Accepted{Link: id, Peer: peer, Lane: lane})
			n.receive(id)
		}
	case memnet.Arrived, memnet.Ended:
		n.receive(id)
	case memnet.MaySend:
		n.flush(id)
	}
}

// run lets everything happen that is due before a time.
func (w *world) run(d time.Duration) {
	end := w.now.Add(d)
	for {
		for {
			e, ok := w.net.Due(w.now)
			if !ok {
				break
			}
			n := w.nodes[e.Node]
			w.say("%d %s", n.id, e.Kind)
			n.event(e)
			n.check()
		}
		next, some := w.net.Next()
		for _, n := range w.nodes {
			if at, ok := n.m.Deadline(); ok && n.up && !n.paused {
				if !at.After(w.now) {
					at = w.now
				}
				if !some || at.Before(next) {
					next, some = at, true
				}
			}
		}
		if !some || next.After(end) {
			w.now = end
			return
		}
		if next.After(w.now) {
			w.now = next
		}
		for _, n := range w.nodes {
			if at, ok := n.m.Deadline(); ok && n.up && !n.paused && !at.After(w.now) {
				n.step(&Tick{})
				n.check()
				if at, ok := n.m.Deadline(); ok && !at.After(w.now) {
					w.t.Fatalf("node %d was ticked, and wants it again at the same time", n.id)
				}
			}
		}
	}
}

// check looks at a machine from within: it holds no more than it may, and knows what it has.
func (n *node) check() {
	t := n.w.t
	for _, tg := range n.m.targets {
		for u := range tg.routes {
			r := &tg.routes[u]
			checkBox(t, &r.box, n.cfg.QueueBytesMax)
			if len(r.asks) > asksMax {
				t.Fatalf("%d questions are under way", len(r.asks))
			}
		}
	}
	accepted := 0
	for _, l := range n.m.links {
		if l.box == nil || n.links[l.id] == 0 {
			t.Fatalf("node %d knows link %d, which is over", n.id, l.id)
		}
		most := n.cfg.QueueBytesMax
		if l.use == useStream {
			most = n.cfg.StreamBytesMax
		}
		checkBox(t, l.box, most)
		if l.route == nil {
			accepted++
		}
		if len(l.asked) > questionsMax {
			t.Fatalf("%d questions wait for the owner", len(l.asked))
		}
	}
	if accepted > 2*acceptedMax*len(n.w.nodes) {
		t.Fatalf("%d links were accepted", accepted)
	}
	if len(n.m.links) != len(n.links) {
		t.Fatalf("node %d knows %d links of %d", n.id, len(n.m.links), len(n.links))
	}
}

func checkBox(t *testing.T, b *outbox, most int) {
	t.Helper()
	bytes, written, large := 0, 0, 0
	for i := range b.len() {
		if i == b.written {
			written = bytes
		}
		bytes += b.at(i).bytes
		large = max(large, b.at(i).bytes)
	}
	if b.written == b.len() {
		written = bytes
	}
	if bytes != b.bytes || written != b.writtenBytes || b.written > b.len() {
		t.Fatalf("an outbox of %d and %d bytes that counts %d and %d", bytes, written, b.bytes, b.writtenBytes)
	}
	if b.bytes > most+large+2*headerBytes || b.len() > queueMax+1 {
		t.Fatalf("%d bytes in %d messages wait, and %d may", b.bytes, b.len(), most)
	}
}
