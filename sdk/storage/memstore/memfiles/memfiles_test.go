package memfiles_test

import (
	"os"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
	"github.com/brokerd/brokerd/sdk/storage/memstore/memfiles"
)

const segmentBytes = 4096

// opened is a log of a new store.
func opened(t *testing.T) (storage.Store, storage.Handle) {
	t.Helper()
	provider := memfiles.NewProvider(t.TempDir(), memstore.Options{SegmentBytes: segmentBytes})
	store, _, err := provider.Open(t.Context(), storage.Config{Identity: storage.Identity{ClusterID: "c", NodeID: 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Shutdown(t.Context()) })
	r := store.Open(t.Context(), []storage.OpenSpec{{Create: true, LeaderEpoch: 1}})[0]
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	return store, r.Handle
}

// fill appends batches of one offset and 400 bytes each.
func fill(t *testing.T, store storage.Store, h storage.Handle, from, to int64) {
	t.Helper()
	for offset := from; offset < to; offset++ {
		data := recordbatch.Build(nil, recordbatch.Header{
			Info:    recordbatch.Info{BaseOffset: offset, LastOffset: offset, LeaderEpoch: 1, MaxTimestamp: offset, Records: 1},
			Payload: make([]byte, 400-recordbatch.HeaderBytes),
		})
		info, err := recordbatch.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		store.Append(t.Context(), storage.AppendRequest{
			Handle: h, LeaderEpoch: 1, BaseOffset: offset, Batches: []storage.BatchInfo{info}, Data: [][]byte{data},
		}, func(_ storage.AppendResult, err error) {
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// lease takes a lease and returns it and its file's identity.
func lease(t *testing.T, store storage.Store, h storage.Handle, offset int64) (storage.Lease, os.FileInfo) {
	t.Helper()
	l, err := store.Files().Lease(t.Context(), h, offset)
	if err != nil {
		t.Fatal(err)
	}
	info, err := l.File.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return l, info
}

// A file that retention took from the log is its next when nothing of it was ever
// leased, and it was not there when the log was opened; otherwise it is never used
// again. Hosts of the next grant are told what to write behind their batches.
func TestRecycles(t *testing.T) {
	leased := func(t *testing.T, store storage.Store, h storage.Handle) storage.Lease {
		first, _ := lease(t, store, h, 0)
		first.File.Close()
		return first
	}
	for name, c := range map[string]struct {
		before   func(t *testing.T, store storage.Store, h storage.Handle) storage.Handle
		recycled bool
	}{
		"never leased": {func(_ *testing.T, _ storage.Store, h storage.Handle) storage.Handle { return h }, true},
		"held": {func(t *testing.T, store storage.Store, h storage.Handle) storage.Handle {
			leased(t, store, h)
			return h
		}, false},
		"returned": {func(t *testing.T, store storage.Store, h storage.Handle) storage.Handle {
			store.Files().Return([]storage.LeaseID{leased(t, store, h).ID})
			return h
		}, false},
		"there at the opening": {func(t *testing.T, store storage.Store, _ storage.Handle) storage.Handle {
			r := store.Open(t.Context(), []storage.OpenSpec{{LeaderEpoch: 1}})[0]
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			return r.Handle
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			store, h := opened(t)
			fill(t, store, h, 0, 5)
			first := granted(t, store, h)
			before, err := first.File.Stat()
			if err != nil {
				t.Fatal(err)
			}
			fill(t, store, h, 5, 15) // the first file holds ten
			h = c.before(t, store, h)
			result, err := store.Retain(t.Context(), h, storage.RetainPolicy{Ceiling: 15, Now: time.Now(), MaxBytes: 2000})
			if err != nil || result.LogStart != 10 {
				t.Fatalf("the log starts at %d, %v", result.LogStart, err)
			}
			fill(t, store, h, 15, 23)
			third, after := lease(t, store, h, 22)
			if os.SameFile(before, after) != c.recycled {
				t.Errorf("the first file is the third: %v", !c.recycled)
			}
			if third.FileID == first.FileID {
				t.Error("a file that holds other batches has the same number")
			}
			g := granted(t, store, h)
			if (g.EndMark > 0) != c.recycled || g.Gaps == c.recycled {
				t.Errorf("the end is lent with EndMark %d, gaps: %v", g.EndMark, g.Gaps)
			}
			if g.FileID != third.FileID {
				t.Errorf("a grant of file %d, which is leased as %d", g.FileID, third.FileID)
			}
		})
	}
}

// granted returns a grant, whose file stays open till the test ends.
func granted(t *testing.T, store storage.Store, h storage.Handle) storage.Grant {
	t.Helper()
	g, err := store.Files().Grant(t.Context(), h, 1, storage.SurvivesUnset)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.File.Close() })
	return g
}
