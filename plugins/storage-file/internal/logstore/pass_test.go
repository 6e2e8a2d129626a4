package logstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// oneSegment is a configuration under which a test's log has one segment.
func oneSegment() Config {
	cfg := testConfig("boot-1")
	cfg.Options.SegmentBytes = 1 << 20
	return cfg
}

// fill appends n batches of three records, each synced before it is answered.
func fill(t testing.TB, s *running, res storage.OpenResult, n int) (batches [][]byte) {
	t.Helper()
	for i := range n {
		b := batch(res.LEO+int64(3*i), 3, 1, 200, int64(100+i))
		if _, err := s.append(request(res.Handle, res.LEO+int64(3*i), storage.SurvivesMachine, b)); err != nil {
			t.Fatal(err)
		}
		batches = append(batches, b)
	}
	return batches
}

// damageBatch flips a byte of a stored batch.
func damageBatch(t testing.TB, fs vfs.FS, b []byte, at int) {
	t.Helper()
	name, pos := findBatch(t, fs, b)
	f, err := fs.Open(name, vfs.Existing)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteVecAt([][]byte{{b[at] ^ 0x55}}, pos+int64(at)); err != nil {
		t.Fatal(err)
	}
}

// holds checks that a log has all batches but one, at which reads fail.
func holds(t testing.TB, s *running, res storage.OpenResult, batches [][]byte, victim int) {
	t.Helper()
	if last := end(batches[len(batches)-1]); res.LEO != last {
		t.Fatalf("the log ends at %d, want %d (%s)", res.LEO, last, res.Cut)
	}
	for i, b := range batches {
		info := parse(b)
		got, err := s.readAll(res.Handle, info.BaseOffset, info.LastOffset+1)
		switch {
		case i == victim && !errors.Is(err, storage.ErrCorrupt):
			t.Fatalf("the damaged batch: %d batches, %v", len(got), err)
		case i != victim && (err != nil || same(got, [][]byte{b}) != nil):
			t.Fatalf("batch %d of %d: %d batches, %v", i, len(batches), len(got), err)
		}
	}
	after := batches[victim+1:]
	if got, err := s.readAll(res.Handle, parse(after[0]).BaseOffset, res.LEO); err != nil || same(got, after) != nil {
		t.Fatalf("from behind the damage to the end: %d batches of %d, %v", len(got), len(after), err)
	}
}

// Damage to old records takes nothing of what is behind it: neither what was
// there, nor what was acknowledged since, however often the log is opened, and
// whether its index is there or not.
func TestDamageTakesNothingBehindIt(t *testing.T) {
	for _, c := range []struct {
		name        string
		at          int
		removeIndex bool
	}{
		{"a byte of a record", 100, false},
		{"the record count", 60, false},
		{"a byte of a record, and no index", 100, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := vfs.NewMem(vfs.MemConfig{})
			s := mustStart(t, fs, oneSegment())
			batches := fill(t, s, s.mustOpen(t, 1), 10)
			if err := s.Shutdown(context.Background()); err != nil {
				t.Fatal(err)
			}
			const victim = 4
			damageBatch(t, fs, batches[victim], c.at)
			if c.removeIndex {
				removeIndexes(t, fs)
			}
			s = mustStart(t, fs, oneSegment())
			batches = append(batches, fill(t, s, s.mustOpen(t, 1), 5)...)
			for round := range 4 {
				if round%2 == 0 {
					fs = fs.AfterKill(vfs.MemConfig{})
				} else if err := s.Shutdown(context.Background()); err != nil {
					t.Fatal(err)
				}
				s = mustStart(t, fs, oneSegment())
				res := s.mustOpen(t, 1)
				holds(t, s, res, batches, victim)
				batches = append(batches, fill(t, s, res, 2)...)
				if round == 1 {
					removeIndexes(t, fs)
				}
			}
		})
	}
}

