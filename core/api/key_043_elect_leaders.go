package api

// ElectLeaders (43), versions 0 to 2. (KIP-183, KIP-460)

import (
	"context"
	"errors"
	"fmt"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The kinds of election, in Kafka's numbers. Version 0 knows the first alone.
const (
	electPreferred int8 = 0
	electUnclean   int8 = 1
)

func (h *Handler) electLeaders(ctx context.Context, from caller, req *kmsg.ElectLeadersRequest) *kmsg.ElectLeadersResponse {
	resp := kmsg.NewPtrElectLeadersResponse()
	img := h.deps.Metadata.Image()
	everywhere := req.Topics == nil
	var err error
	switch {
	case !h.mayCluster(ctx, from, security.OpAlter):
		err = model.ErrClusterAuthorization
	case req.ElectionType != electPreferred && req.ElectionType != electUnclean:
		err = fmt.Errorf("election type %d is not known: %w", req.ElectionType, model.ErrInvalidRequest)
	case everywhere:
		req.Topics = electable(img, req.ElectionType)
	}
	results := make([]error, 0, len(req.Topics)) // of all partitions in their order
	var asked []model.Partition
	var places []int // of asked, in results
	for _, t := range req.Topics {
		topic, exists := img.TopicByName(t.Topic)
		for _, index := range t.Partitions {
			result := err
			switch {
			case err != nil:
			case !exists || !hasPartition(topic, index):
				result = fmt.Errorf("there is no partition %d of a topic %s: %w", index, t.Topic, model.ErrUnknownTopicOrPartition)
			default:
				asked = append(asked, model.Partition{Topic: topic.ID, Index: index})
				places = append(places, len(results))
			}
			results = append(results, result)
		}
	}
	if len(asked) > 0 {
		var errs []error
		errs, err = h.operate(ctx, req.TimeoutMillis, len(asked), func(ctx context.Context) ([]error, error) {
			return h.deps.Operations.ElectLeaders(ctx, asked, req.ElectionType == electUnclean)
		})
		for i, at := range places {
			if results[at] = err; err == nil {
				results[at] = errs[i]
			}
		}
	}
	resp.ErrorCode = h.code(err)
	resp.Topics = h.elected(req.Topics, results, everywhere)
	return resp
}

// elected shows the results, of which those where there was nothing to do are left out
// where nobody asked for them by name.
func (h *Handler) elected(topics []kmsg.ElectLeadersRequestTopic, results []error, everywhere bool) []kmsg.ElectLeadersResponseTopic {
	var all []kmsg.ElectLeadersResponseTopic
	for _, t := range topics {
		out := kmsg.NewElectLeadersResponseTopic()
		out.Topic = t.Topic
		for _, index := range t.Partitions {
			err := results[0]
			results = results[1:]
			if everywhere && errors.Is(err, model.ErrElectionNotNeeded) {
				continue
			}
			part := kmsg.NewElectLeadersResponseTopicPartition()
			part.Partition, part.ErrorCode, part.ErrorMessage = index, h.code(err), h.message(err)
			out.Partitions = append(out.Partitions, part)
		}
		all = append(all, out)
	}
	return all
}

// electable names all topics, and of their partitions those that an election could
// change, as Kafka does where none are named.
func electable(img *image.Image, kind int8) []kmsg.ElectLeadersRequestTopic {
	var all []kmsg.ElectLeadersRequestTopic
	for t := range img.Topics() {
		out := kmsg.ElectLeadersRequestTopic{Topic: t.Name}
		for i, p := range t.Partitions {
			if kind == electPreferred && p.Leader != p.Replicas[0] || p.Leader == model.NoNode {
				out.Partitions = append(out.Partitions, int32(i))
			}
		}
		all = append(all, out)
	}
	return all
}
