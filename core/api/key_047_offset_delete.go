package api

// OffsetDelete (47), version 0. (KIP-496)

import (
	"context"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) beginOffsetDelete(ctx context.Context, from caller, req *kmsg.OffsetDeleteRequest) wire.Answer {
	resp := kmsg.NewPtrOffsetDeleteResponse()
	switch {
	case !h.mayGroup(ctx, from, security.OpDelete, req.Group):
		resp.ErrorCode = h.code(model.ErrGroupAuthorization)
		return answerNow(resp)
	case req.Group == "":
		resp.ErrorCode = h.code(model.ErrInvalidGroupID)
		return answerNow(resp)
	}
	q := model.DeleteOffsets{Group: req.Group}
	img := h.deps.Metadata.Image()
	resp.Topics = make([]kmsg.OffsetDeleteResponseTopic, len(req.Topics))
	for i, in := range req.Topics {
		out := &resp.Topics[i]
		out.Topic, out.Partitions = in.Topic, make([]kmsg.OffsetDeleteResponseTopicPartition, len(in.Partitions))
		t, err := h.offsetsTopic(ctx, from, security.OpRead, img, in.Topic, model.TopicID{}, false)
		for j, p := range in.Partitions {
			out.Partitions[j].Partition = p.Partition
			switch {
			case err != nil:
				out.Partitions[j].ErrorCode = h.code(err)
			case p.Partition < 0 || int(p.Partition) >= len(t.Partitions):
				out.Partitions[j].ErrorCode = h.code(model.ErrUnknownTopicOrPartition)
			default:
				q.Partitions = append(q.Partitions, model.TopicPartition{Topic: in.Topic, Partition: p.Partition})
			}
		}
	}
	if len(q.Partitions) == 0 {
		return answerNow(resp)
	}
	return await("a deletion of offsets",
		func(done func(model.DeletedOffsets)) { h.deps.Groups.DeleteOffsets(ctx, q, done) },
		func(_ context.Context, a model.DeletedOffsets) kmsg.Response {
			h.fillDeleted(resp, a)
			return resp
		})
}

// fillDeleted tells the partitions that have no error yet what became of them: they
// are those that were asked about, in order.
func (h *Handler) fillDeleted(resp *kmsg.OffsetDeleteResponse, a model.DeletedOffsets) {
	if a.Err != nil {
		resp.ErrorCode, resp.Topics = h.groupCode(a.Err), nil
		return
	}
	next := 0
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			if p := &resp.Topics[i].Partitions[j]; p.ErrorCode == wire.CodeNone {
				p.ErrorCode = h.groupCode(a.Partitions[next])
				next++
			}
		}
	}
}
