package api

// AlterConfigs (33), versions 0 to 2: topics, this broker, and all brokers. The
// settings given become the whole of the resource's. (KIP-133)
//
// Left out: broker loggers, client metrics and groups (INVALID_REQUEST).

import (
	"context"

	"github.com/brokerd/brokerd/core/model"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) alterConfigs(ctx context.Context, from caller, req *kmsg.AlterConfigsRequest) *kmsg.AlterConfigsResponse {
	asked := make([]model.ConfigChange, len(req.Resources))
	for i, r := range req.Resources {
		c := model.ConfigChange{Resource: resource(r.ResourceType, r.ResourceName), Replace: true}
		for _, e := range r.Configs {
			c.Ops = append(c.Ops, model.ConfigOp{Key: e.Name, Kind: model.ConfigSet, Value: e.Value})
		}
		asked[i] = c
	}
	errs := h.changeConfigs(ctx, from, asked, req.ValidateOnly)
	resp := kmsg.NewPtrAlterConfigsResponse()
	for i, r := range req.Resources {
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		out.ErrorCode, out.ErrorMessage = h.code(errs[i]), h.message(errs[i])
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}
