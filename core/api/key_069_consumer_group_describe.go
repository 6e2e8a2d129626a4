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
	named := func(i int) error {
		if req.Groups[i] == "" {
			return model.ErrInvalidGroupID
		}
		return nil
	}
	return h.describeEach(ctx, from, req.Groups, named, func(_ context.Context, all []model.DescribedGroup) kmsg.Response {
		resp := kmsg.NewPtrConsumerGroupDescribeResponse()
		for i, g := range all {
			resp.Groups = append(resp.Groups, h.notConsumerGroup(req.Groups[i], g))
		}
		return resp
	})
}

func (h *Handler) notConsumerGroup(group string, a model.DescribedGroup) kmsg.ConsumerGroupDescribeResponseGroup {
	out := kmsg.NewConsumerGroupDescribeResponseGroup()
	out.Group = group
	switch {
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
