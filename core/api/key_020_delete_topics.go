package api

// DeleteTopics (20), versions 1 to 6. (KIP-4, KIP-516)

import (
	"context"
	"fmt"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// deletion is one topic of a request. name is what its answer shows: nil where
// the client named an ID and may not know the name.
type deletion struct {
	name *string
	id   model.TopicID
	ref  model.TopicRef
	err  error
}

func (h *Handler) deleteTopics(ctx context.Context, from caller, req *kmsg.DeleteTopicsRequest) *kmsg.DeleteTopicsResponse {
	ctx, cancel := adminContext(ctx, req.TimeoutMillis)
	defer cancel()
	img := h.deps.Metadata.Image()
	var all []deletion
	for i := range req.TopicNames {
		all = append(all, h.deleteByName(ctx, from, img, req.TopicNames[i]))
	}
	for _, t := range req.Topics {
		switch {
		case t.Topic != nil && t.TopicID != [16]byte{}:
			err := fmt.Errorf("%w: a topic is named by its name or by its ID, not by both", model.ErrInvalidRequest)
			all = append(all, deletion{name: t.Topic, id: t.TopicID, err: err})
		case t.Topic != nil:
			all = append(all, h.deleteByName(ctx, from, img, *t.Topic))
		case t.TopicID == [16]byte{}:
			err := fmt.Errorf("%w: neither a name nor an ID is given", model.ErrInvalidRequest)
			all = append(all, deletion{err: err})
		default:
			all = append(all, h.deleteByID(ctx, from, img, t.TopicID))
		}
	}
	refuseRepeated(all)
	h.deleteAll(ctx, all)

	resp := kmsg.NewPtrDeleteTopicsResponse()
	for _, d := range all {
		out := kmsg.NewDeleteTopicsResponseTopic()
		out.Topic, out.TopicID = d.name, d.id
		if out.Topic == nil && req.Version < 6 {
			out.Topic = new(string)
		}
		out.ErrorCode, out.ErrorMessage = h.code(d.err), h.message(d.err)
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (h *Handler) deleteByName(ctx context.Context, from caller, img *image.Image, name string) deletion {
	d := deletion{name: &name, ref: model.TopicRef{Name: name}}
	if !h.mayTopic(ctx, from, security.OpDelete, name) {
		d.err = model.ErrTopicAuthorization
		return d
	}
	t, ok := img.TopicByName(name)
	if !ok {
		d.err = model.ErrUnknownTopicOrPartition
		return d
	}
	d.id = t.ID
	return d
}

// deleteByID tells a topic that may not be seen like one that does not exist.
func (h *Handler) deleteByID(ctx context.Context, from caller, img *image.Image, id model.TopicID) deletion {
	d := deletion{id: id, ref: model.TopicRef{ID: id}}
	t, ok := img.Topic(id)
	if !ok || !h.mayTopic(ctx, from, security.OpDescribe, t.Name) {
		d.err = model.ErrUnknownTopicID
		return d
	}
	d.name = &t.Name
	if !h.mayTopic(ctx, from, security.OpDelete, t.Name) {
		d.err = model.ErrTopicAuthorization
	}
	return d
}

func refuseRepeated(all []deletion) {
	counts := make(map[model.TopicID]int)
	for _, d := range all {
		if d.err == nil {
			counts[d.id]++
		}
	}
	for i := range all {
		if d := &all[i]; d.err == nil && counts[d.id] > 1 {
			d.err = fmt.Errorf("%w: a topic is named twice", model.ErrInvalidRequest)
		}
	}
}

func (h *Handler) deleteAll(ctx context.Context, all []deletion) {
	var refs []model.TopicRef
	var at []int
	for i, d := range all {
		if d.err == nil {
			refs, at = append(refs, d.ref), append(at, i)
		}
	}
	if len(refs) == 0 {
		return
	}
	answers, err := h.deps.Controller.DeleteTopics(ctx, refs)
	for j, i := range at {
		if err == nil && j < len(answers) {
			all[i].err = answers[j].Err
		} else {
			all[i].err = commandError(err)
		}
	}
}
