package quorum

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

type memberHow byte

const (
	// memberAnnounced: a node is there, at this endpoint, and is to be a member.
	memberAnnounced memberHow = 1
	memberAddVoter  memberHow = 2
	memberDropVoter memberHow = 3
	memberRemoved   memberHow = 4
)

// memberChange is what is asked about one member.
type memberChange struct {
	how    memberHow
	member image.Member
	known  bool // announced: it has had the log, so that it was a member
}

func (c *memberChange) encode() []byte {
	return append(appendMember([]byte{byte(c.how)}, c.member), bit(c.known))
}

func decodeMemberChange(b []byte) (*memberChange, error) {
	r := reader{in: b}
	c := &memberChange{how: memberHow(r.byte()), member: r.member(), known: r.byte() == 1}
	if r.bad || c.how < memberAnnounced || c.how > memberRemoved || !validRaftID(raftID(c.member.Directory)) {
		return nil, fmt.Errorf("a change of a member: %w: %w", ErrMalformed, model.ErrInvalidRequest)
	}
	return c, nil
}

// AddVoter makes a member that follows a voter, by hand. It waits until the member has
// caught up, for a few seconds: ErrRequestTimedOut. ErrVoterNotFound: there is no such
// member. ErrDuplicateVoter: it votes, by this directory or another one. (KIP-853)
func (n *Node) AddVoter(ctx context.Context, id model.NodeID, dir model.DirectoryID) error {
	return n.changeVoter(ctx, memberAddVoter, id, dir)
}

// RemoveVoter makes a voter a member that follows, and that the cluster makes no voter by
// itself. Where another may vote instead, that one does, by the same change. ErrVoterNotFound:
// there is no such voter. ErrInvalidRequest: it is the last one. (KIP-853)
func (n *Node) RemoveVoter(ctx context.Context, id model.NodeID, dir model.DirectoryID) error {
	return n.changeVoter(ctx, memberDropVoter, id, dir)
}

// RemoveMember forgets a member that does not vote. It stops, and is told of it when it
// asks. ErrVoterNotFound: there is no such member. ErrInvalidRequest: it votes.
func (n *Node) RemoveMember(ctx context.Context, id model.NodeID, dir model.DirectoryID) error {
	return n.changeVoter(ctx, memberRemoved, id, dir)
}

func (n *Node) changeVoter(ctx context.Context, how memberHow, id model.NodeID, dir model.DirectoryID) error {
	r, err := changeOf(how, id, dir)
	if err == nil {
		_, err = n.wait(ctx, r)
	}
	return err
}

// StartRemoveVoter is RemoveVoter that does not wait: see Start.
func (n *Node) StartRemoveVoter(id model.NodeID, dir model.DirectoryID, gone <-chan struct{}, done func(error)) {
	n.startChange(memberDropVoter, id, dir, gone, done)
}

// StartRemoveMember is RemoveMember that does not wait: see Start.
func (n *Node) StartRemoveMember(id model.NodeID, dir model.DirectoryID, gone <-chan struct{}, done func(error)) {
	n.startChange(memberRemoved, id, dir, gone, done)
}

func (n *Node) startChange(how memberHow, id model.NodeID, dir model.DirectoryID, gone <-chan struct{}, done func(error)) {
	r, err := changeOf(how, id, dir)
	if err != nil {
		done(err)
		return
	}
	r.gone, r.reply = gone, func(a controller.Answer) { done(a.Err) }
	n.start(r)
}

func changeOf(how memberHow, id model.NodeID, dir model.DirectoryID) (*request, error) {
	if !validRaftID(raftID(dir)) {
		return nil, fmt.Errorf("directory %s: %w", dir, model.ErrInvalidRequest)
	}
	return &request{member: &memberChange{how: how, member: image.Member{Directory: dir, Node: id}}}, nil
}

// changing is a change of the membership that is in the log and not yet applied.
type changing struct {
	proposal controller.ProposalID
	r        *request // nil: nobody asked
}

// mayChange says whether Raft takes a change now. While it has one under way, it makes the
// next an empty entry, without a word.
func (n *Node) mayChange() bool {
	return n.leading.Load() && n.change == nil && len(n.conf.GetVotersOutgoing()) == 0
}

