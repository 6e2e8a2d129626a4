package logstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

// disk is a machine's disk after a store was killed or closed on it, with the
// batches of its one log.
type disk struct {
	fs      *vfs.Mem
	batches [][]byte
	file    string // the segment that holds the last batch
	pos     int64  // of the last batch in it
}

const (
	leftKilled  = iota // after kill -9, nothing flushed
	leftFlushed        // after kill -9, all flushed
	leftClosed         // after an orderly close
)

// leave makes a log of two epochs and three segments and leaves it.
func leave(t testing.TB, how int) *disk {
	t.Helper()
	fs := vfs.NewMem(vfs.MemConfig{})
	cfg := testConfig("boot-1")
	cfg.Syncers = 1
	s := mustStart(t, fs, cfg)
	res := s.mustOpen(t, 1)
	d := &disk{}
	at := int64(0)
	for i := range 12 {
		epoch := int32(1)
		if i >= 9 {
			epoch = 4
		}
		b := batch(at, 3, epoch, 200, int64(100+i))
		if _, err := s.append(request(res.Handle, at, storage.SurvivesProcess, b)); err != nil {
			t.Fatal(err)
		}
		s.synced()
		d.batches = append(d.batches, b)
		at += 3
	}
	switch how {
	case leftFlushed:
		if r := s.Flush(context.Background(), []storage.Handle{res.Handle})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
	case leftClosed:
		if err := s.Close(context.Background(), []storage.Handle{res.Handle})[0]; err != nil {
			t.Fatal(err)
		}
	}
	d.fs = fs.AfterKill(vfs.MemConfig{})
	d.file, d.pos = findBatch(t, d.fs, d.batches[len(d.batches)-1])
	return d
}

// synced waits until the one syncer of the store has done all that it was asked for, so
// that a sync of segments that are full takes none of what is appended after it.
func (r *running) synced() {
	done := make(chan struct{})
	if r.syncers.push(func() { close(done) }) {
		<-done
	}
}

func logDir() string { return "/store/" + dirName(testID, "topic") }

func findBatch(t testing.TB, fs vfs.FS, b []byte) (name string, pos int64) {
	t.Helper()
	entries, err := fs.List(logDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name, ".log") {
			content, err := vfs.ReadAll(fs, path.Join(logDir(), e.Name), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if i := bytes.Index(content, b); i >= 0 {
				return path.Join(logDir(), e.Name), int64(i)
			}
		}
	}
	t.Fatal("the batch is not stored")
	return "", 0
}

// with returns a copy of the disk, changed.
func (d *disk) with(t testing.TB, change func(f vfs.File) error) *vfs.Mem {
	t.Helper()
	fs := d.fs.AfterKill(vfs.MemConfig{})
	f, err := fs.Open(d.file, vfs.Existing)
	if err != nil {
		t.Fatal(err)
	}
	if err := change(f); err != nil {
		t.Fatal(err)
	}
	return fs
}

// visit opens the log, reads all of it, and lets check judge. Scans must find
// the headers of what reads return, and meet damage where reads do.
func visit(t testing.TB, fs vfs.FS, check func(res storage.OpenResult, got [][]byte, err error) error) {
	t.Helper()
	s, err := start(fs, testConfig("boot-1"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	res := s.open(testID, 4)
	if res.Err != nil {
		t.Fatalf("open: %v", res.Err)
	}
	infos, scanErr := s.scanAll(res.Handle, res.LogStart, res.LEO)
	got, err := s.readAll(res.Handle, res.LogStart, res.LEO)
	if len(infos) != len(got) || errors.Is(err, storage.ErrCorrupt) != errors.Is(scanErr, storage.ErrCorrupt) {
		t.Fatalf("scans find %d batches (%v), reads %d (%v)", len(infos), scanErr, len(got), err)
	}
	for i := range got {
		if infos[i] != parse(got[i]) {
			t.Fatalf("batch %d: scans find %+v, reads %+v", i, infos[i], parse(got[i]))
		}
	}
	if err := check(res, got, err); err != nil {
		t.Fatal(err)
	}
	b := batch(res.LEO, 1, 4, 50, 9000)
	if _, err := s.append(request(res.Handle, res.LEO, storage.SurvivesMachine, b)); err != nil {
		t.Fatalf("append: %v", err)
	}
}

func same(got, want [][]byte) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d batches, want %d", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			return fmt.Errorf("batch %d differs", i)
		}
	}
	return nil
}

