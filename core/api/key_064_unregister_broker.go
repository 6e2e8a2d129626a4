package api

// UnregisterBroker (64), version 0. (KIP-631)
//
// A broker that serves is refused (INVALID_REQUEST). Kafka forgets it as it asked,
// and the broker goes on without being known until it is started again.

import (
	"context"
	"fmt"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) unregisterBroker(ctx context.Context, from caller, req *kmsg.UnregisterBrokerRequest) *kmsg.UnregisterBrokerResponse {
	resp := kmsg.NewPtrUnregisterBrokerResponse()
	if !h.mayCluster(ctx, from, security.OpAlter) {
		resp.ErrorCode = h.code(model.ErrClusterAuthorization)
		return resp
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeoutDefault)
	defer cancel()
	id := model.NodeID(req.BrokerID)
	b, ok := h.deps.Metadata.Image().Broker(id)
	if !ok {
		why := fmt.Sprintf("broker %d is not registered", id)
		resp.ErrorCode, resp.ErrorMessage = h.code(model.ErrBrokerIDNotRegistered), &why
		return resp
	}
	var err error
	if b.Fenced {
		err = h.deps.Quorum.UnregisterBroker(ctx, id, b.Epoch)
	} else {
		err = fmt.Errorf("broker %d is in service: stop it first: %w", id, model.ErrInvalidRequest)
	}
	resp.ErrorCode, resp.ErrorMessage = h.code(err), h.message(err)
	return resp
}
