package api

// RemoveRaftVoter (81), version 0. (KIP-853)
//
// Who loses the vote goes on as a member that follows; UnregisterBroker forgets it.

import (
	"context"

	"github.com/brokerd/brokerd/core/model"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) removeRaftVoter(ctx context.Context, from caller, req *kmsg.RemoveRaftVoterRequest) *kmsg.RemoveRaftVoterResponse {
	resp := kmsg.NewPtrRemoveRaftVoterResponse()
	err := h.mayChangeVoters(ctx, from, req.ClusterID, req.VoterID)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, adminTimeoutDefault)
		defer cancel()
		err = h.deps.Quorum.RemoveVoter(ctx, model.NodeID(req.VoterID), req.VoterDirectoryID)
	}
	resp.ErrorCode, resp.ErrorMessage = h.code(err), h.message(err)
	return resp
}
