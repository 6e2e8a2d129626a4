package api

// ListGroups (16), versions 0 to 5, with filters by state (KIP-518) and type
// (KIP-848). Who may not describe the cluster sees the groups it may describe.

import (
	"context"
	"strings"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupTypeClassic is the type of every group there is.
const groupTypeClassic = "classic"

func (h *Handler) beginListGroups(ctx context.Context, from caller, req *kmsg.ListGroupsRequest) wire.Answer {
	return await("a list of groups",
		func(done func(model.ListedGroups)) { h.deps.Groups.List(ctx, done) },
		func(ctx context.Context, a model.ListedGroups) kmsg.Response { return h.listed(ctx, from, req, a) })
}

func (h *Handler) listed(ctx context.Context, from caller, req *kmsg.ListGroupsRequest, a model.ListedGroups) *kmsg.ListGroupsResponse {
	resp := kmsg.NewPtrListGroupsResponse()
	resp.ErrorCode = h.groupCode(a.Err)
	if !among(req.TypesFilter, groupTypeClassic) {
		return resp
	}
	all := h.mayCluster(ctx, from, security.OpDescribe)
	for _, g := range a.Groups {
		state := g.State.String()
		if !among(req.StatesFilter, state) || !all && !h.mayGroup(ctx, from, security.OpDescribe, g.Group) {
			continue
		}
		resp.Groups = append(resp.Groups, kmsg.ListGroupsResponseGroup{Group: g.Group, ProtocolType: g.ProtocolType, GroupState: state, GroupType: groupTypeClassic})
	}
	return resp
}

// among reports whether a filter lets something pass; an empty one lets everything.
func among(filter []string, name string) bool {
	for _, f := range filter {
		if strings.EqualFold(f, name) {
			return true
		}
	}
	return len(filter) == 0
}
