package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// The tags by which brokerd is asked for, and tells of a topic and of a partition, what
	// Kafka's protocol has no field for.
	tagTellMore = 10000
	tagTarget   = 10000
	tagMinISR   = 10000
	tagLoss     = 10001
	tagMissing  = 10002

	// lossShown is how long a loss is shown of the whole cluster: who could still have missed
	// the records, consumers of the default retention, has come by.
	lossShown = 7 * 24 * time.Hour
	// lossLines bounds the lines about losses that are shown to people, and lossPartitions the
	// partitions of one.
	lossLines      = 20
	lossPartitions = 10
	// pageMax is how many partitions are asked for at a time.
	pageMax = 2000
)

// lossView is an election after which acknowledged records may be missing.
type lossView struct {
	Topic       string `json:"topic"`
	Partition   int32  `json:"partition"`
	LeaderEpoch int32  `json:"leader_epoch"`
	// From is the offset from which on records may be missing; null: not known.
	From    *int64    `json:"from_offset"`
	Unclean bool      `json:"unclean"`
	At      time.Time `json:"at"`
}

// String is a sentence for people.
func (l *lossView) String() string {
	from := "records"
	if l.From != nil {
		from = fmt.Sprintf("records from offset %d on", *l.From)
	}
	return fmt.Sprintf("%s-%d: acknowledged %s may be missing since %s (%s, leader epoch %d)", l.Topic, l.Partition, from, l.At.Format(time.RFC3339), l.why(), l.LeaderEpoch)
}

func (l *lossView) why() string {
	if l.Unclean {
		return "an unclean election"
	}
	return "all that were in sync may have lost something, as by a loss of power: the longest log leads"
}

// askTopics asks for all topics, or those that are named, with what brokerd tells of their
// partitions.
func askTopics(ctx context.Context, client *kgo.Client, names ...string) ([]kmsg.DescribeTopicPartitionsResponseTopic, error) {
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit = pageMax
	req.UnknownTags.Set(tagTellMore, nil)
	for _, name := range names {
		t := kmsg.NewDescribeTopicPartitionsRequestTopic()
		t.Topic = name
		req.Topics = append(req.Topics, t)
	}
	var all []kmsg.DescribeTopicPartitionsResponseTopic
	for {
		resp, err := req.RequestWith(ctx, client)
		if err != nil {
			return nil, err
		}
		for _, t := range resp.Topics {
			if n := len(all); n > 0 && t.Topic != nil && all[n-1].Topic != nil && *all[n-1].Topic == *t.Topic {
				all[n-1].Partitions = append(all[n-1].Partitions, t.Partitions...)
				continue
			}
			all = append(all, t)
		}
		next := resp.NextCursor
		if next == nil {
			return all, nil
		}
		at := kmsg.NewDescribeTopicPartitionsRequestCursor()
		at.Topic, at.Partition = next.Topic, next.Partition
		req.Cursor = &at
	}
}

// partitionOf is what an answer says of a partition.
func partitionOf(topic string, p *kmsg.DescribeTopicPartitionsResponseTopicPartition) partitionView {
	v := partitionView{topic: topic, index: p.Partition, leader: p.LeaderID, replicas: p.Replicas, isr: p.ISR, minISR: 1}
	p.UnknownTags.Each(func(tag uint32, b []byte) {
		switch {
		case tag == tagMinISR && len(b) == 4:
			v.minISR = int(int32(binary.BigEndian.Uint32(b)))
		case tag == tagMissing && len(b) == 4:
			v.missing = int(int32(binary.BigEndian.Uint32(b)))
		case tag == tagLoss && len(b) == 21:
			l := &lossView{
				Topic: topic, Partition: p.Partition, LeaderEpoch: int32(binary.BigEndian.Uint32(b)),
				At: time.UnixMilli(int64(binary.BigEndian.Uint64(b[12:]))).UTC(), Unclean: b[20] == 1,
			}
			if from := int64(binary.BigEndian.Uint64(b[4:])); from >= 0 {
				l.From = &from
			}
			v.loss = l
		}
	})
	return v
}

func (v *clusterView) askPartitions(ctx context.Context, client *kgo.Client) error {
	topics, err := askTopics(ctx, client)
	if err != nil {
		return err
	}
	for _, t := range topics {
		if t.Topic == nil || kerr.ErrorForCode(t.ErrorCode) != nil {
			continue
		}
		for i := range t.Partitions {
			v.partitions = append(v.partitions, partitionOf(*t.Topic, &t.Partitions[i]))
		}
	}
	v.sortPartitions()
	return v.askMoves(ctx, client)
}

