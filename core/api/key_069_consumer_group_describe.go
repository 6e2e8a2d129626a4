package api

// ConsumerGroupDescribe (69), versions 0 to 1: there are no groups of this type, and
// tools that look for one first (KIP-1043) go on to DescribeGroups.
//
// Left out: consumer groups (KIP-848).

import (
	"context"
	"errors"
	"fmt"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) beginConsumerGroupDescribe(ctx context.Context, from caller, req *kmsg.ConsumerGroupDescribeRequest) wire.Answer {
	return describeEach(ctx, h, from, req.Groups, h.notConsumerGroup, func(groups []kmsg.ConsumerGroupDescribeResponseGroup) kmsg.Response {
		resp := kmsg.NewPtrConsumerGroupDescribeResponse()
		resp.Groups = groups
		return resp
	})
}

func (h *Handler) notConsumerGroup(_ context.Context, group string, a model.DescribedGroup) kmsg.ConsumerGroupDescribeResponseGroup {
	out := kmsg.NewConsumerGroupDescribeResponseGroup()
	out.Group = group
	switch {
	case group == "" && !errors.Is(a.Err, model.ErrGroupAuthorization):
		out.ErrorCode = h.code(model.ErrInvalidGroupID)
	case a.Err == nil:
		why := fmt.Sprintf("Group %s is not a consumer group.", group)
		out.ErrorCode, out.ErrorMessage = h.code(model.ErrGroupIDNotFound), &why
	case errors.Is(a.Err, model.ErrGroupIDNotFound):
		out.ErrorCode, out.ErrorMessage = h.code(a.Err), groupNotFound(group)
	default:
		out.ErrorCode = h.groupCode(a.Err)
	}
	return out
}
