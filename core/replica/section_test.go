package replica

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// sectionStore says that the batches up to an offset lie in a file, and counts who uses
// it.
type sectionStore struct {
	*restartable
	upTo     int64
	asked    []storage.ReadRequest
	used     int
	damaged  int
	released int
}

func (s *sectionStore) ReadSection(req storage.ReadRequest) (storage.Section, bool) {
	s.asked = append(s.asked, req)
	if req.Offset >= s.upTo {
		return storage.Section{}, false
	}
	s.used++
	return storage.Section{Pos: 7, Bytes: 1000, Next: s.upTo, Owner: s}, true
}

func (s *sectionStore) Release(damaged bool) {
	s.released++
	if damaged {
		s.damaged++
	}
}

// A section is taken where it was asked for and answers the fetch; it takes no memory, and
// is released with its answer.
func TestFetchSections(t *testing.T) {
	store := &sectionStore{restartable: newRestartable(t, memstore.Options{}), upTo: 2}
	cfg := testConfig()
	cfg.TailBytes = 0
	f := start(t, store.restartable, newCluster(t, topicRecords(testTopic, "orders", 1)...), cfg,
		func(d *Deps) { d.Directories[0].Store = store })
	for _, value := range []string{"a", "b", "c", "d"} {
		f.mustProduce(part(0), value)
	}
	q := question(1, 0)
	whole := f.Fetch(t.Context(), q)
	want := slices.Concat(whole.Partitions[0].Data...)
	whole.Release()
	if len(store.asked) > 0 {
		t.Error("a section was asked for where none is taken")
	}

	q.Sections = true
	q.MinBytes, q.MaxWait = 1000, time.Minute // as much as the section
	a := f.Fetch(t.Context(), q)
	got := &a.Partitions[0]
	if got.Section.Pos != 7 || got.Section.Bytes != 1000 || got.Bytes() != 1000 || len(got.Data) > 0 {
		t.Errorf("%+v with %d bytes in %d parts", got.Section, got.Bytes(), len(got.Data))
	}
	if a.Memory > 0 || store.used != 1 || store.released != 0 {
		t.Errorf("%d bytes of memory, %d sections used, %d released", a.Memory, store.used, store.released)
	}
	got.Section.Owner.Damaged()
	a.Release()
	if store.released != 1 || store.damaged != 1 {
		t.Errorf("released %d times, damaged %d", store.released, store.damaged)
	}

	f.Fetch(t.Context(), q).Release()
	if store.used != 2 || store.released != 2 || store.damaged != 1 {
		t.Errorf("used %d times, released %d, damaged %d", store.used, store.released, store.damaged)
	}
	if ask := store.asked[0]; ask.Offset != 0 || ask.UpTo != 4 || ask.MaxBytes != 1<<20 {
		t.Errorf("asked for %+v", ask)
	}

	// With more to wait for, files would be kept open for as long.
	q.MinBytes, q.MaxWait = 1001, time.Millisecond
	a = f.Fetch(t.Context(), q)
	if data := slices.Concat(a.Partitions[0].Data...); !bytes.Equal(data, want) || a.Partitions[0].Section.Bytes > 0 {
		t.Errorf("%d bytes of %d, and %d of a section", len(data), len(want), a.Partitions[0].Section.Bytes)
	}
	if store.used != store.released {
		t.Errorf("%d sections used, %d released", store.used, store.released)
	}
	a.Release()
}
