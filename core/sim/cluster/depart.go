package cluster

import (
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
)

// left is what a node had that was lost for ever.
type left struct {
	disk       *memstore.Disk
	directory  model.DirectoryID
	quorumDisk *quorumDisk
}

// depart has a node go for ever: in order, or with its host.
func (c *cluster) depart(n *node) {
	if c.w.Chance(2) {
		c.lose(n)
		return
	}
	c.retire(n)
}

// lose takes a node for ever with its disks, where some other has all that was there. A new one
// joins under an ID of its own, and then the operator has the cluster forget the old one.
func (c *cluster) lose(n *node) {
	if c.retiring != nil || len(c.nodes) < votersTarget || c.making > 0 || c.unvoted() != "" ||
		!c.spared(n, func(model.Partition) bool { return false }) {
		return
	}
	c.report.Lost++
	c.w.Note("node %d is lost for ever", n.id)
	n.kill([]memnet.Death{memnet.Reset, memnet.Silent}[c.w.Rand.IntN(2)])
	n.lost = &left{n.disk, n.directory, n.quorumDisk}
	n.disk, n.directory, n.quorumDisk, n.quorum = &memstore.Disk{}, c.newDirectory(), &quorumDisk{n: n}, nil
	n.retired, n.wiped = true, true
	c.retiring = n
	c.w.After(c.w.Between(0, 3*time.Second), func() {
		c.joinNew()
		c.retireMore()
	})
}

// takesVote asks for the vote of a node, and says whether it may have one still.
func (c *cluster) takesVote(n, asked *node) bool {
	for _, o := range c.nodes {
		if !o.up() || o.quorum == nil || !o.quorum.Leading() {
			continue
		}
		s, err := o.quorum.Status()
		i := slices.IndexFunc(s.Voters, func(v model.QuorumVoter) bool { return v.ID == n.id })
		if err == nil && i < 0 {
			return false
		}
		if err == nil && asked.quorum != nil {
			// Those who have not heard yet of the new voters need those of before.
			c.doubt()
			asked.touched = true
			asked.quorum.StartRemoveVoter(n.id, s.Voters[i].Directory, nil, func(error) {})
		}
		return true
	}
	return true
}

// remembers says whether a node that leaves is a member of the quorum still.
func (c *cluster) remembers(n *node, img *image.Image) bool {
	if !c.opts.Departures {
		return false
	}
	for m := range img.Members() {
		if m.Node == n.id {
			return true
		}
	}
	return false
}

// forgetMember asks for a node to be no member any more.
func (c *cluster) forgetMember(n, asked *node, img *image.Image) {
	for m := range img.Members() {
		if m.Node == n.id && asked.quorum != nil {
			asked.touched = true
			asked.quorum.StartRemoveMember(m.Node, m.Directory, nil, func(error) {})
		}
	}
}

// comeBack starts a node again, at times, that the cluster has forgotten, with the disks that it
// had. It is told so, ends, and changes nothing.
func (c *cluster) comeBack(n *node) {
	if n.lost != nil {
		n.disk, n.directory, n.quorumDisk = n.lost.disk, n.lost.directory, n.lost.quorumDisk
	}
	s := n.quorumDisk.stored
	if !c.opts.Departures || s == nil || s.Snapshot == nil || c.w.Chance(2) { // it never had the metadata, and joins as a new one
		return
	}
	c.w.After(c.w.Between(0, 3*time.Second), func() { c.comeBackNow(n) })
}

func (c *cluster) comeBackNow(n *node) {
	if n.isGone() {
		return
	}
	c.w.Note("node %d comes back, which was forgotten", n.id)
	n.faults.On = false
	for _, o := range c.nodes {
		c.usual(o, n)
		c.usual(n, o)
	}
	c.gone = append(c.gone, n)
	c.startAgain(n)
}

// isGone: it was forgotten.
func (n *node) isGone() bool { return slices.Contains(n.c.gone, n) }

// returned: a node that was forgotten has heard so.
func (c *cluster) returned(n *node) {
	c.w.Note("node %d has heard that it is forgotten", n.id)
	c.report.Returned++
	n.kill(memnet.Reset)
}