func removeIndexes(t testing.TB, fs vfs.FS) {
	t.Helper()
	entries, err := fs.List(logDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name, segment.IndexSuffix) || strings.HasSuffix(e.Name, segment.TimeSuffix) {
			if err := fs.Remove(logDir() + "/" + e.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// What was synced while appends went on is below the recovery point soon, so
// that damage there is told and not cut, also without a flush or a close.
func TestRecoveryPointFollowsSyncs(t *testing.T) {
	fs := vfs.NewMem(vfs.MemConfig{})
	var millis atomic.Int64
	now := func() time.Time { return time.UnixMilli(1_700_000_000_000 + millis.Load()) }
	below, _, err := Open(fs, oneSegment(), now, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { _ = below.Run(ctx) }()
	s := &running{below, nil, func() { cancel(); <-below.ended }}
	t.Cleanup(s.stop)
	res := s.mustOpen(t, 1)
	var batches [][]byte
	for range 10 {
		res.LEO = int64(3 * len(batches))
		batches = append(batches, fill(t, s, res, 1)...)
		millis.Add(hintEvery.Milliseconds())
	}
	fs = fs.AfterKill(vfs.MemConfig{})
	damageBatch(t, fs, batches[3], 100)
	again := mustStart(t, fs, oneSegment())
	holds(t, again, again.mustOpen(t, 1), batches, 3)
}

// Bytes inside a record that look like a batch are not taken for one.
func TestRecordsThatLookLikeBatches(t *testing.T) {
	fs := vfs.NewMem(vfs.MemConfig{})
	s := mustStart(t, fs, oneSegment())
	res := s.mustOpen(t, 1)
	inner := append(batch(1_000_000, 1, 1, 50, 7), batch(1_000_001, 1, 1, 50, 7)...)
	outer := recordbatch.Build(nil, recordbatch.Header{
		Info: recordbatch.Info{
			BaseOffset: res.LEO, LastOffset: res.LEO + 2, LeaderEpoch: 1, BaseTimestamp: 7, MaxTimestamp: 7,
			ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Records: 3,
		},
		Payload: append(append(make([]byte, 40), inner...), make([]byte, 40)...),
	})
	if _, err := s.append(request(res.Handle, res.LEO, storage.SurvivesMachine, outer)); err != nil {
		t.Fatal(err)
	}
	res.LEO = end(outer)
	batches := append([][]byte{outer}, fill(t, s, res, 6)...)
	if err := s.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	damageBatch(t, fs, outer, 70)
	s = mustStart(t, fs, oneSegment())
	batches = append(batches, fill(t, s, s.mustOpen(t, 1), 1)...)
	fs = fs.AfterKill(vfs.MemConfig{})
	s = mustStart(t, fs, oneSegment())
	holds(t, s, s.mustOpen(t, 1), batches, 0)
}

// A crash anywhere in such a recovery leaves what the next one makes good.
func TestCrashWhileRecoveringFromDamage(t *testing.T) {
	fs := vfs.NewMem(vfs.MemConfig{})
	s := mustStart(t, fs, oneSegment())
	batches := fill(t, s, s.mustOpen(t, 1), 10)
	if err := s.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	damageBatch(t, fs, batches[4], 100)
	s = mustStart(t, fs, oneSegment())
	batches = append(batches, fill(t, s, s.mustOpen(t, 1), 5)...)
	fs = fs.AfterKill(vfs.MemConfig{})
	boom := fmt.Errorf("crash: %w", io.ErrClosedPipe)
	for n := 0; ; n++ {
		count := 0
		crashed := fs.AfterKill(vfs.MemConfig{Before: func(vfs.Op) error {
			count++
			if count > n {
				return boom
			}
			return nil
		}})
		first, err := start(crashed, oneSegment())
		if err == nil {
			_ = first.open(testID, 1)
			first.stop()
		}
		for _, after := range []*vfs.Mem{crashed.AfterKill(vfs.MemConfig{}), crashed.AfterPowerLoss(vfs.MemConfig{}, newRand(uint64(n)))} {
			s := mustStart(t, after, oneSegment())
			holds(t, s, s.mustOpen(t, 1), batches, 4)
		}
		if count <= n {
			t.Logf("%d places to crash at", n)
			return
		}
	}
}