// proposeChange proposes a change of Raft's members, and of what the metadata says of them,
// in one entry.
func (n *Node) proposeChange(r *request, records []image.Record, changes ...*raftpb.ConfChangeSingle) {
	n.nextChange++
	c := &raftpb.ConfChangeV2{Changes: changes, Context: encodeEntry(n.session, n.nextChange, records)}
	if len(changes) > 1 {
		c.Transition = raftpb.ConfChangeTransition_ConfChangeTransitionJointImplicit.Enum()
	}
	if err := n.raft.ProposeConfChange(c); err != nil {
		if r != nil {
			n.hold(r)
		}
		return
	}
	n.change = &changing{n.nextChange, r}
}

func single(t raftpb.ConfChangeType, id uint64) *raftpb.ConfChangeSingle {
	return &raftpb.ConfChangeSingle{Type: t.Enum(), NodeId: proto.Uint64(id)}
}

// changed answers who asked for the change that was just applied.
func (n *Node) changed(s session, proposal controller.ProposalID) {
	c := n.change
	if c == nil || s != n.session || proposal != c.proposal {
		return
	}
	n.change = nil
	if c.r != nil {
		n.changesDone = append(n.changesDone, c.r)
	}
}

// abandonChange answers who asked for a change that another leader may or may not commit.
func (n *Node) abandonChange() {
	c := n.change
	n.change = nil
	if c != nil && c.r != nil {
		c.r.reply(controller.Answer{Err: fmt.Errorf("leadership was lost before the change was committed: %w", model.ErrNotController)})
	}
}

// decideMember decides a change of one member, where this node leads. While another change
// is under way, it waits for its turn.
func (n *Node) decideMember(r *request) {
	if !n.mayChange() {
		n.hold(r)
		return
	}
	var err error
	switch r.member.how {
	case memberAnnounced:
		err = n.announced(r)
	case memberAddVoter:
		err = n.addVoter(r)
	case memberDropVoter:
		err = n.dropVoter(r)
	case memberRemoved:
		err = n.removeMember(r)
	}
	if err != nil {
		r.reply(controller.Answer{Err: err})
	}
}

// announced adds a node as one that follows, or notes where it is now. Of one node there is
// one member: what it was before its directory was lost goes, once it is silent; a voter of
// before goes when it has a successor: see grow.
func (n *Node) announced(r *request) error {
	m := r.member.member
	id := raftID(m.Directory)
	if known, ok := n.Image().Member(m.Directory); ok {
		m.MayVote = m.MayVote && known.MayVote
		if m == *known {
			r.reply(controller.Answer{})
			return nil
		}
		record := image.MemberRecord(m)
		n.proposeChange(r, []image.Record{&record}, single(raftpb.ConfChangeType_ConfChangeUpdateNode, id))
		return nil
	}
	if r.member.known {
		if r.removed == nil {
			return fmt.Errorf("directory %s is no member: %w", m.Directory, model.ErrInvalidRequest)
		}
		r.removed()
		return nil
	}
	if n.member(id) != nil || n.progress(id) != nil {
		return fmt.Errorf("directory %s cannot be told from another: start with an empty one again: %w", m.Directory, model.ErrInvalidRequest)
	}
	record := image.MemberRecord(m)
	records := []image.Record{&record}
	changes := []*raftpb.ConfChangeSingle{single(raftpb.ConfChangeType_ConfChangeAddLearnerNode, id)}
	for old := range n.Image().Members() {
		if old.Node != m.Node {
			continue
		}
		pr := n.progress(raftID(old.Directory))
		if pr != nil && !n.isSilent(raftID(old.Directory)) {
			return fmt.Errorf("node %d is a member with directory %s, which was heard from just now: give this node another ID, or wait: %w", m.Node, old.Directory, model.ErrInvalidRequest)
		}
		if pr == nil || pr.IsLearner {
			records = append(records, &image.MemberRemovalRecord{Directory: old.Directory})
			changes = append(changes, single(raftpb.ConfChangeType_ConfChangeRemoveNode, raftID(old.Directory)))
		}
	}
	n.log.Info("a node joins the quorum", "broker", m.Node, "endpoint", m.Endpoint, "directory", m.Directory)
	n.proposeChange(r, records, changes...)
	return nil
}

