package plugin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/plugin/internal/filestore"
	"github.com/brokerd/brokerd/sdk/plugin/plugintest"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// fileConfig opens a file store in a directory.
func fileConfig(dir string) storage.Config {
	cfg := config()
	cfg.Settings = filestore.Settings(dir)
	return cfg
}

// lend opens a store that lends its files, behind a lane in this process.
func lend(t testing.TB, opt filestore.Options) *plugin.Store {
	t.Helper()
	link, err := plugintest.Connect(filestore.NewProvider(opt), plugin.CarrierFiles)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Break)
	s, _, err := link.Store(t.Context(), fileConfig(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// appendWait appends one record and waits for the completion.
func appendWait(ctx context.Context, s storage.Store, h storage.Handle, base int64, size int, require storage.Survives) (storage.AppendResult, error) {
	type outcome struct {
		res storage.AppendResult
		err error
	}
	done := make(chan outcome, 1)
	req := appendOf(h, base, size)
	req.Require = require
	s.Append(ctx, req, func(res storage.AppendResult, err error) { done <- outcome{res, err} })
	o := <-done
	return o.res, o.err
}

// fill appends records from offset `from` up to `to`.
func fill(t testing.TB, s storage.Store, h storage.Handle, from, to int64) {
	t.Helper()
	for base := from; base < to; base++ {
		if res, err := appendWait(t.Context(), s, h, base, 200, 0); err != nil || res.LEO != base+1 {
			t.Fatalf("append at %d: %+v, %v", base, res, err)
		}
	}
}

// readAll reads a log from an offset on and checks each batch and that none is
// missing.
func readAll(ctx context.Context, s storage.Store, h storage.Handle, from, upTo int64) error {
	buf := make([]byte, 2000)
	for at := from; at < upTo; {
		res, err := s.Read(ctx, storage.ReadRequest{Handle: h, Offset: at, UpTo: upTo, MaxBytes: 2000, AtLeastOne: true, Buf: buf})
		if err != nil {
			return fmt.Errorf("read at %d: %w", at, err)
		}
		if len(res.Data) == 0 {
			return fmt.Errorf("nothing at %d, below %d", at, upTo)
		}
		for rest := res.Data; len(rest) > 0; at++ {
			var info recordbatch.Info
			if info, _, rest, err = recordbatch.Next(rest); err != nil || info.BaseOffset != at {
				return fmt.Errorf("at %d is a batch of offset %d: %w", at, info.BaseOffset, err)
			}
		}
		if res.Next != at {
			return fmt.Errorf("next is %d after a read up to %d", res.Next, at)
		}
	}
	return nil
}

// The host answers appends under a grant by itself. What needs the plugin to know
// waits until it was told.
func TestGrantedAppendsDoNotWaitForThePlugin(t *testing.T) {
	const n = 500
	told, hold := atomic.Int64{}, make(chan struct{})
	s := lend(t, filestore.Options{Told: func(storage.AppendRequest) error {
		<-hold
		told.Add(1)
		return nil
	}})
	h := openLog(t, s, 0).Handle
	fill(t, s, h, 0, n)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Scan(ctx, storage.ScanRequest{Handle: h, UpTo: n}); !errors.Is(err, storage.ErrUnknown) {
		t.Errorf("a scan of what the plugin does not know: %v", err)
	}
	if told.Load() != 0 {
		t.Error("the plugin knew")
	}
	close(hold)
	infos, err := s.Scan(t.Context(), storage.ScanRequest{Handle: h, UpTo: n})
	if err != nil || len(infos) != n {
		t.Errorf("a scan gives %d headers, %v", len(infos), err)
	}
	if err := readAll(t.Context(), s, h, 0, n); err != nil {
		t.Error(err)
	}
	if units := told.Load(); units == 0 || units > n/10 {
		t.Errorf("%d appends were told in %d units", n, units)
	}
}

// An append that must survive the machine is written by the host, and answered when
// the plugin has synced.
func TestGrantedAppendThatMustSurviveTheMachine(t *testing.T) {
	var machine atomic.Int64
	s := lend(t, filestore.Options{Told: func(req storage.AppendRequest) error {
		if req.Require == storage.SurvivesMachine {
			machine.Add(1)
		}
		return nil
	}})
	h := openLog(t, s, 0).Handle
	fill(t, s, h, 0, 20)
	for base := int64(20); base < 30; base++ {
		res, err := appendWait(t.Context(), s, h, base, 100, storage.SurvivesMachine)
		if err != nil || res.Survives != storage.SurvivesMachine || res.Durable != base+1 {
			t.Fatalf("append at %d: %+v, %v", base, res, err)
		}
	}
	if machine.Load() == 0 {
		t.Error("none was written under a grant")
	}
	if res, err := appendWait(t.Context(), s, h, 30, 100, 0); err != nil || res.Survives != storage.SurvivesProcess || res.Durable != 30 {
		t.Errorf("one that need not: %+v, %v", res, err)
	}
}

// What is lent is looked at before it is used.
func TestUnusableGrantsAreNotUsed(t *testing.T) {
	dir := t.TempDir()
	for name, granted := range map[string]func(*storage.Grant) error{
		"refused":   func(*storage.Grant) error { return storage.Errorf(storage.ErrRetry, "not now") },
		"read only": func(g *storage.Grant) (err error) { g.File, err = os.Open(dir); return err },
		"a pipe": func(g *storage.Grant) error {
			r, w, err := os.Pipe()
			if err == nil {
				g.File, err = w, r.Close()
			}
			return err
		},
		"end mark":    func(g *storage.Grant) error { g.EndMark = 1 << 30; return nil },
		"limit":       func(g *storage.Grant) error { g.Limit = g.Pos - 1; return nil },
		"position":    func(g *storage.Grant) error { g.Pos = -1; return nil },
		"without ID":  func(g *storage.Grant) error { g.ID = 0; return nil },
		"another LEO": func(g *storage.Grant) error { g.LEO++; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := lend(t, filestore.Options{Granted: granted, Told: func(storage.AppendRequest) error {
				t.Error("it was used")
				return nil
			}})
			h := openLog(t, s, 0).Handle
			fill(t, s, h, 0, 60)
			if err := readAll(t.Context(), s, h, 0, 60); err != nil {
				t.Error(err)
			}
		})
	}
}

// Appends wait for a grant for a while only, and one that comes later is not used:
// the log has gone on without it.
func TestLateGrantIsNotUsed(t *testing.T) {
	come := make(chan struct{})
	asked := make(chan struct{}, 100)
	s := lend(t, filestore.Options{
		Granted: func(*storage.Grant) error {
			asked <- struct{}{}
			<-come
			return nil
		},
		Told: func(storage.AppendRequest) error {
			t.Error("a grant was used")
			return nil
		},
	})
	h := openLog(t, s, 0).Handle
	fill(t, s, h, 0, 30) // in the middle of which they wait for askTimeout
	<-asked
	close(come)
	if err := readAll(t.Context(), s, h, 0, 30); err != nil {
		t.Error(err)
	}
	if len(asked) > 0 {
		t.Error("another was asked for meanwhile")
	}
}

// When the plugin refuses what was written, the log takes no more until it is
// opened, which finds all that was acknowledged.
func TestRefusedTellingEndsTheHandle(t *testing.T) {
	var refuse atomic.Bool
	s := lend(t, filestore.Options{Told: func(storage.AppendRequest) error {
		if refuse.Load() {
			return storage.Errorf(storage.ErrGone, "an I/O error")
		}
		return nil
	}})
	h := openLog(t, s, 0).Handle
	fill(t, s, h, 0, 50)
	refuse.Store(true)
	acked := int64(50)
	var err error
	for err == nil {
		if _, err = appendWait(t.Context(), s, h, acked, 100, 0); err == nil {
			acked++
		}
	}
	if !errors.Is(err, storage.ErrGone) {
		t.Errorf("after the refusal: %v, want gone", err)
	}
	refuse.Store(false)
	again := openLog(t, s, 0)
	if again.LEO != acked {
		t.Errorf("opened with LEO %d after %d were acknowledged", again.LEO, acked)
	}
	fill(t, s, again.Handle, acked, acked+30)
	if err := readAll(t.Context(), s, again.Handle, 0, acked+30); err != nil {
		t.Error(err)
	}
}

// A plugin that has heard nothing for long is felt: appends then wait for it.
// An append that is written and waits for the plugin is in the file when that refuses
// it: its outcome is unknown, and an opening finds it. Were it told as refused, its
// offsets would be given to other records.
func TestRefusedTellingLeavesTheOutcomeOpen(t *testing.T) {
	for _, class := range []error{storage.ErrFull, storage.ErrRetry, storage.ErrInvalid, storage.ErrFenced} {
		t.Run(class.Error(), func(t *testing.T) {
			s := lend(t, filestore.Options{Told: func(req storage.AppendRequest) error {
				if req.BaseOffset >= 20 {
					return storage.Errorf(class, "not this one")
				}
				return nil
			}})
			h, leo := openLog(t, s, 0).Handle, int64(0)
			for err := error(nil); err == nil; leo++ {
				if _, err = appendWait(t.Context(), s, h, leo, 200, storage.SurvivesMachine); err == nil {
					continue
				}
				if !errors.Is(err, storage.ErrUnknown) || errors.Is(err, class) || leo < 20 {
					t.Fatalf("append at %d: %v", leo, err)
				}
			}
			if _, err := appendWait(t.Context(), s, h, leo-1, 200, storage.SurvivesMachine); !errors.Is(err, storage.ErrGone) {
				t.Errorf("append behind it: %v", err)
			}
			if r := openLog(t, s, 0); r.LEO != leo {
				t.Errorf("the log opens with LEO %d; %d were written", r.LEO, leo)
			}
		})
	}
}

func TestPipelinedAppendsAcrossGrants(t *testing.T) {
	s := lend(t, filestore.Options{OverAfter: 1, GrantBytes: 40 << 10, EndMark: 128})
	h := openLog(t, s, 0).Handle
	const n = 4000
	var mu sync.Mutex
	next := int64(0)
	var all sync.WaitGroup
	for base := range int64(n) {
		all.Add(1)
		s.Append(t.Context(), appendOf(h, base, 150), func(res storage.AppendResult, err error) {
			defer all.Done()
			mu.Lock()
			defer mu.Unlock()
			if err != nil || res.LEO != next+1 {
				t.Errorf("completion %d: %+v, %v", next, res, err)
			}
			next++
		})
	}
	all.Wait()
	if err := readAll(t.Context(), s, h, 0, n); err != nil {
		t.Error(err)
	}
}

// Changes of a log that come between appends find all of them, and those that
// follow find the change.
func TestChangesBetweenGrantedAppends(t *testing.T) {
	s := lend(t, filestore.Options{})
	h := openLog(t, s, 0).Handle
	leo, start := int64(0), int64(0)
	for round := range int64(30) {
		fill(t, s, h, leo, leo+20)
		leo += 20
		switch round % 3 {
		case 0:
			got, err := s.Truncate(t.Context(), h, 1, leo-5)
			if err != nil || got != leo-5 {
				t.Fatalf("truncate: %d, %v", got, err)
			}
			leo -= 5
		case 1:
			start = leo - 7
			if got, err := s.Trim(t.Context(), h, start); err != nil || got != start {
				t.Fatalf("trim: %d, %v", got, err)
			}
		case 2:
			r := openLog(t, s, 0)
			if r.LEO != leo || r.LogStart != start {
				t.Fatalf("opened with offsets %d to %d, want %d to %d", r.LogStart, r.LEO, start, leo)
			}
			h = r.Handle
		}
		if err := readAll(t.Context(), s, h, start, leo); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Read(t.Context(), storage.ReadRequest{Handle: h, Offset: start - 1, UpTo: leo, MaxBytes: 100}); !errors.Is(err, storage.ErrInvalid) {
			t.Fatalf("read below the log start %d: %v", start, err)
		}
	}
}

// What a truncation took is not durable when other records come in its place.
func TestTruncationTakesDurability(t *testing.T) {
	s := lend(t, filestore.Options{})
	h := openLog(t, s, 0).Handle
	fill(t, s, h, 0, 30)
	if r := s.Flush(t.Context(), []storage.Handle{h})[0]; r.Err != nil || r.Durable != 30 {
		t.Fatalf("flush: %+v", r)
	}
	if res, err := appendWait(t.Context(), s, h, 30, 100, 0); err != nil || res.Durable != 30 {
		t.Errorf("after a flush: %+v, %v", res, err)
	}
	if _, err := s.Truncate(t.Context(), h, 1, 5); err != nil {
		t.Fatal(err)
	}
	for base := int64(5); base < 50; base++ {
		if res, err := appendWait(t.Context(), s, h, base, 100, 0); err != nil || res.Durable > 5 {
			t.Fatalf("append at %d after a truncation to 5: %+v, %v", base, res, err)
		}
	}
}

// A reader that goes on where it was asks for few leases, and leases that are not
// what they say are not served from.
func TestLeases(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, bytes.Repeat(appendOf(1, 3, 200).Data[0], 500), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(l *storage.Lease, path string, flags int) (err error) {
		_ = l.File.Close()
		l.File, err = os.OpenFile(path, flags, 0)
		return err
	}
	for name, leased := range map[string]func(*storage.Lease) error{
		"right":          nil,
		"refused":        func(*storage.Lease) error { return storage.Errorf(storage.ErrRetry, "not now") },
		"another file":   func(l *storage.Lease) error { return open(l, other, os.O_RDONLY) },
		"for writing":    func(l *storage.Lease) error { return open(l, l.File.Name(), os.O_RDWR) },
		"a directory":    func(l *storage.Lease) error { return open(l, filepath.Dir(l.File.Name()), os.O_RDONLY) },
		"beyond its end": func(l *storage.Lease) error { l.Limit += 1 << 20; return nil },
		"off by one":     func(l *storage.Lease) error { l.Pos++; return nil },
		"too early":      func(l *storage.Lease) error { l.Pos = 0; l.Gaps = false; return nil },
		"too short":      func(l *storage.Lease) error { l.Limit = l.Pos + 100; return nil },
		"nothing":        func(l *storage.Lease) error { l.Limit = l.Pos; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int64
			s := lend(t, filestore.Options{Leased: func(l *storage.Lease) error {
				n.Add(1)
				if leased == nil {
					return nil
				}
				return leased(l)
			}})
			h := openLog(t, s, 0).Handle
			fill(t, s, h, 0, 300)
			for range 3 {
				if err := readAll(t.Context(), s, h, 0, 300); err != nil {
					t.Error(err)
				}
			}
			if n.Load() == 0 || leased == nil && n.Load() > 3 {
				t.Errorf("%d leases were asked for", n.Load())
			}
		})
	}
}

