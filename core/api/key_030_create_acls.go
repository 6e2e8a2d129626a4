package api

// CreateAcls (30), versions 1 to 3. (KIP-140, KIP-290)
//
// Left out: ACLs (SECURITY_DISABLED for each, as Kafka's without an authorizer).

import (
	"context"

	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) createACLs(ctx context.Context, from caller, req *kmsg.CreateACLsRequest) *kmsg.CreateACLsResponse {
	code, why := h.withoutACLs(ctx, from, security.OpAlter)
	resp := kmsg.NewPtrCreateACLsResponse()
	for range req.Creations {
		out := kmsg.NewCreateACLsResponseResult()
		out.ErrorCode, out.ErrorMessage = code, why
		resp.Results = append(resp.Results, out)
	}
	return resp
}
