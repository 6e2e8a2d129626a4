package logstore

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

// killedLog is a log of four batches in one segment whose process was killed in the
// middle of appends.
func killedLog(t *testing.T, cfg vfs.MemConfig, require storage.Survives) (fs *vfs.Mem, batches [][]byte) {
	t.Helper()
	before := vfs.NewMem(vfs.MemConfig{})
	s := mustStart(t, before, testConfig("boot-1"))
	h := s.mustOpen(t, 1).Handle
	for i := range int64(4) {
		b := batch(i, 1, 1, 100, 1)
		if _, err := s.append(request(h, i, require, b)); err != nil {
			t.Fatal(err)
		}
		batches = append(batches, b)
	}
	return before.AfterKill(cfg), batches
}

// The checkpoint of a process that was killed stays, and serves those who append next.
func TestKilledLogIsOpenedWithoutACheckpoint(t *testing.T) {
	written := 0
	fs, _ := killedLog(t, vfs.MemConfig{Before: func(op vfs.Op) error {
		if op.Kind == "create" {
			written++
		}
		return nil
	}}, storage.SurvivesProcess)
	s := mustStart(t, fs, testConfig("boot-1"))
	made := written // by the store
	res := s.mustOpen(t, 1)
	if _, err := s.append(request(res.Handle, res.LEO, storage.SurvivesProcess, batch(res.LEO, 1, 1, 100, 1))); err != nil {
		t.Fatal(err)
	}
	if written != made || res.LEO != 4 || res.Durable != 4 {
		t.Errorf("%d files were made, opened with %+v", written-made, res)
	}
	for seed := range uint64(10) { // the append was not synced
		again := mustStart(t, fs.AfterPowerLoss(vfs.MemConfig{}, newRand(seed)), testConfig("boot-2"))
		if res := again.mustOpen(t, 1); res.Verdict != storage.VerdictMayHaveLostSuffix || res.LEO < 4 {
			t.Errorf("seed %d: %+v", seed, res)
		}
	}
}

// What an opening has called durable is below the recovery point from then on, also for
// the disk: damage there is kept, and nothing behind it is cut.
func TestRecoveryPointOfAnOpeningOutlivesThePower(t *testing.T) {
	fs, batches := killedLog(t, vfs.MemConfig{}, storage.SurvivesProcess)
	s := mustStart(t, fs, testConfig("boot-1"))
	s.mustOpen(t, 1)
	for seed := range uint64(10) {
		after := fs.AfterPowerLoss(vfs.MemConfig{}, newRand(seed))
		name, pos := findBatch(t, after, batches[1])
		f, err := after.Open(name, vfs.Existing)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteVecAt([][]byte{{0xff}}, pos+int64(len(batches[1]))-1); err != nil {
			t.Fatal(err)
		}
		again := mustStart(t, after, testConfig("boot-2"))
		res := again.mustOpen(t, 1)
		if res.LEO != 4 {
			t.Fatalf("seed %d: %+v", seed, res)
		}
		if _, err := again.readAll(res.Handle, 1, 2); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("seed %d: read of the damage: %v", seed, err)
		}
		got, err := again.readAll(res.Handle, 2, 4)
		if err := errors.Join(err, same(got, batches[2:])); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// A log that nobody appends to is noted as clean after a while, so that it is intact
// after a loss of power; one that is appended to is not.
func TestRecoveredLogsAreNotedLater(t *testing.T) {
	for name, c := range map[string]struct {
		append bool
		wait   time.Duration
		want   storage.Verdict
	}{
		"at once":             {false, 0, storage.VerdictMayHaveLostSuffix},
		"after a while":       {false, noteAfter + time.Second, storage.VerdictIntact},
		"behind more appends": {true, noteAfter + time.Second, storage.VerdictMayHaveLostSuffix},
	} {
		t.Run(name, func(t *testing.T) {
			fs, _ := killedLog(t, vfs.MemConfig{}, storage.SurvivesProcess)
			synctest.Test(t, func(t *testing.T) {
				s := mustStart(t, fs, testConfig("boot-1"))
				res := s.mustOpen(t, 1)
				if c.append {
					if _, err := s.append(request(res.Handle, 4, storage.SurvivesProcess, batch(4, 1, 1, 100, 1))); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(c.wait)
				synctest.Wait()
				s.stop()
			})
			for seed := range uint64(10) {
				again := mustStart(t, fs.AfterPowerLoss(vfs.MemConfig{}, newRand(seed)), testConfig("boot-2"))
				if res := again.mustOpen(t, 1); res.Verdict != c.want || res.LEO < 4 {
					t.Errorf("seed %d: %+v", seed, res)
				}
			}
		})
	}
}

// Whatever differs from what the checkpoint says is written down by the opening.
func TestCheckpointThatDoesNotStandIsWritten(t *testing.T) {
	for name, c := range map[string]struct {
		boot    string
		require storage.Survives
		change  func(t *testing.T, fs *vfs.Mem)
	}{
		"another boot": {"boot-2", storage.SurvivesMachine, func(*testing.T, *vfs.Mem) {}},
		"without a hint": {"boot-1", storage.SurvivesProcess, func(t *testing.T, fs *vfs.Mem) {
			if err := fs.Remove(logDir() + "/" + hintName); err != nil {
				t.Fatal(err)
			}
		}},
		"a torn tail": {"boot-1", storage.SurvivesProcess, func(t *testing.T, fs *vfs.Mem) {
			name, pos := findBatch(t, fs, batch(3, 1, 1, 100, 1))
			f, err := fs.Open(name, vfs.Existing)
			if err == nil {
				err = f.Truncate(pos + 70)
			}
			if err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			fs, _ := killedLog(t, vfs.MemConfig{}, c.require)
			c.change(t, fs)
			mustStart(t, fs, testConfig(c.boot)).mustOpen(t, 1)
			ckpt, err := readValue[checkpoint](fs, logDir()+"/"+checkpointName, checkpointKind, checkpointMax)
			if err != nil || ckpt.State != stateClean || ckpt.BootID != c.boot {
				t.Errorf("%+v, %v", ckpt, err)
			}
		})
	}
}
