package api

// DescribeProducers (61), version 0. (KIP-664)
//
// Left out: transactions. No producer has a coordinator or an open transaction
// (-1). A partition that is named twice is INVALID_REQUEST both times, where Kafka
// answers twice: an answer is as long as all that is known of a partition.

import (
	"context"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) describeProducers(ctx context.Context, from caller, req *kmsg.DescribeProducersRequest) *kmsg.DescribeProducersResponse {
	img := h.deps.Metadata.Image()
	names, partitions := make([]string, len(req.Topics)), make([][]int32, len(req.Topics))
	for i, t := range req.Topics {
		names[i], partitions[i] = t.Topic, t.Partitions
	}
	a := h.sortOut(ctx, from, img, security.OpRead, names, partitions, repetitionRefused)
	resp := kmsg.NewPtrDescribeProducersResponse()
	for i, t := range req.Topics {
		out := kmsg.NewDescribeProducersResponseTopic()
		out.Topic = t.Topic
		for j, p := range t.Partitions {
			if a.errs[i][j] != nil && !topicName(t.Topic) {
				a.errs[i][j] = model.ErrInvalidTopic
			}
			part := kmsg.NewDescribeProducersResponseTopicPartition()
			part.Partition, part.ErrorCode, part.ErrorMessage = p, h.code(a.errs[i][j]), h.message(a.errs[i][j])
			out.Partitions = append(out.Partitions, part)
		}
		resp.Topics = append(resp.Topics, out)
	}
	ask := make([]model.Partition, len(a.ask))
	for i, q := range a.ask {
		ask[i] = q.id
	}
	for i, answer := range h.deps.Partitions.Producers(ctx, ask) {
		part := &resp.Topics[a.ask[i].topic].Partitions[a.ask[i].partition]
		part.ErrorCode, part.ErrorMessage = h.code(answer.Err), h.message(answer.Err)
		for _, p := range answer.Producers {
			out := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
			out.ProducerID, out.ProducerEpoch, out.LastSequence, out.LastTimestamp = p.ID, int32(p.Epoch), p.LastSequence, p.LastTimestamp
			out.CoordinatorEpoch, out.CurrentTxnStartOffset = -1, -1
			part.ActiveProducers = append(part.ActiveProducers, out)
		}
	}
	return resp
}
