package replica

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

var (
	testDir   = model.DirectoryID{0xd1}
	testTopic = model.TopicID{0x70}
)

// restartable is a store whose process can be killed and started again, as a
// plugin's proxy sees it.
type restartable struct {
	storage.Store // nil: only the methods below are called

	disk    *memstore.Disk
	opt     memstore.Options
	current atomic.Pointer[memstore.Store]
	blob    atomic.Pointer[storage.Blob] // the last that was stored and not empty
}

func newRestartable(t testing.TB, opt memstore.Options) *restartable {
	t.Helper()
	r := &restartable{disk: &memstore.Disk{}, opt: opt}
	r.start(t)
	return r
}

func (r *restartable) start(t testing.TB) {
	t.Helper()
	s, _, err := memstore.Open(r.disk, storage.Config{Identity: storage.Identity{ClusterID: "c", NodeID: 1}}, r.opt)
	if err != nil {
		t.Fatalf("start the store: %v", err)
	}
	r.current.Store(s)
}

func (r *restartable) kill() { r.current.Load().Kill() }

func (r *restartable) Capabilities() storage.Capabilities { return r.current.Load().Capabilities() }
func (r *restartable) Open(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
	return r.current.Load().Open(ctx, specs)
}
func (r *restartable) Close(ctx context.Context, hs []storage.Handle) []error {
	return r.current.Load().Close(ctx, hs)
}
func (r *restartable) List(ctx context.Context) ([]storage.LogInfo, error) {
	return r.current.Load().List(ctx)
}
func (r *restartable) Delete(ctx context.Context, id storage.LogID) error {
	return r.current.Load().Delete(ctx, id)
}
func (r *restartable) Append(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
	r.current.Load().Append(ctx, req, done)
}
func (r *restartable) Read(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
	return r.current.Load().Read(ctx, req)
}
func (r *restartable) Scan(ctx context.Context, req storage.ScanRequest) ([]storage.BatchInfo, error) {
	return r.current.Load().Scan(ctx, req)
}
func (r *restartable) Flush(ctx context.Context, hs []storage.Handle) []storage.FlushResult {
	return r.current.Load().Flush(ctx, hs)
}
func (r *restartable) Trim(ctx context.Context, h storage.Handle, to int64) (int64, error) {
	return r.current.Load().Trim(ctx, h, to)
}
func (r *restartable) Truncate(ctx context.Context, h storage.Handle, epoch int32, to int64) (int64, error) {
	return r.current.Load().Truncate(ctx, h, epoch, to)
}
func (r *restartable) Retain(ctx context.Context, h storage.Handle, p storage.RetainPolicy) (storage.RetainResult, error) {
	return r.current.Load().Retain(ctx, h, p)
}
func (r *restartable) FindTimestamp(ctx context.Context, q storage.TimestampQuery) (storage.BatchInfo, bool, error) {
	return r.current.Load().FindTimestamp(ctx, q)
}
func (r *restartable) PutBlob(ctx context.Context, h storage.Handle, name string, b storage.Blob) error {
	err := r.current.Load().PutBlob(ctx, h, name, b)
	if err == nil && len(b.Data) > 0 {
		r.blob.Store(&b)
	}
	return err
}
func (r *restartable) GetBlob(ctx context.Context, h storage.Handle, name string) (storage.Blob, bool, error) {
	return r.current.Load().GetBlob(ctx, h, name)
}
func (r *restartable) Usage(ctx context.Context) (storage.Usage, error) {
	return r.current.Load().Usage(ctx)
}

// cluster builds images.
type cluster struct {
	t      testing.TB
	img    *image.Image
	offset int64
}

func newCluster(t testing.TB, more ...image.Record) *cluster {
	c := &cluster{t: t, img: &image.Image{}}
	c.apply(&image.ClusterRecord{Cluster: image.Cluster{ID: "c", FeatureLevel: 1, ReplicationFactorTarget: 3, MinISRTarget: 2}},
		&image.BrokerRecord{ID: 1, Directories: []model.DirectoryID{testDir}})
	c.apply(more...)
	return c
}

func (c *cluster) apply(records ...image.Record) *image.Image {
	c.t.Helper()
	c.offset++
	d := image.NewDelta(c.img, c.offset)
	for _, r := range records {
		if err := d.Apply(r); err != nil {
			c.t.Fatal(err)
		}
	}
	c.img = d.Image()
	return c.img
}

func topicRecords(id model.TopicID, name string, partitions int) []image.Record {
	out := []image.Record{&image.TopicRecord{ID: id, Name: name, ReplicationFactorTarget: 1}}
	for i := range partitions {
		out = append(out, &image.PartitionRecord{
			Partition: model.Partition{Topic: id, Index: int32(i)},
			Registration: image.Partition{
				Replicas: []model.NodeID{1}, Directories: []model.DirectoryID{testDir}, ISR: []model.NodeID{1}, Leader: 1,
			},
		})
	}
	return out
}

