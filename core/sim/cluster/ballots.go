package cluster

import (
	"encoding/binary"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/brokerd/brokerd/core/peer"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
)

const (
	// voteKillOneIn: a node dies in one of so many saves by which it votes, while faults are on.
	voteKillOneIn = 8
	// ballotOneIn: so many votes for another are the last that is heard of both for a while.
	ballotOneIn = 4
)

// votes says whether a save has the vote of its node: for itself, or for another.
func votes(was, is *raftpb.HardState) bool {
	return is.GetVote() != 0 && (is.GetTerm() != was.GetTerm() || is.GetVote() != was.GetVote())
}

// posts tells the checker of what a node of the quorum says to another, as it leaves.
func (n *node) posts(p *peer.Post) {
	m := raftMessage(p.Message)
	if m == nil {
		n.c.check.Violate("node %d sends another what is no message of Raft", n.id)
		return
	}
	switch m.GetType() {
	case raftpb.MsgVote:
		n.c.check.Voted(m.GetFrom(), m.GetTerm(), m.GetFrom())
	case raftpb.MsgVoteResp:
		if !m.GetReject() {
			n.c.check.Voted(m.GetFrom(), m.GetTerm(), m.GetTo())
			n.c.ballot(n, n.c.node(p.To.Node))
		}
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap:
		n.c.check.LeadsQuorum(m.GetFrom(), m.GetTerm())
	}
}

// raftMessage reads a message of core/quorum: its version and kind, who sent it, and what is
// Raft's. Nil: it is none.
func raftMessage(b []byte) *raftpb.Message {
	skip := func(n int) {
		b = b[min(n, len(b)):]
	}
	uvarint := func() int {
		v, n := binary.Uvarint(b)
		skip(max(n, 0))
		return int(min(v, 1<<20))
	}
	skip(2)
	skip(uvarint()) // the cluster
	skip(16)        // the directory
	uvarint()       // the node
	skip(uvarint()) // the endpoint
	m := &raftpb.Message{}
	if proto.Unmarshal(b, m) != nil || m.GetTerm() == 0 {
		return nil
	}
	return m
}

// ballot is what a vote is kept for. At times a node that has just voted for another dies, and
// is back in time for the next election; the other hears nothing more from anybody, whether it
// leads by now or not; and whoever was away, and has not heard of that election, is back.
func (c *cluster) ballot(n, candidate *node) {
	if !c.faulty || candidate == nil || !c.w.Chance(ballotOneIn) {
		return
	}
	c.report.Ballots++
	c.w.Note("node %d has voted for node %d, and both go", n.id, candidate.id)
	soon := func() time.Duration { return c.w.Between(0, 2*c.opts.Usual+5*time.Millisecond) }
	l := n.life
	c.w.After(soon(), func() {
		if c.faulty && n.life == l {
			c.kill(n)
		}
	})
	c.w.After(soon(), func() {
		if !c.faulty {
			return
		}
		var others []*node
		for _, o := range c.nodes {
			if o == candidate {
				continue
			}
			for _, to := range others {
				c.usual(o, to)
				c.usual(to, o)
			}
			o.resume()
			c.wrong(o, candidate, memnet.Faults{Cut: true})
			c.wrong(candidate, o, memnet.Faults{Cut: true})
			others = append(others, o)
		}
		c.mend(candidate, others, 5*time.Second)
	})
}
