package logstore

import (
	"bytes"
	"errors"
	"fmt"
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

// A truncation into bytes that were ever leased goes on in another file, whatever it
// cuts, and so does one into bytes that were there when the log was opened: an
// earlier life may have leased them. One behind them, or of bytes that nobody has
// leased, does not.
func TestTruncationBelowALease(t *testing.T) {
	for name, c := range map[string]struct {
		lend  func(t *testing.T, s *running, h storage.Handle) storage.Handle
		to    int64
		moves bool
	}{
		"never leased": {func(_ *testing.T, _ *running, h storage.Handle) storage.Handle { return h }, 3, false},
		"leased": {func(t *testing.T, s *running, h storage.Handle) storage.Handle {
			if _, err := s.lease(t.Context(), h, 2); err != nil {
				t.Error(err)
			}
			return h
		}, 3, true},
		"returned": {func(t *testing.T, s *running, h storage.Handle) storage.Handle {
			lent, err := s.lease(t.Context(), h, 2)
			if err != nil {
				t.Error(err)
			}
			(files{s.Store}).Return([]storage.LeaseID{lent.ID, 99})
			return h
		}, 3, true},
		"there at the opening": {reopened, 3, true},
		"behind what was there at the opening": {func(t *testing.T, s *running, h storage.Handle) storage.Handle {
			h = reopened(t, s, h)
			if _, err := s.append(request(h, 6, 0, batch(6, 1, 1, 100, 1))); err != nil {
				t.Error(err)
			}
			return h
		}, 6, false},
	} {
		fs := vfs.NewMem(vfs.MemConfig{})
		s := mustStart(t, fs, config64K())
		h := s.mustOpen(t, 1).Handle
		var all []byte
		var want [][]byte
		for at := range int64(6) {
			b := batch(at, 1, 1, 100, 1)
			all = append(all, b...)
			if at < c.to {
				want = append(want, b)
			}
			if _, err := s.append(request(h, at, 0, b)); err != nil {
				t.Fatal(err)
			}
		}
		h = c.lend(t, s, h)
		seg := mustLog(t, s, h).snapshot().segs[0]
		before := seg.ID()
		file, err := fs.Open(path.Join(logDir(), segment.Name(0, segment.LogSuffix)), vfs.Existing)
		if err != nil {
			t.Fatal(err)
		}
		if leo, err := s.Truncate(t.Context(), h, 1, c.to); err != nil || leo != c.to {
			t.Fatal(leo, err)
		}
		other := batch(c.to, 1, 2, 100, 1)
		if _, err := s.append(request(h, c.to, storage.SurvivesMachine, other)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, len(all))
		n, _ := file.ReadAt(b, 0)
		if same := n == len(b) && bytes.Equal(b, all); !same && (c.moves || c.to == 6) {
			t.Errorf("%s: the bytes have changed", name)
		}
		again := mustStart(t, fs.AfterPowerLoss(vfs.MemConfig{}, rand.New(rand.NewPCG(1, 1))), config64K()).mustOpen(t, 2)
		if again.LEO != c.to+1 {
			t.Errorf("%s: after a loss of power the log ends at %d", name, again.LEO)
		}
		expectLog(t, s, h, append(want, other)...)
		next, err := s.lease(t.Context(), h, 2)
		if err != nil || (next.FileID != before) != c.moves {
			t.Errorf("%s: file %d before and %d after, %v", name, before, next.FileID, err)
		}
	}
}

// reopened closes the log and opens it again.
func reopened(t *testing.T, s *running, h storage.Handle) storage.Handle {
	t.Helper()
	if err := s.Close(t.Context(), []storage.Handle{h})[0]; err != nil {
		t.Fatal(err)
	}
	return s.mustOpen(t, 1).Handle
}

// Of a file that was there, an opening changes no batch that may be read yet,
// whatever is damaged in it: what is cut off goes on in another file. It cuts in
// place what a write has left that was cut short, and after a start of the machine.
func TestRecoveryBelowALease(t *testing.T) {
	d := leave(t, leftKilled)
	last := int64(len(d.batches[len(d.batches)-1]))
	for name, c := range map[string]struct {
		change func(f vfs.File) error
		boot   string
		same   bool
	}{
		"damaged": {func(f vfs.File) error {
			_, err := f.WriteVecAt([][]byte{{0xff}}, d.pos-1)
			return err
		}, "boot-1", true},
		"damaged and torn": {func(f vfs.File) error {
			_, err := f.WriteVecAt([][]byte{{0xff}}, d.pos-1)
			return errors.Join(err, f.Truncate(d.pos+last-10))
		}, "boot-1", true},
		"torn": {func(f vfs.File) error { return f.Truncate(d.pos + last - 10) }, "boot-1", false},
		"damaged, and the machine has started": {func(f vfs.File) error {
			_, err := f.WriteVecAt([][]byte{{0xff}}, d.pos-1)
			return err
		}, "boot-2", false},
	} {
		fs := d.with(t, c.change)
		before, err := vfs.ReadAll(fs, d.file, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		file, err := fs.Open(d.file, vfs.Existing)
		if err != nil {
			t.Fatal(err)
		}
		s := mustStart(t, fs, testConfig(c.boot))
		res := s.mustOpen(t, 5)
		for at := res.LEO; at < res.LEO+3; at++ {
			if _, err := s.append(request(res.Handle, at, storage.SurvivesMachine, batch(at, 1, 5, 100, 1))); err != nil {
				t.Fatal(err)
			}
		}
		after := make([]byte, len(before)+1)
		n, _ := file.ReadAt(after, 0)
		if same := bytes.Equal(after[:n], before); same != c.same {
			t.Errorf("%s: the file is what it was: %v", name, same)
		}
		got, err := s.readAll(res.Handle, 0, res.LEO+3)
		if err != nil || len(got) != int(res.LEO/3)+3 {
			t.Errorf("%s: %d batches of a log that ended at %d, %v", name, len(got), res.LEO, err)
		}
		s.stop()
		power := mustStart(t, fs.AfterPowerLoss(vfs.MemConfig{}, newRand(1)), testConfig("boot-3")).mustOpen(t, 6)
		if power.LEO != res.LEO+3 {
			t.Errorf("%s: after a loss of power the log ends at %d, not %d", name, power.LEO, res.LEO+3)
		}
	}
}

// A crash of an opening that goes on in another file leaves the log as it was before
// or after: the next one finds every batch before the damage.
func TestCrashOfARecoveryBelowALease(t *testing.T) {
	d := leave(t, leftKilled)
	for n := int64(0); ; n++ {
		cfg, left := crashLater()
		fs := d.fs.AfterKill(cfg)
		f, err := fs.Open(d.file, vfs.Existing)
		if err == nil {
			_, err = f.WriteVecAt([][]byte{{0xff}}, d.pos-1)
		}
		if err != nil {
			t.Fatal(err)
		}
		left.Store(n)
		s, err := start(fs, testConfig("boot-1"))
		crashed := err != nil
		if !crashed {
			res := s.open(testID, 4)
			crashed = res.Err != nil
			left.Store(0)
			s.stop()
		}
		for _, after := range []vfs.FS{fs.AfterKill(vfs.MemConfig{}), fs.AfterPowerLoss(vfs.MemConfig{}, newRand(uint64(n)))} {
			visit(t, after, func(res storage.OpenResult, got [][]byte, err error) error {
				if err != nil {
					return fmt.Errorf("crash after %d changes: %w", n, err)
				}
				return same(got, d.batches[:len(got)]) // the damage may be lost too
			})
		}
		if again := mustStart(t, fs.AfterKill(vfs.MemConfig{}), testConfig("boot-1")).mustOpen(t, 4); again.LEO != int64(len(d.batches)-2)*3 {
			t.Fatalf("crash after %d changes: the log ends at %d", n, again.LEO)
		}
		if !crashed {
			return
		}
	}
}
