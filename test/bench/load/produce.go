package load

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/test/bench/rpc"
)

// Produce is a load of producers, each with one connection to the leader of one
// partition: the i-th of partition i modulo their number.
type Produce struct {
	Addr      string
	Topic     rpc.Topic
	Producers int
	InFlight  int    // requests of one producer without an answer
	Batch     []byte // of each request
	Records   int    // in Batch
	// The load ends after a time, or when so many bytes of batches were sent; zero:
	// there is no such bound.
	For      time.Duration
	BytesMax int64
	// Latencies are kept.
	Latencies bool
	// Ready is called when all are connected, before the time runs; or nil.
	Ready func() error
}

// Run connects all, lets them go at once, and waits until all is answered.
func (l Produce) Run(ctx context.Context) (Result, error) {
	requests := make([][]byte, l.Topic.Partitions)
	for i := range min(l.Producers, len(requests)) {
		requests[i] = produceRequest(l.Topic, int32(i), l.Batch)
	}
	producers := make([]*producer, l.Producers)
	for i := range producers {
		request := requests[i%len(requests)]
		if i >= len(requests) {
			request = slices.Clone(request) // each writes its correlation ID into its own
		}
		p, err := dialProducer(ctx, l.Topic.Leader(i%len(requests), l.Addr), request)
		if err != nil {
			return Result{}, err
		}
		defer p.c.Close()
		producers[i] = p
	}
	var sent atomic.Int64
	return together(ctx, producers, l.Ready, func(p *producer) { _ = p.c.Close() },
		func(_ context.Context, _ int, p *producer, begun time.Time) (Result, error) {
			return l.one(p, begun, &sent)
		})
}

// one is the life of one producer. What it has under way at the end is waited for, and
// counts.
func (l Produce) one(p *producer, begun time.Time, sent *atomic.Int64) (Result, error) {
	var r Result
	at := make([]time.Time, l.InFlight) // when each under way was sent, by its number modulo
	more := true
	for n := 0; ; n++ { // n were answered
		for more && int(p.sent)-n < l.InFlight {
			now := time.Now()
			more = (l.For == 0 || now.Sub(begun) < l.For) && (l.BytesMax == 0 || sent.Add(int64(len(l.Batch))) <= l.BytesMax)
			if !more {
				break
			}
			at[int(p.sent)%l.InFlight] = now
			if err := p.send(); err != nil {
				return r, err
			}
		}
		if int(p.sent) == n {
			return r, nil
		}
		if err := p.receive(); err != nil {
			return r, err
		}
		if l.Latencies {
			r.Latencies = append(r.Latencies, time.Since(at[n%l.InFlight]))
		}
		r.Requests, r.Records, r.Bytes = r.Requests+1, r.Records+int64(l.Records), r.Bytes+int64(len(l.Batch))
	}
}
