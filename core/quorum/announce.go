package quorum

import (
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

const (
	// announceTicks are between two announcements that came to nothing.
	announceTicks = 3
	// seekTicks are between two questions of a leader after a member that is silent.
	seekTicks = 10
	// takenMax announcements are answered that another process has this directory, before this
	// one ends. An earlier life of its own, at another endpoint, is forgotten sooner.
	takenMax = 20
)

// announce is how this node makes itself known, as long as the metadata does not know it as
// it is, or nobody leads: then it also tells others where it is now.
type announce struct {
	underWay bool
	ticks    int
	leader   Address // as another node said, or who may know; its Endpoint "" if none did
	next     int     // of those who may be asked
	said     string  // what went wrong last
	taken    int     // how often another process had this directory
	seed     int     // of those that are asked after a silent member
	doubted  bool    // who leads has said that this node is no member
}

// tickAnnounce announces this node, where that is due.
func (n *Node) tickAnnounce() {
	a := &n.announce
	if n.deps.Peers == nil || n.cfg.Endpoint == "" || a.underWay {
		return
	}
	if n.elected {
		n.seek()
		return
	}
	if a.ticks++; a.ticks < announceTicks || n.isKnown() && n.hasLeader() && !a.doubted {
		return
	}
	a.ticks = 0
	to, ok := n.leader()
	if !ok {
		to, ok = a.leader, a.leader.Endpoint != ""
		a.leader = Address{}
	}
	if !ok {
		if to, ok = n.someone(); !ok {
			return
		}
	}
	c := memberChange{how: memberAnnounced, member: n.asMember(), known: n.Image().Cluster.ID != ""}
	a.underWay = true
	n.ask(to, kindMember, c.encode(), func(got answer, err error) { n.heardOfAnnouncement(to, got, err) })
}

// seek asks the seeds where a member may be that is silent. Who is asked hears where this
// node is: the member, if it has moved, or knows nobody's place of now.
func (n *Node) seek() {
	seeds := n.cfg.others()
	if n.announce.ticks++; n.announce.ticks < seekTicks || len(seeds) == 0 {
		return
	}
	n.announce.ticks = 0
	for m := range n.Image().Members() {
		if p := n.peers[raftID(m.Directory)]; m.Directory != n.identity.DirectoryID && (p == nil || p.silent > 2*n.cfg.ElectionTicks) {
			n.announce.seed++
			n.ask(Address{Endpoint: seeds[n.announce.seed%len(seeds)], Node: model.NoNode}, kindWho, nil, func(answer, error) {})
			return
		}
	}
}

// isKnown says whether the metadata knows this node as it is.
func (n *Node) isKnown() bool {
	m := n.asMember()
	known, ok := n.Image().Member(m.Directory)
	return ok && known.Node == m.Node && known.Endpoint == m.Endpoint && (m.MayVote || !known.MayVote)
}

// someone is the next of those who may know who leads: members and seeds in turn.
func (n *Node) someone() (Address, bool) {
	var all []Address
	for m := range n.Image().Members() {
		if to, ok := n.address(raftID(m.Directory)); ok && m.Directory != n.identity.DirectoryID {
			all = append(all, to)
		}
	}
	for _, seed := range n.cfg.others() {
		if !slices.ContainsFunc(all, func(to Address) bool { return to.Endpoint == seed }) {
			all = append(all, Address{Endpoint: seed, Node: model.NoNode})
		}
	}
	if len(all) == 0 {
		return Address{}, false
	}
	n.announce.next++
	return all[n.announce.next%len(all)], true
}

// heardOfAnnouncement takes the answer.
func (n *Node) heardOfAnnouncement(to Address, got answer, err error) {
	a := &n.announce
	a.underWay, a.doubted = false, false
	said := ""
	switch {
	case err != nil: // nobody is there now
	case got.status == statusNotLeader:
		if got.leader.Endpoint != n.cfg.Endpoint {
			a.leader = got.leader
		}
	case got.status == statusForeign:
		said = fmt.Sprintf("it is of cluster %s, not of %s", got.cluster, n.identity.ClusterID)
	case got.status == statusRemoved && got.offset < n.Image().Offset: // it leads no longer
	case got.status == statusRemoved:
		n.end(fmt.Errorf("broker %d, which leads the quorum, knows directory %s no more: move it away to join as a new one: %w", to.Node, n.identity.DirectoryID, ErrRemoved))
	case got.status == statusTaken:
		if a.taken++; a.taken >= takenMax {
			n.end(fmt.Errorf("another process has directory %s, and is a member of the quorum: a copy of it must not run beside it: %w", n.identity.DirectoryID, ErrInUse))
		}
		said = "another process was heard of just now that has this directory"
	case got.answer.Err != nil:
		said = got.answer.Err.Error()
	default:
		a.taken = 0
	}
	if said != "" && said != a.said {
		n.log.Warn("joining the quorum was refused; trying again", "endpoint", to.Endpoint, "err", said)
	}
	if said != "" || err == nil && got.status != statusNotLeader {
		a.said = said
	}
}

// others are the seeds that are not this node.
func (c Config) others() []string {
	return slices.DeleteFunc(slices.Clone(c.Seeds), func(s string) bool { return s == c.Endpoint })
}

// forgetMoved forgets where members were heard from whose endpoint has changed since.
func (n *Node) forgetMoved(old, img *image.Image) {
	for m := range img.Members() {
		if before, ok := old.Member(m.Directory); ok && before.Endpoint == m.Endpoint {
			continue
		}
		if p := n.peers[raftID(m.Directory)]; p != nil {
			p.from.endpoint, p.heard = m.Endpoint, time.Time{}
		}
	}
}
