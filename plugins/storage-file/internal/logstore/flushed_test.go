package logstore

import (
	"testing"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

// A log whose appends do not wait for syncs, and which was flushed since, has
// lost nothing with the machine's power; one more append, and it may have.
func TestFlushedLogIsIntactAfterPowerLoss(t *testing.T) {
	for name, c := range map[string]struct {
		after int64 // appends behind the flush
		want  storage.Verdict
	}{"all flushed": {0, storage.VerdictIntact}, "one more": {1, storage.VerdictMayHaveLostSuffix}} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem(vfs.MemConfig{})
			s := mustStart(t, fs, testConfig("boot-1"))
			h := fillSegments(t, s, 5, func(int64) int64 { return 1 })
			if res := s.Flush(t.Context(), []storage.Handle{h})[0]; res.Err != nil || res.Durable != 5 {
				t.Fatalf("flush: %+v", res)
			}
			for i := range c.after {
				if _, err := s.append(request(h, 5+i, storage.SurvivesProcess, batch(5+i, 1, 1, 100, 1))); err != nil {
					t.Fatal(err)
				}
			}
			for seed := range uint64(10) {
				again := mustStart(t, fs.AfterPowerLoss(vfs.MemConfig{}, newRand(seed)), testConfig("boot-2"))
				if res := again.mustOpen(t, 1); res.Verdict != c.want || res.LEO < 5 {
					t.Errorf("seed %d: %+v", seed, res)
				}
			}
		})
	}
}

// Flushes of a log that is appended to all the time write few checkpoints.
func TestFlushesAreNotedSeldom(t *testing.T) {
	checkpoints := 0
	fs := vfs.NewMem(vfs.MemConfig{Before: func(op vfs.Op) error {
		if op.Kind == "create" && op.Path[len(op.Path)-len("checkpoint.tmp"):] == "checkpoint.tmp" {
			checkpoints++
		}
		return nil
	}})
	cfg := testConfig("boot-1")
	cfg.Options.SegmentBytes = 1 << 20
	s := mustStart(t, fs, cfg)
	h := s.mustOpen(t, 1).Handle
	for i := range int64(50) {
		if _, err := s.append(request(h, i, storage.SurvivesProcess, batch(i, 1, 1, 100, 1))); err != nil {
			t.Fatal(err)
		}
		if res := s.Flush(t.Context(), []storage.Handle{h})[0]; res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	if checkpoints > 5 {
		t.Errorf("50 appends, each flushed, wrote %d checkpoints", checkpoints)
	}
}
