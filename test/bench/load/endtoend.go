package load

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/test/bench/rpc"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"
)

// EndToEnd is a load of one producer that sends a record so many times a second, whether
// the last ones were acknowledged or not, to the partitions in turn, and one consumer that
// waits for them. The latencies are from before a record is sent to after it was read.
type EndToEnd struct {
	Addr       string
	Topic      rpc.Topic
	PerSecond  int
	ValueBytes int
	For        time.Duration
	Ready      func() error // as in Produce
}

// late is how long the last records are waited for.
const late = 30 * time.Second

// Run sends, and waits until all that was sent has been read.
func (l EndToEnd) Run(ctx context.Context) (Result, error) {
	consumer, err := rpc.Dial(ctx, l.Addr)
	if err != nil {
		return Result{}, err
	}
	defer consumer.Close()
	ends, err := consumer.EndOffsets(l.Topic)
	if err != nil {
		return Result{}, err
	}
	stamped := newStamped(l.Topic, l.ValueBytes)
	p, err := dialProducer(ctx, l.Addr, nil)
	if err != nil {
		return Result{}, err
	}
	defer p.c.Close()
	total := int(l.For.Seconds() * float64(l.PerSecond))
	ctx, cancel := context.WithTimeout(ctx, l.For+late)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() {
		_ = p.c.Close()
		consumer.Close()
	})
	defer stop()
	if err := ready(l.Ready); err != nil {
		return Result{}, err
	}
	var r Result
	begun := time.Now()
	g.Go(func() error { return l.send(ctx, p, stamped, begun, total) })
	g.Go(func() error {
		for range total {
			if err := p.receive(); err != nil {
				return fmt.Errorf("acknowledgement: %w", err)
			}
		}
		return nil
	})
	g.Go(func() error { return l.read(consumer, ends, stamped.stampAt, begun, total, &r) })
	if err := g.Wait(); err != nil {
		return r, err
	}
	return r, r.done(begun)
}

func (l EndToEnd) send(ctx context.Context, p *producer, s *stamped, begun time.Time, total int) error {
	tick := time.NewTicker(time.Second / time.Duration(l.PerSecond))
	defer tick.Stop()
	for n := range total {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		p.request = s.at(n%l.Topic.Partitions, time.Since(begun))
		if err := p.send(); err != nil {
			return err
		}
	}
	return nil
}

func (l EndToEnd) read(c *rpc.Conn, ends []int64, stampAt int, begun time.Time, total int, r *Result) error {
	next := make(map[int32]int64)
	for p, end := range ends {
		next[int32(p)] = end
	}
	for r.Records < int64(total) {
		resp, err := rpc.Ask[*kmsg.FetchResponse](c, fetchRequest(l.Topic, next), rpc.Patience)
		if err != nil {
			return err
		}
		now := time.Since(begun)
		if err := readFetched(resp, next, r); err != nil {
			return err
		}
		for _, rt := range resp.Topics {
			for _, rp := range rt.Partitions {
				if r.Latencies, err = stamps(rp.RecordBatches, stampAt, now, r.Latencies); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// stamped makes requests of one record whose value begins with the time.
type stamped struct {
	requests [][]byte // of each partition
	batchAt  []int    // in each
	stampAt  int      // in a batch
}

func newStamped(t rpc.Topic, valueBytes int) *stamped {
	mark := Value(max(valueBytes, 8), 1)
	batch := Batch(time.Now(), mark)
	s := &stamped{stampAt: bytes.Index(batch, mark)}
	for p := range t.Partitions {
		r := produceRequest(t, int32(p), batch)
		s.requests, s.batchAt = append(s.requests, r), append(s.batchAt, bytes.Index(r, batch))
	}
	return s
}

// at is the request for one partition at a time. It is valid until the next one for it.
func (s *stamped) at(partition int, since time.Duration) []byte {
	r := s.requests[partition]
	batch := r[s.batchAt[partition]:]
	binary.BigEndian.PutUint64(batch[s.stampAt:], uint64(since))
	size := batchLengthAt + 4 + int(binary.BigEndian.Uint32(batch[batchLengthAt:]))
	seal(batch[:size])
	return r
}

var errStamp = errors.New("a record without its time")

// stamps adds how old the records of batches of one are.
func stamps(data []byte, stampAt int, now time.Duration, to []time.Duration) ([]time.Duration, error) {
	for len(data) >= batchHeader {
		size := batchLengthAt + 4 + int(binary.BigEndian.Uint32(data[batchLengthAt:]))
		if size > len(data) {
			return to, nil // cut off: it comes again
		}
		if size < stampAt+8 || binary.BigEndian.Uint32(data[batchCountAt:]) != 1 {
			return to, errStamp
		}
		to = append(to, now-time.Duration(binary.BigEndian.Uint64(data[stampAt:])))
		data = data[size:]
	}
	return to, nil
}
