package api

// ApiVersions (18), versions 0 to 5. (KIP-35, KIP-511, KIP-1242)
//
// Left out: features. None is advertised, and the epoch of the finalized ones is
// -1, unknown: there is no transaction.version or group.version to negotiate
// before transactions and groups are served.

import (
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) apiVersions(req *kmsg.ApiVersionsRequest) *kmsg.ApiVersionsResponse {
	resp := kmsg.NewPtrApiVersionsResponse()
	if req.Version >= 3 {
		if !softwareName(req.ClientSoftwareName) || !softwareName(req.ClientSoftwareVersion) {
			return refuseAPIVersions(resp, h.code(model.ErrInvalidRequest))
		}
		if code := h.misrouted(req); code != wire.CodeNone {
			return refuseAPIVersions(resp, code)
		}
		h.deps.Events.ClientSeen(req.ClientSoftwareName, req.ClientSoftwareVersion)
	}
	for _, a := range wire.APIs() {
		resp.ApiKeys = append(resp.ApiKeys, apiKey(a))
	}
	return resp
}

func refuseAPIVersions(resp *kmsg.ApiVersionsResponse, code wire.Code) *kmsg.ApiVersionsResponse {
	resp.ErrorCode = code
	resp.ApiKeys = onlyAPIVersions()
	return resp
}

// misrouted tells a client that wanted another broker or another cluster to
// begin anew. (KIP-1242)
func (h *Handler) misrouted(req *kmsg.ApiVersionsRequest) wire.Code {
	named := req.NodeID != int32(model.NoNode)
	cluster := h.deps.Metadata.Image().Cluster.ID
	switch {
	case req.ClusterID == nil && !named:
		return wire.CodeNone
	case req.ClusterID == nil || !named:
		return h.code(model.ErrInvalidRequest)
	case cluster != "" && *req.ClusterID != string(cluster), model.NodeID(req.NodeID) != h.cfg.NodeID:
		return wire.CodeRebootstrapRequired
	}
	return wire.CodeNone
}

// unknownAPIVersions answers a version that is not known: in version 0, which
// every client reads, and with the versions that it may ask with. (KIP-511)
func (h *Handler) unknownAPIVersions() wire.Reply {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = 0
	resp.ErrorCode = h.code(model.ErrUnsupportedVersion)
	resp.ApiKeys = onlyAPIVersions()
	return wire.Reply{Response: resp, Version: &resp.Version}
}

func onlyAPIVersions() []kmsg.ApiVersionsResponseApiKey {
	for _, a := range wire.APIs() {
		if a.Key == wire.KeyAPIVersions {
			return []kmsg.ApiVersionsResponseApiKey{apiKey(a)}
		}
	}
	return nil
}

func apiKey(a wire.API) kmsg.ApiVersionsResponseApiKey {
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MinVersion, k.MaxVersion = a.Key, a.Min, a.Max
	return k
}

// softwareNameBytesMax keeps what a client calls itself fit for a metric.
const softwareNameBytesMax = 256

// softwareName is Kafka's pattern: letters, digits, '-' and '.', the first and
// the last a letter or a digit.
func softwareName(s string) bool {
	if s == "" || len(s) > softwareNameBytesMax {
		return false
	}
	for i := range len(s) {
		c := s[i]
		inner := c == '-' || c == '.'
		if inner && (i == 0 || i == len(s)-1) || !inner && !alphanumeric(c) {
			return false
		}
	}
	return true
}

func alphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
