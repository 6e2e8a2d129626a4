package cluster

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/peer"
	"github.com/brokerd/brokerd/core/sim/world"
	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
)

// links drives a node's peer.Machine over the network of the world. It is a loop that the
// world turns: what owners ask and what the network tells waits for a turn.
type links struct {
	n       *node
	machine *peer.Machine
	inbox   []peer.Input
	effects peer.Effects

	byID   map[peer.LinkID]*linkEnd
	byLink map[memnet.Link]*linkEnd
	even   peer.LinkID // the last that was accepted

	posted  func(from transport.Peer, message []byte)
	asked   func(from transport.Peer, question []byte, answer func([]byte))
	streams streamReceiver
}

// streamReceiver is told what happens to streams.
type streamReceiver interface {
	StreamUp(s model.StreamID, node model.NodeID, dialled bool)
	StreamMessage(s model.StreamID, message []byte)
	StreamDown(s model.StreamID)
}

// linkEnd is a link as this node has it.
type linkEnd struct {
	id      peer.LinkID
	link    memnet.Link
	made    bool
	writing [][][]byte // what the network has no room for yet
}

var _ world.Loop = (*links)(nil)

// Pending implements world.Loop.
func (x *links) Pending() int { return len(x.inbox) }

// Deadline implements world.Loop.
func (x *links) Deadline() (time.Time, bool) { return x.machine.Deadline() }

// Turn implements world.Loop.
func (x *links) Turn(now time.Time) {
	if at, ok := x.machine.Deadline(); ok && !now.Before(at) {
		x.step(now, &peer.Tick{})
	}
	for len(x.inbox) > 0 {
		in := x.inbox[0]
		x.inbox = x.inbox[1:]
		x.step(now, in)
	}
}

func (x *links) put(in peer.Input) {
	x.n.touched = true
	x.inbox = append(x.inbox, in)
}

func (x *links) step(now time.Time, in peer.Input) {
	if p, ok := in.(*peer.Post); ok {
		x.n.posts(p)
	}
	x.machine.Step(now, in, &x.effects)
	for i := range x.effects.List {
		x.perform(&x.effects.List[i])
	}
	x.effects.Reset()
}

// perform does what the machine asks. Nothing of it steps the machine.
func (x *links) perform(e *peer.Effect) {
	switch e.Kind {
	case peer.Dial:
		x.dial(e)
	case peer.Write:
		if l := x.byID[e.Link]; l != nil {
			l.writing = append(l.writing, e.Parts)
			x.write(l)
		}
	case peer.CloseLink:
		x.close(e.Link)
	case peer.Posted:
		x.posted(e.Peer, e.Message)
	case peer.Asked:
		q := e.Question
		x.asked(e.Peer, e.Message, func(answer []byte) { x.put(&peer.Answer{Question: q, Answer: answer}) })
	case peer.Answered:
		e.Done(e.Message, e.Err)
	case peer.StreamUp:
		x.streams.StreamUp(e.Stream, model.NodeID(e.Peer.NodeID), e.Was)
	case peer.StreamMessage:
		x.streams.StreamMessage(e.Stream, e.Message)
	case peer.StreamDown:
		x.streams.StreamDown(e.Stream)
	case peer.Settled:
		e.Sent(e.Was)
	}
}

func (x *links) dial(e *peer.Effect) {
	l := &linkEnd{id: e.Link}
	link, err := x.n.c.net.Dial(x.n.c.w.Now(), x.n.place, e.Target)
	if err != nil {
		x.put(&peer.Failed{Link: e.Link, Err: err})
		return
	}
	l.link = link
	x.byID[l.id], x.byLink[link] = l, l
}

// write gives the network what it takes.
func (x *links) write(l *linkEnd) {
	for len(l.writing) > 0 {
		switch err := x.n.c.net.Send(x.n.c.w.Now(), l.link, l.writing[0]...); {
		case errors.Is(err, memnet.ErrFull):
			return
		case err != nil:
			return // the end of the link tells
		}
		l.writing = l.writing[1:]
		x.put(&peer.Sent{Link: l.id})
	}
}

