package api

// DescribeAcls (29), versions 1 to 3. (KIP-140, KIP-290)
//
// Left out: ACLs. There is no authorizer that keeps any, and the answer is
// SECURITY_DISABLED, as Kafka's without one.

import (
	"context"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) describeACLs(ctx context.Context, from caller, _ *kmsg.DescribeACLsRequest) *kmsg.DescribeACLsResponse {
	resp := kmsg.NewPtrDescribeACLsResponse()
	resp.ErrorCode, resp.ErrorMessage = h.withoutACLs(ctx, from, security.OpDescribe)
	return resp
}

// withoutACLs is the answer to all that is asked of ACLs, to who may ask.
func (h *Handler) withoutACLs(ctx context.Context, from caller, op security.Operation) (wire.Code, *string) {
	if !h.mayCluster(ctx, from, op) {
		return h.code(model.ErrClusterAuthorization), nil
	}
	why := "this broker has no ACLs: everything is allowed"
	return h.code(model.ErrSecurityDisabled), &why
}