// A tail that was cut at any byte is cut there at the next opening (FR-46), and
// a process that was killed has lost nothing that was acknowledged otherwise.
func TestFR46TailCutAtEveryByte(t *testing.T) {
	d := leave(t, leftKilled)
	last := d.batches[len(d.batches)-1]
	for n := range int64(len(last)) {
		fs := d.with(t, func(f vfs.File) error { return f.Truncate(d.pos + n) })
		visit(t, fs, func(res storage.OpenResult, got [][]byte, err error) error {
			if err == nil {
				err = same(got, d.batches[:len(d.batches)-1])
			}
			if err == nil && (n > 0) != (res.Cut != "") {
				err = fmt.Errorf("cut %q", res.Cut)
			}
			if err != nil {
				return fmt.Errorf("cut at byte %d: %w", n, err)
			}
			return nil
		})
	}
}

// Below the recovery point a tail that was cut at any byte stays as it is, reads
// say that it is damaged, and the log goes on after it.
func TestTailCutBelowTheRecoveryPoint(t *testing.T) {
	for _, how := range []int{leftFlushed, leftClosed} {
		d := leave(t, how)
		last := d.batches[len(d.batches)-1]
		for n := range int64(len(last)) {
			fs := d.with(t, func(f vfs.File) error { return f.Truncate(d.pos + n) })
			visit(t, fs, func(res storage.OpenResult, got [][]byte, err error) error {
				wrong := same(got, d.batches[:len(d.batches)-1])
				if wrong == nil && (!errors.Is(err, storage.ErrCorrupt) || res.LEO != end(last)) {
					wrong = fmt.Errorf("LEO %d: %w", res.LEO, err)
				}
				if wrong != nil {
					return fmt.Errorf("left %d, cut at byte %d: %w", how, n, wrong)
				}
				return nil
			})
			if content, err := vfs.ReadAll(fs, d.file, 1<<20); err != nil || int64(len(content)) != d.pos+n {
				t.Fatalf("left %d, cut at byte %d: the segment has %d bytes afterwards, %v", how, n, len(content), err)
			}
		}
	}
}

// The fields that no CRC covers are checked against the neighbours, and where
// those would let a wrong value pass, against the epochs that were noted.
func TestHeaderFieldsOutsideTheCRC(t *testing.T) {
	const offsetField, epochField, magicField = 0, 12, 16
	for _, how := range []int{leftKilled, leftFlushed, leftClosed} {
		d := leave(t, how)
		last := len(d.batches) - 1
		base, epoch := parse(d.batches[last]).BaseOffset, parse(d.batches[last]).LeaderEpoch
		u64 := func(v int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(v)) }
		u32 := func(v int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(v)) }
		for _, c := range []struct {
			name  string
			at    int
			value []byte
		}{
			{"offset of the batch before", offsetField, u64(base - 3)},
			{"offset inside the batch before", offsetField, u64(base - 1)},
			{"offset that leaves a gap", offsetField, u64(base + 1)},
			{"offset far ahead", offsetField, u64(1 << 40)},
			{"negative offset", offsetField, u64(-1)},
			{"epoch that falls", epochField, u32(epoch - 1)},
			{"epoch of another leader, which no neighbour contradicts", epochField, u32(epoch + 1)},
			{"epoch far ahead", epochField, u32(1 << 30)},
			{"magic of an older format", magicField, []byte{1}},
		} {
			fs := d.with(t, func(f vfs.File) error {
				_, err := f.WriteVecAt([][]byte{c.value}, d.pos+int64(c.at))
				return err
			})
			visit(t, fs, func(res storage.OpenResult, got [][]byte, err error) error {
				wrong := same(got, d.batches[:last])
				switch {
				case wrong != nil:
				case how == leftKilled && (err != nil || res.LEO != base || res.Verdict != storage.VerdictMayHaveLostSuffix),
					how != leftKilled && (!errors.Is(err, storage.ErrCorrupt) || res.LEO != base+3):
					wrong = fmt.Errorf("LEO %d, verdict %d: %w", res.LEO, res.Verdict, err)
				}
				if wrong != nil {
					return fmt.Errorf("left %d, %s: %w", how, c.name, wrong)
				}
				return nil
			})
		}
	}
}

