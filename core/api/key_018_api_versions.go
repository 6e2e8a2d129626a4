package api

// ApiVersions (18), versions 0 to 4. (KIP-35, KIP-511)
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
			resp.ErrorCode = h.code(model.ErrInvalidRequest)
			resp.ApiKeys = onlyAPIVersions()
			return resp
		}
		h.deps.Events.ClientSeen(req.ClientSoftwareName, req.ClientSoftwareVersion)
	}
	for _, a := range wire.APIs() {
		resp.ApiKeys = append(resp.ApiKeys, apiKey(a))
	}
	return resp
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
