package api

// CreatePartitions (37), versions 0 to 3. (KIP-195)

import (
	"context"
	"fmt"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) createPartitions(ctx context.Context, from caller, req *kmsg.CreatePartitionsRequest) *kmsg.CreatePartitionsResponse {
	ctx, cancel := adminContext(ctx, req.TimeoutMillis)
	defer cancel()
	img := h.deps.Metadata.Image()
	counts := make(map[string]int)
	for _, t := range req.Topics {
		counts[t.Topic]++
	}
	errs := make([]error, len(req.Topics))
	var more []model.MorePartitions
	var at []int
	for i, t := range req.Topics {
		_, exists := img.TopicByName(t.Topic)
		switch {
		case counts[t.Topic] > 1:
			errs[i] = fmt.Errorf("%w: topic %s is named twice", model.ErrInvalidRequest, t.Topic)
		case !h.mayTopic(ctx, from, security.OpAlter, t.Topic):
			errs[i] = model.ErrTopicAuthorization
		case !exists:
			errs[i] = model.ErrUnknownTopicOrPartition
		default:
			m := model.MorePartitions{Topic: t.Topic, Count: t.Count}
			for _, a := range t.Assignment {
				m.Assignment = append(m.Assignment, nodeIDs(a.Replicas))
			}
			more, at = append(more, m), append(at, i)
		}
	}
	if len(more) > 0 {
		answers, err := h.deps.Controller.CreatePartitions(ctx, more, req.ValidateOnly)
		for j, i := range at {
			if err == nil && j < len(answers) {
				errs[i] = answers[j]
			} else {
				errs[i] = commandError(err)
			}
		}
	}
	resp := kmsg.NewPtrCreatePartitionsResponse()
	for i, t := range req.Topics {
		out := kmsg.NewCreatePartitionsResponseTopic()
		out.Topic, out.ErrorCode, out.ErrorMessage = t.Topic, h.code(errs[i]), h.message(errs[i])
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}