// serveFiles is a plugin that lends its files.
func serveFiles() error {
	return plugin.ServeStorage(filestore.NewProvider(filestore.Options{OverAfter: 7}))
}

// killRounds is how often the plugin is killed.
const killRounds = 12

// FR-76, with files: the plugin is killed with -9 while the host writes under its
// grants and reads under its leases. Nothing that was acknowledged is lost, nothing
// else is read, and no process has the store before the host has let go of it.
func TestKillInMidGrantAndMidLease(t *testing.T) {
	dir := t.TempDir()
	const logs = 4
	var acked [logs]int64
	for round := range killRounds {
		p := launch(t, plugin.LaunchConfig{Args: []string{roleFiles}})
		s, _, err := p.Store(t.Context(), fileConfig(dir))
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		var handles [logs]storage.Handle
		for n := range handles {
			r := openLog(t, s, int32(n))
			if r.LEO < acked[n] {
				t.Fatalf("round %d: log %d ends at %d, %d were acknowledged", round, n, r.LEO, acked[n])
			}
			if err := readAll(t.Context(), s, r.Handle, 0, r.LEO); err != nil {
				t.Fatalf("round %d, log %d: %v", round, n, err)
			}
			handles[n], acked[n] = r.Handle, r.LEO
		}
		runUntilKilled(t, p, s, handles[:], acked[:], 100*(round+1))
		if round == 0 {
			second := launch(t, plugin.LaunchConfig{Args: []string{roleFiles}})
			if _, _, err := second.Store(t.Context(), fileConfig(dir)); !errors.Is(err, storage.ErrFenced) {
				t.Errorf("a second process while the host may still write: %v, want fenced", err)
			}
			second.Kill()
		}
		s.Abandon()
	}
}

