package load

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/test/bench/rpc"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// franzLinger lets batches fill.
	franzLinger = 10 * time.Millisecond
	// franzBuffered is how much a client has under way at once.
	franzBuffered = 48 << 20
	// franzBlock is how many records are made at once.
	franzBlock = 512
	// franzSkip is how many records go between two looks at the time.
	franzSkip = 64
)

// FranzProduce is a load by a client library, franz-go, as a program would use it: one
// idempotent producer whose batches fill. Much of what it shows is the client's own.
type FranzProduce struct {
	Addr   string
	Topic  rpc.Topic
	Values [][]byte // of the records, in turn
	Codec  Codec
	// As in Produce.
	For      time.Duration
	BytesMax int64
	Ready    func() error
}

// Run produces, and waits until all is acknowledged.
func (l FranzProduce) Run(ctx context.Context) (Result, error) {
	codec, err := l.Codec.franz()
	if err != nil {
		return Result{}, err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(l.Addr), kgo.ClientID(rpc.ClientID), kgo.DefaultProduceTopic(l.Topic.Name),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerBatchMaxBytes(BatchBytesMax), kgo.ProducerLinger(franzLinger),
		kgo.ProducerBatchCompression(codec), kgo.MaxBufferedRecords(max(1, franzBuffered/len(l.Values[0]))))
	if err != nil {
		return Result{}, err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return Result{}, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var acked atomic.Int64
	told := func(_ *kgo.Record, err error) {
		if err != nil {
			stop(err)
			return
		}
		acked.Add(1)
	}
	if err := ready(l.Ready); err != nil {
		return Result{}, err
	}
	begun := time.Now()
	var (
		sent  int64
		block []kgo.Record
	)
	for n := 0; ctx.Err() == nil; n++ {
		if n%franzSkip == 0 && (l.For > 0 && time.Since(begun) >= l.For || l.BytesMax > 0 && sent >= l.BytesMax) {
			break
		}
		if len(block) == 0 {
			block = make([]kgo.Record, franzBlock)
		}
		r := &block[0]
		block = block[1:]
		r.Value = l.Values[n%len(l.Values)]
		sent += int64(len(r.Value))
		client.Produce(ctx, r, told)
	}
	if err := client.Flush(ctx); err != nil {
		return Result{}, fmt.Errorf("flush: %w", context.Cause(ctx))
	}
	if err := context.Cause(ctx); err != nil {
		return Result{}, err
	}
	r := Result{Records: acked.Load(), Requests: acked.Load(), Bytes: sent}
	return r, r.done(begun)
}

// FranzConsume is a load by the same library: one consumer of all partitions, from their
// start to their end, and again.
type FranzConsume struct {
	Addr  string
	Topic rpc.Topic
	Ends  []int64
	For   time.Duration // at least
}

// Run consumes until all has been read once or more often.
func (l FranzConsume) Run(ctx context.Context) (Result, error) {
	return again(l.For, func(r *Result) error { return l.once(ctx, r) })
}

func (l FranzConsume) once(ctx context.Context, r *Result) error {
	from := make(map[int32]kgo.Offset)
	var want, got int64
	for p, end := range l.Ends {
		if want += end; end > 0 {
			from[int32(p)] = kgo.NewOffset().At(0)
		}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(l.Addr), kgo.ClientID(rpc.ClientID),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.Topic.Name: from}))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, rpc.Patience)
	defer cancel()
	for got < want {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("after %d records of %d: %w", got, want, err)
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			got++
			r.Bytes += int64(len(rec.Value))
		})
		r.Requests++
	}
	r.Records += got
	return nil
}
