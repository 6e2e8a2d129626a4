package group

import (
	"fmt"
	"slices"
	"strings"

	"github.com/brokerd/brokerd/core/model"
)

// describe shows one group.
func (m *Machine) describe(in *Describe, out *Effects) {
	g, ok := m.groups[in.Group]
	if !ok {
		respond(out, in.ID, Described{model.DescribedGroup{Group: in.Group,
			Err: fmt.Errorf("there is no group %q: %w", in.Group, model.ErrGroupIDNotFound)}})
		return
	}
	d := model.DescribedGroup{Group: g.id, State: g.state, ProtocolType: g.protocolType, Members: make([]model.DescribedMember, len(g.members))}
	if g.state == model.GroupStable {
		d.Protocol = g.protocol
	}
	for i, mem := range g.members {
		d.Members[i] = model.DescribedMember{MemberID: mem.id, InstanceID: mem.instance, ClientID: mem.clientID,
			ClientHost: mem.clientHost, Assignment: mem.assignment}
		if g.state == model.GroupStable {
			d.Members[i].Metadata = mem.metadata(g.protocol)
		}
	}
	respond(out, in.ID, Described{d})
}

// list shows all groups, by name.
func (m *Machine) list(in *List, out *Effects) {
	groups := make([]model.ListedGroup, len(m.order))
	for i, g := range m.order {
		groups[i] = model.ListedGroup{Group: g.id, ProtocolType: g.protocolType, State: g.state}
	}
	slices.SortFunc(groups, func(a, b model.ListedGroup) int { return strings.Compare(a.Group, b.Group) })
	respond(out, in.ID, Listed{model.ListedGroups{Groups: groups}})
}
