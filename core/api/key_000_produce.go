package api

// Produce (0), versions 3 to 13. Versions 0 to 2 are advertised and refused, see
// core/wire.
//
// Left out: transactions (UNSUPPORTED_VERSION).

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/image/topicconfig"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// zstdProduceVersion is the first Produce that may carry zstd. (KIP-110)
	zstdProduceVersion = 7
	// leaderProduceVersion is the first that is told who leads. (KIP-951)
	leaderProduceVersion = 10
	// startProduceVersion is the first that is told where the log starts. (KIP-107)
	startProduceVersion = 5
	// idProduceVersion is the first that names topics by ID. (KIP-516)
	idProduceVersion = 13
	// adminClientID may write to internal topics, as in Kafka.
	adminClientID = "__admin_client"
	// produceTimeoutMax bounds what a client may ask acks=all to wait.
	produceTimeoutMax = 10 * time.Minute
)

// produced is the outcome for one partition of a request.
type produced struct {
	partition int32
	topic     string
	records   int32
	bytes     int
	// invalid is the partition whose batch did not pass the checks, or nil.
	invalid *model.Partition
	model.Appended
}

// produceTopic is the part of a request, and of its answer, about one topic.
type produceTopic struct {
	name       string
	id         model.TopicID
	topic      *image.Topic // nil where it is not known
	partitions []produced
}

// produce is one request while its appends run.
type produce struct {
	img     *image.Image
	acks    model.Acks
	topics  []produceTopic
	pending atomic.Int64  // appends not answered yet, and one while they are queued
	done    chan struct{} // closed when pending is 0
}

// finish takes n from what is pending.
func (p *produce) finish(n int64) {
	if p.pending.Add(-n) == 0 {
		close(p.done)
	}
}

// beginProduce checks the request and queues its appends, all in the order in
// which the connection brought them. The answer waits for them.
func (h *Handler) beginProduce(ctx context.Context, from caller, req *kmsg.ProduceRequest) wire.Answer {
	p := &produce{img: h.deps.Metadata.Image(), acks: model.Acks(req.Acks), done: make(chan struct{})}
	p.pending.Store(1)
	p.topics = make([]produceTopic, len(req.Topics))
	refused := h.refusesProduce(ctx, from, req)
	twice := namedTwice(req, p.img)
	for i := range req.Topics {
		h.beginProduceTopic(ctx, from, req, p, i, refused, twice)
	}
	p.finish(1)
	return func(ctx context.Context) wire.Reply {
		select {
		case <-p.done:
		case <-ctx.Done():
			return wire.Reply{Close: true, Reason: fmt.Sprintf("produce was given up: %v", context.Cause(ctx))}
		}
		h.addLogStarts(ctx, from, p)
		return h.finishProduce(from, p)
	}
}

// refusesProduce says why a whole request is refused, or nil.
func (h *Handler) refusesProduce(ctx context.Context, from caller, req *kmsg.ProduceRequest) error {
	if id := req.TransactionID; id != nil {
		if !h.may(ctx, from, security.OpWrite, security.TransactionalID, *id) {
			return model.ErrTransactionalIDAuth
		}
		return errTransactions
	}
	switch model.Acks(req.Acks) {
	case model.AcksAll, model.AcksNone, model.AcksLeader:
		return nil
	}
	return fmt.Errorf("%w: %d is none of -1, 0 and 1", model.ErrInvalidRequiredAcks, req.Acks)
}

// errTransactions is what transactional requests get until transactions are
// served: clients take it as final and say so.
var errTransactions = fmt.Errorf("%w: transactions are not served yet", model.ErrUnsupportedVersion)

