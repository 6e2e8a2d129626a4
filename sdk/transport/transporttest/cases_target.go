package transporttest

import (
	"fmt"
	"strings"

	"github.com/brokerd/brokerd/sdk/transport"
)

func targetCases() []Case {
	return []Case{
		{Name: "peer", About: "each end of a link tells who the other is, and what the link is for", run: peers},
		{Name: "any-node", About: "a seed is dialled without knowing who it is", run: anyNode},
		{Name: "other-node", About: "another node than was dialled is ErrOther", run: otherNode},
		{Name: "other-cluster", About: "a node of another cluster than was dialled is ErrOther", run: otherCluster},
		{Name: "no-cluster", About: "a node without a cluster dials, and is dialled", run: noCluster},
		{Name: "target-invalid", About: "a target that makes no sense is ErrInvalid", run: invalidTargets},
	}
}

// wantPeer fails the case unless the link's peer is who it should be.
func (e *env) wantPeer(said sentence, link transport.Link, is transport.Identity, lane transport.Lane) {
	if got := link.Peer().Identity; got != is {
		e.failf(said, "the peer is %+v, and Peer says %+v", is, got)
	}
	if got := link.Lane(); got != lane {
		e.failf(saidLane, "the link was dialled for lane %v, and Lane says %v", lane, got)
	}
	if got := link.Peer().Proof; got < e.has.Proof {
		e.failf(saidProof, "Capabilities promise that peers prove %v, and this one has proved %v", e.has.Proof, got)
	}
}

func peers(e *env) {
	nodes := []*node{e.node(0), e.node(1), e.node(1<<31 - 1)}
	for i, a := range nodes {
		b := nodes[(i+1)%len(nodes)]
		for _, lane := range []transport.Lane{transport.Control, transport.Data} {
			p := join(a, b, lane)
			e.wantPeer(saidPeer, p.dialled, b.id, lane)
			e.wantPeer(saidPeer, p.accepted, a.id, lane)
			p.passes(1)
			e.must(saidLinkClose, p.dialled.Close(), "close a link")
			e.wantPeer(saidPeer, p.dialled, b.id, lane) // it is known of a link that has ended, too
		}
	}
}

func anyNode(e *env) {
	a, b := e.node(1), e.node(2)
	to := b.target(transport.Control)
	to.NodeID, to.ClusterID = transport.AnyNode, ""
	for range 2 {
		p := pair{e: e, dialled: a.dial(to), accepted: b.accept()}
		e.wantPeer(saidAnyNode, p.dialled, b.id, transport.Control)
		e.wantPeer(saidAnyNode, p.accepted, a.id, transport.Control)
		p.passes(1)
		to.ClusterID = cluster
	}
	to = b.target(transport.Data)
	to.ClusterID = ""
	p := pair{e: e, dialled: a.dial(to), accepted: b.accept()}
	e.wantPeer(saidCluster, p.dialled, b.id, transport.Data)
	p.passes(1)
}

// wantOther dials somebody else than who is there.
func (e *env) wantOther(said sentence, a, b *node, to transport.Target, what string) {
	_, err := a.tryDial(to)
	e.wantClass(said, err, what, transport.ErrOther)
	told := strings.Contains(err.Error(), fmt.Sprint(b.id.NodeID)) || strings.Contains(err.Error(), b.id.ClusterID)
	if !told {
		e.failf(saidOther, "node %d of cluster %q has answered, and the error does not tell so: %v", b.id.NodeID, b.id.ClusterID, err)
	}
	b.acceptsNone(saidOther, what+" was ErrOther")
}

func otherNode(e *env) {
	a, b := e.node(1), e.node(4242)
	before := join(a, b, transport.Data)
	for _, nodeID := range []int32{0, 3, 1} {
		to := b.target(transport.Data)
		to.NodeID = nodeID
		e.wantOther(saidOther, a, b, to, fmt.Sprintf("dial node %d where node 4242 is", nodeID))
	}
	to := b.target(transport.Data)
	to.NodeID, to.ClusterID = 7, ""
	e.wantOther(saidOther, a, b, to, "dial node 7 of any cluster where node 4242 is")
	before.passes(1)
	join(a, b, transport.Data).passes(2)
}

