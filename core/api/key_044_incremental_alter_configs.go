package api

// IncrementalAlterConfigs (44), versions 0 to 1: topics, this broker, and all
// brokers. (KIP-339)
//
// Left out: broker loggers, client metrics and groups (INVALID_REQUEST).

import (
	"context"
	"fmt"
	"strconv"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) incrementalAlterConfigs(ctx context.Context, from caller, req *kmsg.IncrementalAlterConfigsRequest) *kmsg.IncrementalAlterConfigsResponse {
	asked := make([]model.ConfigChange, len(req.Resources))
	for i, r := range req.Resources {
		c := model.ConfigChange{Resource: resource(r.ResourceType, r.ResourceName)}
		for _, e := range r.Configs {
			c.Ops = append(c.Ops, model.ConfigOp{Key: e.Name, Kind: model.ConfigOpKind(e.Op), Value: e.Value})
		}
		asked[i] = c
	}
	errs := h.changeConfigs(ctx, from, asked, req.ValidateOnly)
	resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
	for i, r := range req.Resources {
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		out.ErrorCode, out.ErrorMessage = h.code(errs[i]), h.message(errs[i])
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

// resource is what a request names. A type without a configuration here is
// unknown, which checkConfigChange refuses.
func resource(kind kmsg.ConfigResourceType, name string) model.Resource {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		return model.Resource{Type: model.ResourceTopic, Name: name}
	case kmsg.ConfigResourceTypeBroker:
		return model.Resource{Type: model.ResourceBroker, Name: name}
	}
	return model.Resource{Type: model.ResourceUnknown, Name: name}
}

// changeConfigs checks changes and asks the controller for those that pass. The
// errors are in the order of the changes.
func (h *Handler) changeConfigs(ctx context.Context, from caller, asked []model.ConfigChange, validateOnly bool) []error {
	ctx, cancel := context.WithTimeout(ctx, configTimeout)
	defer cancel()
	counts := make(map[model.Resource]int)
	for _, c := range asked {
		counts[c.Resource]++
	}
	errs := make([]error, len(asked))
	var changes []model.ConfigChange
	var at []int
	for i, c := range asked {
		if counts[c.Resource] > 1 {
			errs[i] = fmt.Errorf("%w: a resource is named twice", model.ErrInvalidRequest)
		} else if errs[i] = h.checkConfigChange(ctx, from, c); errs[i] == nil {
			changes, at = append(changes, c), append(at, i)
		}
	}
	if len(changes) == 0 {
		return errs
	}
	answers, err := h.deps.Controller.AlterConfigs(ctx, changes, validateOnly)
	for j, i := range at {
		if err == nil && j < len(answers) {
			errs[i] = answers[j]
		} else {
			errs[i] = commandError(err)
		}
	}
	return errs
}

// configTimeout bounds the wait for a change of settings, whose request has no
// timeout of its own.
const configTimeout = adminTimeoutDefault

func (h *Handler) checkConfigChange(ctx context.Context, from caller, c model.ConfigChange) error {
	switch c.Resource.Type {
	case model.ResourceTopic:
		if !h.mayTopic(ctx, from, security.OpAlterConfigs, c.Resource.Name) {
			return model.ErrTopicAuthorization
		}
		if !topicName(c.Resource.Name) {
			return model.ErrInvalidTopic
		}
		if _, ok := h.deps.Metadata.Image().TopicByName(c.Resource.Name); !ok {
			return model.ErrUnknownTopicOrPartition
		}
	case model.ResourceBroker:
		if !h.mayCluster(ctx, from, security.OpAlterConfigs) {
			return model.ErrClusterAuthorization
		}
		if _, err := h.brokerResource(c.Resource.Name); err != nil {
			return err
		}
		if err := h.checkBatchBytes(c.Ops); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%w: this type of resource has no configuration here", model.ErrInvalidRequest)
	}
	return checkConfigOps(c.Ops)
}

// checkBatchBytes refuses what the configuration file refuses too: batches that
// are larger than any request.
func (h *Handler) checkBatchBytes(ops []model.ConfigOp) error {
	most, err := strconv.ParseInt(h.cfg.Properties[requestBytesProperty].Value, 10, 64)
	if err != nil {
		return nil // nobody said
	}
	for _, op := range ops {
		if op.Key != batchBytesProperty || op.Kind != model.ConfigSet || op.Value == nil {
			continue
		}
		if n, err := strconv.ParseInt(*op.Value, 10, 64); err == nil && n > most {
			return fmt.Errorf("%w: %s %d is more than %s (%d), so that such a batch could never arrive", model.ErrInvalidConfig, batchBytesProperty, n, requestBytesProperty, most)
		}
	}
	return nil
}

const (
	requestBytesProperty = "socket.request.max.bytes"
	batchBytesProperty   = "message.max.bytes"
)

func checkConfigOps(ops []model.ConfigOp) error {
	seen := make(map[string]bool, len(ops))
	for _, op := range ops {
		switch {
		case op.Key == "":
			return fmt.Errorf("%w: a setting without a name", model.ErrInvalidRequest)
		case seen[op.Key]:
			return fmt.Errorf("%w: %s is changed twice", model.ErrInvalidRequest, op.Key)
		case op.Kind < model.ConfigSet || op.Kind > model.ConfigSubtract:
			return fmt.Errorf("%w: operation %d on %s is unknown", model.ErrInvalidRequest, op.Kind, op.Key)
		case op.Value == nil && op.Kind != model.ConfigDelete:
			return fmt.Errorf("%w: %s has a null value", model.ErrInvalidRequest, op.Key)
		}
		seen[op.Key] = true
	}
	return nil
}
