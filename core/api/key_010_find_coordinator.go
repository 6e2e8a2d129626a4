package api

// FindCoordinator (10), versions 0 to 6: of groups; many keys from version 4
// (KIP-699). The coordinator is named by its endpoint on the listener that the client
// used.
//
// Left out: transactions (UNSUPPORTED_VERSION, which clients take as final; a
// COORDINATOR_NOT_AVAILABLE would have them ask for ever) and share groups.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The kinds of coordinator, in Kafka's numbers.
const (
	coordinatorGroup       int8 = 0
	coordinatorTransaction int8 = 1
)

const (
	// keysFindVersion is the first that asks for many keys.
	keysFindVersion = 4
	// coordinatorWaitMax bounds the wait for an offsets topic that is being made.
	// Clients ask again.
	coordinatorWaitMax = 5 * time.Second
)

func (h *Handler) findCoordinator(ctx context.Context, from caller, req *kmsg.FindCoordinatorRequest) *kmsg.FindCoordinatorResponse {
	waiting, cancel := context.WithTimeout(ctx, coordinatorWaitMax)
	defer cancel()
	resp := kmsg.NewPtrFindCoordinatorResponse()
	if req.Version < keysFindVersion {
		c := h.coordinatorOf(waiting, from, req.CoordinatorType, req.CoordinatorKey)
		resp.ErrorCode, resp.ErrorMessage, resp.NodeID, resp.Host, resp.Port = c.ErrorCode, c.ErrorMessage, c.NodeID, c.Host, c.Port
		return resp
	}
	notAvailable := h.errs.Code(model.ErrCoordinatorNotAvailable)
	resp.Coordinators = make([]kmsg.FindCoordinatorResponseCoordinator, len(req.CoordinatorKeys))
	for i, key := range req.CoordinatorKeys {
		resp.Coordinators[i] = h.coordinatorOf(waiting, from, req.CoordinatorType, key)
		if resp.Coordinators[i].ErrorCode == notAvailable {
			cancel() // one has waited, or asked, for all
		}
	}
	return resp
}

func (h *Handler) coordinatorOf(ctx context.Context, from caller, kind int8, key string) kmsg.FindCoordinatorResponseCoordinator {
	out := kmsg.FindCoordinatorResponseCoordinator{Key: key, NodeID: int32(model.NoNode), Port: -1}
	n, err := h.coordinator(ctx, from, kind, key)
	if err != nil {
		out.ErrorCode, out.ErrorMessage = h.groupCode(err), h.message(err)
		return out
	}
	out.NodeID, out.Host, out.Port = int32(n.id), n.host, n.port
	return out
}

func (h *Handler) coordinator(ctx context.Context, from caller, kind int8, key string) (node, error) {
	switch kind {
	case coordinatorGroup:
		if !h.mayGroup(ctx, from, security.OpDescribe, key) {
			return node{}, model.ErrGroupAuthorization
		}
	case coordinatorTransaction:
		if !h.may(ctx, from, security.OpDescribe, security.TransactionalID, key) {
			return node{}, model.ErrTransactionalIDAuth
		}
		return node{}, errTransactions
	default:
		return node{}, fmt.Errorf("there are no coordinators of type %d: %w", kind, model.ErrInvalidRequest)
	}
	id, err := h.deps.Groups.Coordinator(ctx, key)
	if errors.Is(err, context.DeadlineExceeded) {
		return node{}, fmt.Errorf("%w: the offsets topic is not there yet: %w", model.ErrCoordinatorNotAvailable, err)
	}
	if err != nil {
		return node{}, err
	}
	b, ok := alive(h.deps.Metadata.Image(), id)
	if !ok {
		return node{}, fmt.Errorf("%w: broker %d is not alive", model.ErrCoordinatorNotAvailable, id)
	}
	n, ok := nodeOf(b, from.Listener)
	if !ok {
		return node{}, fmt.Errorf("%w: broker %d has no listener %s", model.ErrCoordinatorNotAvailable, id, from.Listener)
	}
	return n, nil
}
