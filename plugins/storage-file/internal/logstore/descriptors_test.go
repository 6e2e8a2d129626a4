package logstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// openMany opens n logs.
func openMany(t *testing.T, s *running, n int) []storage.Handle {
	t.Helper()
	specs := make([]storage.OpenSpec, n)
	for i := range specs {
		specs[i] = storage.OpenSpec{ID: storage.LogID{Topic: [16]byte{9}, Partition: int32(i)}, Label: "many", Create: true, LeaderEpoch: 1}
	}
	handles := make([]storage.Handle, n)
	for i, res := range s.Open(context.Background(), specs) {
		if res.Err != nil {
			t.Fatal(res.Err)
		}
		handles[i] = res.Handle
	}
	return handles
}

// readEverything reads the logs, several at once, and checks that each has its
// batches.
func readEverything(t *testing.T, s *running, handles []storage.Handle, batches int64) {
	t.Helper()
	var all sync.WaitGroup
	const readers = 8
	for r := range readers {
		all.Go(func() {
			for i := r; i < len(handles); i += readers {
				got, err := s.readAll(handles[i], 0, batches)
				if err != nil || int64(len(got)) != batches {
					t.Errorf("log %d: %d batches of %d, %v", i, len(got), batches, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// 500 logs of 20 segments, of which none is synced when it is asked to be, are
// written, read, closed and opened again with 64 descriptors; what is open when
// nothing goes on stays below the share that is kept for it.
func TestManyLogsUnderFewDescriptors(t *testing.T) {
	const logs, segments, descriptors = 500, 20, 64
	fs := vfs.NewMem(vfs.MemConfig{})
	fs.SetDescriptors(descriptors)
	cfg := testConfig("boot-1")
	cfg.Descriptors = descriptors
	s := mustStart(t, fs, cfg)
	handles := openMany(t, s, logs)
	var all sync.WaitGroup
	for i := range int64(2 * segments) { // two to a segment
		b := batch(i, 1, 1, 400, 1000)
		for n, h := range handles {
			all.Add(1)
			s.Append(t.Context(), request(h, i, storage.SurvivesProcess, b), func(_ storage.AppendResult, err error) {
				defer all.Done()
				if err != nil {
					t.Errorf("append %d to log %d: %v", i, n, err)
				}
			})
		}
		all.Wait()
	}
	v := mustLog(t, s, handles[0]).snapshot()
	if len(v.segs) != segments {
		t.Fatalf("the logs have %d segments", len(v.segs))
	}
	readEverything(t, s, handles, 2*segments)
	for i, err := range s.Close(t.Context(), handles) {
		if err != nil {
			t.Fatalf("close log %d: %v", i, err)
		}
	}
	if n := fs.OpenFiles(); n != 0 {
		t.Errorf("%d files are open when all logs are closed", n)
	}
	handles = openMany(t, s, logs)
	if n := fs.OpenFiles(); n != 0 {
		t.Errorf("%d files are open for %d logs that are opened and quiet; want none", n, logs)
	}
	readEverything(t, s, handles, 2*segments)
	if n, most := fs.OpenFiles(), descriptors-descriptors/spareShare; n > most {
		t.Errorf("%d files are open when nothing goes on; want at most %d", n, most)
	}
}

func mustLog(t *testing.T, s *running, h storage.Handle) *log {
	t.Helper()
	l, err := s.lookup(h)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// An open log takes one descriptor while it has records that are not synced, and
// need not have any when it has none.
func TestDescriptorsOfALog(t *testing.T) {
	fs := vfs.NewMem(vfs.MemConfig{})
	cfg := testConfig("boot-1")
	cfg.Syncers, cfg.Options.SegmentBytes = 1, 4<<10 // two segments, and no roll at the end
	s := mustStart(t, fs, cfg)
	h := s.mustOpen(t, 1).Handle
	idle := func() int { // what stays when all that can be closed is
		fs.SetDescriptors(1)
		defer fs.SetDescriptors(0)
		_, _ = s.fs.List("/store") // closes them, if it needs one
		return fs.OpenFiles()
	}
	for i := range int64(10) {
		if _, err := s.append(request(h, i, storage.SurvivesMachine, batch(i, 1, 1, 400, 1))); err != nil {
			t.Fatal(err)
		}
	}
	synced := make(chan struct{}) // all that was asked for
	s.syncers.push(func() { close(synced) })
	<-synced
	if n := idle(); n != 0 {
		t.Errorf("a log that is synced keeps %d files open", n)
	}
	if _, err := s.append(request(h, 10, storage.SurvivesProcess, batch(10, 1, 1, 100, 1))); err != nil {
		t.Fatal(err)
	}
	if n := idle(); n != 1 {
		t.Errorf("a log that is not synced keeps %d files open; want the one that a failed write is told of", n)
	}
}

// Without a descriptor every call is refused as one to be tried again, in a
// sentence that names the limit; nothing is done, the log is not called
// damaged, and all goes on when there is one again.
func TestNoDescriptorsIsRetried(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewMem(vfs.MemConfig{})
	cfg := testConfig("boot-1")
	cfg.Descriptors = 1000
	s := mustStart(t, fs, cfg)
	h := s.mustOpen(t, 1).Handle
	for i := range int64(9) {
		if _, err := s.append(request(h, i, storage.SurvivesMachine, batch(i, 1, 1, 400, 1))); err != nil {
			t.Fatal(err)
		}
	}
	other := storage.LogID{Partition: 99}
	calls := map[string]func() error{
		"append": func() error {
			_, err := s.append(request(h, 9, storage.SurvivesProcess, batch(9, 1, 1, 400, 1)))
			return err
		},
		"append an epoch": func() error {
			_, err := s.append(request(h, 9, storage.SurvivesProcess, batch(9, 1, 2, 10, 1)))
			return err
		},
		"read": func() error {
			_, err := s.Read(ctx, storage.ReadRequest{Handle: h, Offset: 1, UpTo: 9, MaxBytes: 100, AtLeastOne: true})
			return err
		},
		"scan": func() error { _, err := s.Scan(ctx, storage.ScanRequest{Handle: h, Offset: 1, UpTo: 9}); return err },
		"find": func() error {
			_, _, err := s.FindTimestamp(ctx, storage.TimestampQuery{Handle: h, Timestamp: 1, UpTo: 9})
			return err
		},
		"truncate": func() error { _, err := s.Truncate(ctx, h, 1, 5); return err },
		"trim":     func() error { _, err := s.Trim(ctx, h, 3); return err },
		"replace":  func() error { return s.Replace(ctx, storage.ReplaceRequest{Handle: h, From: 1, To: 2}) },
		"blob":     func() error { return s.PutBlob(ctx, h, "b", storage.Blob{Data: []byte("x")}) },
		"open":     func() error { return s.open(other, 1).Err },
		"list":     func() error { _, err := s.List(ctx); return err },
	}
	// Nothing may be left in memory that would spare a file.
	for _, seg := range mustLog(t, s, h).snapshot().segs {
		seg.DropIndex()
	}
	hog, err := fs.Open("/hog", vfs.Empty)
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range calls {
		fs.SetDescriptors(1)
		err := call()
		if !errors.Is(err, storage.ErrRetry) || !strings.Contains(err.Error(), "1000 file descriptors") {
			t.Errorf("%s without a descriptor: %v", name, err)
		}
	}
	fs.SetDescriptors(0)
	if err := hog.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := s.readAll(h, 0, 9)
	if err != nil || len(got) != 9 {
		t.Fatalf("after that: %d batches, %v", len(got), err)
	}
	for _, name := range []string{"append", "read", "scan", "find", "replace", "blob", "open", "list", "trim", "truncate"} {
		if err := calls[name](); err != nil {
			t.Errorf("%s with descriptors again: %v", name, err)
		}
	}
}

// Whatever is the moment at which descriptors run out and come back, no call
// fails for good, no log is called damaged, and what was acknowledged is there.
func TestDescriptorsComeAndGo(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(30) {
		r := newRand(seed)
		fs := vfs.NewMem(vfs.MemConfig{})
		s := mustStart(t, fs, testConfig("boot-1"))
		h := s.mustOpen(t, 1).Handle
		hog, err := fs.Open("/hog", vfs.Empty)
		if err != nil {
			t.Fatal(err)
		}
		reopen := func(err error) {
			// In the midst of a cut the log may have to be opened again.
			switch {
			case err == nil || errors.Is(err, storage.ErrRetry):
				return
			case !errors.Is(err, storage.ErrGone):
				t.Fatalf("seed %d: %v", seed, err)
			}
			fs.SetDescriptors(0)
			res := s.mustOpen(t, 1)
			if h = res.Handle; res.Verdict != storage.VerdictIntact || res.Cut != "" {
				t.Fatalf("seed %d: opened again: %+v", seed, res)
			}
		}
		var leo, start int64
		for range 120 {
			fs.SetDescriptors([]int{0, 1, 2, 3}[r.IntN(4)])
			switch r.IntN(8) {
			default:
				b := batch(leo, 1, 1, 100+r.IntN(300), 1)
				_, err := s.append(request(h, leo, storage.Survives(r.IntN(2)+1), b))
				if err == nil {
					leo++
				}
				reopen(err)
			case 0:
				reopen(s.Flush(ctx, []storage.Handle{h})[0].Err)
			case 1:
				to := start + r.Int64N(leo-start+1)
				if got, err := s.Truncate(ctx, h, 1, to); err == nil {
					leo = got
				} else {
					reopen(err)
					leo = mustLog(t, s, h).snapshot().leo
				}
			case 2:
				if _, err := s.Trim(ctx, h, min(leo, start+1)); err != nil {
					reopen(err)
				}
				start = mustLog(t, s, h).snapshot().logStart
			case 3:
				_, err := s.readAll(h, start, leo)
				reopen(err)
			}
		}
		fs.SetDescriptors(0)
		got, err := s.readAll(h, start, leo)
		if err != nil || int64(len(got)) != leo-start {
			t.Fatalf("seed %d: %d batches of %d, %v", seed, len(got), leo-start, err)
		}
		if err := s.Close(ctx, []storage.Handle{h})[0]; err != nil {
			t.Fatalf("seed %d: close: %v", seed, err)
		}
		if err := hog.Close(); err != nil || fs.OpenFiles() != 0 {
			t.Fatalf("seed %d: %d files are open at the end", seed, fs.OpenFiles())
		}
	}
}

// watched counts the bytes that are read of segments.
type watched struct {
	vfs.FS
	bytes atomic.Int64
}

type watchedFile struct {
	vfs.File
	w *watched
}

func (w *watched) Open(name string, mode vfs.Mode) (vfs.File, error) {
	f, err := w.FS.Open(name, mode)
	if err != nil || !strings.HasSuffix(name, ".log") {
		return f, err
	}
	return watchedFile{f, w}, nil
}

func (f watchedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.w.bytes.Add(int64(n))
	return n, err
}

// A truncation reads what lies near the cut, not the segment from its start.
func TestTruncateReadsNearTheCut(t *testing.T) {
	fs := &watched{FS: vfs.NewMem(vfs.MemConfig{})}
	cfg := testConfig("boot-1")
	cfg.Options.SegmentBytes, cfg.Options.IndexIntervalBytes = 4<<20, 4<<10
	s := mustStart(t, fs, cfg)
	h := s.mustOpen(t, 1).Handle
	const n = 1000
	for i := range int64(n) {
		if _, err := s.append(request(h, i, storage.SurvivesProcess, batch(i, 1, 1, 1000, 1000+i))); err != nil {
			t.Fatal(err)
		}
	}
	for _, to := range []int64{990, 700, 699} {
		before := fs.bytes.Load()
		if leo, err := s.Truncate(t.Context(), h, 1, to); err != nil || leo != to {
			t.Fatalf("truncate to %d: %d, %v", to, leo, err)
		}
		if got := fs.bytes.Load() - before; got > 64<<10 {
			t.Errorf("truncating to %d reads %d bytes", to, got)
		}
	}
	got, err := s.readAll(h, 0, 699)
	if err != nil || len(got) != 699 {
		t.Fatalf("%d batches, %v", len(got), err)
	}
	info, found, err := s.FindTimestamp(t.Context(), storage.TimestampQuery{Handle: h, Kind: storage.Latest, UpTo: 699})
	if err != nil || !found || info.BaseOffset != 698 {
		t.Errorf("the latest record is at %d, %v, %v", info.BaseOffset, found, err)
	}
	if _, err := recordbatch.Parse(got[698]); err != nil {
		t.Error(fmt.Errorf("the last batch: %w", err))
	}
}
