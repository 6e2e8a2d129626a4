package api

// DeleteRecords (21), versions 0 to 2. (KIP-107)

import (
	"context"
	"fmt"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) deleteRecords(ctx context.Context, from caller, req *kmsg.DeleteRecordsRequest) *kmsg.DeleteRecordsResponse {
	ctx, cancel := adminContext(ctx, req.TimeoutMillis)
	defer cancel()
	img := h.deps.Metadata.Image()
	names, partitions := make([]string, len(req.Topics)), make([][]int32, len(req.Topics))
	for i, t := range req.Topics {
		names[i] = t.Topic
		for _, p := range t.Partitions {
			partitions[i] = append(partitions[i], p.Partition)
		}
	}
	a := h.sortOut(ctx, from, img, security.OpDelete, names, partitions, repetitionRefused)
	var queries []model.TrimQuery
	var kept []askedPartition
	for _, q := range a.ask {
		t, _ := img.Topic(q.id.Topic)
		offset := req.Topics[q.topic].Partitions[q.partition].Offset
		policy := h.configs.of(img, t).CleanupPolicy
		switch {
		case policy.Compact && !policy.Delete:
			a.errs[q.topic][q.partition] = fmt.Errorf("%w: %s is compacted only", model.ErrPolicyViolation, t.Name)
		case offset < -1:
			a.errs[q.topic][q.partition] = model.ErrOffsetOutOfRange
		default:
			kept = append(kept, q)
			queries = append(queries, model.TrimQuery{Partition: q.id, Offset: offset})
		}
	}
	resp := kmsg.NewPtrDeleteRecordsResponse()
	for i, t := range req.Topics {
		out := kmsg.NewDeleteRecordsResponseTopic()
		out.Topic = t.Topic
		for j, p := range t.Partitions {
			part := kmsg.NewDeleteRecordsResponseTopicPartition()
			part.Partition, part.LowWatermark, part.ErrorCode = p.Partition, -1, h.code(a.errs[i][j])
			out.Partitions = append(out.Partitions, part)
		}
		resp.Topics = append(resp.Topics, out)
	}
	if len(queries) == 0 {
		return resp
	}
	for i, answer := range h.deps.Partitions.Trim(ctx, queries) {
		q := kept[i]
		part := &resp.Topics[q.topic].Partitions[q.partition]
		if part.ErrorCode = h.dataCode(answer.Err); answer.Err == nil {
			part.LowWatermark = answer.LowWatermark
		}
	}
	return resp
}