// progress is how far a member is, or nil if Raft knows none of that name.
func (n *Node) progress(id uint64) (found *tracker.Progress) {
	n.raft.WithProgress(func(of uint64, _ raft.ProgressType, pr tracker.Progress) {
		if of == id {
			found = &pr
		}
	})
	return found
}

// isSilent says whether a member has not been heard from for so long that it counts as gone.
// Raft's own word is of the last moment alone: it has heard nobody when it begins to lead,
// nor whenever it has looked for a majority.
func (n *Node) isSilent(id uint64) bool {
	if id == n.raftID || n.ledTicks < n.cfg.ElectionTicks {
		return false
	}
	if p := n.peers[id]; p != nil {
		return p.silent >= n.cfg.ElectionTicks
	}
	pr := n.progress(id)
	return pr == nil || !pr.RecentActive
}

func (n *Node) addVoter(r *request) error {
	m, ok := n.Image().Member(r.member.member.Directory)
	pr := n.progress(raftID(r.member.member.Directory))
	switch {
	case !ok || pr == nil || m.Node != r.member.member.Node:
		return fmt.Errorf("node %d with directory %s is no member of the quorum: %w", r.member.member.Node, r.member.member.Directory, model.ErrVoterNotFound)
	case n.votes(m.Node):
		return fmt.Errorf("node %d votes: %w", m.Node, model.ErrDuplicateVoter)
	case !n.caughtUp(pr):
		n.hold(r)
		return nil
	}
	record := image.MemberRecord(*m)
	record.MayVote = true
	n.proposeChange(r, []image.Record{&record}, single(raftpb.ConfChangeType_ConfChangeAddNode, raftID(m.Directory)))
	return nil
}

func (n *Node) dropVoter(r *request) error {
	m, ok := n.Image().Member(r.member.member.Directory)
	id := raftID(r.member.member.Directory)
	pr := n.progress(id)
	switch {
	case !ok || pr == nil || pr.IsLearner || m.Node != r.member.member.Node:
		return fmt.Errorf("node %d with directory %s is no voter: %w", r.member.member.Node, r.member.member.Directory, model.ErrVoterNotFound)
	case len(n.conf.GetVoters()) == 1:
		return fmt.Errorf("node %d is the only voter: %w", m.Node, model.ErrInvalidRequest)
	case id == n.raftID: // who leads next removes this one
		n.handOver()
		n.hold(r)
		return nil
	}
	heir, awaited := n.heir(m)
	if awaited {
		n.hold(r)
		return nil
	}
	record := image.MemberRecord(*m)
	record.MayVote = false
	changes := []*raftpb.ConfChangeSingle{single(raftpb.ConfChangeType_ConfChangeAddLearnerNode, id)}
	if heir != nil {
		n.log.Info("a voter hands its vote on", "broker", m.Node, "to", heir.Node, "directory", heir.Directory)
		changes = append(changes, single(raftpb.ConfChangeType_ConfChangeAddNode, raftID(heir.Directory)))
	}
	n.proposeChange(r, []image.Record{&record}, changes...)
	return nil
}

// heir is the member that votes in the place of a voter that is removed, in the same change, so
// that the cluster does not rest at an even number meanwhile; nil: nobody may, or there are more
// voters than are wanted. A node that has a vote by another directory gets no second one. A new
// leader has to hear first who has caught up: for so long it is awaited.
func (n *Node) heir(of *image.Member) (heir *image.Member, awaited bool) {
	if have := len(n.conf.GetVoters()); have > n.cfg.VotersTarget || have%2 == 0 {
		return nil, false
	}
	for m := range n.Image().Members() {
		switch pr := n.progress(raftID(m.Directory)); {
		case pr == nil || !pr.IsLearner || !m.MayVote || m.Node != of.Node && n.votes(m.Node):
		case !n.caughtUp(pr):
			awaited = n.ledTicks < n.cfg.ElectionTicks/2
		case heir == nil || m.Node < heir.Node:
			heir = m
		}
	}
	return heir, heir == nil && awaited
}

// votes says whether a node has a vote, by whichever directory.
func (n *Node) votes(node model.NodeID) bool {
	for m := range n.Image().Members() {
		if pr := n.progress(raftID(m.Directory)); m.Node == node && pr != nil && !pr.IsLearner {
			return true
		}
	}
	return false
}

