package api

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	groups "github.com/brokerd/brokerd/core/coordinator"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/replica"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// forgetful takes appends and forgets them, so that what is measured is ours.
type forgetful struct{ storage.Store }

func (forgetful) Append(_ context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
	last := req.Batches[len(req.Batches)-1].LastOffset
	done(storage.AppendResult{LEO: last + 1, Durable: last + 1, Survives: storage.SurvivesMachine}, nil)
}

// silent is events that nobody counts.
type silent struct{ Events }

func (silent) Answered(int16, int16, time.Duration) {}
func (silent) Produced(string, int, int)            {}

// path is all between a request's bytes and its answer's: the edge, and the replicas
// and the groups' coordinator with their loops.
type path struct{ *Handler }

func newPath(t testing.TB, partitions int, tailBytes int64) *path {
	t.Helper()
	c := newCluster(t)
	for _, topic := range []string{"orders", model.OffsetsTopic} {
		id := topicID(topic)
		records := []image.Record{&image.TopicRecord{ID: id, Name: topic, ReplicationFactorTarget: 1}}
		for i := range partitions {
			records = append(records, &image.PartitionRecord{Partition: model.Partition{Topic: id, Index: int32(i)}, Registration: image.Partition{
				Replicas: []model.NodeID{1}, Directories: []model.DirectoryID{{1}}, ISR: []model.NodeID{1}, Leader: 1,
			}})
		}
		c.apply(records...)
	}
	store, _, err := memstore.Open(&memstore.Disk{}, storage.Config{Identity: storage.Identity{ClusterID: "c", NodeID: 1}}, memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := replica.DefaultConfig()
	cfg.NodeID, cfg.TailBytes = 1, tailBytes
	m, err := replica.New(cfg, replica.Deps{
		Directories: []replica.Directory{{ID: model.DirectoryID{1}, Name: "main", Store: forgetful{store}}},
		Logger:      slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	gcfg := groups.DefaultConfig()
	gcfg.NodeID = 1
	g, err := groups.New(gcfg, groups.Deps{Log: m, Controller: c, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = m.Run(ctx) }) // logs that forget can't be closed as they should
	ended.Go(func() { _ = g.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		ended.Wait()
	})
	m.Apply(c.Image())
	g.Apply(c.Image())
	return &path{newHandler(c, func(_ *Config, d *Deps) {
		d.Partitions, d.Groups, d.Authorizer, d.Events, d.Now = m, g, security.AllowAll{}, silent{d.Events}, time.Now
	})}
}

// produceCall is a request for the first partitions, each with so many records.
func produceCall(t testing.TB, partitions, records, bytes int) wire.Call {
	t.Helper()
	all := make([]batch.Record, records)
	for i := range all {
		all[i] = batch.Record{Timestamp: time.Now().UnixMilli(), Value: make([]byte, bytes)}
	}
	data, err := batch.Build(batch.Options{}, all...)
	if err != nil {
		t.Fatal(err)
	}
	to := make(map[string][]byte)
	for i := range partitions {
		to[fmt.Sprintf("orders-%d", i)] = data
	}
	req := toProduce(to)
	req.Version = 12
	return callOf(req)
}

// sender sends a request again and again, as the server would: the answer is asked
// for when it is there, and what it is made of is used again.
type sender struct {
	h      *path
	call   wire.Call
	sent   []byte // as it was
	answer wire.Answer
	later  bool
	ready  chan struct{}
	out    []byte
}

func newSender(h *path, call wire.Call) *sender {
	c := &sender{h: h, call: call, sent: call.Body, ready: make(chan struct{}, 1)}
	c.call.Body = append([]byte(nil), c.sent...)
	c.call.Turn = c
	return c
}

func (c *sender) Later() { c.later = true }
func (c *sender) Ready() { c.ready <- struct{}{} }

func (c *sender) begin(ctx context.Context) {
	copy(c.call.Body, c.sent) // base offsets were stamped into it
	c.later = false
	c.answer = c.h.Begin(ctx, c.call)
}

func (c *sender) end(ctx context.Context) error {
	if c.later {
		<-c.ready
	}
	reply := c.answer(ctx)
	switch {
	case reply.Body != nil:
		c.out = reply.Body.Encode(c.out[:0], nil)
		reply.Body.Release()
	case reply.Response != nil:
		reply.Response.SetVersion(c.call.Version)
		c.out = reply.Response.AppendTo(c.out[:0])
	default:
		return fmt.Errorf("got %+v", reply)
	}
	if !reply.Spent {
		c.call.Body = make([]byte, len(c.sent))
	}
	return nil
}

// settle waits until all partitions, and groups, take what is sent to them.
func (c *sender) settle(t testing.TB) {
	t.Helper()
	for range 100_000 {
		c.begin(t.Context())
		if err := c.end(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(failure(read(t, c.call.Key, c.call.Version, c.out))) == 0 {
			return
		}
	}
	t.Fatal("the partitions take nothing")
}

// However many records a request brings, it costs a small number of allocations for
// each partition, and none for a record.
func TestProduceAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("pools forget at random under the race detector")
	}
	for _, x := range []struct {
		name                       string
		partitions, records, bytes int
		tail                       int64
		most                       float64
	}{
		{"one record", 1, 1, 100, 0, 2},
		{"many records", 1, 5000, 100, 0, 2},
		{"six partitions", 6, 1000, 100, 0, 12},
		{"one record, tails", 1, 1, 100, 16 << 20, 2},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := newSender(newPath(t, x.partitions, x.tail), produceCall(t, x.partitions, x.records, x.bytes))
			c.settle(t)
			n := testing.AllocsPerRun(500, func() {
				c.begin(t.Context())
				if err := c.end(t.Context()); err != nil {
					t.Error(err)
				}
			})
			if t.Logf("%v allocations", n); n > x.most {
				t.Errorf("%v allocations, want at most %v", n, x.most)
			}
		})
	}
}

