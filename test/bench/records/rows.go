package main

import (
	"context"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/test/bench/load"
)

const (
	small      = 100
	large      = 1 << 10
	partitions = 6
)

// rows are all that there are, in the order in which they run.
func rows(o options) []row {
	return []row{
		produceRow(o, "produce-100B", small),
		produceRow(o, "produce-1KiB", large),
		singleRow(o, "single-64", 64, pageCache, both(partitions)),
		singleRow(o, "single-1000", 1000, pageCache, both(partitions)),
		consumeRow(o, "consume-100B", small),
		consumeRow(o, "consume-1KiB", large),
		syncRow(o),
		singleRow(o, "fsync", 64, synced, []sideSpec{
			{role: always, partitions: partitions},
			{role: kafka, label: "flush.messages=1", partitions: partitions, settings: []string{"flush.messages", "1"}},
		}),
	}
}

func both(partitions int) []sideSpec {
	return []sideSpec{{role: brokerd, partitions: partitions}, {role: kafka, partitions: partitions}}
}

func produceRow(o options, name string, valueBytes int) row {
	batch, records := load.FullBatch(time.Now(), valueBytes)
	return row{
		name: name, title: fmt.Sprintf("produce %s in batches of 1 MB", size(valueBytes)), durability: pageCache, sides: both(partitions),
		metrics: []metric{recordRate, bandwidth, recordCPU, rss},
		before:  func(ctx context.Context, s *side) error { return s.createTopic(ctx) },
		after:   func(ctx context.Context, s *side) error { return s.deleteTopic(ctx) },
		run: func(ctx context.Context, s *side) (load.Result, error) {
			return load.Produce{
				Addr: s.server.Addr, Topic: s.topic, Producers: o.producers, InFlight: o.inFlight,
				Batch: batch, Records: records, For: o.round, BytesMax: o.volume,
			}.Run(ctx)
		},
	}
}

func singleRow(o options, name string, producers int, durability string, sides []sideSpec) row {
	batch := load.Batch(time.Now(), load.Value(small, 0))
	return row{
		name: name, title: fmt.Sprintf("%d producers, one record of %s in flight each", producers, size(small)), durability: durability, sides: sides,
		metrics: []metric{rate, requestCPU, latency(50), latency(99), rss},
		once:    func(ctx context.Context, s *side) error { return s.createTopic(ctx) },
		run: func(ctx context.Context, s *side) (load.Result, error) {
			return load.Produce{
				Addr: s.server.Addr, Topic: s.topic, Producers: producers, InFlight: 1,
				Batch: batch, Records: 1, For: o.round, Latencies: true,
			}.Run(ctx)
		},
	}
}

func consumeRow(o options, name string, valueBytes int) row {
	batch, records := load.FullBatch(time.Now(), valueBytes)
	return row{
		name: name, title: "consume " + size(valueBytes) + " from the start, batches of 1 MB", durability: pageCache, sides: both(partitions),
		metrics: []metric{recordRate, bandwidth, recordCPU, rss},
		once: func(ctx context.Context, s *side) error {
			if err := s.createTopic(ctx); err != nil {
				return err
			}
			_, err := load.Produce{
				Addr: s.server.Addr, Topic: s.topic, Producers: partitions, InFlight: 1,
				Batch: batch, Records: records, BytesMax: o.volume,
			}.Run(ctx)
			if err != nil {
				return fmt.Errorf("fill the topic: %w", err)
			}
			s.ends, err = s.conn.EndOffsets(s.topic)
			return err
		},
		run: func(ctx context.Context, s *side) (load.Result, error) {
			return load.Consume{Addr: s.server.Addr, Topic: s.topic, Ends: s.ends, Consumers: o.consumers, For: o.round}.Run(ctx)
		},
	}
}

func syncRow(o options) row {
	r := singleRow(o, "sync", 1, pageCache, both(1))
	r.title = "one producer, one record of " + size(small) + " in flight"
	r.metrics = []metric{latency(50), latency(99), latency(99.9), rate, requestCPU}
	return r
}

func size(bytes int) string {
	if bytes%(1<<10) == 0 {
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d B", bytes)
}
