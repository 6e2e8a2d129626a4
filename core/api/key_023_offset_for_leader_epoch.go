package api

// OffsetForLeaderEpoch (23), versions 2 to 4. (KIP-101, KIP-279, KIP-320)
//
// Left out: followers, which find out in another way where logs diverge; they
// would be answered as clients are.

import (
	"context"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) offsetForLeaderEpoch(ctx context.Context, from caller, req *kmsg.OffsetForLeaderEpochRequest) *kmsg.OffsetForLeaderEpochResponse {
	names, partitions := make([]string, len(req.Topics)), make([][]int32, len(req.Topics))
	for i, t := range req.Topics {
		names[i] = t.Topic
		for _, p := range t.Partitions {
			partitions[i] = append(partitions[i], p.Partition)
		}
	}
	a := h.sortOut(ctx, from, h.deps.Metadata.Image(), security.OpDescribe, names, partitions, repetitionAnswered)
	queries := make([]model.EpochQuery, len(a.ask))
	for i, q := range a.ask {
		p := req.Topics[q.topic].Partitions[q.partition]
		queries[i] = model.EpochQuery{Partition: q.id, CurrentEpoch: p.CurrentLeaderEpoch, Epoch: p.LeaderEpoch}
	}
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	for i, t := range req.Topics {
		out := kmsg.NewOffsetForLeaderEpochResponseTopic()
		out.Topic = t.Topic
		for j, p := range t.Partitions {
			part := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			part.Partition, part.ErrorCode = p.Partition, h.code(a.errs[i][j])
			part.LeaderEpoch, part.EndOffset = model.NoEpoch, -1
			out.Partitions = append(out.Partitions, part)
		}
		resp.Topics = append(resp.Topics, out)
	}
	if len(queries) == 0 {
		return resp
	}
	for i, answer := range h.deps.Partitions.EpochEnds(ctx, queries) {
		q := a.ask[i]
		part := &resp.Topics[q.topic].Partitions[q.partition]
		if part.ErrorCode = h.dataCode(answer.Err); answer.Err == nil {
			part.LeaderEpoch, part.EndOffset = answer.Epoch, answer.EndOffset
		}
	}
	return resp
}
