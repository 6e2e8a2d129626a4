package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

func TestProduceIsVisibleWhenAnswered(t *testing.T) {
	f := newFixture(t, 2)
	for i := range 50 {
		r := f.mustProduce(part(0), fmt.Sprint("a", i), fmt.Sprint("b", i))
		if r.BaseOffset != int64(2*i) || r.LogStart != 0 || r.LogAppendTime != -1 || r.LeaderEpoch != 0 {
			t.Fatalf("append %d answered %+v", i, r)
		}
		if got := f.fetchOne(part(0), r.BaseOffset, 0); got.HighWatermark != r.BaseOffset+2 || len(got.Data) == 0 {
			t.Fatalf("after the ack of offset %d: high watermark %d, %d bytes", r.BaseOffset, got.HighWatermark, got.Bytes())
		}
	}
	if got := len(f.valuesFrom(part(0), 0)); got != 100 {
		t.Fatalf("%d values", got)
	}
	f.EpochEnds(context.Background(), []model.EpochQuery{{Partition: part(1)}}) // it waits until the log is open
	if got := f.fetchOne(part(1), 0, 0); got.Err != nil || got.HighWatermark != 0 || len(got.Data) != 0 {
		t.Fatalf("the other partition: %+v", got)
	}
}

func TestAppendsInOrderAreCoalesced(t *testing.T) {
	f := newFixture(t, 1)
	f.mustProduce(part(0), "first")
	var wg sync.WaitGroup
	offsets := make([]int64, 500)
	for i := range offsets {
		a := makeBatch(t, batch.Options{}, fmt.Sprint(i))
		a.Partition = part(0)
		wg.Add(1)
		f.Append(context.Background(), a, func(r model.Appended) {
			defer wg.Done()
			offsets[i] = r.BaseOffset
			if r.Err != nil {
				t.Errorf("append %d: %v", i, r.Err)
			}
		})
	}
	wg.Wait()
	for i, o := range offsets {
		if o != int64(i+1) {
			t.Fatalf("append %d got offset %d", i, o)
		}
	}
	for i, v := range f.valuesFrom(part(0), 1) {
		if v != fmt.Sprintf("%d=%d", i+1, i) {
			t.Fatalf("value %d is %s", i, v)
		}
	}
}

func TestUnknownPartitionsAndStoresAreToldAtOnce(t *testing.T) {
	elsewhere := model.TopicID{9}
	records := append(topicRecords(testTopic, "orders", 1), &image.TopicRecord{ID: elsewhere, Name: "other", ReplicationFactorTarget: 1},
		&image.PartitionRecord{Partition: model.Partition{Topic: elsewhere}, Registration: image.Partition{
			Replicas: []model.NodeID{1}, Directories: []model.DirectoryID{{0xff}}, ISR: []model.NodeID{1}, Leader: 1,
		}})
	f := start(t, newRestartable(t, memstore.Options{}), newCluster(t, records...), testConfig(), nil)
	for _, c := range []struct {
		p    model.Partition
		want error
	}{
		{part(7), model.ErrNotLeaderOrFollower},
		{model.Partition{Topic: elsewhere}, model.ErrStorage},
	} {
		if r := f.produce(c.p, makeBatch(t, batch.Options{}, "x")); !errors.Is(r.Err, c.want) || r.BaseOffset != -1 {
			t.Errorf("append to %s: %+v, want %v", c.p, r, c.want)
		}
		if r := f.fetchOne(c.p, 0, 10*time.Second); !errors.Is(r.Err, c.want) {
			t.Errorf("fetch of %s: %v, want %v", c.p, r.Err, c.want)
		}
		if r := f.Trim(context.Background(), []model.TrimQuery{{Partition: c.p, Offset: -1}}); !errors.Is(r[0].Err, c.want) {
			t.Errorf("trim of %s: %v, want %v", c.p, r[0].Err, c.want)
		}
		if r := f.Producers(context.Background(), []model.Partition{c.p}); !errors.Is(r[0].Err, c.want) {
			t.Errorf("producers of %s: %v, want %v", c.p, r[0].Err, c.want)
		}
		if r := f.Offsets(context.Background(), []model.OffsetQuery{{Partition: c.p, Timestamp: -1, CurrentEpoch: -1}}); !errors.Is(r[0].Err, c.want) {
			t.Errorf("offsets of %s: %v, want %v", c.p, r[0].Err, c.want)
		}
	}
}

