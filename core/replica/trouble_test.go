package replica

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// TestReadersAloneBringAStoreBack: nobody appends, so that only a read can find
// that the log is gone.
func TestReadersAloneBringAStoreBack(t *testing.T) { // FR-76
	f := newFixture(t, 1) // without tails: what is read, is read from the store
	f.mustProduce(part(0), "x")
	f.store.kill()
	f.store.start(t)
	if got := f.fetchOne(part(0), 0, 20*time.Second); got.Err != nil || len(got.Data) == 0 {
		t.Fatalf("fetch after the store came back: %+v", got)
	}
	f.store.kill()
	if got := f.fetchOne(part(0), 0, 50*time.Millisecond); got.Err != nil || len(got.Data) != 0 || got.HighWatermark != 1 {
		t.Fatalf("fetch while the store is away: %+v", got)
	}
	f.store.start(t)
	a := f.Offsets(context.Background(), []model.OffsetQuery{{Partition: part(0), Timestamp: 0, CurrentEpoch: -1}})[0]
	if a.Err != nil || a.Offset != 0 {
		t.Fatalf("offset by time after the store came back: %+v", a)
	}
}

func TestDamagedRecordsAreToldAndNeverServed(t *testing.T) { // FR-41
	f := newFixture(t, 1)
	for i := range 3 {
		f.mustProduce(part(0), fmt.Sprint("value ", i))
	}
	if err := f.store.disk.FlipBit(storage.LogID{Topic: testTopic}, 1, 500); err != nil {
		t.Fatal(err)
	}
	if got := f.fetchOne(part(0), 1, time.Minute); !errors.Is(got.Err, model.ErrCorruptMessage) || len(got.Data) != 0 {
		t.Fatalf("fetch of a damaged batch: %+v", got)
	}
	if got := f.valuesFrom(part(0), 2); len(got) != 1 {
		t.Fatalf("behind it: %v", got)
	}
}

// TestSnapshotAheadOfTheLogIsNeverBelieved: power was lost after a snapshot was
// stored and before the records that it describes were. Later the log grows past
// its offset with other records.
func TestSnapshotAheadOfTheLogIsNeverBelieved(t *testing.T) {
	store := newRestartable(t, memstore.Options{})
	c := newCluster(t, topicRecords(testTopic, "orders", 1)...)
	broker := DefaultBroker()
	broker.Flush, broker.FlushEvery = partition.FlushInterval, time.Hour
	run := func(snapshotAfter int) *fixture {
		cfg := testConfig()
		cfg.Limits.SnapshotAfter = snapshotAfter
		return start(t, store, c, cfg, func(d *Deps) { d.Settings = SettingsOf(cfg.NodeID, broker) })
	}
	send := func(f *fixture, pid int64, seq int32) model.Appended {
		return f.produce(part(0), makeBatch(t, batch.Options{Producer: &batch.Producer{ID: pid, Sequence: seq}}, "v"))
	}
	first := run(5)
	for i := range int32(5) {
		if r := send(first, 7, i); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	snapshot := waitForBlob(t, store)
	if lost, _ := store.disk.LosePower(1); lost == 0 {
		t.Fatal("this power failure lost nothing")
	}
	_ = first.stop()
	store.start(t)
	// This store drops such a blob by itself. Not every store does: one may only
	// hide it, as the contract demands.
	opened := store.Open(t.Context(), []storage.OpenSpec{{ID: storage.LogID{Topic: testTopic}}})[0]
	if err := store.PutBlob(t.Context(), opened.Handle, producersBlob, snapshot); err != nil {
		t.Fatal(err)
	}

	second := run(1 << 30)
	end := second.fetchOne(part(0), 0, 10*time.Second).HighWatermark
	for i := range int32(10) {
		if r := send(second, 8, i); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	store.kill()
	_ = second.stop()
	store.start(t)

	third := run(1 << 30)
	if r := send(third, 7, int32(end)); r.Err != nil || r.BaseOffset != end+10 {
		t.Fatalf("the first batch of producer 7 that was lost: %+v, want offset %d", r, end+10)
	}
}

// waitForBlob waits until producer state has been stored.
func waitForBlob(t *testing.T, store *restartable) storage.Blob {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if b := store.blob.Load(); b != nil {
			return *b
		}
		select {
		case <-time.After(time.Millisecond):
		case <-t.Context().Done():
		}
	}
	t.Fatal("no snapshot was stored")
	return storage.Blob{}
}

// TestFetchWaitsNoLonger measures, with time faked, that an empty fetch takes
// MaxWait and that a log which never opens is told as an error.
func TestFetchWaitsNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1)
		f.mustProduce(part(0), "x")
		begun := time.Now()
		if got := f.fetchOne(part(0), 1, 500*time.Millisecond); got.Err != nil || got.HighWatermark != 1 {
			t.Fatalf("at the end: %+v", got)
		}
		if took := time.Since(begun); took != 500*time.Millisecond {
			t.Fatalf("took %s", took)
		}
		if err := f.stop(); err != nil {
			t.Fatal(err)
		}

		f.store.kill()
		g := start(t, f.store, f.cluster, testConfig(), nil)
		begun = time.Now()
		if got := g.fetchOne(part(0), 0, 700*time.Millisecond); !errors.Is(got.Err, model.ErrNotLeaderOrFollower) {
			t.Fatalf("a log that cannot be opened: %+v", got)
		}
		if took := time.Since(begun); took != 700*time.Millisecond {
			t.Fatalf("took %s", took)
		}
		d := g.Directories(context.Background())
		if d[0].Replicas[0].Offline == nil {
			t.Fatal("the description does not say why")
		}
		begun = time.Now()
		a := makeBatch(t, batch.Options{}, "y")
		a.Timeout = 3 * time.Second
		if r := g.produce(part(0), a); !errors.Is(r.Err, model.ErrRequestTimedOut) || time.Since(begun) != 3*time.Second {
			t.Fatalf("append, %s later: %+v", time.Since(begun), r)
		}
		f.store.start(t)
		if got := g.fetchOne(part(0), 0, time.Minute); got.Err != nil || len(got.Data) == 0 {
			t.Fatalf("when the store is back: %+v", got)
		}
		if err := g.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestNewLeaderEpochAndSettingsReopenWithoutLoss(t *testing.T) {
	f := newFixture(t, 1)
	f.mustProduce(part(0), "a")
	f.Apply(f.cluster.apply(&image.PartitionChangeRecord{Partition: part(0), LeaderChange: true, Leader: 1}))
	if r := f.mustProduce(part(0), "b"); r.LeaderEpoch != 1 || r.BaseOffset != 1 {
		t.Fatalf("under the new epoch: %+v", r)
	}
	ends := f.EpochEnds(context.Background(), []model.EpochQuery{{Partition: part(0), Epoch: 0, CurrentEpoch: 1}, {Partition: part(0), Epoch: 0, CurrentEpoch: 0}})
	if ends[0].EndOffset != 1 || !errors.Is(ends[1].Err, model.ErrFencedLeaderEpoch) {
		t.Fatalf("epoch ends: %+v", ends)
	}
	f.Apply(f.cluster.apply(&image.ConfigRecord{Resource: model.Resource{Type: model.ResourceTopic, Name: "orders"}, Key: "segment.bytes", Value: "2097152"}))
	if r := f.mustProduce(part(0), "c"); r.BaseOffset != 2 {
		t.Fatalf("after new log settings: %+v", r)
	}
	if got := f.valuesFrom(part(0), 0); fmt.Sprint(got) != "[0=a 1=b 2=c]" {
		t.Fatalf("log: %v", got)
	}
}

