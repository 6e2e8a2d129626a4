package logstore

import (
	"path"
	"strings"
	"testing"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

// segmentFile opens a segment of the test's log below the store.
func segmentFile(t *testing.T, fs vfs.FS, base int64) vfs.File {
	t.Helper()
	f, err := fs.Open(path.Join("/store", dirName(testID, "topic"), segment.Name(base, segment.LogSuffix)), vfs.Existing)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // nothing that must last
	return f
}

func sizeOf(t *testing.T, fs vfs.FS, base int64) int64 {
	t.Helper()
	n, _, err := segmentFile(t, fs, base).Stat()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// aheadLog has one batch that was synced, and zeros behind it.
func aheadLog(t *testing.T) (fs *vfs.Mem, s *running, h storage.Handle, first []byte) {
	t.Helper()
	fs = vfs.NewMem(vfs.MemConfig{})
	s = mustStart(t, fs, config64K())
	h = s.mustOpen(t, 1).Handle
	first = batch(0, 1, 1, 5000, 1000)
	if _, err := s.append(request(h, 0, storage.SurvivesMachine, first)); err != nil {
		t.Fatal(err)
	}
	if n := sizeOf(t, fs, 0); n != int64(len(first))+aheadLeast {
		t.Fatalf("the file has %d bytes, of which %d are the log's", n, len(first))
	}
	return fs, s, h, first
}

// Zeros are written ahead of appends that wait for a sync, and of no others; a
// segment that grows no more, and a log that was closed, end with their batches.
func TestZerosAhead(t *testing.T) {
	fs, s, h, first := aheadLog(t)
	second := batch(1, 1, 1, 60<<10, 1000)
	if _, err := s.append(request(h, 1, 0, second)); err != nil {
		t.Fatal(err)
	}
	if a, b := sizeOf(t, fs, 0), sizeOf(t, fs, 1); a != int64(len(first)) || b != int64(len(second)) {
		t.Errorf("after a roll the files have %d and %d bytes, not %d and %d", a, b, len(first), len(second))
	}
	third := batch(2, 1, 1, 8000, 1000)
	if _, err := s.append(request(h, 2, storage.SurvivesMachine, third)); err != nil {
		t.Fatal(err)
	}
	if n := sizeOf(t, fs, 2); n <= int64(len(third)) {
		t.Errorf("the file has %d bytes", n)
	}
	if err := s.Close(t.Context(), []storage.Handle{h})[0]; err != nil {
		t.Fatal(err)
	}
	if n := sizeOf(t, fs, 2); n != int64(len(third)) {
		t.Errorf("after a close the file has %d bytes, not %d", n, len(third))
	}
	res := s.mustOpen(t, 1)
	if leo, err := s.Truncate(t.Context(), res.Handle, 1, 1); err != nil || leo != 1 {
		t.Fatal(leo, err)
	}
	if n := sizeOf(t, fs, 0); n != int64(len(first)) {
		t.Errorf("after a truncation the file has %d bytes, not %d", n, len(first))
	}
	expectLog(t, s, res.Handle, first)
}

// After a kill, zeros behind the log are neither damage nor loss; nor is a write
// that was cut short on top of them. Damage of a batch that was there is.
func TestZerosAheadAfterAKill(t *testing.T) {
	next := batch(1, 1, 1, 9000, 1001)
	for name, c := range map[string]struct {
		spoil   func(f vfs.File, first []byte) error
		leo     int64
		cut     string
		verdict storage.Verdict
	}{
		"nothing": {func(vfs.File, []byte) error { return nil }, 1, "", storage.VerdictIntact},
		"cut short behind a page": {func(f vfs.File, first []byte) error {
			_, err := f.WriteVecAt([][]byte{next[:2*pageBytes-len(first)]}, int64(len(first)))
			return err
		}, 1, "dropped", storage.VerdictIntact},
		"whole": {func(f vfs.File, first []byte) error {
			_, err := f.WriteVecAt([][]byte{next}, int64(len(first)))
			return err
		}, 2, "", storage.VerdictIntact},
		"whole and damaged": {func(f vfs.File, first []byte) error {
			_, err := f.WriteVecAt([][]byte{next[:100], {1, 2, 3}, next[103:]}, int64(len(first)))
			return err
		}, 1, "dropped", storage.VerdictMayHaveLostSuffix},
		"its head gone": {func(f vfs.File, first []byte) error {
			_, err := f.WriteVecAt([][]byte{make([]byte, 100), next[100:]}, int64(len(first)))
			return err
		}, 1, "dropped", storage.VerdictMayHaveLostSuffix},
	} {
		fs, _, _, first := aheadLog(t)
		fs = fs.AfterKill(vfs.MemConfig{})
		if err := c.spoil(segmentFile(t, fs, 0), first); err != nil {
			t.Fatal(err)
		}
		res := mustStart(t, fs, config64K()).mustOpen(t, 1)
		if res.LEO != c.leo || res.Verdict != c.verdict || (res.Cut == "") != (c.cut == "") || !strings.Contains(res.Cut, c.cut) {
			t.Errorf("%s: LEO %d, verdict %d, cut %q", name, res.LEO, res.Verdict, res.Cut)
		}
		if n := sizeOf(t, fs, 0); res.LEO == 1 && n != int64(len(first)) {
			t.Errorf("%s: the file has %d bytes, not %d", name, n, len(first))
		}
	}
}

// A grant whose appends all wait for a sync ends with the zeros that were written
// for it; any other does not, and takes nothing of them for the log's.
func TestZerosAheadOfGrants(t *testing.T) {
	for _, require := range []storage.Survives{storage.SurvivesMachine, storage.SurvivesProcess} {
		fs, s, h, first := aheadLog(t)
		o, err := newHost(s, h, 1, require)
		if err != nil {
			t.Fatal(err)
		}
		if size := sizeOf(t, fs, 0); (o.Limit == size) != (require == storage.SurvivesMachine) {
			t.Errorf("require %d: limit %d in a file of %d bytes", require, o.Limit, size)
		}
		next := batch(1, 1, 1, 7000, 1001)
		if _, err := s.append(mustWrite(t, o, next)); err != nil {
			t.Fatal(err)
		}
		res := s.mustOpen(t, 1)
		if res.LEO != 2 || res.Cut != "" {
			t.Errorf("require %d: LEO %d, cut %q", require, res.LEO, res.Cut)
		}
		expectLog(t, s, res.Handle, first, next)
	}
}

// Where there is no room for zeros, there is still room for batches.
func TestZerosAheadOfAFullDisk(t *testing.T) {
	fs := vfs.NewMem(vfs.MemConfig{})
	s := mustStart(t, fs, config64K())
	res := s.mustOpen(t, 1)
	if _, err := s.append(request(res.Handle, 0, storage.SurvivesMachine, batch(0, 1, 1, 100, 1000))); err != nil {
		t.Fatal(err)
	}
	// Its zeros end within this one.
	b := batch(1, 1, 1, 20<<10, 1000)
	fs.SetCapacity(fs.Used() + int64(len(b)))
	if got, err := s.append(request(res.Handle, 1, storage.SurvivesMachine, b)); err != nil || got.Durable != 2 {
		t.Fatalf("append: %+v, %v", got, err)
	}
	expectLog(t, s, res.Handle, batch(0, 1, 1, 100, 1000), b)
}