// fixture is a running manager with one topic.
type fixture struct {
	*Manager
	t       testing.TB
	store   *restartable
	cluster *cluster
	stop    func() error // ends Run and waits
}

func testConfig() Config {
	cfg := DefaultConfig()
	cfg.NodeID = 1
	cfg.OpenWait = 5 * time.Second
	cfg.TailBytes = 0
	cfg.Limits.BackoffMin = time.Millisecond
	cfg.Limits.BackoffMax = 20 * time.Millisecond
	return cfg
}

func start(t testing.TB, store *restartable, c *cluster, cfg Config, change func(*Deps)) *fixture {
	t.Helper()
	deps := Deps{
		Directories: []Directory{{ID: testDir, Name: "main", Plugin: "memstore", Store: store}},
		Logger:      discard(), Buffers: newPoisoned(),
	}
	if testing.Verbose() {
		deps.Logger = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	}
	if change != nil {
		change(&deps)
	}
	m, err := New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	stop := sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	m.Apply(c.img)
	return &fixture{Manager: m, t: t, store: store, cluster: c, stop: stop}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) { w.t.Logf("%s", b); return len(b), nil }

// newFixture is a manager with one topic of this many partitions.
func newFixture(t testing.TB, partitions int) *fixture {
	t.Helper()
	return start(t, newRestartable(t, memstore.Options{}), newCluster(t, topicRecords(testTopic, "orders", partitions)...), testConfig(), nil)
}

func part(i int32) model.Partition { return model.Partition{Topic: testTopic, Index: i} }

// makeBatch builds a batch as a producer sends it.
func makeBatch(t testing.TB, opts batch.Options, values ...string) model.Append {
	t.Helper()
	records := make([]batch.Record, len(values))
	for i, v := range values {
		records[i] = batch.Record{Timestamp: 1000 + int64(i), Value: []byte(v)}
	}
	data, err := batch.Build(opts, records...)
	if err != nil {
		t.Fatal(err)
	}
	info, err := recordbatch.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return model.Append{Batch: info, Data: data, Acks: model.AcksAll, Timeout: 10 * time.Second, LogAppendTime: -1}
}

// lent is an append as the edge makes it, whose bytes come to hold another request as
// soon as nobody may look at them any more; in a frame or without.
func lent(a model.Append, framed bool, done func(model.Appended)) (model.Append, func(model.Appended)) {
	data := a.Data
	spoil := func() {
		for i := range data {
			data[i] = 0xdb
		}
	}
	if framed {
		frame := model.NewFrame(len(data), spoil)
		frame.Keep()
		a.Frame = frame
		return a, func(r model.Appended) {
			frame.Drop()
			done(r)
		}
	}
	return a, func(r model.Appended) {
		if r.Spent {
			spoil()
		}
		done(r)
	}
}

// produce appends and waits for the answer.
func (f *fixture) produce(p model.Partition, a model.Append) model.Appended {
	f.t.Helper()
	a.Partition = p
	answer := make(chan model.Appended, 1)
	done := func(r model.Appended) { answer <- r }
	if a.Frame == nil {
		a.Data = slices.Clone(a.Data)
		a, done = lent(a, len(a.Data)%2 == 0, done)
	}
	f.Append(context.Background(), a, done)
	select {
	case r := <-answer:
		return r
	case <-time.After(30 * time.Second):
		f.t.Fatal("an append was not answered in 30 s")
		return model.Appended{}
	}
}

func (f *fixture) mustProduce(p model.Partition, values ...string) model.Appended {
	f.t.Helper()
	r := f.produce(p, makeBatch(f.t, batch.Options{}, values...))
	if r.Err != nil {
		f.t.Fatalf("produce %v: %v", values, r.Err)
	}
	return r
}

// fetchOne fetches from one partition.
func (f *fixture) fetchOne(p model.Partition, offset int64, wait time.Duration) model.Fetched {
	f.t.Helper()
	return f.Fetch(context.Background(), model.Fetch{
		Partitions: []model.FetchPartition{{
			Partition: p, Offset: offset, LogStart: -1, MaxBytes: 1 << 20, CurrentEpoch: model.NoEpoch, LastFetchedEpoch: model.NoEpoch,
		}},
		MinBytes: 1, MaxBytes: 1 << 20, MaxWait: wait,
	}).Partitions[0]
}

// valuesFrom reads all values from offset to the high watermark, as
// "offset=value".
func (f *fixture) valuesFrom(p model.Partition, offset int64) []string {
	f.t.Helper()
	var out []string
	for {
		got := f.fetchOne(p, offset, 5*time.Second)
		if got.Err != nil {
			f.t.Fatalf("fetch at %d: %v", offset, got.Err)
		}
		for r, err := range batch.Records(slices.Concat(got.Data...), 0) {
			if err != nil {
				f.t.Fatal(err)
			}
			if r.Offset >= offset {
				out = append(out, fmt.Sprintf("%d=%s", r.Offset, r.Value))
				offset = r.Offset + 1
			}
		}
		if offset >= got.HighWatermark {
			return out
		}
	}
}
