package api

// AddRaftVoter (80), versions 0 and 1. (KIP-853, KIP-1186)
//
// The voter is a member of the cluster already, which knows where it is: the endpoints
// of the request are not looked at. The answer comes when the vote is committed, also
// where version 1 asks for it earlier.

import (
	"context"
	"fmt"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) addRaftVoter(ctx context.Context, from caller, req *kmsg.AddRaftVoterRequest) *kmsg.AddRaftVoterResponse {
	resp := kmsg.NewPtrAddRaftVoterResponse()
	err := h.mayChangeVoters(ctx, from, req.ClusterID, req.VoterID)
	if err == nil {
		ctx, cancel := adminContext(ctx, req.TimeoutMillis)
		defer cancel()
		err = h.deps.Quorum.AddVoter(ctx, model.NodeID(req.VoterID), req.VoterDirectoryID)
	}
	resp.ErrorCode, resp.ErrorMessage = h.code(err), h.message(err)
	return resp
}

// mayChangeVoters says why a client may not, or nil.
func (h *Handler) mayChangeVoters(ctx context.Context, from caller, cluster *string, voter int32) error {
	if !h.mayCluster(ctx, from, security.OpAlter) {
		return model.ErrClusterAuthorization
	}
	if voter < 0 {
		return fmt.Errorf("no node has the ID %d: %w", voter, model.ErrInvalidRequest)
	}
	if id := string(h.deps.Metadata.Image().Cluster.ID); cluster != nil && *cluster != id {
		return fmt.Errorf("this is cluster %s: %w", id, model.ErrInconsistentClusterID)
	}
	return nil
}