// A commit costs few allocations, however many offsets it has: two strings of the
// request, and what the group's machine keeps until it is written.
func TestCommitAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("pools forget at random under the race detector")
	}
	for _, x := range []struct {
		offsets int
		most    float64
	}{{1, 8}, {16, 8}, {100, 20}} {
		c := newSender(newPath(t, 100, 16<<20), commitCall("crew", x.offsets))
		c.settle(t)
		n := testing.AllocsPerRun(500, func() {
			c.begin(t.Context())
			if err := c.end(t.Context()); err != nil {
				t.Error(err)
			}
		})
		if t.Logf("%d offsets: %v allocations", x.offsets, n); n > x.most {
			t.Errorf("%d offsets: %v allocations, want at most %v", x.offsets, n, x.most)
		}
	}
}

// BenchmarkProducePath is from the bytes of requests to those of their answers, with
// so many under way, and what the process takes for one.
func BenchmarkProducePath(b *testing.B) {
	for _, x := range []struct{ clients, partitions, records, bytes int }{
		{1, 1, 1, 100}, {64, 1, 1, 100}, {2, 6, 9000, 100},
	} {
		b.Run(fmt.Sprintf("%d clients, %dx%dx%d", x.clients, x.partitions, x.records, x.bytes), func(b *testing.B) {
			benchPath(b, x.clients, func(int) wire.Call { return produceCall(b, x.partitions, x.records, x.bytes) })
		})
	}
}

// BenchmarkCommitPath is BenchmarkProducePath for offsets, of as many groups as clients.
func BenchmarkCommitPath(b *testing.B) {
	for _, x := range []struct{ clients, offsets int }{{1, 1}, {32, 1}, {32, 100}} {
		b.Run(fmt.Sprintf("%d clients, %d offsets", x.clients, x.offsets), func(b *testing.B) {
			benchPath(b, x.clients, func(i int) wire.Call { return commitCall(fmt.Sprint("crew-", i), x.offsets) })
		})
	}
}

func benchPath(b *testing.B, clients int, call func(i int) wire.Call) {
	h := newPath(b, 100, 64<<20)
	senders := make([]*sender, clients)
	for i := range senders {
		senders[i] = newSender(h, call(i))
		senders[i].settle(b)
	}
	before := used(b)
	b.ReportAllocs()
	b.ResetTimer()
	var all sync.WaitGroup
	for i, c := range senders {
		all.Go(func() {
			for n := i; n < b.N; n += len(senders) {
				c.begin(b.Context())
				if err := c.end(b.Context()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(used(b)-before)/float64(b.N), "cpu-ns/op")
}

// commitCall is a commit of the first partitions of a topic, by a group that has no
// members.
func commitCall(group string, offsets int) wire.Call {
	req := toCommit(group, map[string][]int32{"orders": firstPartitions(offsets)})
	req.Version = 8
	return callOf(req)
}

// used is the processor time of this process.
func used(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
