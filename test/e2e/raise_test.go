package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// raisedWithin is how long after two brokers have joined a first one all has three replicas.
const raisedWithin = 30 * time.Second

// TestGrowthFromOneBroker: what was made while there was one broker, the group's offsets too, has
// three replicas soon after two others have joined, and others lead their part of it; the group
// goes on from where it was when the first one dies.
func TestGrowthFromOneBroker(t *testing.T) {
	t.Parallel()
	const topic, partitions, each = "orders", 6, 50
	all := newServers(t, 3)
	first := all[0]
	first.set("cluster.seeds", "")
	first.start()
	createTopic(t, first.addr(), topic, partitions)
	ctx := testContext(t, 3*time.Minute)
	produce := func(addr string) {
		t.Helper()
		c := newClient(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()))
		var records []*kgo.Record
		for n := range each * partitions {
			records = append(records, &kgo.Record{Topic: topic, Partition: int32(n % partitions), Value: fmt.Appendf(nil, "%d", n)})
		}
		if err := c.ProduceSync(ctx, records...).FirstErr(); err != nil {
			t.Fatalf("produce: %v\n%s", err, first.tail())
		}
	}
	// consume takes what is there, and expects each partition to go on from an offset.
	consume := func(addr string, from int64) {
		t.Helper()
		c := newClient(t, addr, kgo.ConsumerGroup("workers"), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		next, left := slices.Repeat([]int64{from}, partitions), each*partitions
		for left > 0 {
			fetches := c.PollFetches(ctx)
			if ctx.Err() != nil {
				t.Fatalf("%d records have not come: %v\n%s", left, fetches.Err0(), all[1].tail())
			}
			fetches.EachRecord(func(r *kgo.Record) {
				if r.Offset != next[r.Partition] {
					t.Fatalf("record %d of partition %d comes where %d is next", r.Offset, r.Partition, next[r.Partition])
				}
				next[r.Partition]++
				left--
			})
		}
		if err := eventually(ctx, func() error { return c.CommitUncommittedOffsets(ctx) }); err != nil {
			t.Fatalf("commit: %v", err)
		}
		c.Close()
	}
	produce(first.addr())
	consume(first.addr(), 0)

	for _, b := range all[1:] {
		b.launch()
	}
	for _, b := range all[1:] {
		b.waitReady()
	}
	joined := time.Now()
	raising, cancel := context.WithTimeout(ctx, raisedWithin)
	defer cancel()
	admin := newAdmin(t, first.addr())
	if err := eventually(raising, func() error {
		topics, err := admin.ListTopicsWithInternal(raising, topic, "__consumer_offsets")
		if err != nil {
			return err
		}
		for _, name := range []string{topic, "__consumer_offsets"} {
			if err := topics[name].Err; err != nil {
				return err
			}
			led := map[int32]int{}
			for n, p := range topics[name].Partitions {
				if len(p.ISR) != 3 || len(p.Replicas) != 3 {
					return fmt.Errorf("%s-%d has replicas %v, in sync %v", name, n, p.Replicas, p.ISR)
				}
				led[p.Leader]++
			}
			for id := range int32(3) {
				if share := len(topics[name].Partitions) / 3; led[id+1] < share-1 || led[id+1] > share+2 {
					return fmt.Errorf("of %s, brokers lead %v", name, led)
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatalf("%s after the others joined: %v\n%s", raisedWithin, err, first.tail())
	}
	t.Logf("all has three replicas %v after two brokers have joined", time.Since(joined).Round(100*time.Millisecond))

	rest := all[1].addr() + "," + all[2].addr()
	produce(rest)
	first.kill()
	consume(rest, each)
	produce(rest)
	consume(rest, 2*each)
}
