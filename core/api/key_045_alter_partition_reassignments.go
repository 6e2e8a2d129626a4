package api

// AlterPartitionReassignments (45), versions 0 and 1. (KIP-455, KIP-860)
//
// The answer says that a reassignment has begun, whatever time-out is named; where
// it is, ListPartitionReassignments tells.

import (
	"context"
	"fmt"
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) alterPartitionReassignments(ctx context.Context, from caller, req *kmsg.AlterPartitionAssignmentsRequest) *kmsg.AlterPartitionAssignmentsResponse {
	resp := kmsg.NewPtrAlterPartitionAssignmentsResponse()
	if !h.mayCluster(ctx, from, security.OpAlter) {
		resp.ErrorCode = h.code(model.ErrClusterAuthorization)
		return resp
	}
	var (
		img     = h.deps.Metadata.Image()
		counted = req.Version >= 1 && !req.AllowReplicationFactorChange
		changes []model.Reassignment
		asked   []*kmsg.AlterPartitionAssignmentsResponseTopicPartition // one for each change
	)
	for _, t := range req.Topics {
		out := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		out.Topic = t.Topic
		out.Partitions = make([]kmsg.AlterPartitionAssignmentsResponseTopicPartition, len(t.Partitions))
		topic, exists := img.TopicByName(t.Topic)
		for i, p := range t.Partitions {
			part := &out.Partitions[i]
			part.Partition = p.Partition
			err := fmt.Errorf("there is no topic %s: %w", t.Topic, model.ErrUnknownTopicOrPartition)
			if exists {
				err = reassignable(topic, p, counted)
			}
			if err != nil {
				part.ErrorCode, part.ErrorMessage = h.code(err), h.message(err)
				continue
			}
			change := model.Reassignment{Partition: model.Partition{Topic: topic.ID, Index: p.Partition}}
			if p.Replicas != nil { // null ends what is under way
				change.Replicas = nodeIDs(p.Replicas)
			}
			changes = append(changes, change)
			asked = append(asked, part)
		}
		resp.Topics = append(resp.Topics, out)
	}
	if len(changes) == 0 {
		return resp
	}
	errs, err := h.operate(ctx, req.TimeoutMillis, len(changes), func(ctx context.Context) ([]error, error) {
		return h.deps.Operations.AlterReassignments(ctx, changes)
	})
	for i, part := range asked {
		if err == nil {
			part.ErrorCode, part.ErrorMessage = h.code(errs[i]), h.message(errs[i])
		}
	}
	resp.ErrorCode, resp.ErrorMessage = h.code(err), h.message(err)
	return resp
}

// reassignable says what is wrong with a change before the controller sees it.
func reassignable(t *image.Topic, want kmsg.AlterPartitionAssignmentsRequestTopicPartition, counted bool) error {
	p, ok := partition(t, want.Partition)
	if !ok {
		return fmt.Errorf("topic %s has no partition %d: %w", t.Name, want.Partition, model.ErrUnknownTopicOrPartition)
	}
	if want.Replicas == nil || !counted {
		return nil
	}
	has := len(p.Replicas)
	for _, r := range p.Replicas {
		if slices.Contains(p.Adding, r) {
			has--
		}
	}
	if len(want.Replicas) != has {
		return fmt.Errorf("%d replicas are asked for, and there are %d: %w", len(want.Replicas), has, model.ErrInvalidReplication)
	}
	return nil
}

// operate asks the controller within the time that a request names; there is one error
// for each of the n items.
func (h *Handler) operate(ctx context.Context, ms int32, n int, ask func(context.Context) ([]error, error)) ([]error, error) {
	ctx, cancel := adminContext(ctx, ms)
	defer cancel()
	errs, err := ask(ctx)
	if err == nil && len(errs) != n {
		h.log.Error("the controller answered for other partitions", "asked", n, "answered", len(errs))
		err = model.ErrNotController
	}
	return errs, err
}
