package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/brokerd/brokerd/test/bench/load"
)

// natsRecordsMax bounds what NATS is given to consume: its messages come there one by one.
const natsRecordsMax = 1_000_000

// Notes on the sides of NATS, with the number of messages.
const (
	natsOneByOne = "NATS's client library has no batches: each message is published and acknowledged by itself, %s at most under way at once"
	natsOrdered  = "one client of NATS, with an ordered consumer for each stream that asks for many messages at once, reads %s messages"
	natsFullMix  = "NATS is given messages one by one in the place of full batches, and has one client that consumes"
)

// natsSingle is a load of producers with one message in flight each.
func natsSingle(o options, producers, valueBytes int, durability string) *natsSide {
	r := nats
	if durability == synced {
		r = natsAll
	}
	n := partitions
	if producers == 1 {
		n = 1
	}
	value := load.Value(valueBytes, 0)
	return &natsSide{sideSpec: sideSpec{role: r, partitions: n, run: runner(func(ctx context.Context, s *side) (load.Result, error) {
		return load.NATSProduce{Addr: s.Addr, Topic: s.topic, Producers: producers, Value: value, For: o.round, Latencies: true, Ready: s.begin}.Run(ctx)
	}).measured}}
}

// natsProduce is beside the client library that fills batches, where those are not compressed.
func (f full) natsProduce(o options) *natsSide {
	if f.client != franz || f.codec != load.None {
		return nil
	}
	values := sync.OnceValue(func() [][]byte { return load.Values(franzValues, f.valueBytes) })
	return &natsSide{
		sideSpec: sideSpec{role: nats, partitions: f.partitions, run: runner(func(ctx context.Context, s *side) (load.Result, error) {
			return load.NATSPublish{Addr: s.Addr, Topic: s.topic, Values: values(), For: o.round, BytesMax: o.volume, Ready: s.begin}.Run(ctx)
		}).measured},
		note: fmt.Sprintf(natsOneByOne, thousands(load.NATSInFlight)),
	}
}

// natsConsume is beside the client library that reads all.
func (f full) natsConsume(o options) *natsSide {
	if f.client != franz || f.codec != load.None {
		return nil
	}
	records := max(1, min(natsRecordsMax, o.volume/int64(f.valueBytes)))
	return &natsSide{
		sideSpec: sideSpec{
			role: nats, partitions: f.partitions,
			once: func(ctx context.Context, _ *bench, s *side) error { return natsFill(ctx, s, records, f.valueBytes) },
			run: runner(func(ctx context.Context, s *side) (load.Result, error) {
				return load.NATSConsume{Addr: s.Addr, Topic: s.topic, Ends: s.ends, For: o.round}.Run(ctx)
			}).measured,
		},
		note: fmt.Sprintf(natsOrdered, thousands(records)),
	}
}

// natsFill makes the streams and publishes what is to be consumed.
func natsFill(ctx context.Context, s *side, records int64, valueBytes int) error {
	if err := s.makeTopic(ctx); err != nil {
		return err
	}
	values := load.Values(franzValues, valueBytes)
	if _, err := (load.NATSPublish{Addr: s.Addr, Topic: s.topic, Values: values, BytesMax: records * int64(valueBytes)}).Run(ctx); err != nil {
		return fmt.Errorf("fill the streams: %w", err)
	}
	var err error
	s.ends, err = s.conn.EndOffsets(s.topic)
	return err
}

func natsEndToEnd(o options) *natsSide {
	return &natsSide{sideSpec: sideSpec{role: nats, partitions: partitions, run: runner(func(ctx context.Context, s *side) (load.Result, error) {
		return load.NATSEndToEnd{Addr: s.Addr, Topic: s.topic, PerSecond: perSecond, ValueBytes: small, For: 2 * o.round, Ready: s.begin}.Run(ctx)
	}).measured}}
}

func natsEmpty() *natsSide { return &natsSide{sideSpec: sideSpec{role: nats, partitions: 1}} }

// natsMemory is at work with what is some of every load there.
func natsMemory(o options) *natsSide {
	return &natsSide{
		sideSpec: sideSpec{role: nats, partitions: partitions, run: memoryUnder(func(ctx context.Context, s *side) error { return natsMix(ctx, o, s) })},
		note:     natsFullMix,
	}
}

func natsMix(ctx context.Context, o options, s *side) error {
	full := load.NATSPublish{Addr: s.Addr, Topic: s.topic, Values: load.Values(franzValues, large), For: o.round, BytesMax: o.volume}
	if _, err := full.Run(ctx); err != nil {
		return err
	}
	many := load.NATSProduce{Addr: s.Addr, Topic: s.topic, Producers: manyProducers, Value: load.Value(small, 0), For: o.round}
	if _, err := many.Run(ctx); err != nil {
		return err
	}
	ends, err := s.conn.EndOffsets(s.topic)
	if err != nil {
		return err
	}
	_, err = load.NATSConsume{Addr: s.Addr, Topic: s.topic, Ends: ends}.Run(ctx)
	return err
}
