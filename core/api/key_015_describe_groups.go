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
	return h.describeEach(ctx, from, req.Groups, func(int) error { return nil }, func(ctx context.Context, all []model.DescribedGroup) kmsg.Response {
		resp := kmsg.NewPtrDescribeGroupsResponse()
		resp.Groups = make([]kmsg.DescribeGroupsResponseGroup, len(all))
		for i, g := range all {
			resp.Groups[i] = h.describedGroup(req.Version, req.Groups[i], g)
			if req.IncludeAuthorizedOperations && resp.Groups[i].ErrorCode == wire.CodeNone {
				resp.Groups[i].AuthorizedOperations = h.groupOperations(ctx, from, req.Groups[i])
			}
		}
		return resp
	})
}

// describeEach asks about every group that may be described and that refuse has
// nothing against.
func (h *Handler) describeEach(ctx context.Context, from caller, groups []string, refuse func(i int) error, respond func(context.Context, []model.DescribedGroup) kmsg.Response) wire.Answer {
	g := gather[model.DescribedGroup](len(groups))
	for i, group := range groups {
		switch err := refuse(i); {
		case !h.mayGroup(ctx, from, security.OpDescribe, group):
			g.answers[i].Err = model.ErrGroupAuthorization
		case err != nil:
			g.answers[i].Err = err
		default:
			g.ask(i, func(done func(model.DescribedGroup)) { h.deps.Groups.Describe(ctx, group, done) })
		}
	}
	return g.seal("a description", respond)
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
