package api

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/batch"
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
// with their loops.
type path struct {
	*Handler
	metadata *cluster
}

func newPath(t testing.TB, partitions int, tailBytes int64) *path {
	t.Helper()
	c := newCluster(t)
	id := topicID("orders")
	records := []image.Record{&image.TopicRecord{ID: id, Name: "orders", ReplicationFactorTarget: 1}}
	for i := range partitions {
		records = append(records, &image.PartitionRecord{Partition: model.Partition{Topic: id, Index: int32(i)}, Registration: image.Partition{
			Replicas: []model.NodeID{1}, Directories: []model.DirectoryID{{1}}, ISR: []model.NodeID{1}, Leader: 1,
		}})
	}
	c.apply(records...)
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
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended // logs that forget can't be closed as they should
	})
	m.Apply(c.Image())
	p := &path{metadata: c, Handler: newHandler(c, func(_ *Config, d *Deps) {
		d.Partitions, d.Authorizer, d.Events, d.Now = m, security.AllowAll{}, silent{d.Events}, time.Now
	})}
	return p
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
	ready  chan struct{}
	out    []byte
}

func newSender(h *path, call wire.Call) *sender {
	c := &sender{h: h, call: call, sent: call.Body, ready: make(chan struct{}, 1)}
	c.call.Body = append([]byte(nil), c.sent...)
	c.call.Turn = c
	return c
}

func (c *sender) Later() {}
func (c *sender) Ready() { c.ready <- struct{}{} }

func (c *sender) begin(ctx context.Context) {
	copy(c.call.Body, c.sent) // base offsets were stamped into it
	c.answer = c.h.Begin(ctx, c.call)
}

func (c *sender) end(ctx context.Context) error {
	<-c.ready
	reply := c.answer(ctx)
	if reply.Close || reply.Body == nil {
		return fmt.Errorf("got %+v", reply)
	}
	c.out = reply.Body.Encode(c.out[:0], nil)
	reply.Body.Release()
	if !reply.Spent {
		c.call.Body = make([]byte, len(c.sent))
	}
	return nil
}

// settle waits until all partitions take appends.
func (c *sender) settle(t testing.TB) {
	t.Helper()
	for range 1000 {
		c.begin(t.Context())
		if err := c.end(t.Context()); err != nil {
			t.Fatal(err)
		}
		if read(t, c.call.Key, c.call.Version, c.out); len(failure(read(t, c.call.Key, c.call.Version, c.out))) == 0 {
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

// BenchmarkProducePath is from the bytes of requests to those of their answers, with
// so many under way, and what the process takes for one.
func BenchmarkProducePath(b *testing.B) {
	for _, x := range []struct{ clients, partitions, records, bytes int }{
		{1, 1, 1, 100}, {64, 1, 1, 100}, {2, 6, 9000, 100},
	} {
		b.Run(fmt.Sprintf("%d clients, %dx%dx%d", x.clients, x.partitions, x.records, x.bytes), func(b *testing.B) {
			h := newPath(b, 6, 64<<20)
			clients := make([]*sender, x.clients)
			for i := range clients {
				clients[i] = newSender(h, produceCall(b, x.partitions, x.records, x.bytes))
			}
			clients[0].settle(b)
			before := used(b)
			b.ReportAllocs()
			b.ResetTimer()
			var all sync.WaitGroup
			for i, c := range clients {
				all.Go(func() {
					for n := i; n < b.N; n += len(clients) {
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
		})
	}
	runtime.KeepAlive(b)
}

// used is the processor time of this process.
func used(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
