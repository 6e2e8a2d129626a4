package logstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// Completions come once, in the order of the appends, whatever each waits for,
// and appends that wait for a sync share syncs.
func TestCompletionsInOrder(t *testing.T) {
	var syncs atomic.Int64
	fs := vfs.NewMem(vfs.MemConfig{Before: func(op vfs.Op) error {
		if op.Kind == "sync" {
			syncs.Add(1)
		}
		return nil
	}})
	cfg := testConfig("boot-1")
	cfg.Options.SegmentBytes = 1 << 20
	s := mustStart(t, fs, cfg)
	res := s.mustOpen(t, 1)
	before := syncs.Load()
	const n = 2000
	var mu sync.Mutex
	var ends []int64
	var all sync.WaitGroup
	all.Add(n)
	for i := range int64(n) {
		require := storage.SurvivesProcess
		if i%2 == 0 {
			require = storage.SurvivesMachine
		}
		s.Append(context.Background(), request(res.Handle, i, require, batch(i, 1, 1, 20, 1)), func(r storage.AppendResult, err error) {
			defer all.Done()
			mu.Lock()
			defer mu.Unlock()
			if err != nil || r.Survives < require || require == storage.SurvivesMachine && r.Durable < r.LEO {
				t.Errorf("append %d: %+v, %v", i, r, err)
			}
			ends = append(ends, r.LEO)
		})
	}
	all.Wait()
	for i, end := range ends {
		if end != int64(i)+1 {
			t.Fatalf("completion %d is that of the append up to %d", i, end)
		}
	}
	if got := syncs.Load() - before; got >= n/2 {
		t.Errorf("%d syncs for %d appends that wait for one", got, n/2)
	}
}

// What is queued behind a failed append fails, even where it would fit.
func TestBehindAFailure(t *testing.T) {
	var hold sync.WaitGroup
	hold.Add(1)
	fs := vfs.NewMem(vfs.MemConfig{})
	s := mustStart(t, fs, testConfig("boot-1"))
	res := s.mustOpen(t, 1)
	l, err := s.lookup(res.Handle)
	if err != nil {
		t.Fatal(err)
	}
	l.enqueue(op{run: func() { hold.Wait() }})
	errs := make(chan error, 3)
	bad := request(res.Handle, 0, storage.SurvivesProcess, batch(0, 1, 1, 20, 1))
	bad.Data[0][len(bad.Data[0])-1] ^= 1
	for _, req := range []storage.AppendRequest{bad, request(res.Handle, 0, storage.SurvivesProcess, batch(0, 1, 1, 20, 1))} {
		s.Append(context.Background(), req, func(_ storage.AppendResult, err error) { errs <- err })
	}
	hold.Done()
	for range 2 {
		if err := <-errs; !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("append: %v", err)
		}
	}
	if _, err := s.append(request(res.Handle, 0, storage.SurvivesProcess, batch(0, 1, 1, 20, 1))); err != nil {
		t.Errorf("append after both were answered: %v", err)
	}
}

