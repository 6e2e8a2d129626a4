package api

// OffsetCommit (8), versions 2 to 10; topics by ID from version 10 (KIP-848).
//
// Kafka takes commits of a group whose name is empty, and so do we.

import (
	"context"
	"errors"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// retentionCommitVersionMax is the last that says how long to keep offsets.
	// (KIP-211)
	retentionCommitVersionMax = 4
	// notFoundCommitVersion is the first that knows groups that are not there.
	// (KIP-848)
	notFoundCommitVersion = 9
	// idCommitVersion is the first that names topics by ID.
	idCommitVersion = 10
)

func (h *Handler) beginOffsetCommit(ctx context.Context, from caller, req *kmsg.OffsetCommitRequest) wire.Answer {
	resp, partitions := commitResponse(req)
	if !h.mayGroup(ctx, from, security.OpRead, req.Group) {
		for i := range partitions {
			partitions[i].ErrorCode = h.code(model.ErrGroupAuthorization)
		}
		return answerNow(resp)
	}
	q := model.CommitOffsets{
		Group: req.Group, Generation: req.Generation, MemberID: req.MemberID, InstanceID: text(req.InstanceID),
		Retention: -1, Offsets: make([]model.GroupOffset, 0, len(partitions)),
	}
	if req.Version <= retentionCommitVersionMax && req.RetentionTimeMillis >= 0 {
		q.Retention = literalDuration(req.RetentionTimeMillis)
	}
	img := h.deps.Metadata.Image()
	for i := range req.Topics {
		in, out := &req.Topics[i], resp.Topics[i].Partitions
		t, err := h.offsetsTopic(ctx, from, security.OpRead, img, in.Topic, in.TopicID, req.Version >= idCommitVersion)
		code := h.code(err)
		for j := range in.Partitions {
			p := &in.Partitions[j]
			switch {
			case err != nil:
				out[j].ErrorCode = code
			case p.Partition < 0 || int(p.Partition) >= len(t.Partitions):
				out[j].ErrorCode = h.code(model.ErrUnknownTopicOrPartition)
			default:
				q.Offsets = append(q.Offsets, model.GroupOffset{
					TopicPartition: model.TopicPartition{Topic: t.Name, Partition: p.Partition}, TopicID: t.ID,
					Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: text(p.Metadata),
				})
			}
		}
	}
	if len(q.Offsets) == 0 {
		return answerNow(resp)
	}
	return await("a commit",
		func(done func(model.CommittedOffsets)) { h.deps.Groups.Commit(ctx, q, done) },
		func(_ context.Context, a model.CommittedOffsets) kmsg.Response {
			h.fillCommitted(req.Version, partitions, a)
			return resp
		})
}

// commitResponse has the shape of the request and no error yet. All its partitions
// are one slice too.
func commitResponse(req *kmsg.OffsetCommitRequest) (*kmsg.OffsetCommitResponse, []kmsg.OffsetCommitResponseTopicPartition) {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	resp, all := kmsg.NewPtrOffsetCommitResponse(), make([]kmsg.OffsetCommitResponseTopicPartition, n)
	resp.Topics = make([]kmsg.OffsetCommitResponseTopic, len(req.Topics))
	rest := all
	for i := range req.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Topic, out.TopicID = in.Topic, in.TopicID
		out.Partitions, rest = rest[:len(in.Partitions):len(in.Partitions)], rest[len(in.Partitions):]
		for j := range in.Partitions {
			out.Partitions[j].Partition = in.Partitions[j].Partition
		}
	}
	return resp, all
}

// fillCommitted tells the partitions that have no error yet what became of them: they
// are those that were asked about, in order.
func (h *Handler) fillCommitted(version int16, partitions []kmsg.OffsetCommitResponseTopicPartition, a model.CommittedOffsets) {
	next := 0
	for i := range partitions {
		if partitions[i].ErrorCode != wire.CodeNone {
			continue
		}
		err := a.Err
		if err == nil {
			err = a.Offsets[next]
		}
		if version < notFoundCommitVersion && errors.Is(err, model.ErrGroupIDNotFound) {
			err = model.ErrIllegalGeneration
		}
		partitions[i].ErrorCode = h.groupCode(err)
		next++
	}
}

// offsetsTopic finds a topic by its name or its ID and says whether the client may do
// this with its offsets. Names are authorized before they are looked up.
func (h *Handler) offsetsTopic(ctx context.Context, from caller, op security.Operation, img *image.Image, name string, id model.TopicID, byID bool) (*image.Topic, error) {
	if byID {
		t, ok := img.Topic(id)
		switch {
		case !ok:
			return nil, model.ErrUnknownTopicID
		case !h.mayTopic(ctx, from, op, t.Name):
			return nil, model.ErrTopicAuthorization
		}
		return t, nil
	}
	if !h.mayTopic(ctx, from, op, name) {
		return nil, model.ErrTopicAuthorization
	}
	t, ok := img.TopicByName(name)
	if !ok {
		return nil, model.ErrUnknownTopicOrPartition
	}
	return t, nil
}

// literalDuration keeps what is longer than a duration can be the longest.
func literalDuration(ms int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(ms, most)) * time.Millisecond
}