// hangs is a store that answers no read.
type hangs struct {
	*restartable
	reads int
}

func (h *hangs) Read(ctx context.Context, _ storage.ReadRequest) (storage.ReadResult, error) {
	h.reads++
	<-ctx.Done()
	return storage.ReadResult{}, storage.Errorf(storage.ErrUnknown, "read: %v", ctx.Err())
}

// TestAFetchWaitsForAHungStoreOnce: over many partitions it takes no longer than
// over one, those of another store are read, and the others can be asked for again.
func TestAFetchWaitsForAHungStoreOnce(t *testing.T) {
	const partitions, maxWait = 20, 500 * time.Millisecond
	other := model.DirectoryID{0xd2}
	records := topicRecords(testTopic, "orders", partitions)
	records[partitions].(*image.PartitionRecord).Registration.Directories = []model.DirectoryID{other} // the last
	synctest.Test(t, func(t *testing.T) {
		hung := &hangs{restartable: newRestartable(t, memstore.Options{})}
		cfg := testConfig()
		f := start(t, nil, newCluster(t, records...), cfg, func(d *Deps) {
			d.Directories[0].Store = hung
			d.Directories = append(d.Directories, Directory{ID: other, Name: "other", Store: newRestartable(t, memstore.Options{})})
		})
		ask := model.Fetch{MinBytes: 1, MaxBytes: 1 << 20, MaxWait: maxWait}
		for i := range int32(partitions) {
			f.mustProduce(part(i), "x")
			ask.Partitions = append(ask.Partitions, model.FetchPartition{Partition: part(i), MaxBytes: 1000, CurrentEpoch: model.NoEpoch, LastFetchedEpoch: model.NoEpoch})
		}
		begun := time.Now()
		got := f.Fetch(t.Context(), ask).Partitions
		if took := time.Since(begun); took > maxWait+cfg.StoreTimeout+otherStores {
			t.Errorf("took %s, with %d reads of the store that hangs", took, hung.reads)
		}
		for i, r := range got[:partitions-1] {
			if len(r.Data) > 0 || (r.Err == nil) != (r.HighWatermark == 1) || (r.Err != nil && !retriable(r.Err)) {
				t.Errorf("partition %d: %+v; want no records, or an error to be tried again", i, r)
			}
		}
		if r := got[partitions-1]; r.Err != nil || len(r.Data) == 0 {
			t.Errorf("the partition of the other store: %+v", r)
		}
		if err := f.stop(); err != nil {
			t.Fatal(err)
		}
	})
}
