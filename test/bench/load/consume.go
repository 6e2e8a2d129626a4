package load

import (
	"context"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/test/bench/rpc"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What consumers ask for by default, in franz-go and in Kafka's own.
const (
	fetchVersion        = 17
	fetchBytesMax       = 50 << 20
	fetchPartitionBytes = 1 << 20
	fetchWait           = 500 * time.Millisecond
)

// Consume is a load of consumers that read a topic from its start to its end, and again,
// each with one connection and its share of the partitions of one leader: there are no
// fewer of them than leaders.
type Consume struct {
	Addr      string
	Topic     rpc.Topic
	Ends      []int64 // of each partition: it is read up to there
	Consumers int
	For       time.Duration // at least; what was begun is read to its end
	Ready     func() error  // as in Produce
}

// Run connects all, lets them go at once, and waits until each has read its partitions
// to the end once or more often.
func (l Consume) Run(ctx context.Context) (Result, error) {
	shares := l.shares()
	conns := make([]*rpc.Conn, len(shares))
	for i := range conns {
		c, err := rpc.Dial(ctx, l.Topic.Leader(shares[i][0], l.Addr))
		if err != nil {
			return Result{}, err
		}
		defer c.Close()
		conns[i] = c
	}
	return together(ctx, conns, l.Ready, func(c *rpc.Conn) { c.Close() },
		func(_ context.Context, i int, c *rpc.Conn, begun time.Time) (r Result, err error) {
			for {
				if err := l.once(c, shares[i], &r); err != nil || time.Since(begun) >= l.For {
					return r, err
				}
			}
		})
}

// shares divides the partitions among the consumers, of which each has one at least, all
// of one leader.
func (l Consume) shares() [][]int {
	var led [][]int
	at := make(map[string]int)
	for p := range l.Topic.Partitions {
		leader := l.Topic.Leader(p, l.Addr)
		if _, ok := at[leader]; !ok {
			at[leader] = len(led)
			led = append(led, nil)
		}
		led[at[leader]] = append(led[at[leader]], p)
	}
	var shares [][]int
	for i, all := range led {
		n := min(len(all), max(1, (l.Consumers+len(led)-1-i)/len(led)))
		of := make([][]int, n)
		for j, p := range all {
			of[j%n] = append(of[j%n], p)
		}
		shares = append(shares, of...)
	}
	return shares
}

// once reads one consumer's partitions from their start to their end.
func (l Consume) once(c *rpc.Conn, share []int, r *Result) error {
	next := make(map[int32]int64)
	for _, p := range share {
		if l.Ends[p] > 0 {
			next[int32(p)] = 0
		}
	}
	for len(next) > 0 {
		resp, err := rpc.Ask[*kmsg.FetchResponse](c, fetchRequest(l.Topic, next), rpc.Patience)
		if err != nil {
			return err
		}
		before := r.Records
		if err := readFetched(resp, next, r); err != nil {
			return err
		}
		if r.Records == before {
			return fmt.Errorf("nothing was served of partitions at %v, which end at %v", next, l.Ends)
		}
		for p, at := range next {
			if at >= l.Ends[p] {
				delete(next, p)
			}
		}
	}
	return nil
}

// fetchRequest asks for partitions from their offsets on, outside of any session.
func fetchRequest(t rpc.Topic, next map[int32]int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = fetchVersion, int32(fetchWait.Milliseconds()), 1, fetchBytesMax
	req.SessionEpoch = -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = t.Name, t.ID
	for p, at := range next {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p, at, fetchPartitionBytes
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

// readFetched counts what was served, and moves the offsets behind it.
func readFetched(resp *kmsg.FetchResponse, next map[int32]int64, r *Result) error {
	r.Requests++
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	for _, rt := range resp.Topics {
		for _, rp := range rt.Partitions {
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				return fmt.Errorf("fetch of partition %d: %w", rp.Partition, err)
			}
			n, end, err := walk(rp.RecordBatches, next[rp.Partition])
			if err != nil {
				return fmt.Errorf("partition %d: %w", rp.Partition, err)
			}
			next[rp.Partition] = end
			r.Records, r.Bytes = r.Records+n, r.Bytes+int64(len(rp.RecordBatches))
		}
	}
	return nil
}
