package api

// DescribeCluster (60), versions 0 to 2: brokers. (KIP-700, KIP-1073)
//
// Left out: controllers (MISMATCHED_ENDPOINT_TYPE): clients do not reach them.
//
// Who asks for fenced brokers too is told of each, in tagged fields of our own, which
// others skip: its epoch (tag 10000, int64), and whether it is shutting down (tag 10001,
// a byte of 1, left out where it is not).

import (
	"context"
	"encoding/binary"

	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The endpoint types of KIP-919.
const (
	endpointBrokers     int8 = 1
	endpointControllers int8 = 2
)

// The tags of our own fields of a broker.
const (
	tagBrokerEpoch  uint32 = 10000
	tagShuttingDown uint32 = 10001
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
		if known, ok := img.Broker(n.id); ok && req.Version >= 2 && req.IncludeFencedBrokers {
			b.UnknownTags.Set(tagBrokerEpoch, binary.BigEndian.AppendUint64(nil, uint64(known.Epoch)))
			if known.ShuttingDown {
				b.UnknownTags.Set(tagShuttingDown, []byte{1})
			}
		}
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
