package api

// OffsetFetch (9), versions 1 to 10; many groups from version 8 (KIP-709), topics by
// ID from version 10 (KIP-848).
//
// Every offset is stable: require_stable (KIP-447) waits for nothing.

import (
	"context"
	"errors"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// allOffsetFetchVersion is the first that can ask for all partitions, and that has an
	// error for the group.
	allOffsetFetchVersion = 2
	// manyOffsetFetchVersion is the first that asks for many groups.
	manyOffsetFetchVersion = 8
	// idOffsetFetchVersion is the first that names topics by ID.
	idOffsetFetchVersion = 10
)

// fetchedGroup is one group of a request while its offsets are fetched.
type fetchedGroup struct {
	out kmsg.OffsetFetchResponseGroup
	err error // about the group: it was not asked
	all bool
	// same is an earlier one that asks for all of the same group: its answer is this one's.
	same *fetchedGroup
}

func (h *Handler) beginOffsetFetch(ctx context.Context, from caller, req *kmsg.OffsetFetchRequest) wire.Answer {
	img, groups := h.deps.Metadata.Image(), req.Groups
	if req.Version < manyOffsetFetchVersion {
		groups = []kmsg.OffsetFetchRequestGroup{oneGroup(req)}
	}
	begun := make([]fetchedGroup, len(groups))
	whole := make(map[string]*fetchedGroup) // by group, who asks for all of it
	g := gather[model.FetchedOffsets](len(groups))
	for i := range groups {
		if groups[i].Topics == nil {
			if begun[i].same = whole[groups[i].Group]; begun[i].same != nil {
				continue
			}
			whole[groups[i].Group] = &begun[i]
		}
		if q, ask := h.beginFetchGroup(ctx, from, req.Version, img, &groups[i], &begun[i]); ask {
			g.ask(i, func(done func(model.FetchedOffsets)) { h.deps.Groups.FetchOffsets(ctx, q, done) })
		}
	}
	return g.seal("a fetch of offsets", func(ctx context.Context, answers []model.FetchedOffsets) kmsg.Response {
		for i := range begun {
			if begun[i].same != nil {
				begun[i].out = begun[i].same.out
				continue
			}
			h.endFetchGroup(ctx, from, req.Version, &begun[i], answers[i])
		}
		resp := kmsg.NewPtrOffsetFetchResponse()
		if req.Version >= manyOffsetFetchVersion {
			resp.Groups = make([]kmsg.OffsetFetchResponseGroup, len(begun))
			for i := range begun {
				resp.Groups[i] = begun[i].out
			}
			return resp
		}
		answerOneGroup(req, resp, begun[0].out)
		return resp
	})
}

// oneGroup is the group that an old version asks for.
func oneGroup(req *kmsg.OffsetFetchRequest) kmsg.OffsetFetchRequestGroup {
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = req.Group
	if req.Topics != nil || req.Version < allOffsetFetchVersion {
		g.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, len(req.Topics))
	}
	for i, t := range req.Topics {
		g.Topics[i].Topic, g.Topics[i].Partitions = t.Topic, t.Partitions
	}
	return g
}

// answerOneGroup answers an old version. Version 1 has no error for the group: each
// partition has it.
func answerOneGroup(req *kmsg.OffsetFetchRequest, resp *kmsg.OffsetFetchResponse, g kmsg.OffsetFetchResponseGroup) {
	if resp.ErrorCode = g.ErrorCode; g.ErrorCode != wire.CodeNone && req.Version < allOffsetFetchVersion {
		for _, t := range req.Topics {
			g.Topics = append(g.Topics, noOffsets(t.Topic, model.TopicID{}, t.Partitions, g.ErrorCode))
		}
	}
	resp.Topics = make([]kmsg.OffsetFetchResponseTopic, len(g.Topics))
	for i, t := range g.Topics {
		out := &resp.Topics[i]
		out.Topic, out.Partitions = t.Topic, make([]kmsg.OffsetFetchResponseTopicPartition, len(t.Partitions))
		for j, p := range t.Partitions {
			out.Partitions[j] = kmsg.OffsetFetchResponseTopicPartition{
				Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, ErrorCode: p.ErrorCode}
		}
	}
}

