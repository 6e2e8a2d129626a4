package api

// DescribeTopicPartitions (75), version 0. (KIP-966)
//
// Who asks with a tagged field of our own (tag 10000, empty) is told of each topic how many
// replicas its partitions are to have (tag 10000, int32), and of each partition its effective
// min.insync.replicas (tag 10000, int32), and the last election after which acknowledged
// records may be missing, if there was one (tag 10001): its leader epoch (int32), from which
// offset on, or -1 (int64), when, in milliseconds since 1970 (int64), and whether it was
// unclean (a byte of 0 or 1); and of one that is below its target, how many
// replicas it is to get, those that are being added among them (tag 10002, int32).

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describedPartitionsMax bounds the partitions of one answer, as Kafka's
// max.request.partition.size.limit does by default.
const describedPartitionsMax = 2000

// The tags of our own fields: of the request, of a topic, and of a partition.
const (
	tagTellMore uint32 = 10000
	tagTarget   uint32 = 10000
	tagMinISR   uint32 = 10000
	tagLoss     uint32 = 10001
	tagMissing  uint32 = 10002
)

func (h *Handler) describeTopicPartitions(ctx context.Context, from caller, req *kmsg.DescribeTopicPartitionsRequest) *kmsg.DescribeTopicPartitionsResponse {
	img := h.deps.Metadata.Image()
	resp := kmsg.NewPtrDescribeTopicPartitionsResponse()
	names, all := describedNames(img, req)
	if err := checkCursor(req, names, all); err != nil {
		h.refuseDescription(resp, req, err)
		return resp
	}
	var more func(*image.Topic, *image.Partition, *kmsg.Tags)
	req.UnknownTags.Each(func(tag uint32, _ []byte) {
		if tag == tagTellMore {
			more = h.moreOf(img)
		}
	})
	left := max(1, min(int(req.ResponsePartitionLimit), describedPartitionsMax))
	for _, name := range names {
		first := 0
		if c := req.Cursor; c != nil {
			if name < c.Topic {
				continue
			}
			if name == c.Topic {
				first = int(c.Partition)
			}
		}
		if !h.mayTopic(ctx, from, security.OpDescribe, name) {
			if !all {
				resp.Topics = append(resp.Topics, h.notDescribed(name, model.ErrTopicAuthorization))
			}
			continue
		}
		t, ok := img.TopicByName(name)
		if !ok {
			resp.Topics = append(resp.Topics, h.notDescribed(name, unknownTopic(name)))
			continue
		}
		if left == 0 {
			resp.NextCursor = cursorAt(name, 0)
			break
		}
		last := min(len(t.Partitions), first+left)
		resp.Topics = append(resp.Topics, h.describedTopic(ctx, from, img, t, first, last, more))
		left -= max(0, last-first)
		if last < len(t.Partitions) {
			resp.NextCursor = cursorAt(name, last)
			break
		}
	}
	return resp
}

func cursorAt(topic string, partition int) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	c.Topic, c.Partition = topic, int32(partition)
	return &c
}

// describedNames are the topics asked for, sorted and once each; all says that
// none was named, which asks for every topic.
func describedNames(img *image.Image, req *kmsg.DescribeTopicPartitionsRequest) (names []string, all bool) {
	if len(req.Topics) == 0 {
		for t := range img.Topics() {
			names = append(names, t.Name)
		}
		return names, true
	}
	for _, t := range req.Topics {
		names = append(names, t.Topic)
	}
	slices.Sort(names)
	return slices.Compact(names), false
}

func checkCursor(req *kmsg.DescribeTopicPartitionsRequest, names []string, all bool) error {
	c := req.Cursor
	switch {
	case c == nil:
		return nil
	case c.Partition < 0:
		return fmt.Errorf("%w: the cursor's partition is negative", model.ErrInvalidRequest)
	case !all && !slices.Contains(names, c.Topic):
		return fmt.Errorf("%w: the cursor's topic is not among those asked for", model.ErrInvalidRequest)
	}
	return nil
}

// refuseDescription puts an error on every topic, since the answer's head has
// none.
func (h *Handler) refuseDescription(resp *kmsg.DescribeTopicPartitionsResponse, req *kmsg.DescribeTopicPartitionsRequest, err error) {
	for _, t := range req.Topics {
		resp.Topics = append(resp.Topics, h.notDescribed(t.Topic, err))
	}
	if len(req.Topics) == 0 {
		resp.Topics = append(resp.Topics, h.notDescribed(req.Cursor.Topic, err))
	}
}

func unknownTopic(name string) error {
	if !topicName(name) {
		return model.ErrInvalidTopic
	}
	return model.ErrUnknownTopicOrPartition
}

func (h *Handler) notDescribed(name string, err error) kmsg.DescribeTopicPartitionsResponseTopic {
	out := kmsg.NewDescribeTopicPartitionsResponseTopic()
	out.Topic, out.ErrorCode = &name, h.code(err)
	return out
}

func (h *Handler) describedTopic(ctx context.Context, from caller, img *image.Image, t *image.Topic, first, last int, more func(*image.Topic, *image.Partition, *kmsg.Tags)) kmsg.DescribeTopicPartitionsResponseTopic {
	out := kmsg.NewDescribeTopicPartitionsResponseTopic()
	out.Topic, out.TopicID, out.IsInternal = &t.Name, t.ID, internal(t)
	out.AuthorizedOperations = h.topicOperations(ctx, from, t.Name)
	for i := first; i < last; i++ {
		p := t.Partitions[i]
		s := stateOf(img, p, from.Listener)
		part := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		part.Partition, part.ErrorCode = int32(i), h.code(s.err)
		part.LeaderID, part.LeaderEpoch = int32(s.leader), p.LeaderEpoch
		part.Replicas, part.ISR, part.OfflineReplicas = numbers(p.Replicas), numbers(p.ISR), numbers(s.offline)
		part.EligibleLeaderReplicas, part.LastKnownELR = numbers(p.ELR), numbers(p.LastKnownELR)
		if more != nil {
			more(t, &p, &part.UnknownTags)
		}
		out.Partitions = append(out.Partitions, part)
	}
	if more != nil {
		out.UnknownTags.Set(tagTarget, binary.BigEndian.AppendUint32(nil, uint32(t.ReplicationFactorTarget)))
	}
	return out
}

// moreOf tells of partitions what Kafka's protocol has no field for.
func (h *Handler) moreOf(img *image.Image) func(*image.Topic, *image.Partition, *kmsg.Tags) {
	minISR := img.MinISR(h.configs.static)
	return func(t *image.Topic, p *image.Partition, tags *kmsg.Tags) {
		tags.Set(tagMinISR, binary.BigEndian.AppendUint32(nil, uint32(minISR(t, p))))
		if t.BelowTarget(p) {
			tags.Set(tagMissing, binary.BigEndian.AppendUint32(nil, uint32(t.TargetOf(p)-p.Counted())))
		}
		l := p.Loss
		if l == nil {
			return
		}
		b := binary.BigEndian.AppendUint32(nil, uint32(l.Epoch))
		b = binary.BigEndian.AppendUint64(b, uint64(l.From))
		b = binary.BigEndian.AppendUint64(b, uint64(l.At))
		unclean := byte(0)
		if l.Unclean {
			unclean = 1
		}
		tags.Set(tagLoss, append(b, unclean))
	}
}