// A leader epoch that falls is seen by the neighbour alone, where the epochs
// that were noted are lost.
func TestEpochThatFallsWithoutTheHint(t *testing.T) {
	d := leave(t, leftKilled)
	if err := d.fs.Remove(logDir() + "/" + hintName); err != nil {
		t.Fatal(err)
	}
	const epochField = 12
	fs := d.with(t, func(f vfs.File) error {
		_, err := f.WriteVecAt([][]byte{{0, 0, 0, 3}}, d.pos+epochField)
		return err
	})
	visit(t, fs, func(res storage.OpenResult, got [][]byte, err error) error {
		if res.Verdict != storage.VerdictMayHaveLostSuffix {
			err = errors.Join(err, fmt.Errorf("verdict %d", res.Verdict))
		}
		return errors.Join(err, same(got, d.batches[:len(d.batches)-1]))
	})
}

// No bit of the last batch can change unnoticed, those outside the CRC
// included: past the recovery point the batch is cut, and Open says that a
// suffix may be lost; below it, it stays and reads say so.
func TestEveryByteOfLastBatchFlipped(t *testing.T) {
	for _, how := range []int{leftKilled, leftFlushed, leftClosed} {
		d := leave(t, how)
		last := d.batches[len(d.batches)-1]
		for i := range last {
			for _, mask := range []byte{0x01, 0x80} {
				fs := d.with(t, func(f vfs.File) error {
					_, err := f.WriteVecAt([][]byte{{last[i] ^ mask}}, d.pos+int64(i))
					return err
				})
				visit(t, fs, func(res storage.OpenResult, got [][]byte, err error) error {
					wrong := same(got, d.batches[:len(d.batches)-1])
					if how == leftKilled {
						// A length that grew looks like a write that was cut.
						grown := i >= 8 && i < 12
						if wrong == nil && (err != nil || res.Cut == "" || res.Verdict == storage.VerdictIntact && !grown) {
							wrong = fmt.Errorf("verdict %d, cut %q, %w", res.Verdict, res.Cut, err)
						}
					} else if wrong == nil && (!errors.Is(err, storage.ErrCorrupt) || res.LEO != end(last)) {
						wrong = fmt.Errorf("LEO %d: %w", res.LEO, err)
					}
					if wrong != nil {
						return fmt.Errorf("left %d, byte %d ^ %#x: %w", how, i, mask, wrong)
					}
					return nil
				})
			}
		}
	}
}

// Damage in the midst of the log, in a segment that no longer grows.
func TestDamageInTheMiddle(t *testing.T) {
	for _, how := range []int{leftKilled, leftFlushed, leftClosed} {
		d := leave(t, how)
		const victim = 4
		d.file, d.pos = findBatch(t, d.fs, d.batches[victim])
		for i := range d.batches[victim] {
			fs := d.with(t, func(f vfs.File) error {
				_, err := f.WriteVecAt([][]byte{{d.batches[victim][i] ^ 0x11}}, d.pos+int64(i))
				return err
			})
			visit(t, fs, func(res storage.OpenResult, got [][]byte, err error) error {
				wrong := same(got, d.batches[:victim])
				switch {
				case wrong != nil:
				case errors.Is(err, storage.ErrCorrupt):
					// A segment that was rolled may be below the recovery point at any time.
				case how != leftKilled || err != nil || res.Verdict == storage.VerdictIntact:
					wrong = fmt.Errorf("LEO %d, verdict %d: %w", res.LEO, res.Verdict, err)
				}
				if wrong != nil {
					return fmt.Errorf("left %d, byte %d: %w", how, i, wrong)
				}
				return nil
			})
		}
	}
}