// runUntilKilled appends to every log and reads from it, and kills the plugin after
// so many acknowledgements.
func runUntilKilled(t *testing.T, p *plugin.Process, s *plugin.Store, handles []storage.Handle, acked []int64, after int) {
	var count atomic.Int64
	enough, once := make(chan struct{}), sync.Once{}
	var wg sync.WaitGroup
	ends := make([]atomic.Int64, len(handles))
	for n, h := range handles {
		ends[n].Store(acked[n])
		wg.Go(func() {
			for {
				if _, err := appendWait(t.Context(), s, h, ends[n].Load(), 150, 0); err != nil {
					if !errors.Is(err, storage.ErrUnknown) && !errors.Is(err, storage.ErrGone) {
						t.Errorf("append: %v", err)
					}
					return
				}
				ends[n].Add(1)
				if count.Add(1) == int64(after) {
					once.Do(func() { close(enough) })
				}
			}
		})
		wg.Go(func() {
			for {
				to := ends[n].Load()
				if err := readAll(t.Context(), s, h, max(0, to-50), to); err != nil {
					if !errors.Is(err, storage.ErrGone) && !errors.Is(err, storage.ErrUnknown) {
						t.Error(err)
					}
					return
				}
				select {
				case <-s.Lost():
					return
				default:
				}
			}
		})
	}
	<-enough
	p.Kill()
	<-s.Lost()
	// Whoever has a grant may go on for as long as it lasts.
	stopped := make(chan struct{})
	go func() {
		wg.Wait()
		close(stopped)
	}()
	<-stopped
	for n := range handles {
		acked[n] = ends[n].Load()
	}
}

