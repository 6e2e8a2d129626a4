package api

// DescribeClientQuotas (48), versions 0 to 1. (KIP-546)
//
// Left out: quotas. None can be set, and the list is empty; a filter that Kafka
// refuses is refused.

import (
	"context"
	"fmt"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) describeClientQuotas(ctx context.Context, from caller, req *kmsg.DescribeClientQuotasRequest) *kmsg.DescribeClientQuotasResponse {
	resp := kmsg.NewPtrDescribeClientQuotasResponse()
	err := model.ErrClusterAuthorization
	if h.mayCluster(ctx, from, security.OpDescribeConfigs) {
		err = checkQuotaFilter(req.Components)
	}
	if resp.ErrorCode, resp.ErrorMessage = h.code(err), h.message(err); err == nil {
		resp.Entries = []kmsg.DescribeClientQuotasResponseEntry{} // null is the answer to what is refused
	}
	return resp
}

// The types of entity that a quota can be for.
const (
	quotaOfUser   = "user"
	quotaOfClient = "client-id"
	quotaOfIP     = "ip"
)

func checkQuotaFilter(filter []kmsg.DescribeClientQuotasRequestComponent) error {
	seen := make(map[string]bool, len(filter))
	for _, c := range filter {
		switch c.EntityType {
		case quotaOfUser, quotaOfClient, quotaOfIP:
		case "":
			return fmt.Errorf("an entity type is empty: %w", model.ErrInvalidRequest)
		default:
			return fmt.Errorf("entity type %q is not known: %w", c.EntityType, model.ErrUnsupportedVersion)
		}
		if seen[c.EntityType] {
			return fmt.Errorf("entity type %s is in the filter twice: %w", c.EntityType, model.ErrInvalidRequest)
		}
		seen[c.EntityType] = true
		switch c.MatchType {
		case kmsg.QuotasMatchTypeExact:
			if c.Match == nil {
				return fmt.Errorf("an exact match of %s without a name: %w", c.EntityType, model.ErrInvalidRequest)
			}
		case kmsg.QuotasMatchTypeDefault, kmsg.QuotasMatchTypeAny:
			if c.Match != nil {
				return fmt.Errorf("a match of %s by name that is not exact: %w", c.EntityType, model.ErrInvalidRequest)
			}
		default:
			return fmt.Errorf("match type %d is not known: %w", int8(c.MatchType), model.ErrInvalidRequest)
		}
	}
	if seen[quotaOfIP] && len(seen) > 1 {
		return fmt.Errorf("ip cannot be filtered together with user or client-id: %w", model.ErrInvalidRequest)
	}
	return nil
}
