package transporttest

import (
	"context"
	"errors"

	"github.com/brokerd/brokerd/sdk/transport"
)

func proofCases() []Case {
	return []Case{
		{Name: "proof", About: "both ends have proved what Capabilities promise, whatever the lane", run: proof},
		{Name: "denied", About: "who cannot prove what is demanded gets and gives no link", Needs: Needs{Outsider: true}, run: denied},
		{Name: "impostor", About: "who claims to be another node gets and gives no link", Needs: Needs{Impostor: true, Proof: transport.ProofNode}, run: impostor},
	}
}

func proof(e *env) {
	if e.has.Proof > transport.ProofNode {
		e.failf(saidCapabilities, "Capabilities.Proof is %d, which is none", e.has.Proof)
	}
	a, b, fresh := e.node(1), e.node(2), e.open(e.target.Open, identity("", 3))
	for _, lane := range []transport.Lane{transport.Control, transport.Data} {
		for _, ends := range [][2]*node{{a, b}, {b, a}, {a, fresh}, {fresh, b}} {
			p := join(ends[0], ends[1], lane)
			e.wantPeer(saidProof, p.dialled, ends[1].id, lane)
			e.wantPeer(saidProof, p.accepted, ends[0].id, lane)
		}
	}
}

func denied(e *env) { e.neverBelieved(saidDenied, e.target.Outsider) }

func impostor(e *env) { e.neverBelieved(saidIsNode, e.target.Impostor) }

// neverBelieved sees that neither end believes a node that is opened so, and that links of
// others go on beside it.
func (e *env) neverBelieved(said sentence, open func(context.Context, transport.Identity) (transport.Transport, error)) {
	a, b := e.node(1), e.node(2)
	before := join(a, b, transport.Data)
	liar := e.open(open, identity(cluster, 3))
	e.wantDenied(said, liar, a)
	e.wantDenied(said, a, liar)
	before.passes(1)
	join(a, b, transport.Data).passes(2)
}

// wantDenied dials where one of both is not believed.
func (e *env) wantDenied(said sentence, a, b *node) {
	for _, lane := range []transport.Lane{transport.Control, transport.Data} {
		for _, nodeID := range []int32{b.id.NodeID, transport.AnyNode} {
			to := b.target(lane)
			to.NodeID = nodeID
			_, err := a.tryDial(to)
			if errors.Is(err, context.DeadlineExceeded) {
				e.failf(saidDenied, "a dial that is not believed waits: %v", err)
			}
			e.wantClass(said, err, "dial where one of both has not proved what is demanded", transport.ErrDenied)
			b.acceptsNone(said, "a dial was denied")
		}
	}
}
