package logstore

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

// staleSize is that of all batches of a log whose segments are used again: each
// lies where another lay before, and the heads of some end a sector, or a page.
const staleSize = 500

func staleBatch(offset int64) []byte { return batch(offset, 1, 1, staleSize-61, 1000+offset) }

func recycleConfig(boot string) Config {
	cfg := testConfig(boot)
	cfg.Options.SegmentBytes, cfg.SpareBytes = 16<<10, 1<<20
	return cfg
}

// spareIs waits until the log's spare file was looked after, and says what it is.
func (r *running) spareIs(h storage.Handle) (there, ready bool, err error) {
	l, err := r.lookup(h)
	if err != nil {
		return false, false, err
	}
	cleaned := make(chan struct{})
	if r.recyclers.push(func() { close(cleaned) }) {
		<-cleaned
	}
	err = l.do(r.ctx(), func() error {
		there, ready = l.spare != nil, l.spare != nil && l.spare.ready
		return nil
	})
	return there, ready, err
}

// recycled appends to a log until its first segment was dropped and is in use again.
func recycled(s *running, attempted *int64) (storage.OpenResult, error) {
	res := s.open(testID, 1)
	if res.Err != nil {
		return res, res.Err
	}
	appendTo := func(leo int64) error {
		for ; *attempted < leo; *attempted++ {
			if _, err := s.append(request(res.Handle, *attempted, 0, staleBatch(*attempted))); err != nil {
				return err
			}
		}
		return nil
	}
	perSegment := int64(16<<10) / staleSize
	if err := appendTo(2*perSegment + 3); err != nil {
		return res, err
	}
	// What is dropped is on the disk.
	if f := s.Flush(s.ctx(), []storage.Handle{res.Handle})[0]; f.Err != nil {
		return res, f.Err
	}
	if _, err := s.Trim(s.ctx(), res.Handle, perSegment); err != nil {
		return res, err
	}
	there, ready, err := s.spareIs(res.Handle)
	if err == nil && (!there || !ready) {
		err = errors.New("no segment is used again")
	}
	if err == nil {
		err = appendTo(3*perSegment + 1)
	}
	return res, err
}

// Whatever a crash leaves of writes to a segment that held batches before, none of
// those is taken for one of the log: neither whole, nor its body behind the head of
// another. After a kill the log is as it was left, and there is nothing to tell.
func TestRecycledSegmentsAreNotTakenForOthers(t *testing.T) {
	perSegment := int64(16<<10) / staleSize
	for n := int64(1); ; n++ {
		r := newRand(uint64(n))
		cfg, left := crashLater()
		fs := vfs.NewMem(cfg)
		s, err := start(fs, recycleConfig("boot-1"))
		if err != nil {
			t.Fatal(err)
		}
		leo := int64(0)
		res, err := recycled(s, &leo)
		if err != nil {
			t.Fatal(err)
		}
		left.Store(n - 1)
		acked, err := s.fill(res.Handle, &leo, r)
		crashed := err != nil
		if crashed && !errors.Is(err, storage.ErrGone) && !errors.Is(err, errCrash) {
			t.Fatalf("change %d: %v", n, err)
		}
		left.Store(0)
		s.stop()
		checkStale(t, fs.AfterKill(vfs.MemConfig{}), "boot-1", perSegment, acked, leo)
		for range 60 {
			checkStale(t, fs.AfterPowerLoss(vfs.MemConfig{}, r), "boot-2", perSegment, 0, leo)
		}
		if !crashed {
			return
		}
	}
}

// fill appends to the log in several ways, and returns the LEO that survives a kill.
// leo is what was attempted.
func (r *running) fill(h storage.Handle, leo *int64, rnd *rand.Rand) (acked int64, err error) {
	acked = *leo
	for range 3 {
		require := storage.SurvivesProcess
		if rnd.IntN(3) == 0 {
			require = storage.SurvivesMachine
		}
		o, err := newHost(r, h, 1, require)
		if err != nil {
			return acked, err
		}
		for range 2 {
			var batches [][]byte
			for range 1 + rnd.IntN(3) {
				batches = append(batches, staleBatch(*leo))
				*leo++
			}
			req, err := o.write(batches...)
			if err != nil {
				return acked, err
			}
			if require == storage.SurvivesProcess {
				acked = *leo
			}
			if _, err := r.append(req); err != nil {
				return acked, err
			}
			acked = *leo
		}
		b := staleBatch(*leo)
		*leo++
		if _, err := r.append(request(h, *leo-1, require, b)); err != nil {
			return acked, err
		}
		acked = *leo
	}
	return acked, nil
}

