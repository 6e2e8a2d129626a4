package api

// ListPartitionReassignments (46), version 0. (KIP-455)
//
// Partitions that nothing moves, or that do not exist, are left out, as in Kafka.

import (
	"context"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) listPartitionReassignments(ctx context.Context, from caller, req *kmsg.ListPartitionReassignmentsRequest) *kmsg.ListPartitionReassignmentsResponse {
	resp := kmsg.NewPtrListPartitionReassignmentsResponse()
	if !h.mayCluster(ctx, from, security.OpDescribe) {
		resp.ErrorCode = h.code(model.ErrClusterAuthorization)
		return resp
	}
	img := h.deps.Metadata.Image()
	if req.Topics == nil {
		for t := range img.Topics() {
			all := make([]int32, len(t.Partitions))
			for i := range all {
				all[i] = int32(i)
			}
			resp.Topics = appendMoving(resp.Topics, t, all)
		}
	}
	for _, want := range req.Topics {
		if t, ok := img.TopicByName(want.Topic); ok {
			resp.Topics = appendMoving(resp.Topics, t, want.Partitions)
		}
	}
	return resp
}

// appendMoving adds a topic with those of its partitions that are being reassigned.
func appendMoving(to []kmsg.ListPartitionReassignmentsResponseTopic, t *image.Topic, partitions []int32) []kmsg.ListPartitionReassignmentsResponseTopic {
	out := kmsg.NewListPartitionReassignmentsResponseTopic()
	out.Topic = t.Name
	for _, index := range partitions {
		p, ok := partition(t, index)
		if !ok || len(p.Adding) == 0 && len(p.Removing) == 0 {
			continue
		}
		part := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
		part.Partition = index
		part.Replicas, part.AddingReplicas, part.RemovingReplicas = numbers(p.Replicas), numbers(p.Adding), numbers(p.Removing)
		out.Partitions = append(out.Partitions, part)
	}
	if len(out.Partitions) == 0 {
		return to
	}
	return append(to, out)
}
