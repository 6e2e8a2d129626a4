package quorum

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

const (
	// receivedMax and receivedBytesMax bound the messages that wait for the loop; more are
	// dropped, as a network may. One larger message is taken if none waits.
	receivedMax      = 4096
	receivedBytesMax = 32 << 20
	// bulkBytes: what is larger must hold up no heartbeat.
	bulkBytes = 64 << 10
	// peersMax bounds the peers that are known by their messages alone.
	peersMax = 256
	// snapshotTicks, and one more for each MiB, is how long a snapshot may take to be
	// taken over before another is sent.
	snapshotTicks = 50
	// strangersMax bounds the clusters whose messages are told of.
	strangersMax = 16
)

// received is a message on its way to the loop.
type received struct {
	from  sender
	raft  *raftpb.Message
	bytes int64
}

// peer is what is known of another member by its messages.
type peer struct {
	from  sender
	heard time.Time
	// silent are the ticks since; snapshot those that are left for one to be taken over.
	silent   int
	snapshot int
}

// Receive takes a message that was given to another node's Peers. It may be called
// concurrently, never waits, and keeps nothing of the message. ErrMalformed: whoever sent
// it is no quorum of this release. What is too much at once is dropped.
func (n *Node) Receive(message []byte) error {
	in, err := decodeMessage(message)
	if err != nil {
		return err
	}
	if n.receiving.Add(1) > receivedMax || n.receivingBytes.Add(in.bytes) > max(receivedBytesMax, in.bytes) || !n.loop.Complete(Input{received: in}) {
		n.taken(in)
	}
	return nil
}

func decodeMessage(b []byte) (*received, error) {
	kind, from, body, err := decodeHeader(b)
	if err != nil {
		return nil, err
	}
	in := &received{from: from, bytes: int64(len(b))}
	if kind != kindRaft {
		return nil, fmt.Errorf("a message of kind %d: %w", kind, ErrMalformed)
	}
	in.raft = &raftpb.Message{}
	if err := proto.Unmarshal(body, in.raft); err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrMalformed)
	}
	return in, in.check()
}

// check says whether Raft can make sense of a message.
func (in *received) check() error {
	m := in.raft
	switch m.GetType() {
	case raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp,
		raftpb.MsgSnap, raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp, raftpb.MsgTimeoutNow:
	default:
		return fmt.Errorf("%s is not for others: %w", m.GetType(), ErrMalformed)
	}
	if m.GetTerm() == 0 || m.GetFrom() != raftID(in.from.DirectoryID) || len(m.GetResponses()) > 0 {
		return fmt.Errorf("%s is not of who sent it: %w", m.GetType(), ErrMalformed)
	}
	index, term := m.GetIndex(), m.GetLogTerm()
	for _, e := range m.GetEntries() {
		index++
		if e.GetIndex() != index || e.GetTerm() < term || e.GetTerm() > m.GetTerm() || m.GetType() != raftpb.MsgApp {
			return fmt.Errorf("entry %d of term %d does not follow entry %d of term %d: %w", e.GetIndex(), e.GetTerm(), index-1, term, ErrMalformed)
		}
		term = e.GetTerm()
	}
	return nil
}

func (n *Node) taken(in *received) {
	n.receiving.Add(-1)
	n.receivingBytes.Add(-in.bytes)
}

// receive gives Raft a message of another member.
func (n *Node) receive(in *received) error {
	defer n.taken(in)
	if n.stranger(in.from) {
		return nil
	}
	if !n.hear(in.from) {
		return nil
	}
	m := in.raft
	if m.GetTo() != n.raftID { // for the directory that was here before
		return nil
	}
	switch m.GetType() {
	case raftpb.MsgHeartbeat:
		// Raft takes this for a broken invariant.
		if last, err := n.store.mem.LastIndex(); err != nil || m.GetCommit() > last {
			n.log.Error("the leader of the quorum counts on entries that are not here: was quorum.db put back from a copy?",
				"broker", in.from.NodeID, "commit", m.GetCommit(), "end", last, "err", err)
			return nil
		}
	case raftpb.MsgSnap:
		if _, err := n.decodeSnapshot(m.GetSnapshot()); err != nil {
			n.log.Error("a snapshot of the metadata is refused", "broker", in.from.NodeID, "err", err)
			return nil
		}
	}
	return n.stepRaft(m)
}

