package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/brokerd/brokerd/test/bench/load"
)

// The clients of rows with full batches.
const (
	raw        = "raw"        // package load's own
	franz      = "franz"      // franz-go
	librdkafka = "librdkafka" // a program on librdkafka
	java       = "java"       // kafka-producer-perf-test, kafka-consumer-perf-test
)

// knownClients are all of them.
var knownClients = []string{raw, franz, librdkafka, java}

// full is a load of full batches: what it is made of.
type full struct {
	client     string
	valueBytes int
	codec      load.Codec
	partitions int
}

// name tells what is not as in every run.
func (f full) name(what string) string {
	name := fmt.Sprintf("%s-%s-%s", what, size(f.valueBytes, ""), f.client)
	if f.codec != load.None {
		name += "-" + string(f.codec)
	}
	if f.partitions != partitions {
		name += fmt.Sprintf("-%dp", f.partitions)
	}
	return name
}

func (f full) title(what string) string {
	title := fmt.Sprintf("%s %s in batches of 1 MB, %s", what, size(f.valueBytes, " "), f.client)
	if f.codec != load.None {
		title += ", " + string(f.codec)
	}
	if f.partitions != partitions {
		title += fmt.Sprintf(", %d partitions", f.partitions)
	}
	return title
}

// franzValues are so many different ones.
const franzValues = 1024

// programRecords bounds what is sent by clients that take a number of records.
const programRecords = 5_000_000

// batch is a full one. It is made when it is needed.
type batch struct {
	bytes   []byte
	records int
}

func (f full) batch() func() (batch, error) {
	return sync.OnceValues(func() (batch, error) {
		b, n, err := load.FullBatch(time.Now(), f.valueBytes, load.BatchBytesMax, f.codec)
		return batch{b, n}, err
	})
}

// runner is a load on a side's topic.
type runner func(ctx context.Context, s *side) (load.Result, error)

func (f full) produceRow(o options, p *load.Programs, sides []sideSpec) row {
	var floor *sideSpec
	if f.client == raw {
		floor = bareProduce(pageCache, sides)
	}
	return row{
		name: f.name("produce"), title: f.title("produce"), durability: pageCache, sides: sides, nats: f.natsProduce(o), bare: floor,
		metrics: []metric{recordRate, bandwidth, recordCPU, rss},
		before:  newTopic,
		after:   dropTopic,
		run:     f.produce(o, p).measured,
	}
}

func (r runner) measured(ctx context.Context, s *side) (measured, error) {
	res, err := r(ctx, s)
	return measured{Result: res}, err
}

func (f full) produce(o options, p *load.Programs) runner {
	records := min(programRecords, o.volume/int64(f.valueBytes))
	switch f.client {
	case franz:
		values := sync.OnceValue(func() [][]byte { return load.Values(franzValues, f.valueBytes) })
		return func(ctx context.Context, s *side) (load.Result, error) {
			return load.FranzProduce{
				Addr: s.Addr, Topic: s.topic, Values: values(), Codec: f.codec, For: o.round, BytesMax: o.volume, Ready: s.begin,
			}.Run(ctx)
		}
	case librdkafka:
		return func(ctx context.Context, s *side) (load.Result, error) {
			return p.LibrdkafkaProduce(ctx, s.Addr, s.topic, records, f.valueBytes, f.codec)
		}
	case java:
		return func(ctx context.Context, s *side) (load.Result, error) {
			return p.JavaProduce(ctx, s.Addr, s.topic, records, f.valueBytes, f.codec)
		}
	}
	batch := f.batch()
	return func(ctx context.Context, s *side) (load.Result, error) {
		full, err := batch()
		if err != nil {
			return load.Result{}, err
		}
		return load.Produce{
			Addr: s.Addr, Topic: s.topic, Producers: max(o.producers, f.partitions), InFlight: o.inFlight, Batch: full.bytes, Records: full.records,
			For: o.round, BytesMax: o.volume, Ready: s.begin,
		}.Run(ctx)
	}
}

func (f full) consumeRow(o options, p *load.Programs, sides []sideSpec) row {
	batch := f.batch()
	return row{
		name: f.name("consume"), title: f.title("consume from the start"), durability: pageCache, sides: sides, nats: f.natsConsume(o),
		metrics: []metric{recordRate, bandwidth, recordCPU, rss},
		once: func(ctx context.Context, _ *bench, s *side) error {
			full, err := batch()
			if err != nil {
				return err
			}
			return fill(ctx, o, s, full)
		},
		last: dropTopic,
		run:  f.consume(o, p).measured,
	}
}

func (f full) consume(o options, p *load.Programs) runner {
	return func(ctx context.Context, s *side) (load.Result, error) {
		switch f.client {
		case franz:
			return load.FranzConsume{Addr: s.Addr, Topic: s.topic, Ends: s.ends, For: o.round}.Run(ctx)
		case librdkafka:
			return p.LibrdkafkaConsume(ctx, s.Addr, s.topic, s.ends, f.valueBytes)
		case java:
			return p.JavaConsume(ctx, s.Addr, s.topic, s.ends, f.valueBytes)
		}
		return load.Consume{
			Addr: s.Addr, Topic: s.topic, Ends: s.ends, Consumers: min(o.consumers, f.partitions), For: o.round, Ready: s.begin,
		}.Run(ctx)
	}
}

// fill makes a topic and produces what is to be consumed.
func fill(ctx context.Context, o options, s *side, full batch) error {
	if err := s.makeTopic(ctx); err != nil {
		return err
	}
	// Of compressed batches as many as of others: a consumer's work is by the record.
	bytes := o.volume / load.BatchBytesMax * int64(len(full.bytes))
	_, err := load.Produce{
		Addr: s.Addr, Topic: s.topic, Producers: s.partitions, InFlight: 1, Batch: full.bytes, Records: full.records, BytesMax: bytes,
	}.Run(ctx)
	if err != nil {
		return fmt.Errorf("fill the topic: %w", err)
	}
	s.ends, err = s.conn.EndOffsets(s.topic)
	return err
}
