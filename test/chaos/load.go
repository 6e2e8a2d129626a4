package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// sendEvery is how often a producer sends one record to each partition.
	sendEvery = 4 * time.Millisecond
	// unansweredMax is how many records of a producer wait for an answer before it sends no
	// more.
	unansweredMax = 3000
	// backoff is how long clients wait before they try again.
	backoff      = 20 * time.Millisecond
	paddingBytes = 80
)

func newClient(addrs []string, opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(addrs...), kgo.MetadataMinAge(backoff), kgo.DialTimeout(time.Second), kgo.RequestTimeoutOverhead(5 * time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return backoff }),
	}, opts...)...)
}

// load sends and reads until it is stopped.
type load struct {
	ledger    *ledger
	producers []*kgo.Client
	stop      context.CancelFunc // ends the sending
	sending   sync.WaitGroup
	stopRead  context.CancelFunc
	reading   sync.WaitGroup
	abandoned atomic.Bool // what is not answered will not be
}

// startLoad begins to send to the topic by an idempotent and a plain producer, and to read it.
func startLoad(addrs []string, l *ledger) (*load, error) {
	ctx, stop := context.WithCancel(context.Background())
	readCtx, stopRead := context.WithCancel(context.Background())
	ld := &load{ledger: l, stop: stop, stopRead: stopRead}
	for producer, idempotent := range l.idempotent {
		if producer < l.retired {
			continue
		}
		opts := []kgo.Opt{
			kgo.DefaultProduceTopic(topicName), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()),
			kgo.ProducerLinger(0), kgo.ProduceRequestTimeout(5 * time.Second), kgo.StopProducerOnDataLossDetected(),
		}
		if !idempotent {
			opts = append(opts, kgo.DisableIdempotentWrite())
		}
		c, err := newClient(addrs, opts...)
		if err != nil {
			stop()
			stopRead()
			return nil, err
		}
		ld.producers = append(ld.producers, c)
		ld.sending.Go(func() { ld.send(ctx, c, producer) })
	}
	c, err := readerClient(addrs, len(l.partitions))
	if err != nil {
		stop()
		stopRead()
		return nil, err
	}
	if l.history != nil {
		ld.reading.Go(func() { l.history.run(readCtx) })
		ld.reading.Go(func() { l.history.watchEnds(readCtx, addrs) })
	}
	ld.reading.Go(func() {
		defer c.Close()
		rd := l.newReader()
		for readCtx.Err() == nil {
			rd.poll(readCtx, c)
		}
	})
	return ld, nil
}

func (ld *load) send(ctx context.Context, c *kgo.Client, producer int) {
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	padding := make([]byte, paddingBytes)
	for i := range padding {
		padding[i] = byte('a' + i%26)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if ld.ledger.unanswered(producer) >= unansweredMax {
			continue
		}
		for p := range ld.ledger.partitions {
			r := ld.ledger.send(producer, p)
			c.Produce(context.Background(), &kgo.Record{Partition: int32(p), Value: fmt.Appendf(nil, "%v %s", r, padding)},
				func(got *kgo.Record, err error) {
					if err != nil && ld.abandoned.Load() {
						return
					}
					if err != nil {
						ld.ledger.violate(clientErr, "record %v: %v", r, err)
						return
					}
					ld.ledger.ack(r, got.Offset)
				})
		}
	}
}

// finish ends the sending, waits until all is answered, and ends the reading.
func (ld *load) finish() {
	ld.stop()
	ld.sending.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), servedMax)
	defer cancel()
	for producer, c := range ld.producers {
		if err := c.Flush(ctx); err != nil {
			ld.ledger.violate(notServed, "producer %d still waits for %d answers: %v", producer, ld.ledger.unanswered(producer), err)
		}
	}
	for _, c := range ld.producers {
		c.CloseAllowingRebalance()
	}
	ld.stopRead()
	ld.reading.Wait()
}

func readerClient(addrs []string, partitions int) (*kgo.Client, error) {
	all := map[int32]kgo.Offset{}
	for p := range partitions {
		all[int32(p)] = kgo.NewOffset().AtStart()
	}
	return newClient(addrs, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topicName: all}), kgo.FetchMaxWait(100*time.Millisecond))
}

// poll reads once.
func (rd *reader) poll(ctx context.Context, c *kgo.Client) {
	fetches := c.PollFetches(ctx)
	fetches.EachError(func(_ string, p int32, err error) {
		if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			rd.ledger.violate(clientErr, "read partition %d: %v", p, err)
		}
	})
	fetches.EachRecord(func(got *kgo.Record) {
		r, err := parseRecord(got.Value)
		if err != nil || r.partition != int(got.Partition) || r.producer >= len(rd.ledger.idempotent) {
			rd.ledger.violate(changed, "partition %d, offset %d: %q was never sent there", got.Partition, got.Offset, got.Value)
			return
		}
		rd.took(int(got.Partition), got.Offset, r)
		rd.ledger.history.took(int(got.Partition), got.Offset, r, got.LeaderEpoch)
	})
}

// readBack reads all there is by a client of its own, and holds it against the ledger.
func readBack(addrs []string, l *ledger, how string, timeout time.Duration) error {
	c, err := readerClient(addrs, len(l.partitions))
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	rd, ends := l.newReader(), l.ends()
	for ctx.Err() == nil && !rd.reached(ends) {
		rd.poll(ctx, c)
	}
	if !rd.reached(ends) {
		l.violate(notServed, "%s: read up to %v of %v", how, rd.next, ends)
	}
	rd.finish(how)
	return nil
}

func (rd *reader) reached(ends []int64) bool {
	for p, end := range ends {
		if rd.next[p] < end {
			return false
		}
	}
	return true
}