// A full queue makes Append wait, until its context ends.
func TestQueueIsBounded(t *testing.T) {
	s := mustStart(t, vfs.NewMem(vfs.MemConfig{}), testConfig("boot-1"))
	res := s.mustOpen(t, 1)
	l, err := s.lookup(res.Handle)
	if err != nil {
		t.Fatal(err)
	}
	hold, started := make(chan struct{}), make(chan struct{})
	l.enqueue(op{run: func() { close(started); <-hold }})
	<-started
	var all sync.WaitGroup
	for i := range int64(queuedAppendsMax) {
		all.Add(1)
		s.Append(context.Background(), request(res.Handle, i, 0, batch(i, 1, 1, 1, 1)), func(storage.AppendResult, error) { all.Done() })
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	late := request(res.Handle, queuedAppendsMax, 0, batch(queuedAppendsMax, 1, 1, 1, 1))
	s.Append(ctx, late, func(_ storage.AppendResult, err error) {
		if !errors.Is(err, storage.ErrRetry) {
			t.Errorf("append on a full queue: %v", err)
		}
	})
	done := make(chan error, 1)
	waiting := make(chan struct{})
	go func() {
		close(waiting)
		s.Append(context.Background(), late, func(_ storage.AppendResult, err error) { done <- err })
	}()
	<-waiting
	close(hold)
	if err := <-done; err != nil {
		t.Errorf("append that waited for room: %v", err)
	}
	all.Wait()
}

// Segments end by size, by age and never in a batch.
func TestRoll(t *testing.T) {
	fs := vfs.NewMem(vfs.MemConfig{})
	cfg := testConfig("boot-1")
	cfg.Options.SegmentAge = time.Second
	s := mustStart(t, fs, cfg)
	res := s.mustOpen(t, 1)
	at := int64(0)
	for _, c := range []struct {
		payload int
		ts      int64
	}{{300, 0}, {300, 1000}, {300, 900}, {10, 1001}, {10, 1002}, {2000, 1003}, {10, 1004}} {
		if _, err := s.append(request(res.Handle, at, 0, batch(at, 1, 1, c.payload, c.ts))); err != nil {
			t.Fatal(err)
		}
		at++
	}
	var bases []int64
	entries, err := fs.List(logDir())
	if err != nil {
		t.Fatal(err)
	}
	for i := range at {
		for _, e := range entries {
			if e.Name == segment.Name(i, segment.LogSuffix) {
				bases = append(bases, i)
			}
		}
	}
	// 2 is too large for the first, 3 too late for the first, 5 larger than any.
	if got, want := fmt.Sprint(bases), "[0 2 5 6]"; got != want {
		t.Errorf("segments %s, want %s", got, want)
	}
}

// Readers see whole batches, and never those that a truncation took, while the
// log is cut and grows again under them.
func TestReadsDuringTruncation(t *testing.T) {
	s := mustStart(t, vfs.NewMem(vfs.MemConfig{}), testConfig("boot-1"))
	res := s.mustOpen(t, 1)
	var stop atomic.Bool
	var readers sync.WaitGroup
	for range 2 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			for !stop.Load() {
				r, err := s.Read(context.Background(), storage.ReadRequest{Handle: res.Handle, Offset: 0, UpTo: 1 << 40, MaxBytes: 4000})
				if err != nil {
					t.Errorf("read: %v", err)
					return
				}
				next := int64(0)
				for rest := r.Data; len(rest) > 0; {
					info, _, tail, err := recordbatch.Next(rest)
					if err != nil || info.BaseOffset != next {
						t.Errorf("read: offset %d where %d was due, %v", info.BaseOffset, next, err)
						return
					}
					next, rest = info.LastOffset+1, tail
				}
			}
		}()
	}
	leo := int64(0)
	for i := range int32(60) {
		for range 8 {
			if _, err := s.append(request(res.Handle, leo, 0, batch(leo, 1+i%3, 1+i, 90+int(i%7)*10, 1))); err != nil {
				t.Fatal(err)
			}
			leo += int64(1 + i%3)
		}
		var err error
		if leo, err = s.Truncate(context.Background(), res.Handle, 1+i, leo-int64(i%11)-4); err != nil {
			t.Fatal(err)
		}
	}
	stop.Store(true)
	readers.Wait()
}

// Appends that wait for a sync are answered before a truncation takes what they
// wrote, and none is left waiting.
func TestTruncationAnswersAppendsInFlight(t *testing.T) {
	release := make(chan struct{})
	var hold atomic.Bool
	fs := &slowSync{FS: vfs.NewMem(vfs.MemConfig{}), hold: &hold, release: release}
	s := mustStart(t, fs, testConfig("boot-1"))
	res := s.mustOpen(t, 1)
	hold.Store(true)
	const n = 10
	errs := make(chan error, n)
	for i := range int64(n) {
		s.Append(context.Background(), request(res.Handle, i, storage.SurvivesMachine, batch(i, 1, 1, 20, 1)), func(_ storage.AppendResult, err error) { errs <- err })
	}
	cut := make(chan error, 1)
	go func() {
		_, err := s.Truncate(context.Background(), res.Handle, 1, 3)
		cut <- err
	}()
	hold.Store(false)
	close(release)
	if err := <-cut; err != nil {
		t.Fatal(err)
	}
	if len(errs) != n {
		t.Fatalf("%d of %d appends were answered before the truncation was", len(errs), n)
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// slowSync holds syncs of segments back.
type slowSync struct {
	vfs.FS
	hold    *atomic.Bool
	release chan struct{}
}

func (s *slowSync) Open(name string, mode vfs.Mode) (vfs.File, error) {
	f, err := s.FS.Open(name, mode)
	if err != nil {
		return nil, err
	}
	return slowSyncFile{f, s}, nil
}

type slowSyncFile struct {
	vfs.File
	fs *slowSync
}

func (f slowSyncFile) Sync() error {
	if f.fs.hold.Load() {
		<-f.fs.release
	}
	return f.File.Sync()
}
