package api

// CreateTopics (19), versions 2 to 7. (KIP-4, KIP-464, KIP-525)

import (
	"context"
	"fmt"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) createTopics(ctx context.Context, from caller, req *kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse {
	ctx, cancel := adminContext(ctx, req.TimeoutMillis)
	defer cancel()
	counts := make(map[string]int)
	for _, t := range req.Topics {
		counts[t.Topic]++
	}
	all := h.mayCluster(ctx, from, security.OpCreate)
	results := make([]model.TopicResult, len(req.Topics))
	var create []model.NewTopic
	var at []int
	for i := range req.Topics {
		t := &req.Topics[i]
		results[i] = model.TopicResult{Name: t.Topic, Partitions: -1, ReplicationFactor: -1}
		switch {
		case counts[t.Topic] > 1:
			results[i].Err = fmt.Errorf("%w: topic %s is named twice", model.ErrInvalidRequest, t.Topic)
		case !all && !h.mayTopic(ctx, from, security.OpCreate, t.Topic):
			results[i].Err = model.ErrTopicAuthorization
		default:
			topic, err := newTopic(t)
			if results[i].Err = err; err == nil {
				create, at = append(create, topic), append(at, i)
			}
		}
	}
	if len(create) > 0 {
		answers, err := h.deps.Controller.CreateTopics(ctx, create, req.ValidateOnly)
		for j, i := range at {
			if err == nil && j < len(answers) {
				results[i] = answers[j]
			} else {
				results[i].Err = commandError(err)
			}
		}
	}
	resp := kmsg.NewPtrCreateTopicsResponse()
	for i, r := range results {
		resp.Topics = append(resp.Topics, h.createdTopic(ctx, from, &req.Topics[i], r))
	}
	return resp
}

// commandError is the error of a command that the controller did not answer.
func commandError(err error) error {
	if err == nil {
		return fmt.Errorf("%w: the controller's answer has too few results", model.ErrRequestTimedOut)
	}
	return err
}

func newTopic(t *kmsg.CreateTopicsRequestTopic) (model.NewTopic, error) {
	out := model.NewTopic{Name: t.Topic, Partitions: t.NumPartitions, ReplicationFactor: t.ReplicationFactor, Internal: internalName(t.Topic)}
	if len(t.ReplicaAssignment) > 0 {
		if t.NumPartitions != -1 || t.ReplicationFactor != -1 {
			return out, fmt.Errorf("%w: a topic with a replica assignment takes -1 partitions and replicas", model.ErrInvalidRequest)
		}
		out.Assignment = make(map[int32][]model.NodeID, len(t.ReplicaAssignment))
		for _, a := range t.ReplicaAssignment {
			if _, again := out.Assignment[a.Partition]; again {
				return out, fmt.Errorf("%w: partition %d is assigned twice", model.ErrInvalidAssignment, a.Partition)
			}
			out.Assignment[a.Partition] = nodeIDs(a.Replicas)
		}
	}
	if len(t.Configs) > 0 {
		out.Configs = make(map[string]*string, len(t.Configs))
		for _, c := range t.Configs {
			if _, again := out.Configs[c.Name]; again {
				return out, fmt.Errorf("%w: %s is set twice", model.ErrInvalidRequest, c.Name)
			}
			out.Configs[c.Name] = c.Value
		}
	}
	return out, nil
}

func nodeIDs(in []int32) []model.NodeID {
	out := make([]model.NodeID, len(in))
	for i, id := range in {
		out[i] = model.NodeID(id)
	}
	return out
}

// createdTopic answers for one topic. What it was made with is shown to those
// who may see settings. (KIP-525)
func (h *Handler) createdTopic(ctx context.Context, from caller, asked *kmsg.CreateTopicsRequestTopic, r model.TopicResult) kmsg.CreateTopicsResponseTopic {
	out := kmsg.NewCreateTopicsResponseTopic()
	out.Topic = asked.Topic
	out.ErrorCode, out.ErrorMessage = h.code(r.Err), h.message(r.Err)
	out.NumPartitions, out.ReplicationFactor = -1, -1
	if r.Err != nil {
		return out
	}
	out.TopicID = r.ID
	if !h.mayTopic(ctx, from, security.OpDescribeConfigs, asked.Topic) {
		out.ConfigErrorCode = h.code(model.ErrTopicAuthorization)
		return out
	}
	out.NumPartitions, out.ReplicationFactor = r.Partitions, r.ReplicationFactor
	if from.Version < createdConfigsVersion {
		return out
	}
	own := make(map[string]string, len(asked.Configs))
	for _, c := range asked.Configs {
		if c.Value != nil {
			own[c.Name] = *c.Value
		}
	}
	for _, s := range topicSettings(h.deps.Metadata.Image(), h.cfg.NodeID, own, h.cfg.Properties) {
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.Value, c.Source = s.name, &s.value, int8(s.source)
		out.Configs = append(out.Configs, c)
	}
	return out
}

// createdConfigsVersion is the first CreateTopics that is answered with settings.
const createdConfigsVersion = 5