// A store that was shut down is another's at once.
func TestShutdownLetsGoOfTheStore(t *testing.T) {
	dir := t.TempDir()
	for range 3 {
		p := launch(t, plugin.LaunchConfig{Args: []string{roleFiles}})
		s, _, err := p.Store(t.Context(), fileConfig(dir))
		if err != nil {
			t.Fatal(err)
		}
		r := openLog(t, s, 0)
		fill(t, s, r.Handle, r.LEO, r.LEO+40)
		if err := readAll(t.Context(), s, r.Handle, 0, r.LEO+40); err != nil {
			t.Error(err)
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		again, _, err := p.Store(t.Context(), fileConfig(dir)) // over gRPC: the socket had its store
		if err != nil {
			t.Fatal(err)
		}
		again.Abandon()
		p.Kill()
	}
}

// A granted append costs the host next to nothing but the write.
func TestGrantedAppendDoesNotAllocate(t *testing.T) {
	s := lend(t, filestore.Options{GrantBytes: 1 << 30})
	h := openLog(t, s, 0).Handle
	fill(t, s, h, 0, 50)
	req := appendOf(h, 0, 200)
	req.Checked = true
	leo := int64(50)
	done := func(_ storage.AppendResult, err error) {
		if err != nil {
			t.Error(err)
		}
	}
	allocations := testing.AllocsPerRun(2000, func() {
		recordbatch.Stamp(req.Data[0], leo, 1)
		req.BaseOffset, req.Batches[0].BaseOffset, req.Batches[0].LastOffset = leo, leo, leo
		s.Append(context.Background(), req, done)
		leo++
	})
	// The store of this test, in the same process, allocates for what it is told.
	if t.Logf("%.1f allocations", allocations); allocations > 8 {
		t.Errorf("%.1f allocations for each append", allocations)
	}
}
