package api

// FindCoordinator (10), versions 0 to 2: there are no coordinators yet, and the
// answer says so in a way that clients take as final. It is served because
// librdkafka compresses with lz4 only where version 0 is advertised. (KAFKA-18659)
//
// Left out: groups and transactions (UNSUPPORTED_VERSION; a
// COORDINATOR_NOT_AVAILABLE would have clients ask for ever).

import (
	"context"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The kinds of coordinator, in Kafka's numbers.
const (
	coordinatorGroup       int8 = 0
	coordinatorTransaction int8 = 1
)

func (h *Handler) findCoordinator(ctx context.Context, from caller, req *kmsg.FindCoordinatorRequest) *kmsg.FindCoordinatorResponse {
	resp := kmsg.NewPtrFindCoordinatorResponse()
	resp.NodeID = int32(model.NoNode)
	switch {
	case req.CoordinatorType == coordinatorGroup && !h.may(ctx, from, security.OpDescribe, security.Group, req.CoordinatorKey):
		resp.ErrorCode = h.code(model.ErrGroupAuthorization)
		return resp
	case req.CoordinatorType == coordinatorTransaction && !h.may(ctx, from, security.OpDescribe, security.TransactionalID, req.CoordinatorKey):
		resp.ErrorCode = h.code(model.ErrTransactionalIDAuth)
		return resp
	}
	why := "this broker has no consumer groups and no transactions yet: assign partitions to the consumer"
	resp.ErrorCode, resp.ErrorMessage = h.code(model.ErrUnsupportedVersion), &why
	return resp
}
