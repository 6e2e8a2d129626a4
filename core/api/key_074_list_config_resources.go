package api

// ListConfigResources (74), versions 0 to 1: topics and brokers. (KIP-1000,
// KIP-1142)
//
// Left out: broker loggers, client metrics and groups, which have no settings
// here: their lists are empty. Version 0 asks for client metrics alone.

import (
	"context"
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) listConfigResources(ctx context.Context, from caller, req *kmsg.ListConfigResourcesRequest) *kmsg.ListConfigResourcesResponse {
	resp := kmsg.NewPtrListConfigResourcesResponse()
	if !h.mayCluster(ctx, from, security.OpDescribeConfigs) {
		resp.ErrorCode = h.code(model.ErrClusterAuthorization)
		return resp
	}
	all := []kmsg.ConfigResourceType{
		kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger,
		kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceTypeGroupConfig,
	}
	wanted := make(map[kmsg.ConfigResourceType]bool)
	for _, n := range req.ResourceTypes {
		kind := kmsg.ConfigResourceType(n)
		if !slices.Contains(all, kind) {
			resp.ErrorCode = h.code(model.ErrUnsupportedVersion)
			return resp
		}
		wanted[kind] = true
	}
	img := h.deps.Metadata.Image()
	for _, kind := range all {
		if req.Version == 0 || len(wanted) > 0 && !wanted[kind] {
			continue
		}
		for _, name := range configResources(img, from.Listener, kind) {
			out := kmsg.NewListConfigResourcesResponseConfigResource()
			out.Name, out.Type = name, int8(kind)
			resp.ConfigResources = append(resp.ConfigResources, out)
		}
	}
	return resp
}

// configResources names what has settings of its own kind, in order.
func configResources(img *image.Image, listener string, kind kmsg.ConfigResourceType) (names []string) {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		for t := range img.Topics() {
			names = append(names, t.Name)
		}
	case kmsg.ConfigResourceTypeBroker:
		for _, n := range nodes(img, listener) {
			if !n.fenced {
				names = append(names, nodeName(n.id))
			}
		}
	}
	return names
}
