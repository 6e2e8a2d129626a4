package logstore

import (
	"bytes"
	"context"
	"errors"
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

// fillDisk appends batches of one record until the disk is full, and returns them.
func fillDisk(t *testing.T, s *running, h storage.Handle) [][]byte {
	t.Helper()
	var all [][]byte
	for at := int64(0); ; at++ {
		b := batch(at, 1, 1, 700, 1)
		_, err := s.append(request(h, at, storage.SurvivesProcess, b))
		if errors.Is(err, storage.ErrFull) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
}

// expectNoCopy checks that no copy of a segment is left in the log's directory.
func expectNoCopy(t *testing.T, fs vfs.FS) {
	t.Helper()
	entries, err := fs.List(logDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name, segment.CleanedSuffix) {
			t.Errorf("%s is left", e.Name)
		}
	}
}

// A log that was there when it was opened is cut on a disk that is full to the last
// byte: the truncation is refused, however often, with the log as it was, also after
// the store was started again, and goes through when there is room.
func TestTruncationOnAFullDisk(t *testing.T) {
	cfg := testConfig("boot-1")
	cfg.Options.SegmentBytes = 128 << 10
	fs := vfs.NewMem(vfs.MemConfig{Capacity: 256 << 10})
	s := mustStart(t, fs, cfg)
	all := fillDisk(t, s, s.mustOpen(t, 1).Handle)
	leo := int64(len(all))
	for range 2 {
		s.stop()
		fs = fs.AfterKill(vfs.MemConfig{Capacity: fs.Used()})
		s = mustStart(t, fs, cfg)
		res := s.mustOpen(t, 1)
		if res.LEO != leo || res.Verdict != storage.VerdictIntact {
			t.Fatalf("opened with LEO %d of %d, verdict %d, cut %q", res.LEO, leo, res.Verdict, res.Cut)
		}
		for range 2 {
			if _, err := s.Truncate(t.Context(), res.Handle, 2, leo-1); !errors.Is(err, storage.ErrFull) {
				t.Fatalf("truncate on a full disk: %v", err)
			}
			expectNoCopy(t, fs)
			expectLog(t, s, res.Handle, all...)
		}
	}
	fs.SetCapacity(512 << 10)
	h := s.mustOpen(t, 2).Handle
	if got, err := s.Truncate(t.Context(), h, 2, leo-1); err != nil || got != leo-1 {
		t.Fatalf("truncate with room: %d, %v", got, err)
	}
	other := batch(leo-1, 1, 2, 300, 1)
	if _, err := s.append(request(h, leo-1, storage.SurvivesMachine, other)); err != nil {
		t.Fatal(err)
	}
	expectLog(t, s, h, append(all[:leo-1:leo-1], other)...)
}

// The reserve is not given up for a copy that does not fit with its room either.
func TestTruncationKeepsTheReserve(t *testing.T) {
	cfg := config64K()
	fs := vfs.NewMem(vfs.MemConfig{})
	s := mustStart(t, fs, cfg)
	h := s.mustOpen(t, 1).Handle
	for at := range int64(20) {
		if _, err := s.append(request(h, at, 0, batch(at, 1, 1, 700, 1))); err != nil {
			t.Fatal(err)
		}
	}
	h = reopened(t, s, h)
	for _, free := range []int64{4 << 10, 14<<10 - 600} {
		fs.SetCapacity(fs.Used() + free)
		_, err := s.Truncate(t.Context(), h, 2, 19)
		if full := free < 14<<10-1024; errors.Is(err, storage.ErrFull) != full || s.reserve.there() != full {
			t.Errorf("%d bytes free: %v, the reserve is there: %v", free, err, s.reserve.there())
		}
	}
}

// Wherever the room ends in a truncation that goes on in another file, it is refused
// and the log is as it was, or it goes through; and it goes through when there is room.
func TestTruncationWhereverTheRoomEnds(t *testing.T) {
	refused := 0
	for n := int64(0); ; n++ {
		var left atomic.Int64 // changes that take room, before there is none
		left.Store(1 << 40)
		fs := vfs.NewMem(vfs.MemConfig{Before: func(op vfs.Op) error {
			takes := op.Kind == "create" || op.Kind == "write" && !strings.HasSuffix(op.Path, hintName)
			if takes && left.Add(-1) < 0 {
				return syscall.ENOSPC
			}
			return nil
		}})
		s := mustStart(t, fs, config64K())
		h := s.mustOpen(t, 1).Handle
		var all [][]byte
		for at := range int64(6) {
			all = append(all, batch(at, 1, 1, 100, 1))
			if _, err := s.append(request(h, at, 0, all[at])); err != nil {
				t.Fatal(err)
			}
		}
		h = reopened(t, s, h)
		left.Store(n)
		_, err := s.Truncate(t.Context(), h, 1, 3)
		out := left.Load() < 0
		left.Store(1 << 40)
		if err == nil {
			expectLog(t, s, h, all[:3]...)
			if !out {
				break
			}
			continue
		}
		refused++
		if !errors.Is(err, storage.ErrFull) {
			t.Fatalf("room for %d changes: %v", n, err)
		}
		expectNoCopy(t, fs)
		expectLog(t, s, h, all...)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if r := s.Flush(ctx, []storage.Handle{h})[0]; r.Err != nil || r.Durable != 6 {
			t.Fatalf("room for %d changes, then flush: %+v", n, r)
		}
		cancel()
		if leo, err := s.Truncate(t.Context(), h, 1, 3); err != nil || leo != 3 {
			t.Fatalf("room for %d changes, then truncate with room: %d, %v", n, leo, err)
		}
		expectLog(t, s, h, all[:3]...)
	}
	if refused < 3 { // the copy's name, its bytes, the checkpoint
		t.Errorf("%d truncations were refused", refused)
	}
}

// At every change of a truncation that goes on in another file, the one between the copy
// and its taking the segment's place among them, the process dies or the power fails:
// the log is as it was or was cut, and nothing of it is lost or damaged.
func TestCrashOfATruncationBelowALease(t *testing.T) {
	crashed := true
	for n := int64(0); crashed; n++ {
		cfg, left := crashLater()
		fs := vfs.NewMem(cfg)
		s := mustStart(t, fs, testConfig("boot-1"))
		h := s.mustOpen(t, 1).Handle
		var all [][]byte
		for at := range int64(20) { // some segments
			all = append(all, batch(at, 1, 1, 100, 1))
			if _, err := s.append(request(h, at, storage.SurvivesMachine, all[at])); err != nil {
				t.Fatal(err)
			}
		}
		h = reopened(t, s, h)
		left.Store(n)
		_, err := s.Truncate(t.Context(), h, 1, 9)
		crashed = err != nil
		left.Store(0)
		s.stop()
		check := func(res storage.OpenResult, got [][]byte, err error) error {
			if err != nil || res.Verdict != storage.VerdictIntact || len(got) < 9 || !crashed && len(got) > 9 {
				t.Errorf("crash after %d changes: %d batches, verdict %d, cut %q, %v", n, len(got), res.Verdict, res.Cut, err)
			}
			return same(got, all[:len(got)])
		}
		visit(t, fs.AfterKill(vfs.MemConfig{}), check)
		for seed := range uint64(5) {
			visit(t, fs.AfterPowerLoss(vfs.MemConfig{}, newRand(seed)), check)
		}
	}
}

// meanwhile does something once, when a checkpoint is about to be written.
type meanwhile struct {
	vfs.FS
	act atomic.Pointer[func()]
}

func (m *meanwhile) Open(name string, mode vfs.Mode) (vfs.File, error) {
	if strings.HasSuffix(name, checkpointName+".tmp") {
		if act := m.act.Swap(nil); act != nil {
			(*act)()
		}
	}
	return m.FS.Open(name, mode)
}

// A lease that comes when a truncation has found that nothing was leased is none, or its
// bytes stay.
func TestLeaseInTheMidstOfATruncation(t *testing.T) {
	fs := &meanwhile{FS: vfs.NewMem(vfs.MemConfig{})}
	s := mustStart(t, fs, config64K())
	h := s.mustOpen(t, 1).Handle
	for at := range int64(6) {
		if _, err := s.append(request(h, at, 0, batch(at, 1, 1, 100, 1))); err != nil {
			t.Fatal(err)
		}
	}
	name := path.Join(logDir(), segment.Name(0, segment.LogSuffix))
	before, err := vfs.ReadAll(fs, name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	file, err := fs.Open(name, vfs.Existing)
	if err != nil {
		t.Fatal(err)
	}
	leased := errors.New("nobody has asked")
	act := func() { _, leased = s.lease(t.Context(), h, 2) }
	fs.act.Store(&act)
	if leo, err := s.Truncate(t.Context(), h, 1, 3); err != nil || leo != 3 {
		t.Fatal(leo, err)
	}
	if leased != nil && !errors.Is(leased, storage.ErrRetry) {
		t.Fatal(leased)
	}
	after := make([]byte, len(before))
	n, _ := file.ReadAt(after, 0)
	if leased == nil && !bytes.Equal(after[:n], before) {
		t.Error("bytes that were leased have changed")
	}
	if _, err := s.lease(t.Context(), h, 2); err != nil {
		t.Errorf("a lease after the truncation: %v", err)
	}
}

// A log whose sync has failed opens on a full disk too, and what is then called durable
// is on the disk.
func TestFailedSyncOnAFullDisk(t *testing.T) {
	for _, restart := range []bool{false, true} {
		var f faults
		fs := vfs.NewMem(vfs.MemConfig{Before: f.before})
		s := mustStart(t, fs, testConfig("boot-1"))
		h := s.mustOpen(t, 1).Handle
		first, second := batch(0, 2, 1, 100, 1), batch(2, 2, 1, 100, 1)
		if _, err := s.append(request(h, 0, storage.SurvivesProcess, first)); err != nil {
			t.Fatal(err)
		}
		f.arm("sync", ".log", syscall.EIO, 1)
		if _, err := s.append(request(h, 2, storage.SurvivesMachine, second)); !errors.Is(err, storage.ErrGone) {
			t.Fatalf("append: %v", err)
		}
		if restart {
			s.stop()
			s = mustStart(t, fs, testConfig("boot-1"))
		}
		f.arm("create", segment.CleanedSuffix, syscall.ENOSPC, -1)
		if res := s.mustOpen(t, 1); res.LEO != 4 || res.Durable != 4 || res.Verdict != storage.VerdictIntact {
			t.Fatalf("LEO %d, durable %d, verdict %d", res.LEO, res.Durable, res.Verdict)
		}
		s.stop()
		for seed := range uint64(20) {
			again := mustStart(t, fs.AfterPowerLoss(vfs.MemConfig{}, newRand(seed)), testConfig("boot-2"))
			r := again.mustOpen(t, 1)
			got, err := again.readAll(r.Handle, 0, r.LEO)
			if err != nil || same(got, [][]byte{first, second}) != nil {
				t.Fatalf("restart %v, seed %d: %d batches, %v", restart, seed, len(got), err)
			}
			again.stop()
		}
	}
}

// A log with damage opens on a disk without any room: it is cut in place, and goes on.
func TestRecoveryBelowALeaseOnAFullDisk(t *testing.T) {
	d := leave(t, leftKilled)
	var f faults
	fs := d.fs.AfterKill(vfs.MemConfig{Before: f.before})
	file, err := fs.Open(d.file, vfs.Existing)
	if err == nil {
		_, err = file.WriteVecAt([][]byte{{0xff}}, d.pos-1)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := mustStart(t, fs, testConfig("boot-1"))
	f.arm("write", segment.CleanedSuffix, syscall.ENOSPC, -1)
	res := s.mustOpen(t, 5)
	expectNoCopy(t, fs)
	want := d.batches[:len(d.batches)-2]
	if res.LEO != end(want[len(want)-1]) || res.Verdict != storage.VerdictMayHaveLostSuffix {
		t.Fatalf("LEO %d, verdict %d, cut %q", res.LEO, res.Verdict, res.Cut)
	}
	f.arm("", "", nil, 0)
	next := batch(res.LEO, 1, 5, 100, 1)
	if _, err := s.append(request(res.Handle, res.LEO, storage.SurvivesMachine, next)); err != nil {
		t.Fatal(err)
	}
	expectLog(t, s, res.Handle, append(want[:len(want):len(want)], next)...)
}