func (h *Handler) beginProduceTopic(ctx context.Context, from caller, req *kmsg.ProduceRequest, p *produce, i int, refused error, twice map[model.Partition]bool) {
	in, out := &req.Topics[i], &p.topics[i]
	out.name, out.id = in.Topic, in.TopicID
	out.partitions = make([]produced, len(in.Partitions))
	topic, err := refusedTopic(refused)
	if err == nil {
		topic, err = h.produceTo(ctx, from, req.Version, p.img, in)
	}
	out.topic = topic
	if topic != nil {
		out.name = topic.Name
	}
	var cfg topicconfig.Config
	if err == nil {
		cfg = h.configs.of(p.img, topic)
	}
	for j := range in.Partitions {
		part, slot := &in.Partitions[j], &out.partitions[j]
		slot.partition, slot.topic = part.Partition, out.name
		slot.Appended = model.Appended{BaseOffset: -1, LogAppendTime: -1, LogStart: -1, Err: err}
		if err != nil {
			continue
		}
		id := model.Partition{Topic: topic.ID, Index: part.Partition}
		if slot.Err = producible(topic, id, twice); slot.Err != nil {
			continue
		}
		data, checked, err := h.check(part.Records, cfg, req.Version)
		if slot.Err = err; err != nil {
			slot.invalid = &id
			continue
		}
		slot.records, slot.bytes = checked.Info.Records, len(data)
		p.pending.Add(1)
		h.deps.Partitions.Append(ctx, model.Append{
			Partition: id, Batch: checked.Info, Data: data, Acks: p.acks,
			Timeout: produceTimeout(req.TimeoutMillis), LogAppendTime: checked.LogAppendTime,
		}, func(a model.Appended) {
			slot.Appended = a
			p.finish(1)
		})
	}
}

func refusedTopic(refused error) (*image.Topic, error) { return nil, refused }

// produceTo finds the topic and says whether the client may write to it. Names
// are authorized before they are looked up, so that a refusal tells nothing.
func (h *Handler) produceTo(ctx context.Context, from caller, version int16, img *image.Image, in *kmsg.ProduceRequestTopic) (*image.Topic, error) {
	var t *image.Topic
	var ok bool
	if version >= idProduceVersion {
		if t, ok = img.Topic(in.TopicID); !ok {
			return nil, model.ErrUnknownTopicID
		}
		if !h.mayTopic(ctx, from, security.OpWrite, t.Name) {
			return nil, model.ErrTopicAuthorization
		}
	} else {
		if !h.mayTopic(ctx, from, security.OpWrite, in.Topic) {
			return nil, model.ErrTopicAuthorization
		}
		if t, ok = img.TopicByName(in.Topic); !ok {
			return nil, model.ErrUnknownTopicOrPartition
		}
	}
	if internal(t) && from.ClientID != adminClientID {
		return t, fmt.Errorf("%w: %s is internal", model.ErrInvalidTopic, t.Name)
	}
	return t, nil
}

func producible(t *image.Topic, id model.Partition, twice map[model.Partition]bool) error {
	if _, ok := partition(t, id.Index); !ok {
		return model.ErrUnknownTopicOrPartition
	}
	if twice[id] {
		return fmt.Errorf("%w: partition %d of %s is named twice", model.ErrInvalidRequest, id.Index, t.Name)
	}
	return nil
}

// namedTwice are the partitions that a request names more than once. None of
// their batches is appended: one answer could not tell which of them was.
func namedTwice(req *kmsg.ProduceRequest, img *image.Image) map[model.Partition]bool {
	if len(req.Topics) == 1 && len(req.Topics[0].Partitions) == 1 {
		return nil // the most frequent request
	}
	seen := make(map[model.Partition]bool)
	for i := range req.Topics {
		in := &req.Topics[i]
		id := model.TopicID(in.TopicID)
		if req.Version < idProduceVersion {
			t, ok := img.TopicByName(in.Topic)
			if !ok {
				continue
			}
			id = t.ID
		}
		for _, part := range in.Partitions {
			p := model.Partition{Topic: id, Index: part.Partition}
			_, again := seen[p]
			seen[p] = again
		}
	}
	return seen
}

// check validates a batch for a topic with these settings, and returns it in the
// topic's codec.
func (h *Handler) check(data []byte, cfg topicconfig.Config, version int16) ([]byte, batch.Checked, error) {
	info, err := recordbatch.Parse(data)
	if err == nil && info.Attributes&recordbatch.AttrTransactional != 0 {
		return nil, batch.Checked{}, errTransactions
	}
	policy := h.policy(cfg, version)
	checked, err := batch.Check(data, policy)
	if err != nil {
		return nil, batch.Checked{}, err
	}
	if codec, own := batch.CodecNamed(cfg.CompressionType); own {
		return batch.Recompress(data, checked, codec, policy)
	}
	return data, checked, nil
}

func (h *Handler) policy(cfg topicconfig.Config, version int16) batch.Policy {
	return batch.Policy{
		MaxBytes:             int(cfg.MaxMessageBytes),
		SegmentBytes:         cfg.SegmentBytes,
		LogAppendTime:        cfg.TimestampType == topicconfig.LogAppendTime,
		TimestampBeforeMax:   literalMillis(cfg.TimestampBeforeMax),
		TimestampAfterMax:    literalMillis(cfg.TimestampAfterMax),
		Compacted:            cfg.CleanupPolicy.Compact,
		ZstdAllowed:          version >= zstdProduceVersion,
		MaxDecompressedBytes: h.cfg.DecompressedBytesMax,
		Now:                  h.now().UnixMilli(),
	}
}

