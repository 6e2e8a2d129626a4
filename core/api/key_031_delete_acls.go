package api

// DeleteAcls (31), versions 1 to 3. (KIP-140, KIP-290)
//
// Left out: ACLs (SECURITY_DISABLED for each filter, as Kafka's without an
// authorizer).

import (
	"context"

	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) deleteACLs(ctx context.Context, from caller, req *kmsg.DeleteACLsRequest) *kmsg.DeleteACLsResponse {
	code, why := h.withoutACLs(ctx, from, security.OpAlter)
	resp := kmsg.NewPtrDeleteACLsResponse()
	for range req.Filters {
		out := kmsg.NewDeleteACLsResponseResult()
		out.ErrorCode, out.ErrorMessage = code, why
		resp.Results = append(resp.Results, out)
	}
	return resp
}
