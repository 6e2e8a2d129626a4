package logstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

// faults fails changes of one kind on files whose path ends in a suffix, while
// armed.
type faults struct {
	mu           sync.Mutex
	kind, suffix string
	err          error
	times        int
}

func (f *faults) arm(kind, suffix string, err error, times int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kind, f.suffix, f.err, f.times = kind, suffix, err, times
}

func (f *faults) before(op vfs.Op) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.times == 0 || op.Kind != f.kind || !strings.HasSuffix(op.Path, f.suffix) {
		return nil
	}
	f.times--
	return f.err
}

// A write that fails for want of room is cut back, and the log goes on.
func TestFullDiskLeavesTheLogSound(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		var f faults
		s := mustStart(t, vfs.NewMem(vfs.MemConfig{Before: f.before}), testConfig("boot-1"))
		res := s.mustOpen(t, 1)
		first := batch(0, 2, 1, 100, 1)
		if _, err := s.append(request(res.Handle, 0, storage.SurvivesProcess, first)); err != nil {
			t.Fatal(err)
		}
		f.arm("write", ".log", errno, 1)
		// Under a new leader epoch, so that its note has to be taken back as well.
		if _, err := s.append(request(res.Handle, 2, storage.SurvivesProcess, batch(2, 2, 3, 100, 1))); !errors.Is(err, storage.ErrFull) {
			t.Fatalf("append without room: %v", err)
		}
		second := batch(2, 2, 2, 100, 1)
		if _, err := s.append(request(res.Handle, 2, storage.SurvivesMachine, second)); err != nil {
			t.Fatalf("append with room again: %v", err)
		}
		if got, err := s.readAll(res.Handle, 0, 4); err != nil || same(got, [][]byte{first, second}) != nil {
			t.Fatalf("read: %d batches, %v", len(got), err)
		}
	}
}

// Any other failure of a write ends the use of the handle; opening the log
// again settles what is in it.
func TestFailedWriteNeedsReopen(t *testing.T) {
	var f faults
	s := mustStart(t, vfs.NewMem(vfs.MemConfig{Before: f.before}), testConfig("boot-1"))
	res := s.mustOpen(t, 1)
	first := batch(0, 2, 1, 100, 1)
	if _, err := s.append(request(res.Handle, 0, storage.SurvivesProcess, first)); err != nil {
		t.Fatal(err)
	}
	f.arm("write", ".log", syscall.EIO, 1)
	if _, err := s.append(request(res.Handle, 2, storage.SurvivesProcess, batch(2, 2, 1, 100, 1))); !errors.Is(err, storage.ErrGone) {
		t.Fatalf("append: %v", err)
	}
	if _, err := s.append(request(res.Handle, 2, storage.SurvivesProcess, batch(2, 2, 1, 100, 1))); !errors.Is(err, storage.ErrGone) {
		t.Fatalf("append on a failed log: %v", err)
	}
	res = s.mustOpen(t, 1)
	if res.LEO != 2 || res.Verdict != storage.VerdictIntact {
		t.Fatalf("LEO %d, verdict %d", res.LEO, res.Verdict)
	}
	if _, err := s.append(request(res.Handle, 2, storage.SurvivesMachine, batch(2, 2, 1, 100, 1))); err != nil {
		t.Fatal(err)
	}
}

// After a sync that failed, the system may hold bytes that it will never write
// and call the next sync good. What is acknowledged as durable after the log
// was opened again must be on the disk all the same.
func TestFailedSyncIsNotTrustedAgain(t *testing.T) {
	for _, restart := range []bool{false, true} {
		var f faults
		fs := vfs.NewMem(vfs.MemConfig{Before: f.before})
		s := mustStart(t, fs, testConfig("boot-1"))
		res := s.mustOpen(t, 1)
		first, second := batch(0, 2, 1, 100, 1), batch(2, 2, 1, 100, 1)
		if _, err := s.append(request(res.Handle, 0, storage.SurvivesProcess, first)); err != nil {
			t.Fatal(err)
		}
		f.arm("sync", ".log", syscall.EIO, 1)
		if _, err := s.append(request(res.Handle, 2, storage.SurvivesMachine, second)); !errors.Is(err, storage.ErrGone) {
			t.Fatalf("append: %v", err)
		}
		if _, err := s.Read(context.Background(), storage.ReadRequest{Handle: res.Handle, UpTo: 4, MaxBytes: 1000}); !errors.Is(err, storage.ErrGone) {
			t.Fatalf("read: %v", err)
		}
		if restart {
			s.stop()
			s = mustStart(t, fs, testConfig("boot-1"))
		}
		res = s.mustOpen(t, 1)
		if res.LEO != 4 || res.Durable != 4 {
			t.Fatalf("LEO %d, durable %d", res.LEO, res.Durable)
		}
		s.stop()
		for seed := range uint64(20) {
			after := fs.AfterPowerLoss(vfs.MemConfig{}, newRand(seed))
			again := mustStart(t, after, testConfig("boot-2"))
			r := again.mustOpen(t, 1)
			got, err := again.readAll(r.Handle, 0, r.LEO)
			if err != nil || same(got, [][]byte{first, second}) != nil {
				t.Fatalf("restart %v, seed %d: %d batches, %v", restart, seed, len(got), err)
			}
			again.stop()
		}
	}
}

