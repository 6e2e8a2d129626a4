package replica

import (
	"context"
	"testing"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// badBlobs is a store whose blobs cannot be read, until they are removed.
type badBlobs struct {
	*restartable
	fault   error
	removed bool
	once    bool // only the first read fails
}

func (b *badBlobs) GetBlob(ctx context.Context, h storage.Handle, name string) (storage.Blob, bool, error) {
	if b.fault != nil && !b.removed {
		fault := b.fault
		if b.once {
			b.fault = nil
		}
		return storage.Blob{}, false, storage.Errorf(fault, "blob %s", name)
	}
	return b.restartable.GetBlob(ctx, h, name)
}

func (b *badBlobs) PutBlob(ctx context.Context, h storage.Handle, name string, blob storage.Blob) error {
	b.removed = b.removed || len(blob.Data) == 0
	return b.restartable.PutBlob(ctx, h, name, blob)
}

// TestASnapshotThatCannotBeReadStopsNobody: what can be derived from the log is
// no reason not to serve it.
func TestASnapshotThatCannotBeReadStopsNobody(t *testing.T) {
	for _, test := range []struct {
		name    string
		fault   error
		once    bool
		removed bool
	}{
		{"damaged", storage.ErrCorrupt, false, true},
		{"fenced by an opening before it that came late", storage.ErrFenced, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			store := newRestartable(t, memstore.Options{})
			c := newCluster(t, topicRecords(testTopic, "orders", 1)...)
			f := start(t, store, c, testConfig(), nil)
			idempotent := func(f *fixture, seq int32) model.Appended {
				return f.produce(part(0), makeBatch(t, batch.Options{Producer: &batch.Producer{ID: 7, Sequence: seq}}, "v"))
			}
			for seq := range int32(3) {
				if r := idempotent(f, seq); r.Err != nil {
					t.Fatal(r.Err)
				}
			}
			if err := f.stop(); err != nil {
				t.Fatal(err)
			}

			bad := &badBlobs{restartable: store, fault: test.fault, once: test.once}
			f = start(t, store, c, testConfig(), func(d *Deps) { d.Directories[0].Store = bad })
			if r := idempotent(f, 2); r.Err != nil || r.BaseOffset != 2 {
				t.Fatalf("a repeat after it: %+v, want offset 2", r)
			}
			if r := idempotent(f, 3); r.Err != nil || r.BaseOffset != 3 {
				t.Fatalf("the next: %+v, want offset 3", r)
			}
			if bad.removed != test.removed {
				t.Fatalf("removed: %v, want %v", bad.removed, test.removed)
			}
		})
	}
}

// handles counts openings of one log that are neither closed nor fenced by a later one, and
// flushes through old ones.
type handles struct {
	*restartable
	open    map[storage.Handle]bool
	last    storage.Handle
	flushed int
	old     int
}

func (h *handles) Open(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
	out := h.restartable.Open(ctx, specs)
	for _, r := range out {
		if r.Err == nil {
			clear(h.open)
			h.open[r.Handle], h.last = true, r.Handle
		}
	}
	return out
}

func (h *handles) Close(ctx context.Context, hs []storage.Handle) []error {
	for _, handle := range hs {
		delete(h.open, handle)
	}
	return h.restartable.Close(ctx, hs)
}

func (h *handles) Flush(ctx context.Context, hs []storage.Handle) []storage.FlushResult {
	for _, handle := range hs {
		h.flushed++
		if handle != h.last {
			h.old++
		}
	}
	return h.restartable.Flush(ctx, hs)
}

// byHand is a manager on one goroutine, with one partition.
func byHand(t *testing.T) (*stepped, *cluster, *handles) {
	t.Helper()
	s := newStepped(t)
	h := &handles{restartable: s.store, open: map[storage.Handle]bool{}}
	cfg := testConfig()
	cfg.OpenWait = 0
	m, err := New(cfg, Deps{Directories: []Directory{{ID: testDir, Name: "main", Store: h}}, Logger: discard(), Clock: s.clock, Executor: s.exec})
	if err != nil {
		t.Fatal(err)
	}
	s.m = m
	c := newCluster(t, topicRecords(testTopic, "orders", 1)...)
	m.Apply(c.img)
	return s, c, h
}

// settle turns the loops and runs the calls of the store until nothing is left.
func (s *stepped) settle() {
	for {
		s.turnAll()
		if !s.exec.run(0) {
			return
		}
	}
}

func (s *stepped) turnAll() {
	for _, l := range s.m.Loops() {
		l.Turn(s.clock.now)
	}
}

// TestAReplicaThatEndsWhileItsLogIsOpenedLeavesNothingOpen: both come in one burst, or
// the end comes while the store opens. One that nobody leads is no end.
func TestAReplicaThatEndsWhileItsLogIsOpenedLeavesNothingOpen(t *testing.T) {
	for _, oneBurst := range []bool{true, false} {
		s, c, h := byHand(t)
		if !oneBurst {
			s.turnAll()
		}
		s.m.Apply(c.apply(&image.PartitionChangeRecord{Partition: part(0), LeaderChange: true, Leader: model.NoNode}))
		s.settle()
		if len(h.open) != 1 {
			t.Errorf("in one burst %v: %d logs are open of one that nobody leads", oneBurst, len(h.open))
		}
		s.m.Apply(c.apply(&image.PartitionChangeRecord{Partition: part(0), LeaderChange: true, Leader: 1}))
		if !oneBurst {
			s.turnAll()
		}
		s.m.Stop()
		s.settle()
		if len(h.open) != 0 {
			t.Errorf("in one burst %v: %d logs are open, and the broker has stopped", oneBurst, len(h.open))
		}
	}
}

// TestAFlushOfAnEarlierOpeningIsNotMade: its answer would be taken for that of a
// flush of the opening which came after it.
func TestAFlushOfAnEarlierOpeningIsNotMade(t *testing.T) {
	s, c, h := byHand(t)
	s.m.Apply(c.apply(&image.PartitionChangeRecord{
		Partition: part(0), Replicas: []model.NodeID{1, 2}, Directories: []model.DirectoryID{testDir, {0xd2}}, ISR: []model.NodeID{1, 2},
	}))
	s.settle()
	a := makeBatch(t, batch.Options{}, "v")
	a.Partition, a.Acks = part(0), model.AcksLeader
	s.m.Append(t.Context(), a, func(r model.Appended) {
		if r.Err != nil {
			t.Error(r.Err)
		}
	})
	s.settle()
	s.m.Apply(c.apply(&image.PartitionChangeRecord{Partition: part(0), ISR: []model.NodeID{1}})) // asks for a flush
	r, err := s.m.find(part(0))
	if err != nil {
		t.Fatal(err)
	}
	r.shard.tell(r, &partition.ReadFailed{Gen: r.gen, Fault: partition.FaultGone}) // opens again
	s.settle()
	if h.old != 0 || h.flushed != 1 {
		t.Fatalf("%d flushes, %d of them through an old handle; want one through the new", h.flushed, h.old)
	}
}
