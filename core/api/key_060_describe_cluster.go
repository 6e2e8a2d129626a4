package api

// DescribeCluster (60), versions 0 to 2: brokers. (KIP-700, KIP-1073)
//
// Left out: controllers (MISMATCHED_ENDPOINT_TYPE): clients do not reach them.

import (
	"context"

	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The endpoint types of KIP-919.
const (
	endpointBrokers     int8 = 1
	endpointControllers int8 = 2
)

func (h *Handler) describeCluster(ctx context.Context, from caller, req *kmsg.DescribeClusterRequest) *kmsg.DescribeClusterResponse {
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.ClusterAuthorizedOperations = notAsked
	switch req.EndpointType {
	case endpointBrokers:
	case endpointControllers:
		return refuseEndpoints(resp, wire.CodeMismatchedEndpointType, "this is a broker's listener: it tells of brokers alone")
	default:
		return refuseEndpoints(resp, wire.CodeUnsupportedEndpointType, "the endpoint type is unknown")
	}
	img := h.deps.Metadata.Image()
	all := nodes(img, from.Listener)
	resp.EndpointType = endpointBrokers
	resp.ClusterID = string(img.Cluster.ID)
	resp.ControllerID = int32(h.shownController(all))
	for _, n := range all {
		if n.fenced && !req.IncludeFencedBrokers {
			continue
		}
		b := kmsg.NewDescribeClusterResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack, b.IsFenced = int32(n.id), n.host, n.port, n.rack, n.fenced
		resp.Brokers = append(resp.Brokers, b)
	}
	if req.IncludeClusterAuthorizedOperations && h.mayCluster(ctx, from, security.OpDescribe) {
		resp.ClusterAuthorizedOperations = h.clusterOperations(ctx, from)
	}
	return resp
}

func refuseEndpoints(resp *kmsg.DescribeClusterResponse, code wire.Code, why string) *kmsg.DescribeClusterResponse {
	resp.ErrorCode, resp.ErrorMessage = code, &why
	return resp
}
