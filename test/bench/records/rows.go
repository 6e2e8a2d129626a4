package main

import (
	"context"
	"fmt"
	"slices"
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
func rows(o options, p *load.Programs) []row {
	produce, consume := fullRows(o, p)
	many := singleRow(o, "partitions-1000", manyProducers, large, pageCache, []sideSpec{
		{role: brokerd, partitions: manyPartitions}, {role: brokerd, label: "6 partitions", partitions: partitions}})
	many.title, many.nats, many.bare = "1,000 partitions beside 6: "+many.title, nil, nil
	all := slices.Concat(produce, []row{
		singleRow(o, "single-64", 64, small, pageCache, both(partitions)),
		singleRow(o, "single-1000", manyProducers, small, pageCache, both(partitions)),
	}, consume, []row{
		syncRow(o, "sync", both(1)),
		endToEndRow(o),
		singleRow(o, "fsync", 64, small, synced, []sideSpec{
			{role: always, partitions: partitions},
			{role: kafka, label: "flush.messages=1", partitions: partitions, settings: []string{"flush.messages", "1"}},
		}),
		many, createRow(), idleRow(), memoryRow(o), crowdRow(o), emptyRow(), killRow(o),
	}, processRows(o, p))
	if o.brokers > 1 {
		all = slices.DeleteFunc(all, func(r row) bool { return r.single })
	}
	return all
}

// fullRows are those of every client, size, codec and number of partitions that was asked for.
func fullRows(o options, p *load.Programs) (produce, consume []row) {
	for _, bytes := range []int{small, large} {
		for _, n := range o.partitions {
			for _, codec := range o.codecs {
				for _, client := range o.clients {
					f := full{client: client, valueBytes: bytes, codec: codec, partitions: n}
					produce = append(produce, f.produceRow(o, p, both(n)))
					consume = append(consume, f.consumeRow(o, p, both(n)))
				}
			}
		}
	}
	return produce, consume
}

func both(partitions int) []sideSpec {
	return []sideSpec{{role: brokerd, partitions: partitions}, {role: kafka, partitions: partitions}}
}

func singleRow(o options, name string, producers, valueBytes int, durability string, sides []sideSpec) row {
	batch := load.Batch(time.Now(), load.Value(valueBytes, 0))
	return row{
		name:       name,
		title:      fmt.Sprintf("%s producers, one record of %s in flight each", thousands(int64(producers)), size(valueBytes, " ")),
		durability: durability, sides: sides, nats: natsSingle(o, producers, valueBytes, durability), bare: bareProduce(durability, sides),
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
		name: "end-to-end", single: true, title: fmt.Sprintf("from produce to consume, %d records/s of %s", perSecond, size(small, " ")),
		durability: pageCache, sides: both(partitions), nats: natsEndToEnd(o),
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
func processRows(o options, p *load.Programs) []row {
	sides := func(partitions int) []sideSpec {
		return []sideSpec{{role: brokerd, partitions: partitions}, {role: inside, label: "in process", partitions: partitions}}
	}
	f := full{client: raw, valueBytes: large, codec: load.None, partitions: partitions}
	produce, consume, sync := f.produceRow(o, p, sides(partitions)), f.consumeRow(o, p, sides(partitions)), syncRow(o, "process-sync", sides(1))
	produce.name, consume.name = "process-produce", "process-consume"
	all := []row{produce, consume, sync}
	for i := range all {
		all[i].single = true
		all[i].title, all[i].nats, all[i].bare = "store as a process beside in process: "+all[i].title, nil, nil
	}
	return all
}

// size is a number of bytes, its unit behind sep.
func size(bytes int, sep string) string {
	if bytes%(1<<10) == 0 {
		return fmt.Sprintf("%d%sKiB", bytes>>10, sep)
	}
	return fmt.Sprintf("%d%sB", bytes, sep)
}
