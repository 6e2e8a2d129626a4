package rpc

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// Patience is how long one answer, and a topic that is being made, are waited for.
	Patience = 3 * time.Minute
	soon     = 2 * time.Millisecond
)

// Topic is one topic that all partitions of are served.
type Topic struct {
	Name       string
	ID         [16]byte
	Partitions int
	// Leaders are the addresses of each partition's, as they were when it was made; none:
	// one broker leads all.
	Leaders []string
}

// Leader is who leads a partition; otherwise is the address of the one broker.
func (t Topic) Leader(partition int, otherwise string) string {
	if len(t.Leaders) == 0 {
		return otherwise
	}
	return t.Leaders[partition]
}

func (t Topic) all() []int32 {
	all := make([]int32, t.Partitions)
	for p := range all {
		all[p] = int32(p)
	}
	return all
}

// CreateTopic makes a topic of one replica, with settings as name and value in turn, and
// waits until all its partitions are served.
func (c *Conn) CreateTopic(ctx context.Context, name string, partitions int, settings ...string) (Topic, error) {
	t, err := c.create(ctx, name, partitions, 1, settings)
	if err != nil {
		return t, err
	}
	return t, c.Retry(ctx, func() error {
		_, err := c.EndOffsets(t)
		return err
	})
}

// create makes a topic, and waits for nothing more.
func (c *Conn) create(ctx context.Context, name string, partitions, replicas int, settings []string) (Topic, error) {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 7, int32(Patience.Milliseconds())
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, int32(partitions), int16(replicas)
	for i := 0; i+1 < len(settings); i += 2 {
		rt.Configs = append(rt.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: settings[i], Value: &settings[i+1]})
	}
	req.Topics = append(req.Topics, rt)
	t := Topic{Name: name, Partitions: partitions}
	return t, c.Retry(ctx, func() error {
		resp, err := Ask[*kmsg.CreateTopicsResponse](c, req, Patience)
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
			return fmt.Errorf("create topic %s: %w", name, err)
		}
		t.ID = resp.Topics[0].TopicID
		return nil
	})
}

// DeleteTopic deletes it. What its files take may be given back later.
func (c *Conn) DeleteTopic(t Topic) error {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TimeoutMillis = 6, int32(Patience.Milliseconds())
	rt := kmsg.NewDeleteTopicsRequestTopic()
	rt.TopicID = t.ID
	req.Topics = append(req.Topics, rt)
	resp, err := Ask[*kmsg.DeleteTopicsResponse](c, req, Patience)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
		return fmt.Errorf("delete topic %s: %w", t.Name, err)
	}
	return nil
}

// EndOffsets says where each partition ends.
func (c *Conn) EndOffsets(t Topic) ([]int64, error) {
	ends := make([]int64, t.Partitions)
	return ends, c.endOffsets(t, t.all(), ends)
}

func (c *Conn) endOffsets(t Topic, partitions []int32, ends []int64) error {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = 7, -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = t.Name
	for _, p := range partitions {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = p, -1, -1
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := Ask[*kmsg.ListOffsetsResponse](c, req, Patience)
	if err != nil {
		return err
	}
	for _, rp := range resp.Topics[0].Partitions {
		if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
			return fmt.Errorf("end of %s-%d: %w", t.Name, rp.Partition, err)
		}
		ends[rp.Partition] = rp.Offset
	}
	return nil
}

// Retry repeats what fails with an error that passes by itself.
func (c *Conn) Retry(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for {
		err := do()
		if err == nil || !kerr.IsRetriable(err) {
			return err
		}
		if !Pause(ctx, soon) {
			return fmt.Errorf("given up: %w", err)
		}
	}
}

// Pause waits, and reports whether ctx goes on.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ProduceAll has the batch acknowledged in every partition, however long it takes until
// they are served.
func (c *Conn) ProduceAll(ctx context.Context, t Topic, batch []byte) error {
	return c.produce(ctx, t, t.all(), batch)
}

// produce has the batch acknowledged in some partitions.
func (c *Conn) produce(ctx context.Context, t Topic, left []int32, batch []byte) error {
	return c.Retry(ctx, func() error {
		req := kmsg.NewPtrProduceRequest()
		req.Version, req.Acks, req.TimeoutMillis = 13, -1, int32(Patience.Milliseconds())
		rt := kmsg.NewProduceRequestTopic()
		rt.Topic, rt.TopicID = t.Name, t.ID
		for _, p := range left {
			rp := kmsg.NewProduceRequestTopicPartition()
			rp.Partition, rp.Records = p, batch
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
		resp, err := Ask[*kmsg.ProduceResponse](c, req, Patience)
		if err != nil {
			return err
		}
		left = left[:0]
		var failed error
		for _, rt := range resp.Topics {
			for _, rp := range rt.Partitions {
				if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
					left, failed = append(left, rp.Partition), err
				}
			}
		}
		return failed
	})
}