// literalMillis keeps the longest duration the longest.
func literalMillis(d time.Duration) int64 {
	if d == math.MaxInt64 {
		return math.MaxInt64
	}
	return d.Milliseconds()
}

func produceTimeout(ms int32) time.Duration {
	return min(max(time.Duration(ms)*time.Millisecond, 0), produceTimeoutMax)
}

// addLogStarts asks where the logs start whose batches did not pass the checks,
// as Kafka tells it: not of batches that are too large or whose CRC is wrong.
func (h *Handler) addLogStarts(ctx context.Context, from caller, p *produce) {
	if from.Version < startProduceVersion || p.acks == model.AcksNone {
		return
	}
	var asked []model.OffsetQuery
	var slots []*produced
	for i := range p.topics {
		for j := range p.topics[i].partitions {
			slot := &p.topics[i].partitions[j]
			if slot.invalid == nil || errors.Is(slot.Err, model.ErrMessageTooLarge) ||
				errors.Is(slot.Err, model.ErrRecordListTooLarge) || errors.Is(slot.Err, model.ErrCorruptMessage) {
				continue
			}
			asked = append(asked, model.OffsetQuery{Partition: *slot.invalid, Timestamp: model.TimestampEarliest, CurrentEpoch: model.NoEpoch})
			slots = append(slots, slot)
		}
	}
	if len(asked) == 0 {
		return
	}
	for i, answer := range h.deps.Partitions.Offsets(ctx, asked) {
		if answer.Err == nil {
			slots[i].LogStart = answer.Offset
		}
	}
}

// finishProduce makes the answer when every append has been answered. With
// acks=0 there is none; an error ends the connection, so that the client asks
// for metadata again.
func (h *Handler) finishProduce(from caller, p *produce) wire.Reply {
	resp := kmsg.NewPtrProduceResponse()
	var failed error
	leaders := newLeaders(p.img, from.Listener)
	for i := range p.topics {
		t := &p.topics[i]
		out := kmsg.NewProduceResponseTopic()
		out.Topic, out.TopicID = t.name, t.id
		out.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(t.partitions))
		for j := range t.partitions {
			slot := &t.partitions[j]
			if slot.Err == nil {
				h.deps.Events.Produced(slot.topic, int(slot.records), slot.bytes)
			} else if failed == nil {
				failed = fmt.Errorf("%s-%d: %w", slot.topic, slot.partition, slot.Err)
			}
			out.Partitions[j] = h.producedPartition(from.Version, slot, t.topic, leaders)
		}
		resp.Topics = append(resp.Topics, out)
	}
	if p.acks == model.AcksNone {
		if failed != nil {
			return wire.Reply{Close: true, Reason: "produce without acks failed: " + failed.Error()}
		}
		return wire.Reply{}
	}
	for _, n := range leaders.named {
		b := kmsg.NewProduceResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = int32(n.id), n.host, n.port, n.rack
		resp.Brokers = append(resp.Brokers, b)
	}
	return wire.Reply{Response: resp}
}

func (h *Handler) producedPartition(version int16, slot *produced, t *image.Topic, leaders *leaders) kmsg.ProduceResponseTopicPartition {
	out := kmsg.NewProduceResponseTopicPartition()
	out.Partition = slot.partition
	out.BaseOffset, out.LogAppendTime, out.LogStartOffset = slot.BaseOffset, slot.LogAppendTime, slot.LogStart
	if slot.Err == nil {
		return out
	}
	out.ErrorCode = h.dataCode(slot.Err)
	out.ErrorMessage = h.message(slot.Err)
	var records *batch.RecordsError
	if errors.As(slot.Err, &records) {
		for _, r := range records.Records {
			e := kmsg.NewProduceResponseTopicPartitionErrorRecord()
			e.RelativeOffset, e.ErrorMessage = r.Index, &r.Message
			out.ErrorRecords = append(out.ErrorRecords, e)
		}
	}
	if version >= leaderProduceVersion && errors.Is(slot.Err, model.ErrNotLeaderOrFollower) {
		leader, epoch := leaders.of(t, slot.partition)
		out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = int32(leader), epoch
	}
	return out
}
