package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// journal is what the members of one group did with one topic, and what they were
// told. Its methods may be called concurrently.
type journal struct {
	group, topic string

	mu        sync.Mutex
	produced  map[int32]int64          // by partition: one beyond the last acknowledged
	processed map[int32]map[int64]bool // offsets
	committed map[int32]int64          // by partition: the highest that a member was told
	commits   int                      // that were acknowledged
	wrong     []error
	grew      chan struct{} // closed and replaced at each commit
}

func newJournal(group, topic string) *journal {
	return &journal{group: group, topic: topic, produced: map[int32]int64{}, processed: map[int32]map[int64]bool{},
		committed: map[int32]int64{}, grew: make(chan struct{})}
}

func (j *journal) broken(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.wrong = append(j.wrong, fmt.Errorf(format, args...))
}

// told is what was committed of a partition as far as members know.
func (j *journal) told(partition int32) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.committed[partition]
}

// acked notes a commit that was acknowledged.
func (j *journal) acked(last map[int32]int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for p, offset := range last {
		j.committed[p] = max(j.committed[p], offset+1)
	}
	j.commits++
	close(j.grew)
	j.grew = make(chan struct{})
}

func (j *journal) process(r *kgo.Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.processed[r.Partition] == nil {
		j.processed[r.Partition] = map[int64]bool{}
	}
	j.processed[r.Partition][r.Offset] = true
}

// waitCommits waits for n more commits.
func (j *journal) waitCommits(t *testing.T, b *broker, n int) {
	t.Helper()
	ctx := testContext(t, 2*time.Minute)
	j.mu.Lock()
	want := j.commits + n
	j.mu.Unlock()
	for {
		j.mu.Lock()
		have, grew := j.commits, j.grew
		j.mu.Unlock()
		if have >= want {
			return
		}
		select {
		case <-grew:
		case <-ctx.Done():
			t.Fatalf("the group stands still at %d commits of %d\n%s", have, want, b.tail())
		}
	}
}

// missing counts records that were acknowledged to the producer and not processed.
func (j *journal) missing() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for p, end := range j.produced {
		for offset := range end {
			if !j.processed[p][offset] {
				n++
			}
		}
	}
	return n
}

// member is one consumer of a group. It processes records, and commits what it has
// processed before it lets others take its partitions.
type member struct {
	j    *journal
	c    *kgo.Client
	stop func() // leaves the group, and waits

	mu     sync.Mutex
	starts map[int32]int64 // by partition assigned, and not yet read: where it must not begin before
}

// join adds a member to the journal's group.
func (j *journal) join(t *testing.T, addr string, opts ...kgo.Opt) *member {
	t.Helper()
	m := &member{j: j, starts: map[int32]int64{}}
	m.c = newClient(t, addr, append([]kgo.Opt{
		kgo.ConsumerGroup(j.group), kgo.ConsumeTopics(j.topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.OnPartitionsAssigned(m.assigned), kgo.FetchMaxWait(200 * time.Millisecond),
	}, opts...)...)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.run(ctx)
	}()
	m.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
		m.c.CloseAllowingRebalance()
	})
	t.Cleanup(m.stop)
	return m
}

// assigned is called before the client asks where to begin: what anybody was told is
// committed by then must be where it begins, or further.
func (m *member) assigned(_ context.Context, _ *kgo.Client, got map[string][]int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range got[m.j.topic] {
		m.starts[p] = m.j.told(p)
	}
}

func (m *member) begin(r *kgo.Record) {
	m.mu.Lock()
	start, first := m.starts[r.Partition]
	delete(m.starts, r.Partition)
	m.mu.Unlock()
	if first && r.Offset < start {
		m.j.broken("partition %d: a member begins at %d, after %d was committed", r.Partition, r.Offset, start)
	}
}

const pollRecords = 50

func (m *member) run(ctx context.Context) {
	for ctx.Err() == nil {
		fetches := m.c.PollRecords(ctx, pollRecords)
		fetches.EachError(func(_ string, p int32, err error) {
			var loss *kgo.ErrDataLoss
			if errors.As(err, &loss) {
				m.j.broken("partition %d: %w", p, err)
			}
		})
		last := map[int32]int64{}
		fetches.EachRecord(func(r *kgo.Record) {
			m.begin(r)
			m.j.process(r)
			last[r.Partition] = r.Offset
		})
		if len(last) > 0 && m.c.CommitRecords(ctx, fetches.Records()...) == nil {
			m.j.acked(last)
		}
		m.c.AllowRebalance()
	}
}

// produce sends records to all partitions until the function it returns is called,
// which waits until all are acknowledged.
func (j *journal) produce(t *testing.T, addr string, partitions int32, every time.Duration) func() {
	t.Helper()
	c := newClient(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(j.topic))
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n := 0; ; n++ {
			for p := range partitions {
				r := &kgo.Record{Partition: p, Value: fmt.Appendf(nil, "%d", n)}
				c.Produce(context.Background(), r, func(r *kgo.Record, err error) {
					if err != nil {
						j.broken("produce: %w", err)
						return
					}
					j.mu.Lock()
					defer j.mu.Unlock()
					j.produced[r.Partition] = max(j.produced[r.Partition], r.Offset+1)
				})
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	end := sync.OnceValue(func() error {
		close(stop)
		<-ended
		return c.Flush(testContext(t, time.Minute))
	})
	t.Cleanup(func() { _ = end() })
	return func() {
		if err := end(); err != nil {
			t.Fatalf("the producer's last records: %v", err)
		}
	}
}

// watch asks again and again what the group has committed, until the function that it
// returns is called: it never goes back, and never is below what a member was told.
func (j *journal) watch(t *testing.T, addr string) func() (answers int) {
	t.Helper()
	c := newClient(t, addr, kgo.RetryTimeout(2*time.Second))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		answers := 0
		defer func() { ended <- answers }()
		highest := map[int32]int64{}
		for ctx.Err() == nil {
			least := map[int32]int64{}
			j.mu.Lock()
			for p, told := range j.committed {
				least[p] = max(told, highest[p])
			}
			j.mu.Unlock()
			got, err := kadm.NewClient(c).FetchOffsets(ctx, j.group)
			if err != nil {
				continue // the broker is away
			}
			answers++
			for p, want := range least {
				o, ok := got.Lookup(j.topic, p)
				if !ok || o.Err != nil || o.At < want {
					j.broken("partition %d: committed is %d (there: %v, %v), after %d", p, o.At, ok, o.Err, want)
					return
				}
				highest[p] = o.At
			}
			select {
			case <-ctx.Done():
			case <-time.After(pollEvery):
			}
		}
	}()
	stop := sync.OnceValue(func() int { cancel(); return <-ended })
	t.Cleanup(func() { stop() })
	return stop
}

// finish waits until the group has processed and committed all that was produced, and
// says what went wrong.
func (j *journal) finish(t *testing.T, b *broker) {
	t.Helper()
	err := eventually(testContext(t, time.Minute), func() error {
		if n := j.missing(); n > 0 {
			return fmt.Errorf("%d records are not processed", n)
		}
		return nil
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, w := range j.wrong {
		if i == 10 {
			t.Errorf("and %d more", len(j.wrong)-i)
			break
		}
		t.Error(w)
	}
	if err != nil {
		t.Errorf("group %s: %v", j.group, err)
	}
	if t.Failed() {
		t.Log(b.tail())
	}
}
