package logstore

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path"
	"testing"

	"pgregory.net/rapid"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// Wherever a log is leased, the stretch begins with the batch that a read would
// begin with, and its first offset, its end and its length are those of whole
// batches.
func TestLeaseIsWhatIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := vfs.NewMem(vfs.MemConfig{})
		s, err := start(fs, testConfig("boot-1"))
		if err != nil {
			t.Fatal(err)
		}
		defer s.stop()
		res := s.open(testID, 1)
		leo := int64(0)
		var batches [][]byte
		for range rapid.IntRange(1, 30).Draw(t, "batches") {
			b := batch(leo+rapid.Int64Range(0, 1).Draw(t, "gap"), rapid.Int32Range(1, 3).Draw(t, "records"), 1, rapid.IntRange(1, 300).Draw(t, "bytes"), 1)
			if _, err := s.append(request(res.Handle, leo, 0, b)); err != nil {
				t.Fatal(err)
			}
			batches = append(batches, b)
			leo = end(b)
		}
		offset := rapid.Int64Range(0, leo).Draw(t, "offset")
		got, err := s.lease(t.Context(), res.Handle, offset)
		want := batches
		for len(want) > 0 && end(want[0]) <= offset {
			want = want[1:]
		}
		if len(want) == 0 {
			if !errors.Is(err, storage.ErrRetry) {
				t.Fatalf("a lease at the end of the log: %+v, %v", got, err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		var data []byte
		for _, e := range mustList(t, fs, s, res.Handle) {
			b, err := vfs.ReadAll(fs, e, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if int64(len(b)) >= got.Limit && got.Pos < got.Limit && bytes.HasPrefix(b[got.Pos:], want[0]) {
				data = b[got.Pos:got.Limit]
			}
		}
		if data == nil {
			t.Fatalf("no file has the batch at %d of a lease %+v", offset, got)
		}
		next := got.First
		for i := 0; len(data) > 0; i++ {
			info, b, rest, err := recordbatch.Next(data)
			if err != nil || !bytes.Equal(b, want[i]) || info.BaseOffset < next || info.BaseOffset > next && !got.Gaps {
				t.Fatalf("batch %d of a lease %+v: %+v, %v", i, got, info, err)
			}
			next, data = info.LastOffset+1, rest
		}
		if next > got.End || next < got.End && !got.Gaps && got.End != leo {
			t.Fatalf("the batches of %+v end at %d", got, next)
		}
	})
}

func mustList(t *rapid.T, fs vfs.FS, s *running, h storage.Handle) []string {
	l, err := s.lookup(h)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := fs.List(l.dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if path.Ext(e.Name) == segment.LogSuffix {
			names = append(names, path.Join(l.dir, e.Name))
		}
	}
	return names
}

// A truncation into leased bytes goes on in another file, whatever it cuts; one of
// bytes that nobody has leased, or has given back, does not.
func TestTruncationBelowALease(t *testing.T) {
	for _, returned := range []bool{false, true} {
		fs := vfs.NewMem(vfs.MemConfig{})
		s := mustStart(t, fs, config64K())
		res := s.mustOpen(t, 1)
		var all []byte
		for at := range int64(6) {
			b := batch(at, 1, 1, 100, 1)
			all = append(all, b...)
			if _, err := s.append(request(res.Handle, at, 0, b)); err != nil {
				t.Fatal(err)
			}
		}
		leased, err := s.lease(t.Context(), res.Handle, 2)
		if err != nil {
			t.Fatal(err)
		}
		file, err := fs.Open(path.Join(mustLog(t, s, res.Handle).dir, segment.Name(0, segment.LogSuffix)), vfs.Existing)
		if err != nil {
			t.Fatal(err)
		}
		if returned {
			(files{s.Store}).Return([]storage.LeaseID{leased.ID, 99})
		}
		if leo, err := s.Truncate(t.Context(), res.Handle, 1, 3); err != nil || leo != 3 {
			t.Fatal(leo, err)
		}
		other := batch(3, 1, 2, 100, 1)
		if _, err := s.append(request(res.Handle, 3, storage.SurvivesMachine, other)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, leased.Limit)
		n, _ := file.ReadAt(b, 0)
		if same := n == len(b) && bytes.Equal(b, all); same == returned {
			t.Errorf("given back %v: the leased bytes are the same: %v", returned, same)
		}
		again := mustStart(t, fs.AfterPowerLoss(vfs.MemConfig{}, rand.New(rand.NewPCG(1, 1))), config64K()).mustOpen(t, 2)
		if again.LEO != 4 {
			t.Errorf("after a loss of power the log ends at %d", again.LEO)
		}
		expectLog(t, s, res.Handle, batch(0, 1, 1, 100, 1), batch(1, 1, 1, 100, 1), batch(2, 1, 1, 100, 1), other)
		next, err := s.lease(t.Context(), res.Handle, 2)
		if err != nil || next.FileID == leased.FileID != returned {
			t.Errorf("given back %v: file %d before and %d after, %v", returned, leased.FileID, next.FileID, err)
		}
	}
}

// Leases are bounded, and those whose offset cannot be served are not counted.
func TestLeasesAreCounted(t *testing.T) {
	s := mustStart(t, vfs.NewMem(vfs.MemConfig{}), config64K())
	res := s.mustOpen(t, 1)
	if _, err := s.append(request(res.Handle, 0, 0, batch(0, 1, 1, 100, 1))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.lease(t.Context(), res.Handle, 1); !errors.Is(err, storage.ErrRetry) {
		t.Errorf("at the end: %v", err)
	}
	if _, err := s.lease(t.Context(), res.Handle, 2); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("above the end: %v", err)
	}
	if n := len(s.leases.out); n != 0 {
		t.Errorf("%d leases are out", n)
	}
	var ids []storage.LeaseID
	for range leasesMax {
		ids = append(ids, s.leases.add(lentFile{testID, 0}))
	}
	if _, err := s.lease(t.Context(), res.Handle, 0); !errors.Is(err, storage.ErrRetry) {
		t.Errorf("too many: %v", err)
	}
	(files{s.Store}).Return(ids)
	if len(s.leases.out) != 0 || len(s.leases.of) != 0 {
		t.Errorf("%d leases of %d files are out", len(s.leases.out), len(s.leases.of))
	}
}