func checkStale(t *testing.T, fs vfs.FS, boot string, from, least, most int64) {
	t.Helper()
	s, err := start(fs, recycleConfig(boot))
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	res := s.open(testID, 1)
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	if res.LEO < least || res.LEO > most || res.LogStart > from {
		t.Fatalf("the log is from %d to %d, not %d to between %d and %d (cut %q)", res.LogStart, res.LEO, from, least, most, res.Cut)
	}
	if least > 0 && res.Verdict != storage.VerdictIntact {
		t.Fatalf("verdict %d after a kill (cut %q)", res.Verdict, res.Cut)
	}
	got, err := s.readAll(res.Handle, res.LogStart, res.LEO)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range got {
		if want := staleBatch(res.LogStart + int64(i)); !bytes.Equal(b, want) {
			t.Fatalf("the batch at %d is another one", res.LogStart+int64(i))
		}
	}
	if err := goOn(s, &res, 1); err != nil {
		t.Fatal(err)
	}
}

// A dropped segment is used again unless it was ever leased, or was there when the log
// was opened, or somebody reads it, or there is one already, or no room for it.
func TestWhatIsRecycled(t *testing.T) {
	for name, c := range map[string]struct {
		before func(t *testing.T, s *running, h storage.Handle)
		want   bool
	}{
		"free": {func(*testing.T, *running, storage.Handle) {}, true},
		"leased": {func(t *testing.T, s *running, h storage.Handle) {
			if _, err := s.lease(t.Context(), h, 3); err != nil {
				t.Error(err)
			}
		}, false},
		"given back": {func(t *testing.T, s *running, h storage.Handle) {
			lent, err := s.lease(t.Context(), h, 3)
			if err != nil {
				t.Error(err)
			}
			files{s.Store}.Return([]storage.LeaseID{lent.ID})
		}, false},
		"there at the opening": {func(t *testing.T, s *running, h storage.Handle) { reopened(t, s, h) }, false},
		"held by a reader": {func(t *testing.T, s *running, h storage.Handle) {
			if err := mustLog(t, s, h).snapshot().segs[0].Acquire(); err != nil {
				t.Error(err)
			}
		}, false},
		"no budget": {func(_ *testing.T, s *running, _ storage.Handle) { s.spares.take(1 << 20) }, false},
		"no room": {func(_ *testing.T, s *running, _ storage.Handle) {
			fs, _ := s.below.(*vfs.Mem)
			fs.SetCapacity(fs.Used() + 3<<10)
		}, false},
		"no reserve": {func(_ *testing.T, s *running, _ storage.Handle) { s.reserve.release() }, false},
	} {
		s := mustStart(t, vfs.NewMem(vfs.MemConfig{}), recycleConfig("boot-1"))
		res := s.mustOpen(t, 1)
		for i := range int64(40) {
			if _, err := s.append(request(res.Handle, i, 0, staleBatch(i))); err != nil {
				t.Fatal(err)
			}
		}
		c.before(t, s, res.Handle)
		l, err := s.logFor(testID, "topic")
		if err != nil {
			t.Fatal(err)
		}
		h := l.handleNow()
		if _, err := s.Trim(t.Context(), h, 35); err != nil {
			t.Fatal(err)
		}
		if there, ready, err := s.spareIs(h); err != nil || there != c.want || ready != c.want {
			t.Errorf("%s: there is a spare file: %v, it is ready: %v, %v", name, there, ready, err)
		}
		if err := s.Close(t.Context(), []storage.Handle{h})[0]; err != nil {
			t.Fatal(err)
		}
		if left := s.spares.left; name != "no budget" && left != 1<<20 {
			t.Errorf("%s: %d bytes are left after the close", name, left)
		}
		entries, err := s.below.List("/store/" + dirName(testID, "topic"))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name == spareName {
				t.Errorf("%s: the spare file remains", name)
			}
		}
	}
}

// Spare files are given up with the reserve.
func TestSparesAreGivenUp(t *testing.T) {
	s := mustStart(t, vfs.NewMem(vfs.MemConfig{}), recycleConfig("boot-1"))
	leo := int64(0)
	res := s.mustOpen(t, 1)
	for ; leo < 40; leo++ {
		if _, err := s.append(request(res.Handle, leo, 0, staleBatch(leo))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Trim(t.Context(), res.Handle, 35); err != nil {
		t.Fatal(err)
	}
	full := true
	err := s.reserve.control(func() error {
		if full {
			full = false
			return syscall.ENOSPC
		}
		return nil
	})
	if there, _, errToo := s.spareIs(res.Handle); err != nil || errToo != nil || there {
		t.Errorf("there is a spare file: %v, %v, %v", there, err, errToo)
	}
}