func TestStoreKilledUnderLoadLosesNothing(t *testing.T) { // FR-76
	steps := make(chan func(), 1<<16) // a disk that is slower than its clients
	go func() {
		for step := range steps {
			step()
		}
	}()
	store := newRestartable(t, memstore.Options{Defer: func(run func()) { steps <- run }})
	cfg := testConfig()
	cfg.TailBytes = 64 << 10
	f := start(t, store, newCluster(t, topicRecords(testTopic, "orders", 4)...), cfg, nil)
	defer close(steps)
	defer f.stop()
	for i := range int32(4) {
		f.mustProduce(part(i), "warm")
	}
	const producers, each = 8, 600
	type acked struct {
		p      model.Partition
		offset int64
		value  string
	}
	results := make(chan acked, producers*each)
	var wg sync.WaitGroup
	for n := range producers {
		wg.Go(func() {
			p := part(int32(n % 4))
			for i := range each {
				value := fmt.Sprintf("%d/%d", n, i)
				a := makeBatch(t, batch.Options{Producer: &batch.Producer{ID: int64(n), Sequence: int32(i)}}, value)
				for {
					again := a
					again.Data = slices.Clone(a.Data)
					r := f.produce(p, again)
					if r.Err == nil {
						results <- acked{p, r.BaseOffset, value}
						break
					}
					if !retriable(r.Err) {
						t.Errorf("producer %d, record %d: %v", n, i, r.Err)
						return
					}
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	kills := 0
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(time.Duration(kills%7) * 300 * time.Microsecond):
			f.store.kill()
			f.store.start(t)
			kills++
		}
	}
	close(results)
	log := make(map[model.Partition]map[string]int)
	for i := range int32(4) {
		log[part(i)] = make(map[string]int)
		for _, v := range f.valuesFrom(part(i), 0) {
			log[part(i)][v]++
		}
	}
	n := 0
	for a := range results {
		n++
		if got := log[a.p][fmt.Sprintf("%d=%s", a.offset, a.value)]; got != 1 {
			t.Errorf("partition %s: acknowledged %d=%s is there %d times", a.p, a.offset, a.value, got)
		}
	}
	total := 0
	for _, values := range log {
		total += len(values)
	}
	if n != producers*each || total != n+4 {
		t.Errorf("%d acknowledged, %d in the logs with 4 of our own", n, total)
	}
	if kills < 5 {
		t.Errorf("the store was killed %d times: too few to prove anything", kills)
	}
}

// retriable is what clients try again by themselves.
func retriable(err error) bool {
	for _, e := range []error{model.ErrStorage, model.ErrNotLeaderOrFollower, model.ErrRequestTimedOut} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func TestRestartKeepsRecordsAndProducers(t *testing.T) { // FR-57, FR-60
	store := newRestartable(t, memstore.Options{})
	c := newCluster(t, topicRecords(testTopic, "orders", 1)...)
	send := func(f *fixture, seq int32) model.Appended {
		a := makeBatch(t, batch.Options{Producer: &batch.Producer{ID: 7, Sequence: seq}}, fmt.Sprint("v", seq))
		return f.produce(part(0), a)
	}
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprintf("clean=%v", clean), func(t *testing.T) {
			f := start(t, store, c, testConfig(), nil)
			f.t = t
			end := f.fetchOne(part(0), 0, time.Second).HighWatermark
			for i := range int32(10) {
				if r := send(f, int32(end)+i); r.Err != nil || r.BaseOffset != end+int64(i) {
					t.Fatalf("append %d: %+v", i, r)
				}
			}
			if clean {
				if err := f.stop(); err != nil {
					t.Fatal(err)
				}
			}
			store.kill()
			store.start(t)
			g := start(t, store, c, testConfig(), nil)
			g.t = t
			known := g.Producers(t.Context(), []model.Partition{part(0)})[0]
			want := []model.ProducerState{{ID: 7, LastSequence: int32(end) + 9, LastTimestamp: 1000}}
			if known.Err != nil || !slices.Equal(known.Producers, want) {
				t.Fatalf("producers after the restart: %+v, want %+v", known, want)
			}
			if r := send(g, int32(end)+8); r.Err != nil || r.BaseOffset != end+8 {
				t.Fatalf("a repeat of sequence %d: %+v", end+8, r)
			}
			if r := send(g, int32(end)+3); !errors.Is(r.Err, model.ErrOutOfOrderSequence) {
				t.Fatalf("a sequence long gone: %+v", r)
			}
			if got := len(g.valuesFrom(part(0), 0)); got != int(end)+10 {
				t.Fatalf("%d values", got)
			}
		})
	}
}

func TestFullDiskRefusesWritesAndServesReads(t *testing.T) { // FR-44, FR-58
	f := newFixture(t, 1)
	f.mustProduce(part(0), "kept")
	f.store.disk.SetFree(1)
	for range 3 {
		if r := f.produce(part(0), makeBatch(t, batch.Options{Producer: &batch.Producer{ID: 1}}, "x")); !errors.Is(r.Err, model.ErrStorage) {
			t.Fatalf("append to a full disk: %+v", r)
		}
		if got := f.valuesFrom(part(0), 0); len(got) != 1 {
			t.Fatalf("read from a full disk: %v", got)
		}
	}
	f.store.disk.SetCapacity(0)
	if r := f.produce(part(0), makeBatch(t, batch.Options{Producer: &batch.Producer{ID: 1}}, "x")); r.Err != nil || r.BaseOffset != 1 {
		t.Fatalf("append when there is room again: %+v", r)
	}
}

func TestDeletedTopicIsDeletedAndTold(t *testing.T) {
	for i := range 20 { // with and without its logs being opened meanwhile
		t.Run(fmt.Sprint(i), func(t *testing.T) { deleteTopic(t, i%2 == 0) })
	}
}

func deleteTopic(t *testing.T, produce bool) {
	store := newRestartable(t, memstore.Options{})
	c := newCluster(t, topicRecords(testTopic, "orders", 64)...) // so many that the first may be gone before the last is counted
	purged := make(chan model.TopicID, 10)
	cfg := testConfig()
	cfg.TailBytes = 64 << 10
	f := start(t, store, c, cfg, func(d *Deps) {
		d.Purged = func(topic model.TopicID, dir model.DirectoryID) {
			if dir == testDir {
				purged <- topic
			}
		}
	})
	if produce {
		f.mustProduce(part(0), "x")
		f.mustProduce(part(0), "x") // now what was stored before is in the tail
		if f.tailBytes() == 0 {
			t.Fatal("nothing is kept in memory")
		}
	}
	f.Apply(c.apply(&image.TopicRemovalRecord{ID: testTopic, Name: "orders", Directories: []model.DirectoryID{testDir}}))
	select {
	case got := <-purged:
		if got != testTopic {
			t.Fatalf("purged %s", got)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("never purged")
	}
	if logs, err := store.List(context.Background()); err != nil || len(logs) != 0 {
		t.Fatalf("logs left: %v, %v", logs, err)
	}
	if r := f.produce(part(0), makeBatch(t, batch.Options{}, "x")); !errors.Is(r.Err, model.ErrNotLeaderOrFollower) {
		t.Fatalf("append to a deleted topic: %+v", r)
	}
	if n := f.tailBytes(); n != 0 {
		t.Errorf("%d bytes of a deleted topic are kept in memory", n)
	}
}

// tailBytes are what is kept of the ends of all logs.
func (f *fixture) tailBytes() int64 {
	s := f.shards[0].tails
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

func TestLogsThatMetadataDoesNotKnowAreLeftAlone(t *testing.T) { // FR-42, FR-43
	store := newRestartable(t, memstore.Options{})
	unknown, removed := model.TopicID{0xee}, model.TopicID{0xdd}
	for _, id := range []model.TopicID{unknown, removed} {
		res := store.Open(context.Background(), []storage.OpenSpec{{ID: storage.LogID{Topic: id}, Label: "old", Create: true}})
		if res[0].Err != nil {
			t.Fatal(res[0].Err)
		}
	}
	c := newCluster(t, topicRecords(testTopic, "orders", 1)...)
	c.apply(topicRecords(removed, "removed", 1)...)
	c.apply(&image.TopicRemovalRecord{ID: removed, Name: "removed", Directories: []model.DirectoryID{testDir}})
	purged := make(chan model.TopicID, 10)
	f := start(t, store, c, testConfig(), func(d *Deps) {
		d.Purged = func(topic model.TopicID, _ model.DirectoryID) { purged <- topic }
	})
	if got := <-purged; got != removed {
		t.Fatalf("purged %s", got)
	}
	f.mustProduce(part(0), "x")
	q := f.Quarantine()
	if len(q) != 1 || q[0].ID.Topic != unknown || q[0].Label != "old" {
		t.Fatalf("quarantined: %+v", q)
	}
	logs, err := store.List(context.Background())
	if err != nil || len(logs) != 2 {
		t.Fatalf("logs: %v, %v", logs, err)
	}
}

func TestFetchWaitsForRecords(t *testing.T) {
	f := newFixture(t, 2)
	f.mustProduce(part(0), "x")
	got := make(chan []model.Fetched, 1)
	go func() {
		got <- f.Fetch(context.Background(), model.Fetch{
			Partitions: []model.FetchPartition{
				{Partition: part(0), Offset: 1, MaxBytes: 1 << 20, CurrentEpoch: -1, LastFetchedEpoch: -1},
				{Partition: part(1), Offset: 0, MaxBytes: 1 << 20, CurrentEpoch: -1, LastFetchedEpoch: -1},
			},
			MinBytes: 1, MaxBytes: 1 << 20, MaxWait: 20 * time.Second,
		}).Partitions
	}()
	select {
	case r := <-got:
		t.Fatalf("answered with nothing to read: %+v", r)
	case <-time.After(20 * time.Millisecond):
	}
	begun := time.Now()
	f.mustProduce(part(1), "y")
	r := <-got
	if len(r[1].Data) == 0 || len(r[0].Data) != 0 || r[0].Err != nil || time.Since(begun) > 10*time.Second {
		t.Fatalf("answer after %s: %+v", time.Since(begun), r)
	}
}

func TestFetchLimits(t *testing.T) {
	f := newFixture(t, 3)
	big := string(make([]byte, 1000))
	for i := range int32(3) {
		f.mustProduce(part(i), big)
		f.mustProduce(part(i), big)
	}
	ask := func(minBytes, maxBytes, partBytes int) []int {
		var parts []model.FetchPartition
		for i := range int32(3) {
			parts = append(parts, model.FetchPartition{Partition: part(i), MaxBytes: partBytes, CurrentEpoch: -1, LastFetchedEpoch: -1})
		}
		var sizes []int
		for _, r := range f.Fetch(context.Background(), model.Fetch{Partitions: parts, MinBytes: minBytes, MaxBytes: maxBytes}).Partitions {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			sizes = append(sizes, r.Bytes()/1000)
		}
		return sizes
	}
	for _, c := range []struct {
		name                          string
		minBytes, maxBytes, partBytes int
		want                          []int
	}{
		{"one batch whatever its size (KIP-74)", 1, 1, 1, []int{1, 0, 0}},
		{"the first one counts against the total", 1, 1500, 1 << 20, []int{1, 0, 0}},
		{"each partition has its own limit", 1, 1 << 20, 1500, []int{1, 1, 1}},
		{"all of it", 1, 1 << 20, 1 << 20, []int{2, 2, 2}},
		{"the total ends inside the second", 1, 3500, 1 << 20, []int{2, 1, 0}},
		{"negative limits", 1, -5, -5, []int{1, 0, 0}},
	} {
		if got := ask(c.minBytes, c.maxBytes, c.partBytes); !slices.Equal(got, c.want) {
			t.Errorf("%s: thousands of bytes %v, want %v", c.name, got, c.want)
		}
	}
}

func TestFetchErrors(t *testing.T) {
	f := newFixture(t, 1)
	f.mustProduce(part(0), "a", "b")
	for _, c := range []struct {
		name string
		ask  model.FetchPartition
		want error
	}{
		{"above the end", model.FetchPartition{Offset: 3, CurrentEpoch: -1, LastFetchedEpoch: -1}, model.ErrOffsetOutOfRange},
		{"below the start", model.FetchPartition{Offset: -1, CurrentEpoch: -1, LastFetchedEpoch: -1}, model.ErrOffsetOutOfRange},
		{"newer leader epoch (KIP-320)", model.FetchPartition{CurrentEpoch: 1, LastFetchedEpoch: -1}, model.ErrUnknownLeaderEpoch},
	} {
		c.ask.Partition, c.ask.MaxBytes = part(0), 1000
		r := f.Fetch(context.Background(), model.Fetch{Partitions: []model.FetchPartition{c.ask}, MinBytes: 1, MaxBytes: 1000, MaxWait: time.Minute}).Partitions
		if !errors.Is(r[0].Err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, r[0].Err, c.want)
		}
	}
}

func TestOffsetsByTime(t *testing.T) {
	f := newFixture(t, 1)
	at := func(ts ...int64) {
		var records []batch.Record
		for _, x := range ts {
			records = append(records, batch.Record{Timestamp: x, Value: []byte("v")})
		}
		data, err := batch.Build(batch.Options{}, records...)
		if err != nil {
			t.Fatal(err)
		}
		a := makeBatch(t, batch.Options{}, "v")
		a.Data = data
		a.Batch.LastOffset = int64(len(ts) - 1)
		a.Batch.Bytes, a.Batch.Records = int32(len(data)), int32(len(ts))
		a.Batch.BaseTimestamp, a.Batch.MaxTimestamp = ts[0], slices.Max(ts)
		if r := f.produce(part(0), a); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	at(100, 200, 300) // offsets 0, 1, 2
	at(900, 250)      // 3, 4
	at(400)           // 5
	for _, c := range []struct{ ts, offset, stamp int64 }{
		{0, 0, 100}, {101, 1, 200}, {300, 2, 300}, {301, 3, 900}, {901, -1, -1},
		{model.TimestampEarliest, 0, -1}, {model.TimestampLatest, 6, -1},
		{model.TimestampMax, 3, 900}, {model.TimestampEarliestLocal, 0, -1}, {model.TimestampLatestTiered, -1, -1},
	} {
		a := f.Offsets(context.Background(), []model.OffsetQuery{{Partition: part(0), Timestamp: c.ts, CurrentEpoch: -1}})[0]
		if a.Err != nil || a.Offset != c.offset || a.Timestamp != c.stamp {
			t.Errorf("timestamp %d: %+v, want offset %d, timestamp %d", c.ts, a, c.offset, c.stamp)
		}
	}
	trimmed := f.Trim(context.Background(), []model.TrimQuery{{Partition: part(0), Offset: 2}, {Partition: part(0), Offset: 99}})
	if trimmed[0].Err != nil || trimmed[0].LowWatermark != 2 || !errors.Is(trimmed[1].Err, model.ErrOffsetOutOfRange) {
		t.Fatalf("trim: %+v", trimmed)
	}
	a := f.Offsets(context.Background(), []model.OffsetQuery{
		{Partition: part(0), Timestamp: 0, CurrentEpoch: -1}, {Partition: part(0), Timestamp: -2, CurrentEpoch: -1},
		{Partition: part(0), Timestamp: -1, CurrentEpoch: 5},
	})
	if a[0].Offset != 2 || a[1].Offset != 2 || !errors.Is(a[2].Err, model.ErrUnknownLeaderEpoch) {
		t.Fatalf("after a trim: %+v", a)
	}
	ends := f.EpochEnds(context.Background(), []model.EpochQuery{{Partition: part(0), Epoch: 0, CurrentEpoch: -1}, {Partition: part(0), Epoch: 9, CurrentEpoch: -1}})
	if ends[0].EndOffset != 6 || ends[1].EndOffset != -1 || ends[1].Epoch != -1 {
		t.Fatalf("epoch ends: %+v", ends)
	}
}

func TestDirectoriesDescribeReplicas(t *testing.T) {
	f := newFixture(t, 2)
	f.mustProduce(part(0), "x")
	f.mustProduce(part(1), "x")
	d := f.Directories(context.Background())
	if len(d) != 1 || d[0].Name != "main" || d[0].Err != nil || len(d[0].Replicas) != 2 {
		t.Fatalf("directories: %+v", d)
	}
	for i, r := range d[0].Replicas {
		if r.Partition != part(int32(i)) || !r.Leader || r.LEO != 1 || r.HighWatermark != 1 || r.Bytes <= 0 || r.Offline != nil {
			t.Errorf("replica %d: %+v", i, r)
		}
	}
	f.store.kill()
	if d = f.Directories(context.Background()); !errors.Is(d[0].Err, model.ErrStorage) {
		t.Fatalf("a dead store: %+v", d)
	}
	f.store.start(t)
}

// TestDirectoriesDescribeReplicasWhoseStoreIsGone: they are offline, and say why.
func TestDirectoriesDescribeReplicasWhoseStoreIsGone(t *testing.T) {
	elsewhere, missing := model.TopicID{9}, model.DirectoryID{0xff}
	records := append(topicRecords(testTopic, "orders", 1), &image.TopicRecord{ID: elsewhere, Name: "other", ReplicationFactorTarget: 1},
		&image.PartitionRecord{Partition: model.Partition{Topic: elsewhere}, Registration: image.Partition{
			Replicas: []model.NodeID{1}, Directories: []model.DirectoryID{missing}, ISR: []model.NodeID{1}, Leader: 1,
		}})
	f := start(t, newRestartable(t, memstore.Options{}), newCluster(t, records...), testConfig(), nil)
	d := f.Directories(context.Background())
	if len(d) != 2 || d[0].ID != testDir || len(d[0].Replicas) != 1 {
		t.Fatalf("directories: %+v", d)
	}
	if d[1].ID != missing || d[1].Name != missing.String() || !errors.Is(d[1].Err, model.ErrStorage) || len(d[1].Replicas) != 1 {
		t.Fatalf("the directory that is gone: %+v", d[1])
	}
	if r := d[1].Replicas[0]; r.Partition.Topic != elsewhere || r.Offline == nil {
		t.Fatalf("its replica: %+v", r)
	}
}

func TestStopAnswersEverybody(t *testing.T) {
	f := newFixture(t, 1)
	f.mustProduce(part(0), "x")
	f.store.kill() // and is not started again: nothing can land
	answers := make(chan error, 50)
	for range 50 {
		a := makeBatch(t, batch.Options{}, "y")
		a.Partition = part(0)
		f.Append(context.Background(), a, func(r model.Appended) { answers <- r.Err })
	}
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		select {
		case err := <-answers:
			if !retriable(err) {
				t.Fatalf("answered %v", err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("an append was never answered")
		}
	}
	if r := f.produce(part(0), makeBatch(t, batch.Options{}, "z")); !retriable(r.Err) {
		t.Fatalf("after the end: %+v", r)
	}
}
