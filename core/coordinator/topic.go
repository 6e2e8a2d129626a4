package coordinator

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"unicode/utf16"

	"github.com/brokerd/brokerd/core/model"
)

// Topic is how the offsets topic is made.
type Topic struct {
	Partitions int32
	// ReplicationTarget is how many replicas are aimed at: with fewer brokers it is
	// made with what there is, unless the controller is strict.
	ReplicationTarget int16
	SegmentBytes      int64
}

// DefaultTopic is Kafka's.
func DefaultTopic() Topic {
	return Topic{Partitions: 50, ReplicationTarget: 3, SegmentBytes: 100 << 20}
}

// New is the command that makes the topic. min.insync.replicas is left to the
// cluster's target, which is lowered by itself where there are too few replicas for
// it.
func (t Topic) New() model.NewTopic {
	return model.NewTopic{
		Name: model.OffsetsTopic, Partitions: t.Partitions, ReplicationFactor: -1, ReplicationTarget: t.ReplicationTarget,
		Configs: t.configs(), Internal: true,
	}
}

func (t Topic) configs() map[string]*string {
	compact, producer, segment := "compact", "producer", strconv.FormatInt(t.SegmentBytes, 10)
	return map[string]*string{"cleanup.policy": &compact, "compression.type": &producer, "segment.bytes": &segment}
}

// Complete is asked for a topic that a client makes: the offsets topic gets what it
// needs where the client says nothing of it, so that one that is made by hand, or by
// asking for its metadata, keeps offsets just as well. Others stay as they are.
func (t Topic) Complete(asked model.NewTopic) model.NewTopic {
	if asked.Name != model.OffsetsTopic {
		return asked
	}
	own := t.New()
	asked.Internal = true
	if asked.Assignment == nil && asked.Partitions == -1 {
		asked.Partitions = own.Partitions
	}
	if asked.ReplicationFactor == -1 {
		asked.ReplicationTarget = own.ReplicationTarget
	}
	for key, value := range asked.Configs {
		own.Configs[key] = value
	}
	asked.Configs = own.Configs
	return asked
}

// PartitionOf is the partition of the offsets topic that holds a group, as every
// client and tool of Kafka's computes it: Java's hash of the group's ID.
func PartitionOf(group string, partitions int) int32 {
	var h int32
	for _, r := range group {
		if utf16.RuneLen(r) > 1 {
			var high rune
			high, r = utf16.EncodeRune(r)
			h = 31*h + high
		}
		h = 31*h + r
	}
	if h < 0 {
		h = -h
	}
	if h < 0 { // -2^31 has no opposite
		h = 0
	}
	return h % int32(partitions)
}

// RandomID is a random UUID, in text.
func RandomID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