func (n *Node) removeMember(r *request) error {
	m, ok := n.Image().Member(r.member.member.Directory)
	id := raftID(r.member.member.Directory)
	switch pr := n.progress(id); {
	case !ok || m.Node != r.member.member.Node:
		return fmt.Errorf("node %d with directory %s is no member of the quorum: %w", r.member.member.Node, r.member.member.Directory, model.ErrVoterNotFound)
	case pr != nil && !pr.IsLearner:
		return fmt.Errorf("node %d votes: it must be removed as a voter first: %w", m.Node, model.ErrInvalidRequest)
	}
	n.proposeChange(r, []image.Record{&image.MemberRemovalRecord{Directory: m.Directory}}, single(raftpb.ConfChangeType_ConfChangeRemoveNode, id))
	return nil
}

// caughtUp says whether a member has all that was committed a tick ago.
func (n *Node) caughtUp(pr *tracker.Progress) bool {
	return pr.State == tracker.StateReplicate && pr.RecentActive && pr.Match >= n.caughtMark
}

// grow makes voters of members that have caught up: in the place of one whose directory
// was lost, and up to the target, to an odd number, so that the cluster never rests at two.
func (n *Node) grow() {
	defer func() { n.caughtMark = n.store.hard.GetCommit() }()
	if !n.mayChange() {
		return
	}
	if n.noteSelf() {
		return
	}
	voters := map[model.NodeID]*image.Member{}
	var ready []*image.Member
	for m := range n.Image().Members() {
		switch pr := n.progress(raftID(m.Directory)); {
		case pr == nil:
		case !pr.IsLearner:
			voters[m.Node] = m
		case m.MayVote && n.caughtUp(pr):
			ready = append(ready, m)
		}
	}
	var more []*image.Member
	for _, m := range ready {
		old, replaces := voters[m.Node]
		if !replaces {
			more = append(more, m)
			continue
		}
		if !n.isSilent(raftID(old.Directory)) {
			continue
		}
		n.log.Info("a voter takes the place of the one whose directory was lost", "broker", m.Node, "directory", m.Directory)
		n.proposeChange(nil, []image.Record{&image.MemberRemovalRecord{Directory: old.Directory}},
			single(raftpb.ConfChangeType_ConfChangeAddNode, raftID(m.Directory)), single(raftpb.ConfChangeType_ConfChangeRemoveNode, raftID(old.Directory)))
		return
	}
	n.addVoters(more)
}

func (n *Node) addVoters(candidates []*image.Member) {
	slices.SortFunc(candidates, func(a, b *image.Member) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), slices.Compare(a.Directory[:], b.Directory[:]))
	})
	have := len(n.conf.GetVoters())
	add := min(n.cfg.VotersTarget-have, len(candidates))
	if (have+add)%2 == 0 {
		add--
	}
	if add <= 0 {
		return
	}
	var changes []*raftpb.ConfChangeSingle
	for _, m := range candidates[:add] {
		changes = append(changes, single(raftpb.ConfChangeType_ConfChangeAddNode, raftID(m.Directory)))
	}
	n.log.Info("the quorum grows", "voters", have+add, "from", have)
	n.proposeChange(nil, nil, changes...)
}

// noteSelf sees to it that the metadata knows where this node is.
func (n *Node) noteSelf() bool {
	m := n.asMember()
	known, ok := n.Image().Member(m.Directory)
	if ok {
		m.MayVote = m.MayVote && known.MayVote
	}
	if ok && *known == m {
		return false
	}
	record := image.MemberRecord(m)
	n.proposeChange(nil, []image.Record{&record}, single(raftpb.ConfChangeType_ConfChangeUpdateNode, n.raftID))
	return true
}

// asMember is this node as it is now.
func (n *Node) asMember() image.Member {
	return image.Member{Directory: n.identity.DirectoryID, Node: n.identity.NodeID, Endpoint: n.cfg.Endpoint, MayVote: !n.cfg.NeverVote}
}

// isMember says whether the membership names this node.
func isMember(conf *raftpb.ConfState, id uint64) bool {
	for _, of := range [][]uint64{conf.GetVoters(), conf.GetLearners(), conf.GetVotersOutgoing(), conf.GetLearnersNext()} {
		if slices.Contains(of, id) {
			return true
		}
	}
	return false
}
