package api

// UnregisterBroker (64), version 0. (KIP-631)
//
// With the broker goes what the quorum has of it, where that does not vote: its
// process, should it run, ends. A broker that serves is refused (INVALID_REQUEST), and
// one that votes: its vote is taken by RemoveRaftVoter. Kafka forgets a broker that
// serves as it asked, and the broker goes on without being known until it is started
// again.

import (
	"context"
	"errors"
	"fmt"

	"github.com/brokerd/brokerd/core/image"
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
	err := h.unregister(ctx, model.NodeID(req.BrokerID))
	resp.ErrorCode, resp.ErrorMessage = h.code(err), h.message(err)
	return resp
}

func (h *Handler) unregister(ctx context.Context, id model.NodeID) error {
	img := h.deps.Metadata.Image()
	b, registered := img.Broker(id)
	members := membersOf(img, id)
	switch {
	case !registered && len(members) == 0:
		return fmt.Errorf("broker %d is not registered: %w", id, model.ErrBrokerIDNotRegistered)
	case registered && !b.Fenced:
		return fmt.Errorf("broker %d is in service: stop it first: %w", id, model.ErrInvalidRequest)
	}
	for _, m := range members { // first: one that votes is refused
		if err := h.deps.Quorum.RemoveMember(ctx, id, m); err != nil && !errors.Is(err, model.ErrVoterNotFound) {
			return fmt.Errorf("broker %d is a member of the metadata quorum: %w", id, err)
		}
	}
	if registered {
		return h.deps.Operations.UnregisterBroker(ctx, id, b.Epoch)
	}
	return nil
}

// membersOf are the directories with which a node is a member of the quorum.
func membersOf(img *image.Image, id model.NodeID) []model.DirectoryID {
	var out []model.DirectoryID
	for m := range img.Members() {
		if m.Node == id {
			out = append(out, m.Directory)
		}
	}
	return out
}
