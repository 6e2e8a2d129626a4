package transporttest

import (
	"context"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

// cluster is the cluster of the kit's nodes, where a case says nothing else.
const cluster = "transporttest-cluster-1"

// moment is how long a call that must wait is watched waiting.
const moment = 50 * time.Millisecond

// node is a transport that the case has opened.
type node struct {
	transport.Transport
	e  *env
	id transport.Identity
}

// identity is a node of a cluster.
func identity(clusterID string, nodeID int32) transport.Identity {
	id := transport.Identity{ClusterID: clusterID, NodeID: nodeID}
	copy(id.DirectoryID[:], fmt.Sprintf("directory %06d", nodeID))
	return id
}

// node opens the transport of node n of the kit's cluster.
func (e *env) node(n int32) *node { return e.open(e.target.Open, identity(cluster, n)) }

// open opens a transport, which is closed when the case ends.
func (e *env) open(open func(context.Context, transport.Identity) (transport.Transport, error), id transport.Identity) *node {
	ctx, cancel := e.within()
	defer cancel()
	t, err := open(ctx, id)
	e.must(saidEndpoint, err, "open a transport")
	n := &node{Transport: t, e: e, id: id}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.nodes = append(e.nodes, n)
	return n
}

// forget takes the node from those that the end of the case closes.
func (n *node) forget() {
	n.e.mu.Lock()
	defer n.e.mu.Unlock()
	for i, other := range n.e.nodes {
		if other == n {
			n.e.nodes = append(n.e.nodes[:i:i], n.e.nodes[i+1:]...)
			return
		}
	}
}

// close closes the transport within the case.
func (n *node) close() {
	n.e.must(saidTransportClose, n.e.soon(saidTransportClose, "close the transport", n.Close), "close the transport")
	n.forget()
}

// kill ends the transport as the death of its process does.
func (n *node) kill() {
	n.forget()
	if err := n.e.target.Kill(n.Transport); err != nil {
		n.e.failf(saidResets, "kill the transport: %v", err)
	}
}

// target is the node, to be dialled for a lane.
func (n *node) target(lane transport.Lane) transport.Target {
	return transport.Target{Endpoint: n.Endpoint(), Lane: lane, NodeID: n.id.NodeID, ClusterID: n.id.ClusterID}
}

// dial dials, and fails the case if it cannot.
func (n *node) dial(to transport.Target) transport.Link {
	link, err := n.tryDial(to)
	n.e.must(saidDialled, err, fmt.Sprintf("node %d dials node %d", n.id.NodeID, to.NodeID))
	return link
}

func (n *node) tryDial(to transport.Target) (transport.Link, error) {
	ctx, cancel := n.e.within()
	defer cancel()
	return n.Dial(ctx, to)
}

// accept accepts the next link.
func (n *node) accept() transport.Link {
	ctx, cancel := n.e.within()
	defer cancel()
	link, err := n.Accept(ctx)
	n.e.must(saidAccept, err, fmt.Sprintf("node %d accepts a link that was dialled", n.id.NodeID))
	return link
}

// acceptsNone fails the case if there is a link to be accepted.
func (n *node) acceptsNone(said sentence, why string) {
	ctx, cancel := context.WithTimeout(n.e.ctx, moment)
	defer cancel()
	if link, err := n.Accept(ctx); err == nil {
		n.e.failf(said, "%s, and Accept gives a link of %+v", why, link.Peer())
	}
}

// pair is both ends of a link.
type pair struct {
	e                 *env
	dialled, accepted transport.Link
}

// join makes a link from a to b.
func join(a, b *node, lane transport.Lane) pair {
	dialled := a.dial(b.target(lane))
	return pair{e: a.e, dialled: dialled, accepted: b.accept()}
}

// pair makes two nodes and a link between them.
func (e *env) pair() pair { return join(e.node(1), e.node(2), transport.Data) }

// ways are both directions of the link: from, and to.
func (p pair) ways() [2][2]transport.Link {
	return [2][2]transport.Link{{p.dialled, p.accepted}, {p.accepted, p.dialled}}
}

// send sends one message, within the kit's patience.
func (e *env) send(link transport.Link, parts ...[]byte) {
	e.must(saidTaken, e.trySend(link, parts...), "send a message")
}

func (e *env) trySend(link transport.Link, parts ...[]byte) error {
	ctx, cancel := e.within()
	defer cancel()
	return link.Send(ctx, parts...)
}

// sendTag sends the message of the tag.
func (e *env) sendTag(link transport.Link, tag uint64, n int) { e.send(link, message(tag, n)) }

// room gives memory for any message.
func room(_ context.Context, n int) ([]byte, error) { return make([]byte, n), nil }

// receive gives the next message, within the kit's patience.
func (e *env) receive(link transport.Link) []byte {
	got, err := e.tryReceive(link)
	e.must(saidBeginning, err, "receive a message that was sent")
	return got
}

func (e *env) tryReceive(link transport.Link) ([]byte, error) {
	ctx, cancel := e.within()
	defer cancel()
	return link.Receive(ctx, room)
}

// receiveTag receives the message of the tag, and nothing else.
func (e *env) receiveTag(link transport.Link, tag uint64, n int) {
	if wrong := differs(e.receive(link), tag, n); wrong != "" {
		e.failf(saidBeginning, "%s", wrong)
	}
}

// passes sends a message each way, which has to arrive.
func (p pair) passes(tag uint64) {
	for i, way := range p.ways() {
		p.e.sendTag(way[0], tag+uint64(i), 100)
		p.e.receiveTag(way[1], tag+uint64(i), 100)
	}
}

// receivesBeginning receives until the link has ended, and returns how many messages came:
// those of tags from first on, n bytes each, of which at most count were sent.
func (e *env) receivesBeginning(link transport.Link, first uint64, n, count int) int {
	for i := 0; ; i++ {
		got, err := e.tryReceive(link)
		if err != nil {
			e.wantClass(saidFinds, err, "receive on a link that has ended", transport.ErrClosed)
			return i
		}
		if i == count {
			e.failf(saidBeginning, "%d messages were sent, and more arrive", count)
		}
		if wrong := differs(got, first+uint64(i), n); wrong != "" {
			e.failf(saidBeginning, "%s", wrong)
		}
	}
}

// ended fails the case unless every call on the link gives ErrClosed.
func (e *env) ended(link transport.Link, whose string) {
	for range 2 {
		_, err := e.tryReceive(link)
		e.wantClass(saidFinds, err, "receive on "+whose, transport.ErrClosed)
		err = e.trySend(link, message(1, 10))
		e.wantClass(saidFinds, err, "send on "+whose, transport.ErrClosed)
	}
}

// findsEnd receives until the link has ended, and then sees that it stays so.
func (e *env) findsEnd(link transport.Link, whose string) {
	for {
		if _, err := e.tryReceive(link); err != nil {
			e.wantClass(saidFinds, err, "receive on "+whose, transport.ErrClosed)
			break
		}
	}
	e.ended(link, whose)
}
