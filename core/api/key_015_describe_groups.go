package api

// DescribeGroups (15), versions 0 to 6. A group that is not there is Dead, and from
// version 6 an error. (KIP-1043)

import (
	"context"
	"errors"
	"fmt"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// notFoundDescribeVersion is the first that tells a group that is not there from a
// dead one.
const notFoundDescribeVersion = 6

func (h *Handler) beginDescribeGroups(ctx context.Context, from caller, req *kmsg.DescribeGroupsRequest) wire.Answer {
	show := func(ctx context.Context, group string, a model.DescribedGroup) kmsg.DescribeGroupsResponseGroup {
		out := h.describedGroup(req.Version, group, a)
		if req.IncludeAuthorizedOperations && out.ErrorCode == wire.CodeNone {
			out.AuthorizedOperations = h.groupOperations(ctx, from, group)
		}
		return out
	}
	return describeEach(ctx, h, from, req.Groups, show, func(groups []kmsg.DescribeGroupsResponseGroup) kmsg.Response {
		resp := kmsg.NewPtrDescribeGroupsResponse()
		resp.Groups = groups
		return resp
	})
}

// describeEach asks about every group that may be described. One that is named again is
// asked about and shown once, and what is shown of it is shared: it may be much more than
// its name.
func describeEach[R any](ctx context.Context, h *Handler, from caller, groups []string, show func(context.Context, string, model.DescribedGroup) R, respond func([]R) kmsg.Response) wire.Answer {
	distinct := once(groups)
	g := gather[model.DescribedGroup](len(distinct))
	for i, group := range distinct {
		if !h.mayGroup(ctx, from, security.OpDescribe, group) {
			g.answers[i].Err = model.ErrGroupAuthorization
			continue
		}
		g.ask(i, func(done func(model.DescribedGroup)) { h.deps.Groups.Describe(ctx, group, done) })
	}
	return g.seal("a description", func(ctx context.Context, all []model.DescribedGroup) kmsg.Response {
		shown := make(map[string]R, len(distinct))
		for i, group := range distinct {
			shown[group] = show(ctx, group, all[i])
		}
		out := make([]R, len(groups))
		for i, group := range groups {
			out[i] = shown[group]
		}
		return respond(out)
	})
}

func (h *Handler) describedGroup(version int16, group string, a model.DescribedGroup) kmsg.DescribeGroupsResponseGroup {
	out := kmsg.NewDescribeGroupsResponseGroup()
	out.Group = group
	switch {
	case errors.Is(a.Err, model.ErrGroupIDNotFound):
		out.State = model.GroupDead.String()
		if version >= notFoundDescribeVersion {
			out.ErrorCode, out.ErrorMessage = h.code(a.Err), groupNotFound(group)
		}
		return out
	case a.Err != nil:
		out.ErrorCode = h.groupCode(a.Err)
		return out
	}
	out.State, out.ProtocolType, out.Protocol = a.State.String(), a.ProtocolType, a.Protocol
	out.Members = make([]kmsg.DescribeGroupsResponseGroupMember, len(a.Members))
	for i, m := range a.Members {
		out.Members[i] = kmsg.DescribeGroupsResponseGroupMember{
			MemberID: m.MemberID, InstanceID: orNull(m.InstanceID), ClientID: m.ClientID, ClientHost: m.ClientHost,
			ProtocolMetadata: m.Metadata, MemberAssignment: m.Assignment,
		}
	}
	return out
}

// groupNotFound is Kafka's message, which its tools show.
func groupNotFound(group string) *string {
	why := fmt.Sprintf("Group %s not found.", group)
	return &why
}
