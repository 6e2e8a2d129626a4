package api

// ListPartitionReassignments (46), version 0. (KIP-455)
//
// Left out: reassignments. None is ever under way, and the list is empty; topics
// and partitions that do not exist are left out of it, as in Kafka.

import (
	"context"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) listPartitionReassignments(ctx context.Context, from caller, _ *kmsg.ListPartitionReassignmentsRequest) *kmsg.ListPartitionReassignmentsResponse {
	resp := kmsg.NewPtrListPartitionReassignmentsResponse()
	if !h.mayCluster(ctx, from, security.OpDescribe) {
		resp.ErrorCode = h.code(model.ErrClusterAuthorization)
	}
	return resp
}