// One log's failure is not another's.
func TestOtherLogsGoOn(t *testing.T) {
	var f faults
	s := mustStart(t, vfs.NewMem(vfs.MemConfig{Before: f.before}), testConfig("boot-1"))
	res := s.mustOpen(t, 1)
	other := s.open(storage.LogID{Partition: 1}, 1)
	f.arm("write", ".log", syscall.EIO, 1)
	if _, err := s.append(request(res.Handle, 0, storage.SurvivesProcess, batch(0, 1, 1, 10, 1))); !errors.Is(err, storage.ErrGone) {
		t.Fatal(err)
	}
	if _, err := s.append(request(other.Handle, 0, storage.SurvivesMachine, batch(0, 1, 1, 10, 1))); err != nil {
		t.Fatal(err)
	}
}

// The disk is filled to the last byte and the process is killed: the store
// starts, reads, and gives room back when a log is deleted (FR-44).
func TestFR44StartOnFullDisk(t *testing.T) {
	fs := vfs.NewMem(vfs.MemConfig{Capacity: 256 << 10})
	s := mustStart(t, fs, testConfig("boot-1"))
	res := s.mustOpen(t, 1)
	small := s.open(storage.LogID{Partition: 1}, 1)
	if _, err := s.append(request(small.Handle, 0, storage.SurvivesProcess, batch(0, 1, 1, 10, 1))); err != nil {
		t.Fatal(err)
	}
	at := int64(0)
	for {
		_, err := s.append(request(res.Handle, at, storage.SurvivesProcess, batch(at, 1, 1, 700, 1)))
		if errors.Is(err, storage.ErrFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		at++
	}
	s.stop()
	fs = fs.AfterKill(vfs.MemConfig{Capacity: fs.Used()})
	s = mustStart(t, fs, testConfig("boot-1"))
	res = s.mustOpen(t, 1)
	if res.LEO != at || res.Verdict != storage.VerdictIntact {
		t.Fatalf("LEO %d, want %d; verdict %d", res.LEO, at, res.Verdict)
	}
	if got, err := s.readAll(res.Handle, 0, at); err != nil || int64(len(got)) != at {
		t.Fatalf("read: %d batches, %v", len(got), err)
	}
	small = s.open(storage.LogID{Partition: 1}, 1)
	if small.Err != nil {
		t.Fatal(small.Err)
	}
	if start, err := s.Trim(context.Background(), res.Handle, 5); err != nil || start != 5 {
		t.Fatalf("trim on a full disk: %d, %v", start, err)
	}
	if r, err := s.Retain(context.Background(), res.Handle, storage.RetainPolicy{
		Ceiling: at, Now: time.Now(), MaxBytes: 64 << 10,
	}); err != nil || r.FreedBytes < 64<<10 {
		t.Fatalf("retention on a full disk: %+v, %v", r, err)
	}
	if err := s.Delete(context.Background(), testID); err != nil {
		t.Fatalf("delete on a full disk: %v", err)
	}
	if _, err := s.append(request(small.Handle, 1, storage.SurvivesMachine, batch(1, 1, 1, 700, 1))); err != nil {
		t.Fatalf("append after room returned: %v", err)
	}
}

// slowNote holds back the note that a sync failed.
type slowNote struct {
	vfs.FS
	release chan struct{}
}

func (s slowNote) Open(name string, mode vfs.Mode) (vfs.File, error) {
	if mode == vfs.Empty && strings.HasSuffix(name, suspectName) {
		<-s.release
	}
	return s.FS.Open(name, mode)
}

// A log that failed in a sync is opened again only when that sync is over: it
// uses the log's files, and what it learned counts for the new opening.
func TestReopenWaitsForTheFailedSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f faults
		mem := vfs.NewMem(vfs.MemConfig{Before: f.before})
		fs := slowNote{mem, make(chan struct{})}
		s := mustStart(t, fs, testConfig("boot-1"))
		res := s.mustOpen(t, 1)
		f.arm("sync", ".log", syscall.EIO, 1)
		failed := make(chan error, 1)
		s.Append(t.Context(), request(res.Handle, 0, storage.SurvivesMachine, batch(0, 2, 1, 100, 1)),
			func(_ storage.AppendResult, err error) { failed <- err })
		synctest.Wait()
		opened := make(chan storage.OpenResult, 1)
		go func() { opened <- s.open(testID, 1) }()
		synctest.Wait()
		if len(opened) > 0 {
			t.Error("the log was opened while its failed sync was under way")
		}
		close(fs.release)
		if err := <-failed; !errors.Is(err, storage.ErrGone) {
			t.Errorf("append: %v", err)
		}
		if res := <-opened; res.Err != nil || res.LEO != 2 || res.Durable != 2 {
			t.Errorf("opened again: %+v", res)
		}
		if _, err := mem.Open(logDir()+"/"+suspectName, vfs.Existing); err == nil {
			t.Error("the note of the failed sync outlives the opening that dealt with it")
		}
	})
}

