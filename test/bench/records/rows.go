package main

import (
	"context"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/test/bench/load"
)

// What the rows are about, where they don't say otherwise.
const (
	small      = 100
	large      = 1 << 10
	partitions = 6
	// perSecond is the rate of the row from end to end.
	perSecond = 500
	// manyPartitions and manyProducers are of the rows about many.
	manyPartitions = 1000
	manyProducers  = 1000
)

// rows are all that there are, in the order in which they run.
func rows(o options) ([]row, error) {
	var out []row
	for _, bytes := range []int{small, large} {
		for _, client := range o.clients {
			r, err := produceRow(o, client, bytes, load.None, both(partitions))
			if err != nil {
				return nil, err
			}
			out = append(out, r)
		}
	}
	out = append(out,
		singleRow(o, "single-64", 64, small, pageCache, both(partitions)),
		singleRow(o, "single-1000", manyProducers, small, pageCache, both(partitions)))
	for _, bytes := range []int{small, large} {
		for _, client := range o.clients {
			r, err := consumeRow(o, client, bytes, load.None, both(partitions))
			if err != nil {
				return nil, err
			}
			out = append(out, r)
		}
	}
	many := singleRow(o, "partitions-1000", manyProducers, large, pageCache, []sideSpec{
		{role: brokerd, partitions: manyPartitions}, {role: brokerd, label: "6 partitions", partitions: partitions}})
	many.title = "1,000 partitions beside 6: " + many.title
	out = append(out,
		syncRow(o, "sync", both(1)),
		endToEndRow(o),
		singleRow(o, "fsync", 64, small, synced, []sideSpec{
			{role: always, partitions: partitions},
			{role: kafka, label: "flush.messages=1", partitions: partitions, settings: []string{"flush.messages", "1"}},
		}),
		many, memoryRow(o), crowdRow(o), emptyRow(), killRow(o))
	process, err := processRows(o)
	if err != nil {
		return nil, err
	}
	return append(out, process...), nil
}

func both(partitions int) []sideSpec {
	return []sideSpec{{role: brokerd, partitions: partitions}, {role: kafka, partitions: partitions}}
}

func produceRow(o options, client string, valueBytes int, codec load.Codec, sides []sideSpec) (row, error) {
	r := row{
		name:       fmt.Sprintf("produce-%s-%s", size(valueBytes, ""), client),
		title:      fmt.Sprintf("produce %s in batches of 1 MB, %s", size(valueBytes, " "), client),
		durability: pageCache, sides: sides,
		metrics: []metric{recordRate, bandwidth, recordCPU, rss},
		before:  newTopic,
		after:   dropTopic,
	}
	switch client {
	case raw:
		batch, records, err := load.FullBatch(time.Now(), valueBytes, load.BatchBytesMax, codec)
		if err != nil {
			return row{}, err
		}
		r.run = func(ctx context.Context, s *side) (measured, error) {
			res, err := load.Produce{
				Addr: s.Addr, Topic: s.topic, Producers: o.producers, InFlight: o.inFlight, Ready: s.begin,
				Batch: batch, Records: records, For: o.round, BytesMax: o.volume,
			}.Run(ctx)
			return measured{Result: res}, err
		}
	case franz:
		values := load.Values(franzValues, valueBytes)
		r.run = func(ctx context.Context, s *side) (measured, error) {
			res, err := load.FranzProduce{Addr: s.Addr, Topic: s.topic, Ready: s.begin, Values: values, Codec: codec, For: o.round, BytesMax: o.volume}.Run(ctx)
			return measured{Result: res}, err
		}
	}
	return r, nil
}

// franzValues are so many different ones.
const franzValues = 1024

