package load

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/test/bench/rpc"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// natsPull is how many messages a consumer of everything asks for at once: with more or
// fewer it was no faster.
const natsPull = 2000

// NATSConsume is FranzConsume on a nats-server: one client of NATS's own library with an
// ordered consumer for each stream, which reads it from its start to its end, and again.
type NATSConsume struct {
	Addr  string
	Topic rpc.Topic // as NATS makes it
	Ends  []int64   // of each stream: it is read up to there
	For   time.Duration
}

// Run consumes until all has been read once or more often.
func (l NATSConsume) Run(ctx context.Context) (Result, error) {
	return again(l.For, func(r *Result) error { return l.once(ctx, r) })
}

func (l NATSConsume) once(ctx context.Context, r *Result) error {
	client, err := DialNATS(l.Addr)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, rpc.Patience)
	defer cancel()
	var bytes atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for p, end := range l.Ends {
		if end == 0 {
			continue
		}
		g.Go(func() error {
			var n, size int64 // the handler's, until the last message
			err := client.consume(ctx, l.Topic, p, 0, end, natsPull, func(m jetstream.Msg) error {
				n, size = n+1, size+int64(len(m.Data()))
				if n == end {
					bytes.Add(size)
				}
				return nil
			})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	r.Bytes += bytes.Load()
	r.Records, r.Requests = r.Records+total(l.Ends), r.Requests+total(l.Ends)
	return nil
}

// consume hands so many messages of a stream to a function, in their order, from the one
// behind offset on. It returns when the last was handed out, or ctx ends.
func (n *NATS) consume(ctx context.Context, t rpc.Topic, partition int, offset, messages int64, pull int, hand func(jetstream.Msg) error) error {
	config := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: uint64(offset) + 1}
	c, err := n.js.OrderedConsumer(ctx, stream(t, partition), config)
	if err != nil {
		return fmt.Errorf("consume %s: %w", stream(t, partition), err)
	}
	done := make(chan error, 1)
	var got int64
	under, err := c.Consume(func(m jetstream.Msg) {
		if got >= messages {
			return
		}
		got++
		if err := hand(m); err != nil {
			done <- err
			got = messages
		} else if got == messages {
			done <- nil
		}
	}, jetstream.PullMaxMessages(pull))
	if err != nil {
		return fmt.Errorf("consume %s: %w", stream(t, partition), err)
	}
	defer under.Stop()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("consume %s: not all of %d messages came: %w", stream(t, partition), messages, context.Cause(ctx))
	}
}

// NATSEndToEnd is EndToEnd on a nats-server, by clients of NATS's own library: one that
// publishes, and one that has an ordered consumer for each stream.
type NATSEndToEnd struct {
	Addr       string
	Topic      rpc.Topic // as NATS makes it
	PerSecond  int
	ValueBytes int
	For        time.Duration
	Ready      func() error // as in Produce
}

// natsPullFew is how many messages a consumer asks for at once that waits for new ones: the library's default.
const natsPullFew = jetstream.DefaultMaxMessages

// Run publishes, and waits until all that was published has been read.
func (l NATSEndToEnd) Run(ctx context.Context) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, l.For+late)
	defer cancel()
	ctx, failed := context.WithCancelCause(ctx)
	defer failed(nil)
	consumer, err := DialNATS(l.Addr)
	if err != nil {
		return Result{}, err
	}
	defer consumer.Close()
	ends, err := consumer.EndOffsets(l.Topic)
	if err != nil {
		return Result{}, err
	}
	p, err := newNATSPublisher(l.Addr, l.Topic, failed)
	if err != nil {
		return Result{}, err
	}
	defer p.Close()
	if err := ready(l.Ready); err != nil {
		return Result{}, err
	}
	var (
		mu sync.Mutex
		r  Result
	)
	sent := int(l.For.Seconds() * float64(l.PerSecond))
	begun := time.Now()
	read := func(m jetstream.Msg) error {
		now := time.Since(begun)
		if len(m.Data()) < 8 {
			return errStamp
		}
		mu.Lock()
		defer mu.Unlock()
		r.Records, r.Requests, r.Bytes = r.Records+1, r.Requests+1, r.Bytes+int64(len(m.Data()))
		r.Latencies = append(r.Latencies, now-time.Duration(binary.BigEndian.Uint64(m.Data())))
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	for i, end := range ends {
		if due := int64(sent+l.Topic.Partitions-1-i) / int64(l.Topic.Partitions); due > 0 {
			g.Go(func() error { return consumer.consume(ctx, l.Topic, i, end, due, natsPullFew, read) })
		}
	}
	g.Go(func() error { return l.send(ctx, p, begun, sent) })
	if err := g.Wait(); err != nil {
		return r, err
	}
	return r, r.done(begun)
}

func (l NATSEndToEnd) send(ctx context.Context, p *natsPublisher, begun time.Time, messages int) error {
	tick := time.NewTicker(time.Second / time.Duration(l.PerSecond))
	defer tick.Stop()
	value := Value(max(l.ValueBytes, 8), 1)
	for n := range messages {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		binary.BigEndian.PutUint64(value, uint64(time.Since(begun)))
		if err := p.send(ctx, n%l.Topic.Partitions, value); err != nil {
			return err
		}
	}
	return p.flush(ctx, int64(messages))
}