// A truncation that finds no room for its checkpoint leaves the log as it was:
// it can be flushed, read and appended to.
func TestTruncationWithoutRoom(t *testing.T) {
	var f faults
	s := mustStart(t, vfs.NewMem(vfs.MemConfig{Before: f.before}), testConfig("boot-1"))
	res := s.mustOpen(t, 1)
	first, second := batch(0, 2, 1, 100, 1), batch(2, 2, 2, 100, 1)
	for _, b := range [][]byte{first, second} {
		if _, err := s.append(request(res.Handle, parse(b).BaseOffset, storage.SurvivesProcess, b)); err != nil {
			t.Fatal(err)
		}
	}
	f.arm("create", checkpointName+".tmp", syscall.ENOSPC, 2) // the second without the reserve
	if _, err := s.Truncate(t.Context(), res.Handle, 2, 2); !errors.Is(err, storage.ErrFull) {
		t.Fatalf("truncate: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if r := s.Flush(ctx, []storage.Handle{res.Handle})[0]; r.Err != nil || r.Durable != 4 {
		t.Fatalf("flush: %+v", r)
	}
	if got, err := s.readAll(res.Handle, 0, 4); err != nil || same(got, [][]byte{first, second}) != nil {
		t.Fatalf("read: %d batches, %v", len(got), err)
	}
	if _, err := s.append(request(res.Handle, 4, storage.SurvivesMachine, batch(4, 1, 2, 100, 1))); err != nil {
		t.Fatal(err)
	}
	if leo, err := s.Truncate(t.Context(), res.Handle, 2, 2); err != nil || leo != 2 {
		t.Fatalf("truncate with room again: %d, %v", leo, err)
	}
}

// A roll that finds no room leaves no segment behind in whose place the log
// goes on.
func TestRollWithoutRoom(t *testing.T) {
	var f faults
	fs := vfs.NewMem(vfs.MemConfig{Before: f.before})
	s := mustStart(t, fs, testConfig("boot-1"))
	res := s.mustOpen(t, 1)
	first, third := batch(0, 2, 1, 800, 1), batch(2, 2, 1, 20, 1)
	if _, err := s.append(request(res.Handle, 0, storage.SurvivesProcess, first)); err != nil {
		t.Fatal(err)
	}
	f.arm("syncdir", logDir(), syscall.ENOSPC, 1)
	if _, err := s.append(request(res.Handle, 2, storage.SurvivesProcess, batch(2, 2, 1, 300, 1))); !errors.Is(err, storage.ErrFull) {
		t.Fatalf("append that rolls: %v", err)
	}
	if _, err := s.append(request(res.Handle, 2, storage.SurvivesProcess, third)); err != nil {
		t.Fatal(err)
	}
	s.stop()
	s = mustStart(t, fs.AfterKill(vfs.MemConfig{}), testConfig("boot-1"))
	res = s.mustOpen(t, 1)
	got, err := s.readAll(res.Handle, 0, res.LEO)
	if err != nil || same(got, [][]byte{first, third}) != nil || res.Verdict != storage.VerdictIntact {
		t.Fatalf("%d batches, verdict %d, cut %q, %v", len(got), res.Verdict, res.Cut, err)
	}
}

// A delete whose sync failed is made durable by the next.
func TestDeleteAgain(t *testing.T) {
	var f faults
	fs := vfs.NewMem(vfs.MemConfig{Before: f.before})
	s := mustStart(t, fs, testConfig("boot-1"))
	s.mustOpen(t, 1)
	f.arm("syncdir", "/store", syscall.EIO, 1)
	if err := s.Delete(t.Context(), testID); !errors.Is(err, storage.ErrGone) {
		t.Fatalf("delete whose sync fails: %v", err)
	}
	if err := s.Delete(t.Context(), testID); err != nil {
		t.Fatalf("delete again: %v", err)
	}
	s.stop()
	for seed := range uint64(10) {
		after := mustStart(t, fs.AfterPowerLoss(vfs.MemConfig{}, newRand(seed)), testConfig("boot-2"))
		if logs, err := after.List(t.Context()); err != nil || len(logs) > 0 {
			t.Fatalf("seed %d: %d logs after a power loss, %v", seed, len(logs), err)
		}
	}
}