func (v *clusterView) sortPartitions() {
	slices.SortFunc(v.partitions, func(a, b partitionView) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.index, b.index))
	})
}

// askMoves asks which partitions are being reassigned. They are sorted.
func (v *clusterView) askMoves(ctx context.Context, client *kgo.Client) error {
	moving, err := kmsg.NewPtrListPartitionReassignmentsRequest().RequestWith(ctx, client)
	if err == nil {
		err = kafkaError(moving.ErrorCode, moving.ErrorMessage)
	}
	if err != nil {
		return err
	}
	for _, t := range moving.Topics {
		for _, m := range t.Partitions {
			if p := v.partition(t.Topic, m.Partition); p != nil {
				p.adding, p.removing = m.AddingReplicas, m.RemovingReplicas
			}
		}
	}
	return nil
}

// locate asks the leaders from which offset on records may be missing, where the controller
// was not told: it is where the log ended when the epoch began, which a leader tells as soon
// as something was written in it. What nobody answers stays unknown.
func locate(ctx context.Context, client *kgo.Client, losses []*lossView) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	wanted := map[string]map[int32]*lossView{}
	for _, l := range losses {
		if l.From != nil {
			continue
		}
		if wanted[l.Topic] == nil {
			wanted[l.Topic] = map[int32]*lossView{}
		}
		wanted[l.Topic][l.Partition] = l
	}
	for _, topic := range slices.Sorted(maps.Keys(wanted)) {
		t := kmsg.NewOffsetForLeaderEpochRequestTopic()
		t.Topic = topic
		for _, l := range wanted[topic] {
			p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			p.Partition, p.LeaderEpoch = l.Partition, l.LeaderEpoch-1
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	if len(req.Topics) == 0 {
		return
	}
	for _, shard := range client.RequestSharded(ctx, req) {
		resp, ok := shard.Resp.(*kmsg.OffsetForLeaderEpochResponse)
		if shard.Err != nil || !ok {
			continue
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if l := wanted[t.Topic][p.Partition]; l != nil && p.ErrorCode == 0 && p.EndOffset >= 0 {
					from := p.EndOffset
					l.From = &from
				}
			}
		}
	}
}

// findLosses lists the losses that are not too old to be told of.
func (v *clusterView) findLosses(now time.Time) {
	for i := range v.partitions {
		if l := v.partitions[i].loss; l != nil && now.Sub(l.At) < lossShown {
			v.Losses = append(v.Losses, l)
		}
	}
}

// showLosses shows what may be lost, a line for each topic, internal ones last.
func (c *console) showLosses(v *clusterView) error {
	type kind struct {
		internal bool
		topic    string
		unclean  bool
	}
	by := map[kind][]*lossView{}
	for _, l := range v.Losses {
		k := kind{strings.HasPrefix(l.Topic, "__"), l.Topic, l.Unclean}
		by[k] = append(by[k], l)
	}
	kinds := slices.SortedFunc(maps.Keys(by), func(a, b kind) int {
		return cmp.Or(compareBools(a.internal, b.internal), cmp.Compare(a.topic, b.topic), compareBools(a.unclean, b.unclean))
	})
	for i, k := range kinds {
		if i == lossLines {
			_, err := fmt.Fprintf(c.out, "loss       in %d more topics; -o json has them all\n", len(kinds)-i)
			return err
		}
		if _, err := fmt.Fprintf(c.out, "loss       %s\n", printable(lossText(k.topic, by[k]))); err != nil {
			return err
		}
	}
	return nil
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// lossText is a sentence about partitions of one topic, all of one kind.
func lossText(topic string, losses []*lossView) string {
	since := losses[0].At
	var where []string
	for i, l := range losses {
		if l.At.Before(since) {
			since = l.At
		}
		switch {
		case i == lossPartitions:
			where = append(where, fmt.Sprintf("%d more", len(losses)-i))
		case i > lossPartitions:
		case l.From == nil:
			where = append(where, fmt.Sprintf("%d", l.Partition))
		default:
			where = append(where, fmt.Sprintf("%d from offset %d on", l.Partition, *l.From))
		}
	}
	return fmt.Sprintf("%s: acknowledged records may be missing since %s, of partition %s (%s)", topic, since.Format(time.RFC3339), strings.Join(where, ", "), losses[0].why())
}