// beginFetchGroup makes the question about one group, and the answer's shape with what
// is known without asking.
func (h *Handler) beginFetchGroup(ctx context.Context, from caller, version int16, img *image.Image, in *kmsg.OffsetFetchRequestGroup, b *fetchedGroup) (model.FetchOffsets, bool) {
	b.out.Group, b.all = in.Group, in.Topics == nil
	q := model.FetchOffsets{Group: in.Group, MemberID: text(in.MemberID), Epoch: in.MemberEpoch, All: b.all}
	if !h.mayGroup(ctx, from, security.OpDescribe, in.Group) {
		b.err = model.ErrGroupAuthorization
		return q, false
	}
	if b.all {
		return q, true
	}
	n := 0
	for i := range in.Topics {
		n += len(in.Topics[i].Partitions)
	}
	q.Partitions = make([]model.TopicPartition, 0, n)
	b.out.Topics = make([]kmsg.OffsetFetchResponseGroupTopic, len(in.Topics))
	for i := range in.Topics {
		t := &in.Topics[i]
		name, err := t.Topic, error(nil)
		if version >= idOffsetFetchVersion {
			var known *image.Topic
			if known, err = h.offsetsTopic(ctx, from, security.OpDescribe, img, "", t.TopicID, true); err == nil {
				name = known.Name
			}
		} else if !h.mayTopic(ctx, from, security.OpDescribe, name) {
			err = model.ErrTopicAuthorization
		}
		b.out.Topics[i] = noOffsets(name, t.TopicID, t.Partitions, h.code(err))
		for _, p := range t.Partitions {
			if err == nil {
				q.Partitions = append(q.Partitions, model.TopicPartition{Topic: name, Partition: p})
			}
		}
	}
	// A group is asked even about nothing: its error counts.
	return q, true
}

// noOffsets says of partitions that nothing is committed.
func noOffsets(name string, id model.TopicID, partitions []int32, code wire.Code) kmsg.OffsetFetchResponseGroupTopic {
	out := kmsg.OffsetFetchResponseGroupTopic{Topic: name, TopicID: id, Partitions: make([]kmsg.OffsetFetchResponseGroupTopicPartition, len(partitions))}
	nothing := new(string)
	for i, p := range partitions {
		out.Partitions[i] = kmsg.OffsetFetchResponseGroupTopicPartition{Partition: p, Offset: -1, LeaderEpoch: -1, Metadata: nothing, ErrorCode: code}
	}
	return out
}

func (h *Handler) endFetchGroup(ctx context.Context, from caller, version int16, b *fetchedGroup, a model.FetchedOffsets) {
	err := b.err
	if err == nil {
		err = fetchErr(a.Err)
	}
	switch {
	case err != nil:
		b.out.ErrorCode, b.out.Topics = h.code(err), nil
	case b.all:
		b.out.Topics = h.allOffsets(ctx, from, version, a.Offsets)
	default:
		fillOffsets(version, b.out.Topics, a.Offsets)
	}
}

// fetchErr is groupErr but for COORDINATOR_NOT_AVAILABLE, which old consumers do not
// expect here: NOT_COORDINATOR sends them looking as well.
func fetchErr(err error) error {
	if err = groupErr(err); errors.Is(err, model.ErrCoordinatorNotAvailable) {
		return model.ErrNotCoordinator
	}
	return err
}

// fillOffsets fills in what was asked for, which is all that has no error, in order.
// Who asks by ID is not told of offsets of an earlier topic of that name.
func fillOffsets(version int16, topics []kmsg.OffsetFetchResponseGroupTopic, offsets []model.GroupOffset) {
	for i := range topics {
		t := &topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if p.ErrorCode != wire.CodeNone {
				continue
			}
			o := &offsets[0]
			offsets = offsets[1:]
			earlier := version >= idOffsetFetchVersion && o.TopicID != (model.TopicID{}) && o.TopicID != t.TopicID
			if o.Offset != -1 && !earlier {
				setOffset(p, o)
			}
		}
	}
}

func setOffset(p *kmsg.OffsetFetchResponseGroupTopicPartition, o *model.GroupOffset) {
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = o.Partition, o.Offset, o.LeaderEpoch, &o.Metadata
}

// allOffsets are all of a group that the client may see.
func (h *Handler) allOffsets(ctx context.Context, from caller, version int16, offsets []model.GroupOffset) []kmsg.OffsetFetchResponseGroupTopic {
	img := h.deps.Metadata.Image()
	var out []kmsg.OffsetFetchResponseGroupTopic
	for len(offsets) > 0 {
		name, n := offsets[0].Topic, 1
		for n < len(offsets) && offsets[n].Topic == name {
			n++
		}
		of := offsets[:n]
		offsets = offsets[n:]
		t, known := img.TopicByName(name)
		if !h.mayTopic(ctx, from, security.OpDescribe, name) || version >= idOffsetFetchVersion && !known {
			continue
		}
		topic := kmsg.OffsetFetchResponseGroupTopic{Topic: name, Partitions: make([]kmsg.OffsetFetchResponseGroupTopicPartition, n)}
		if known {
			topic.TopicID = t.ID
		}
		for i := range of {
			setOffset(&topic.Partitions[i], &of[i])
		}
		out = append(out, topic)
	}
	return out
}