func consumeRow(o options, client string, valueBytes int, codec load.Codec, sides []sideSpec) (row, error) {
	batch, records, err := load.FullBatch(time.Now(), valueBytes, load.BatchBytesMax, codec)
	if err != nil {
		return row{}, err
	}
	r := row{
		name:       fmt.Sprintf("consume-%s-%s", size(valueBytes, ""), client),
		title:      fmt.Sprintf("consume %s from the start, in batches of 1 MB, %s", size(valueBytes, " "), client),
		durability: pageCache, sides: sides,
		metrics: []metric{recordRate, bandwidth, recordCPU, rss},
		once:    func(ctx context.Context, _ *bench, s *side) error { return fill(ctx, o, s, batch, records) },
		last:    dropTopic,
	}
	r.run = func(ctx context.Context, s *side) (m measured, err error) {
		if client == franz {
			m.Result, err = load.FranzConsume{Addr: s.Addr, Topic: s.topic, Ends: s.ends, For: o.round}.Run(ctx)
			return m, err
		}
		m.Result, err = load.Consume{Addr: s.Addr, Topic: s.topic, Ends: s.ends, Consumers: o.consumers, For: o.round, Ready: s.begin}.Run(ctx)
		return m, err
	}
	return r, nil
}

// fill makes a topic and produces what is to be consumed.
func fill(ctx context.Context, o options, s *side, batch []byte, records int) error {
	if err := s.makeTopic(ctx); err != nil {
		return err
	}
	_, err := load.Produce{
		Addr: s.Addr, Topic: s.topic, Producers: s.partitions, InFlight: 1, Batch: batch, Records: records, BytesMax: o.volume,
	}.Run(ctx)
	if err != nil {
		return fmt.Errorf("fill the topic: %w", err)
	}
	s.ends, err = s.conn.EndOffsets(s.topic)
	return err
}

func singleRow(o options, name string, producers, valueBytes int, durability string, sides []sideSpec) row {
	batch := load.Batch(time.Now(), load.Value(valueBytes, 0))
	return row{
		name:       name,
		title:      fmt.Sprintf("%s producers, one record of %s in flight each", thousands(int64(producers)), size(valueBytes, " ")),
		durability: durability, sides: sides,
		metrics: []metric{rate, requestCPU, latency(50), latency(99), rss},
		once:    newTopic,
		last:    dropTopic,
		run: func(ctx context.Context, s *side) (measured, error) {
			res, err := load.Produce{
				Addr: s.Addr, Topic: s.topic, Producers: producers, InFlight: 1, Ready: s.begin, Batch: batch, Records: 1, For: o.round, Latencies: true,
			}.Run(ctx)
			return measured{Result: res}, err
		},
	}
}

func syncRow(o options, name string, sides []sideSpec) row {
	r := singleRow(o, name, 1, small, pageCache, sides)
	r.title = "one producer, one record of " + size(small, " ") + " in flight"
	r.metrics = []metric{latency(50), latency(99), latency(99.9), rate, requestCPU}
	return r
}

func endToEndRow(o options) row {
	return row{
		name: "end-to-end", title: fmt.Sprintf("from produce to consume, %d records/s of %s", perSecond, size(small, " ")),
		durability: pageCache, sides: both(partitions),
		metrics: []metric{latency(50), latency(99)},
		once:    newTopic,
		last:    dropTopic,
		run: func(ctx context.Context, s *side) (measured, error) {
			res, err := load.EndToEnd{Addr: s.Addr, Topic: s.topic, Ready: s.begin, PerSecond: perSecond, ValueBytes: small, For: 2 * o.round}.Run(ctx)
			return measured{Result: res}, err
		},
	}
}

// processRows compare the store as a process with the same store in the broker's own.
func processRows(o options) ([]row, error) {
	sides := func(partitions int) []sideSpec {
		return []sideSpec{{role: brokerd, partitions: partitions}, {role: inside, label: "in process", partitions: partitions}}
	}
	produce, err := produceRow(o, raw, large, load.None, sides(partitions))
	if err != nil {
		return nil, err
	}
	consume, err := consumeRow(o, raw, large, load.None, sides(partitions))
	if err != nil {
		return nil, err
	}
	sync := syncRow(o, "process-sync", sides(1))
	produce.name, consume.name = "process-produce", "process-consume"
	for _, r := range []*row{&produce, &consume, &sync} {
		r.title = "store as a process beside in process: " + r.title
	}
	return []row{produce, consume, sync}, nil
}

// size is a number of bytes, its unit behind sep.
func size(bytes int, sep string) string {
	if bytes%(1<<10) == 0 {
		return fmt.Sprintf("%d%sKiB", bytes>>10, sep)
	}
	return fmt.Sprintf("%d%sB", bytes, sep)
}
