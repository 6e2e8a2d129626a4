package image

import (
	"errors"
	"iter"

	"github.com/brokerd/brokerd/core/model"
)

// Member is a member of the metadata quorum. Who of them votes is Raft's to know; the
// quorum changes both in one entry of its log.
type Member struct {
	// Directory is the quorum's own on that node, and the member's identity: a node whose
	// disk was lost comes back as another member.
	Directory model.DirectoryID
	Node      model.NodeID
	Endpoint  string // where other members reach it; "" if there never was one to reach
	// MayVote: the cluster may make it a voter by itself.
	MayVote bool
}

// MemberRecord adds a member of the quorum, or changes what is known of it.
type MemberRecord Member

// MemberRemovalRecord forgets a member. It may be gone already.
type MemberRemovalRecord struct{ Directory model.DirectoryID }

func (*MemberRecord) kind() kind        { return kindMember }
func (*MemberRemovalRecord) kind() kind { return kindMemberRemoval }

func (r *MemberRecord) layout(c *codec) {
	directoryID(c, &r.Directory)
	number(c, &r.Node)
	text(c, &r.Endpoint)
	c.boolean(&r.MayVote)
}

func (r *MemberRemovalRecord) layout(c *codec) { directoryID(c, &r.Directory) }

// Member returns the member of the quorum with this directory.
func (i *Image) Member(dir model.DirectoryID) (*Member, bool) {
	return i.members.get(dir, compareDirectoryIDs)
}

// Members goes through the members of the quorum in the order of their directory IDs.
func (i *Image) Members() iter.Seq[*Member] {
	return func(yield func(*Member) bool) {
		for _, m := range i.members.all() {
			if !yield(m) {
				return
			}
		}
	}
}

func (d *Delta) member(r *MemberRecord) error {
	if r.Directory.IsZero() || r.Node < 0 {
		return errors.New("a member without a directory or node ID")
	}
	m := Member(*r)
	d.next.members = d.next.members.put(m.Directory, &m, compareDirectoryIDs)
	return nil
}

func (d *Delta) memberRemoval(r *MemberRemovalRecord) error {
	d.next.members = d.next.members.remove(r.Directory, compareDirectoryIDs)
	return nil
}