// stepRaft gives Raft a message. What Raft panics over is of the peer's making, or of a
// disk that forgot: this node cannot go on, the process can.
func (n *Node) stepRaft(m *raftpb.Message) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the metadata log contradicts what member %x says (%s): %v: %w", m.GetFrom(), m.GetType(), p, ErrDamaged)
		}
	}()
	switch err := n.raft.Step(m); {
	case err == nil, errors.Is(err, raft.ErrStepPeerNotFound), errors.Is(err, raft.ErrProposalDropped):
	default:
		n.log.Debug("raft refused a message", "type", m.GetType().String(), "err", err)
	}
	return nil
}

// stranger says whether somebody is of another cluster, and tells of it once.
func (n *Node) stranger(from sender) bool {
	if from.ClusterID == n.identity.ClusterID {
		return false
	}
	if !slices.Contains(n.strangers, from.ClusterID) && len(n.strangers) < strangersMax {
		n.strangers = append(n.strangers, from.ClusterID)
		n.log.Error("a member of another cluster has reached this one, and is refused: the seeds or the endpoint of one of them are wrong",
			"broker", from.NodeID, "endpoint", from.endpoint, "cluster", string(from.ClusterID), "own", string(n.identity.ClusterID))
	}
	return true
}

// hear notes where a member can be reached: it knows best. False: another process has its
// directory, at another endpoint, and was heard of late. The two are one member for Raft, and
// would have two votes, so that the second is not listened to while there is the first.
func (n *Node) hear(from sender) bool {
	id := raftID(from.DirectoryID)
	if id == n.raftID {
		return from.endpoint == n.cfg.Endpoint
	}
	p := n.peers[id]
	if p == nil {
		if len(n.peers) >= peersMax || !validRaftID(id) {
			return true
		}
		p = &peer{}
		n.peers[id] = p
	}
	if !p.heard.IsZero() && p.from.endpoint != from.endpoint && p.silent < n.cfg.ElectionTicks {
		return false
	}
	p.from, p.heard, p.silent = from, n.now, 0
	return true
}

// address is where a member can be reached.
func (n *Node) address(id uint64) (Address, bool) {
	if p := n.peers[id]; p != nil && p.from.endpoint != "" {
		return Address{Endpoint: p.from.endpoint, Node: p.from.NodeID}, true
	}
	if m := n.member(id); m != nil && m.Endpoint != "" {
		return Address{Endpoint: m.Endpoint, Node: m.Node}, true
	}
	return Address{}, false
}

// member is what the metadata says of a member, or nil.
func (n *Node) member(id uint64) *image.Member {
	for m := range n.Image().Members() {
		if raftID(m.Directory) == id {
			return m
		}
	}
	return nil
}

// send sends what Raft has to say. What it rests on is durable.
func (n *Node) send(messages []*raftpb.Message) error {
	for _, m := range messages {
		if m.GetType() == raftpb.MsgSnap {
			p := n.peers[m.GetTo()]
			if p == nil {
				p = &peer{}
				n.peers[m.GetTo()] = p
			}
			p.snapshot = snapshotTicks + len(m.GetSnapshot().GetData())>>20
		}
		to, ok := n.address(m.GetTo())
		if !ok || n.deps.Peers == nil {
			continue
		}
		b, err := proto.MarshalOptions{}.MarshalAppend(header(kindRaft, n.self()), m)
		if err != nil {
			return fmt.Errorf("encode %s: %w", m.GetType(), err)
		}
		n.deps.Peers.Post(to, b, m.GetType() == raftpb.MsgSnap || len(b) > bulkBytes)
	}
	return nil
}

// tickPeers tells Raft of those who have not answered for long, so that it sends them one
// message at a time, and of snapshots that were not taken over.
func (n *Node) tickPeers() {
	var silent, failed []uint64
	leads := n.raft.BasicStatus().RaftState == raft.StateLeader
	for id, p := range n.peers {
		p.silent++
		if p.silent == n.cfg.ElectionTicks {
			silent = append(silent, id)
		}
		if p.snapshot > 0 {
			if p.snapshot--; p.snapshot == 0 {
				failed = append(failed, id)
			}
		}
	}
	slices.Sort(silent)
	slices.Sort(failed)
	if !leads {
		return
	}
	for _, id := range silent {
		n.raft.ReportUnreachable(id)
	}
	for _, id := range failed {
		n.raft.ReportSnapshot(id, raft.SnapshotFailure)
	}
}

// nodeOf is the node ID of a member, or NoNode.
func (n *Node) nodeOf(id uint64) model.NodeID {
	if m := n.member(id); m != nil {
		return m.Node
	}
	if p := n.peers[id]; p != nil {
		return p.from.NodeID
	}
	return model.NoNode
}
