package api

// DescribeConfigs (32), versions 1 to 4: topics and this broker. (KIP-133,
// KIP-226, KIP-569)
//
// Left out: settings of groups and of client metrics, of which there are none: the
// list is empty, as tools that go through all resources expect. Broker loggers
// (INVALID_REQUEST).

import (
	"context"
	"fmt"
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) describeConfigs(ctx context.Context, from caller, req *kmsg.DescribeConfigsRequest) *kmsg.DescribeConfigsResponse {
	img := h.deps.Metadata.Image()
	resp := kmsg.NewPtrDescribeConfigsResponse()
	for _, r := range req.Resources {
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		settings, err := h.settingsOf(ctx, from, img, r)
		out.ErrorCode, out.ErrorMessage = h.code(err), h.message(err)
		for _, s := range settings {
			if len(r.ConfigNames) > 0 && !slices.Contains(r.ConfigNames, s.name) {
				continue
			}
			out.Configs = append(out.Configs, shownSetting(req, s))
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

func (h *Handler) settingsOf(ctx context.Context, from caller, img *image.Image, r kmsg.DescribeConfigsRequestResource) ([]setting, error) {
	switch r.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		if !h.mayTopic(ctx, from, security.OpDescribeConfigs, r.ResourceName) {
			return nil, model.ErrTopicAuthorization
		}
		if !topicName(r.ResourceName) {
			return nil, model.ErrInvalidTopic
		}
		if _, ok := img.TopicByName(r.ResourceName); !ok {
			return nil, model.ErrUnknownTopicOrPartition
		}
		own := img.Config(model.Resource{Type: model.ResourceTopic, Name: r.ResourceName})
		return topicSettings(img, h.cfg.NodeID, own, h.cfg.Properties), nil
	case kmsg.ConfigResourceTypeBroker:
		if !h.mayCluster(ctx, from, security.OpDescribeConfigs) {
			return nil, model.ErrClusterAuthorization
		}
		id, err := h.brokerResource(r.ResourceName)
		if err != nil {
			return nil, err
		}
		return brokerSettings(img, id, h.cfg.Properties), nil
	case kmsg.ConfigResourceTypeGroupConfig:
		if !h.may(ctx, from, security.OpDescribeConfigs, security.Group, r.ResourceName) {
			return nil, model.ErrGroupAuthorization
		}
		return nil, nil
	case kmsg.ConfigResourceTypeClientMetrics:
		if !h.mayCluster(ctx, from, security.OpDescribeConfigs) {
			return nil, model.ErrClusterAuthorization
		}
		return nil, nil
	}
	return nil, fmt.Errorf("%w: resource type %d has no configuration here", model.ErrInvalidRequest, r.ResourceType)
}

func shownSetting(req *kmsg.DescribeConfigsRequest, s setting) kmsg.DescribeConfigsResponseResourceConfig {
	out := kmsg.NewDescribeConfigsResponseResourceConfig()
	out.Name, out.Value = s.name, hidden(s, s.value)
	out.ReadOnly, out.IsSensitive = s.readOnly, s.sensitive
	out.Source, out.IsDefault = s.source, s.source == kmsg.ConfigSourceDefaultConfig
	out.ConfigType = kmsg.ConfigType(s.kind)
	if req.IncludeSynonyms {
		for _, y := range s.synonyms {
			c := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			c.Name, c.Value, c.Source = y.name, hidden(s, y.value), y.source
			out.ConfigSynonyms = append(out.ConfigSynonyms, c)
		}
	}
	if req.IncludeDocumentation {
		out.Documentation = &s.doc
	}
	return out
}

// hidden is a value as it may be shown: not at all if it is a secret.
func hidden(s setting, value string) *string {
	if s.sensitive {
		return nil
	}
	return &value
}
