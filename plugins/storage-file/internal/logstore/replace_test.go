package logstore

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

// replaceable fills a log with ten durable batches in several segments, and
// returns them, what is left when every other of the middle six is taken out,
// and the request that does so.
func replaceable(t *testing.T, s *running) (before, after [][]byte, req storage.ReplaceRequest) {
	t.Helper()
	res := s.mustOpen(t, 1)
	req = storage.ReplaceRequest{Handle: res.Handle, From: 4, To: 16}
	for i := range int64(10) {
		b := batch(2*i, 2, 1, 200, 1)
		if _, err := s.append(request(res.Handle, 2*i, storage.SurvivesMachine, b)); err != nil {
			t.Fatal(err)
		}
		before = append(before, b)
		if 2*i >= req.From && 2*i < req.To {
			if i%2 == 1 {
				continue
			}
			req.Batches = append(req.Batches, parse(b))
			req.Data = append(req.Data, b...)
		}
		after = append(after, b)
	}
	return before, after, req
}

// What a replacement put in place of durable batches is durable when it
// returns, whatever the page cache loses.
func TestReplaceSurvivesPowerLoss(t *testing.T) {
	fs := vfs.NewMem(vfs.MemConfig{})
	s := mustStart(t, fs, testConfig("boot-1"))
	_, want, req := replaceable(t, s)
	if err := s.Replace(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(30) {
		again := mustStart(t, fs.AfterPowerLoss(vfs.MemConfig{}, newRand(seed)), testConfig("boot-2"))
		res := again.mustOpen(t, 1)
		got, err := again.readAll(res.Handle, 0, res.LEO)
		if err != nil || same(got, want) != nil || res.LEO != 20 || res.Verdict != storage.VerdictIntact {
			t.Fatalf("seed %d: %d batches up to %d, want %d up to 20; verdict %d, %v", seed, len(got), res.LEO, len(want), res.Verdict, err)
		}
		again.stop()
	}
}

// A journal that may be there needs the segments that it names, also when its
// directory could not be synced for want of room.
func TestReplaceWithoutRoomForItsJournal(t *testing.T) {
	var journal atomic.Bool
	fs := vfs.NewMem(vfs.MemConfig{Before: func(op vfs.Op) error {
		if op.Kind == "rename" && strings.HasSuffix(op.Path, swapName+".tmp") {
			journal.Store(true)
		}
		if op.Kind == "syncdir" && journal.CompareAndSwap(true, false) {
			return syscall.ENOSPC
		}
		return nil
	}})
	s := mustStart(t, fs, testConfig("boot-1"))
	before, after, req := replaceable(t, s)
	if err := s.Replace(t.Context(), req); err == nil {
		t.Fatal("the journal could not be made durable and the replacement says that it is")
	}
	s.stop()
	s = mustStart(t, fs.AfterKill(vfs.MemConfig{}), testConfig("boot-1"))
	res := s.mustOpen(t, 1)
	got, err := s.readAll(res.Handle, 0, res.LEO)
	if err != nil || same(got, before) != nil && same(got, after) != nil {
		t.Fatalf("%d batches, which are neither the old nor the new, %v", len(got), err)
	}
}

// A journal whose segments are gone removes nothing.
func TestJournalWithoutItsSegments(t *testing.T) {
	d := leave(t, leftKilled)
	j := swap{Old: []int64{0}, New: []int64{1}}
	if err := writeValue(d.fs, logDir()+"/"+swapName, swapKind, j); err != nil {
		t.Fatal(err)
	}
	before, err := d.fs.List(logDir())
	if err != nil {
		t.Fatal(err)
	}
	s := mustStart(t, d.fs, testConfig("boot-1"))
	if res := s.open(testID, 4); !errors.Is(res.Err, storage.ErrCorrupt) {
		t.Errorf("open: %v", res.Err)
	}
	if after, err := d.fs.List(logDir()); err != nil || len(after) != len(before) {
		t.Errorf("%d files of %d are left, %v", len(after), len(before), err)
	}
}