func otherCluster(e *env) {
	a, b := e.node(1), e.node(4242)
	before := join(a, b, transport.Data)
	for _, nodeID := range []int32{4242, transport.AnyNode} {
		to := b.target(transport.Data)
		to.NodeID, to.ClusterID = nodeID, "transporttest-cluster-2"
		e.wantOther(saidCluster, a, b, to, fmt.Sprintf("dial node %d of another cluster", nodeID))
	}
	fresh := e.open(e.target.Open, identity("", 4243))
	to := fresh.target(transport.Data)
	to.ClusterID = cluster
	e.wantOther(saidCluster, a, fresh, to, "dial a node of the cluster where one without is")
	before.passes(1)
	join(a, b, transport.Data).passes(2)
}

func noCluster(e *env) {
	member, fresh, other := e.node(1), e.open(e.target.Open, identity("", 2)), e.open(e.target.Open, identity("", 3))
	for _, ends := range [][2]*node{{member, fresh}, {fresh, member}, {fresh, other}} {
		a, b := ends[0], ends[1]
		for _, nodeID := range []int32{b.id.NodeID, transport.AnyNode} {
			to := transport.Target{Endpoint: b.Endpoint(), Lane: transport.Control, NodeID: nodeID}
			link, err := a.tryDial(to)
			e.must(saidNoCluster, err, fmt.Sprintf("a node of cluster %q dials one of %q", a.id.ClusterID, b.id.ClusterID))
			p := pair{e: e, dialled: link, accepted: b.accept()}
			e.wantPeer(saidNoCluster, p.dialled, b.id, transport.Control)
			e.wantPeer(saidNoCluster, p.accepted, a.id, transport.Control)
			p.passes(1)
		}
	}
	// Who is of another cluster is told of it, and the broker sees to the rest.
	foreign := e.open(e.target.Open, identity("transporttest-cluster-2", 4))
	link, err := foreign.tryDial(transport.Target{Endpoint: member.Endpoint(), Lane: transport.Control, NodeID: transport.AnyNode})
	e.must(saidAnyCluster, err, "a node of another cluster dials any")
	q := pair{e: e, dialled: link, accepted: member.accept()}
	e.wantPeer(saidAnyCluster, q.dialled, member.id, transport.Control)
	e.wantPeer(saidAnyCluster, q.accepted, foreign.id, transport.Control)
	// A node that joins knows of which cluster the one is that it dials.
	p := pair{e: e, dialled: fresh.dial(member.target(transport.Data)), accepted: member.accept()}
	p.passes(1)
}

func invalidTargets(e *env) {
	a, b := e.node(1), e.node(2)
	for what, spoil := range map[string]func(*transport.Target){
		"no endpoint":         func(to *transport.Target) { to.Endpoint = "" },
		"lane 0":              func(to *transport.Target) { to.Lane = 0 },
		"lane 3":              func(to *transport.Target) { to.Lane = 3 },
		"lane 255":            func(to *transport.Target) { to.Lane = 255 },
		"node -2":             func(to *transport.Target) { to.NodeID = -2 },
		"the least node":      func(to *transport.Target) { to.NodeID = -1 << 31 },
		"a target of nothing": func(to *transport.Target) { *to = transport.Target{} },
	} {
		to := b.target(transport.Data)
		spoil(&to)
		_, err := a.tryDial(to)
		e.wantClass(saidInvalid, err, "dial "+what, transport.ErrInvalid)
		b.acceptsNone(saidInvalid, "a dial of "+what+" was ErrInvalid")
	}
	for _, endpoint := range []string{"\x00", "no endpoint at all", strings.Repeat("x", 100_000)} {
		to := b.target(transport.Data)
		to.Endpoint = endpoint
		err := e.soon(saidPanics, "dial a strange endpoint", func() error { _, err := a.tryDial(to); return err })
		e.wantClass(saidInvalid, err, fmt.Sprintf("dial the endpoint %.20q", endpoint), transport.ErrInvalid, transport.ErrRetry, transport.ErrRefused)
	}
	join(a, b, transport.Data).passes(1)
}