func (x *links) close(id peer.LinkID) {
	l := x.byID[id]
	if l == nil {
		return
	}
	x.n.c.net.Close(x.n.c.w.Now(), l.link)
	x.forget(l)
	if l.made {
		x.put(&peer.Ended{Link: id})
	} else {
		x.put(&peer.Failed{Link: id, Err: transport.Errorf(transport.ErrClosed, "it was given up")})
	}
}

func (x *links) forget(l *linkEnd) {
	delete(x.byID, l.id)
	delete(x.byLink, l.link)
}

// event is one thing that the network tells.
func (x *links) event(ev memnet.Event) {
	if ev.Kind == memnet.Incoming {
		x.accept()
		return
	}
	l := x.byLink[ev.Link]
	if l == nil {
		return
	}
	switch ev.Kind {
	case memnet.Dialled:
		l.made = true
		to, _, err := x.n.c.net.Peer(l.link)
		if err != nil { // it has ended already, of which another event tells
			return
		}
		x.put(&peer.Dialled{Link: l.id, Peer: to})
	case memnet.Failed:
		x.forget(l)
		x.put(&peer.Failed{Link: l.id, Err: ev.Err})
	case memnet.Arrived:
		x.receive(l)
	case memnet.Ended:
		x.receive(l)
		x.forget(l)
		x.put(&peer.Ended{Link: l.id})
	case memnet.MaySend:
		x.write(l)
	}
}

func (x *links) accept() {
	now := x.n.c.w.Now()
	link, ok := x.n.c.net.Accept(now, x.n.place)
	if !ok {
		return
	}
	from, lane, err := x.n.c.net.Peer(link)
	if err != nil {
		return
	}
	x.even += 2
	l := &linkEnd{id: x.even, link: link, made: true}
	x.byID[l.id], x.byLink[link] = l, l
	x.put(&peer.Accepted{Link: l.id, Peer: from, Lane: lane})
	x.receive(l)
}

// receive takes what has arrived on a link.
func (x *links) receive(l *linkEnd) {
	for {
		data, ok, err := x.n.c.net.Receive(x.n.c.w.Now(), l.link)
		if err != nil || !ok {
			return
		}
		x.put(&peer.Received{Link: l.id, Data: data})
	}
}

// Post implements quorum.Peers.
func (x *links) Post(to model.Address, message []byte, bulk bool) {
	x.put(&peer.Post{To: to, Message: message, Bulk: bulk})
}

// Ask implements quorum.Peers.
func (x *links) Ask(to model.Address, question []byte, timeout time.Duration, done func([]byte, error)) {
	x.put(&peer.Ask{To: to, Question: question, Timeout: timeout, Done: done})
}

// Want implements replica.Streams.
func (x *links) Want(node model.NodeID, wanted bool) {
	x.put(&peer.Want{Node: node, Wanted: wanted})
}

// Send implements replica.Streams.
func (x *links) Send(s model.StreamID, parts [][]byte, sent func(bool)) bool {
	var out peer.Effects
	taken := x.machine.Send(x.n.Now(), s, parts, sent, &out)
	for i := range out.List {
		x.perform(&out.List[i])
	}
	return taken
}

// End implements replica.Streams.
func (x *links) End(s model.StreamID) { x.put(&peer.End{Stream: s}) }

// startLinks makes the node reachable.
func (n *node) startLinks() error {
	cfg := peer.Defaults()
	cfg.Identity = transport.Identity{ClusterID: string(clusterID), NodeID: int32(n.id), DirectoryID: transport.DirectoryID(n.directory)}
	m, err := peer.New(cfg, rand.New(rand.NewPCG(n.c.w.Rand.Uint64(), 1)))
	if err != nil {
		return err
	}
	n.links = &links{n: n, machine: m, byID: make(map[peer.LinkID]*linkEnd), byLink: make(map[memnet.Link]*linkEnd)}
	n.loops.Add(n.links)
	for _, o := range n.c.nodes {
		n.locate(o)
	}
	return n.c.net.Start(n.c.w.Now(), n.place, memnet.Process{Identity: cfg.Identity})
}

// locate tells the links of a node where another can be dialled.
func (n *node) locate(o *node) {
	if o != n {
		n.links.put(&peer.Locate{Node: o.id, Endpoint: o.endpoint})
	}
}
