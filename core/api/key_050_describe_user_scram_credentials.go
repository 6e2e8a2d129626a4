package api

// DescribeUserScramCredentials (50), version 0. (KIP-554)
//
// Left out: credentials. None can be set, and no user is known.

import (
	"context"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) describeUserSCRAMCredentials(ctx context.Context, from caller, req *kmsg.DescribeUserSCRAMCredentialsRequest) *kmsg.DescribeUserSCRAMCredentialsResponse {
	resp := kmsg.NewPtrDescribeUserSCRAMCredentialsResponse()
	if !h.mayCluster(ctx, from, security.OpDescribe) {
		resp.ErrorCode = h.code(model.ErrClusterAuthorization)
		return resp
	}
	times := make(map[string]int, len(req.Users))
	for _, u := range req.Users {
		times[u.Name]++
	}
	for _, u := range req.Users {
		n := times[u.Name]
		if n == 0 {
			continue // it has been answered
		}
		times[u.Name] = 0
		code, why := wire.CodeResourceNotFound, "there is no such user"
		if n > 1 {
			code, why = wire.CodeDuplicateResource, "the request names the user more than once"
		}
		out := kmsg.NewDescribeUserSCRAMCredentialsResponseResult()
		out.User, out.ErrorCode, out.ErrorMessage = u.Name, code, &why
		resp.Results = append(resp.Results, out)
	}
	return resp
}