// Length fields that cannot be (FR-47).
func TestFR47WrongLengths(t *testing.T) {
	d := leave(t, leftKilled)
	for _, length := range []int32{0, -1, 1, 48, 1<<31 - 1, -1 << 31} {
		fs := d.with(t, func(f vfs.File) error {
			_, err := f.WriteVecAt([][]byte{binary.BigEndian.AppendUint32(nil, uint32(length))}, d.pos+8)
			return err
		})
		visit(t, fs, func(_ storage.OpenResult, got [][]byte, err error) error {
			return errors.Join(err, same(got, d.batches[:len(d.batches)-1]))
		})
	}
}

// A truncation does not cut where a damaged header says.
func TestTruncationMeetsDamage(t *testing.T) {
	const deltaField = 23
	for _, c := range []struct {
		victim, to int64
		delta      int32
	}{
		{9, 33, 8},  // would take the batch at 30 as well
		{10, 32, 1}, // would end the log in the midst of a batch
	} {
		d := leave(t, leftClosed)
		d.file, d.pos = findBatch(t, d.fs, d.batches[c.victim])
		fs := d.with(t, func(f vfs.File) error {
			_, err := f.WriteVecAt([][]byte{binary.BigEndian.AppendUint32(nil, uint32(c.delta))}, d.pos+deltaField)
			return err
		})
		s := mustStart(t, fs, testConfig("boot-1"))
		res := s.mustOpen(t, 4)
		if leo, err := s.Truncate(t.Context(), res.Handle, 4, c.to); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("truncate to %d: LEO %d, %v", c.to, leo, err)
		}
		if again := s.mustOpen(t, 4); again.LEO != res.LEO {
			t.Errorf("after the truncation that was refused: LEO %d, not %d", again.LEO, res.LEO)
		}
	}
}

// A hole is remembered: reads meet it after further openings, and what was
// appended after it is there.
func TestHoleStays(t *testing.T) {
	d := leave(t, leftFlushed)
	last := d.batches[len(d.batches)-1]
	fs := d.with(t, func(f vfs.File) error { return f.Truncate(d.pos + 30) })
	for range 3 {
		s := mustStart(t, fs, testConfig("boot-1"))
		res := s.mustOpen(t, 4)
		if res.LEO < end(last) {
			t.Fatalf("LEO %d, below the recovery point", res.LEO)
		}
		if _, err := s.readAll(res.Handle, parse(last).BaseOffset, res.LEO); !errors.Is(err, storage.ErrCorrupt) {
			t.Fatalf("read in the hole: %v", err)
		}
		if _, err := s.append(request(res.Handle, res.LEO, storage.SurvivesProcess, batch(res.LEO, 1, 4, 10, 1))); err != nil {
			t.Fatal(err)
		}
		if got, err := s.readAll(res.Handle, end(last), res.LEO+1); err != nil || len(got) == 0 {
			t.Fatalf("read after the hole: %d batches, %v", len(got), err)
		}
		if err := s.Shutdown(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// A log start above the end of the log is repaired by beginning there (FR-73).
func TestLogStartAboveEnd(t *testing.T) {
	d := leave(t, leftKilled)
	c, err := readValue[checkpoint](d.fs, logDir()+"/"+checkpointName, checkpointKind, checkpointMax)
	if err != nil {
		t.Fatal(err)
	}
	c.LogStart = 1000
	if err := writeValue(d.fs, logDir()+"/"+checkpointName, checkpointKind, c); err != nil {
		t.Fatal(err)
	}
	visit(t, d.fs, func(res storage.OpenResult, got [][]byte, err error) error {
		if err != nil || len(got) > 0 || res.LogStart != 1000 || res.LEO != 1000 {
			return fmt.Errorf("log %d to %d, %d batches, %w", res.LogStart, res.LEO, len(got), err)
		}
		return nil
	})
}

// A log without its small files still opens, with all its batches.
func TestSmallFilesMissing(t *testing.T) {
	for _, how := range []int{leftKilled, leftClosed} {
		for _, name := range []string{checkpointName, hintName, metaName} {
			d := leave(t, how)
			if err := d.fs.Remove(logDir() + "/" + name); err != nil {
				t.Fatal(err)
			}
			visit(t, d.fs, func(_ storage.OpenResult, got [][]byte, err error) error {
				return errors.Join(err, same(got, d.batches))
			})
		}
	}
}
