package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Records that prove themselves: the value says which record it is, of which life
// of its topic, and all its bytes follow from that. One idempotent producer at a time
// writes a partition, from its first offset on, so that record n lies at offset n,
// unless something was lost, doubled or put in another order.

// proofBytesMax is what a value has at most behind its head.
const proofBytesMax = 2000

// proof is the value of record n of a partition, in the topic's given life.
func proof(life, partition int32, n int64) []byte {
	rng := rand.New(rand.NewPCG(uint64(life)<<32|uint64(uint32(partition)), uint64(n)))
	value := fmt.Appendf(nil, "%d/%d/%d/", life, partition, n)
	for range rng.IntN(proofBytesMax) {
		value = append(value, byte(rng.Uint32()))
	}
	return value
}

// proven returns the life of the topic that a record is of, or says what is wrong
// with it.
func proven(r *kgo.Record) (life int32, err error) {
	var partition int32
	var n int64
	if _, err := fmt.Sscanf(string(r.Value[:min(len(r.Value), 60)]), "%d/%d/%d/", &life, &partition, &n); err != nil {
		return 0, fmt.Errorf("the value at %d/%d says nothing of itself: %.80q", r.Partition, r.Offset, r.Value)
	}
	switch {
	case partition != r.Partition || n != r.Offset:
		return 0, fmt.Errorf("record %d of partition %d is at offset %d of partition %d", n, partition, r.Offset, r.Partition)
	case !bytes.Equal(r.Value, proof(life, partition, n)):
		return 0, fmt.Errorf("record %d of partition %d, life %d, has other bytes than were produced", n, partition, life)
	}
	return life, nil
}

// prover produces such records to all partitions of one life of a topic.
type prover struct {
	life   int32
	client *kgo.Client
	topic  string
	sent   []atomic.Int64 // by partition
	acked  []atomic.Int64

	mu   sync.Mutex
	errs []error
	grew chan struct{} // closed and replaced when acked grows
}

// newProver makes a producer for a topic that is empty.
func newProver(t *testing.T, addr, topic string, partitions int, life int32) *prover {
	t.Helper()
	return &prover{
		life:  life,
		topic: topic,
		client: newClient(t, addr, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.StopProducerOnDataLossDetected(), kgo.ProducerLinger(2*time.Millisecond), kgo.MaxBufferedRecords(20_000),
			kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond })),
		sent:  make([]atomic.Int64, partitions),
		acked: make([]atomic.Int64, partitions),
		grew:  make(chan struct{}),
	}
}

// produce sends n more records to each partition. It does not wait for them, but
// for those before them, where too many are under way.
func (p *prover) produce(n int) {
	for range n {
		for partition := range p.sent {
			next := p.sent[partition].Add(1) - 1
			record := &kgo.Record{Partition: int32(partition), Value: proof(p.life, int32(partition), next)}
			p.client.Produce(context.Background(), record, func(r *kgo.Record, err error) { p.answered(r, next, err) })
		}
	}
}

func (p *prover) answered(r *kgo.Record, n int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil:
		p.errs = append(p.errs, fmt.Errorf("record %d of partition %d: %w", n, r.Partition, err))
	case r.Offset != n:
		p.errs = append(p.errs, fmt.Errorf("record %d of partition %d was acknowledged at offset %d", n, r.Partition, r.Offset))
	default:
		p.acked[r.Partition].Add(1)
	}
	close(p.grew)
	p.grew = make(chan struct{})
}

// failed is what went wrong so far.
func (p *prover) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.errs...)
}

// flush waits until all that was sent was answered.
func (p *prover) flush(ctx context.Context) error {
	return errors.Join(p.client.Flush(ctx), p.failed())
}

// waitAcked waits until n more records of each partition have been acknowledged
// than had been sent.
func (p *prover) waitAcked(ctx context.Context, n int64) error {
	want := make([]int64, len(p.sent))
	for i := range want {
		want[i] = p.sent[i].Load() + n
	}
	for {
		p.mu.Lock()
		grew, done := p.grew, len(p.errs) > 0
		p.mu.Unlock()
		if done {
			return p.failed()
		}
		behind := 0
		for i := range want {
			if p.acked[i].Load() < want[i] {
				behind++
			}
		}
		if behind == 0 {
			return nil
		}
		select {
		case <-grew:
		case <-ctx.Done():
			return fmt.Errorf("%d partitions stand still: %w", behind, ctx.Err())
		}
	}
}

// keepOn produces at a rate until ctx ends.
func (p *prover) keepOn(ctx context.Context, each int, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil && p.failed() == nil {
		p.produce(each)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// reader reads all partitions of a topic from where it is told to, and holds each
// record against what it says of itself.
type reader struct {
	client *kgo.Client
	next   map[int32]int64
	lives  map[int32]int32 // of the latest record of each partition
	oldest int32           // the least life of the topic that may be seen
}

// reading makes a reader of partitions from the given offset on.
func reading(addr, topic string, partitions int, from kgo.Offset, opts ...kgo.Opt) (*reader, error) {
	all := map[int32]kgo.Offset{}
	for i := range partitions {
		all[int32(i)] = from
	}
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(addr), kgo.MetadataMinAge(50 * time.Millisecond), kgo.FetchMaxPartitionBytes(256 << 10),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: all}),
	}, opts...)...)
	return &reader{client: client, next: map[int32]int64{}, lives: map[int32]int32{}}, err
}

// poll reads what there is next, waiting for it until ctx ends, and returns how
// many records that were. jumps says that offsets may be left out, and that the topic
// may come to another life.
func (r *reader) poll(ctx context.Context, jumps bool) (n int, err error) {
	fetches := r.client.PollFetches(ctx)
	for _, e := range fetches.Errors() {
		if !errors.Is(e.Err, context.DeadlineExceeded) && !errors.Is(e.Err, context.Canceled) {
			return 0, fmt.Errorf("partition %d: %w", e.Partition, e.Err)
		}
	}
	fetches.EachRecord(func(record *kgo.Record) {
		n++
		life, problem := proven(record)
		next, before := r.next[record.Partition]
		latest := r.lives[record.Partition]
		switch {
		case err != nil:
		case problem != nil:
			err = problem
		case life < max(r.oldest, latest):
			err = fmt.Errorf("offset %d of partition %d holds a record of life %d, when life %d had begun", record.Offset, record.Partition, life, max(r.oldest, latest))
		case before && (!jumps && record.Offset != next || life == latest && record.Offset < next):
			err = fmt.Errorf("partition %d: offset %d comes after %d", record.Partition, record.Offset, next-1)
		}
		r.next[record.Partition], r.lives[record.Partition] = record.Offset+1, life
	})
	return n, err
}

// mayBeTold says whether an error is one that the protocol has for a reader whose
// topic is trimmed, deleted, or made again.
func mayBeTold(err error) bool {
	var lost *kgo.ErrDataLoss
	return errors.As(err, &lost) || errors.Is(err, kerr.OffsetOutOfRange) || errors.Is(err, kerr.UnknownTopicOrPartition) ||
		errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.InconsistentTopicID) || errors.Is(err, kerr.LeaderNotAvailable)
}
