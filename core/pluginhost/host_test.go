package pluginhost_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/pluginhost"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
	"github.com/brokerd/brokerd/sdk/storage/storagetest"
)

func kill(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatalf("signal %v: %v", sig, err)
	}
}

// FR-76: the plugin dies under load, again and again.
func TestKilledUnderLoadItIsStartedAgain(t *testing.T) {
	s, w := serving(t, config())
	const kills = 4
	stop := make(chan struct{})
	var load sync.WaitGroup
	var count counter
	for n := range int32(4) {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				r := s.Open(context.Background(), []storage.OpenSpec{spec(n)})[0]
				if r.Err != nil {
					if !errors.Is(r.Err, storage.ErrRetry) && !errors.Is(r.Err, storage.ErrGone) {
						t.Errorf("open while it restarts: %v", r.Err)
					}
					<-time.After(time.Millisecond)
					continue
				}
				pipeline(s, r, &count)
			}
		})
	}
	for i := range kills {
		e := w.wait(t, pluginhost.Started, i+1)
		<-count.more(200)
		kill(t, e.Pid, syscall.SIGKILL)
		w.wait(t, pluginhost.Ended, i+1)
	}
	w.wait(t, pluginhost.Started, kills+1)
	close(stop)
	load.Wait()
	if count.begun != count.completed || count.begun == 0 {
		t.Errorf("%d appends begun, %d completed", count.begun, count.completed)
	}
	if s.Restarts() != kills {
		t.Errorf("%d restarts, want %d", s.Restarts(), kills)
	}
	if err := appendOne(s, openLog(t, s, 100).Handle, 0); err != nil {
		t.Errorf("append after the restarts: %v", err)
	}
	for _, e := range w.events {
		if e.Kind == pluginhost.Quarantined {
			t.Error("a plugin that served was put in quarantine")
		}
	}
}

// counter counts appends.
type counter struct {
	mu               sync.Mutex
	begun, completed int
	target           int
	reached          chan struct{} // closed at target
}

func (c *counter) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun++
}

func (c *counter) complete() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.completed++; c.completed == c.target {
		close(c.reached)
	}
}

// more returns a channel that is closed after n more completions.
func (c *counter) more(n int) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.target, c.reached = c.completed+n, make(chan struct{})
	return c.reached
}

// pipeline appends with up to 32 in flight until one fails, or some thousand are
// done.
func pipeline(s storage.Store, r storage.OpenResult, count *counter) {
	slots := make(chan struct{}, 32)
	failed := make(chan struct{}, 1)
	for n := range int64(2000) {
		select {
		case slots <- struct{}{}:
		case <-failed:
			return
		}
		count.begin()
		s.Append(context.Background(), appendOf(r.Handle, r.LEO+n), func(_ storage.AppendResult, err error) {
			count.complete()
			<-slots
			if err != nil {
				select {
				case failed <- struct{}{}:
				default:
				}
			}
		})
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
}

func TestPausedPluginIsReplaced(t *testing.T) {
	s, w := serving(t, config())
	log := openLog(t, s, 0)
	first := w.wait(t, pluginhost.Started, 1)
	kill(t, first.Pid, syscall.SIGSTOP)
	var err error
	for at := int64(0); err == nil; at++ { // it may still answer until the signal has reached it
		err = appendOne(s, log.Handle, at)
	}
	if !errors.Is(err, storage.ErrUnknown) {
		t.Errorf("append in flight when it was killed: %v, want unknown", err)
	}
	if e := w.wait(t, pluginhost.Ended, 1); !strings.Contains(e.Err.Error(), "health") {
		t.Errorf("it ended because %v; want its health check", e.Err)
	}
	if second := w.wait(t, pluginhost.Started, 2); second.Pid == first.Pid {
		t.Error("it is the same process")
	}
	if err := appendOne(s, log.Handle, 0); !errors.Is(err, storage.ErrGone) {
		t.Errorf("append with a handle of the old process: %v, want gone", err)
	}
	if err := appendOne(s, openLog(t, s, 0).Handle, 0); err != nil {
		t.Errorf("append after opening again: %v", err)
	}
}

func TestFailingPluginIsQuarantined(t *testing.T) {
	cfg := config()
	cfg.QuarantineAfter = 3
	cfg.QuarantineRetry = 20 * time.Millisecond
	w := newWatcher()
	h := newHost(t, cfg, w)
	s := h.Store("main", "storage-broken", storeConfig(nil))
	start(t, h)
	err := s.WaitReady(t.Context())
	if err == nil || !strings.Contains(err.Error(), "broken on purpose") || strings.Contains(err.Error(), "\n") {
		t.Errorf("ready: %v; want one sentence with the plugin's last words", err)
	}
	w.wait(t, pluginhost.Failed, 2)
	w.wait(t, pluginhost.Quarantined, 2) // it is still tried
	if a, b := w.wait(t, pluginhost.Failed, 1), w.wait(t, pluginhost.Failed, 2); b.Retry != 2*a.Retry || a.Retry != cfg.BackoffMin {
		t.Errorf("tried again after %v and %v; want twice as long each time", a.Retry, b.Retry)
	}
	if _, err := s.List(t.Context()); !errors.Is(err, storage.ErrGone) {
		t.Errorf("list of a store in quarantine: %v, want gone", err)
	}
}

func TestFirstStartRefusals(t *testing.T) {
	w := newWatcher()
	h := newHost(t, config(), w)
	unknownKey := h.Store("a", "storage-memory", storeConfig([]byte(`{"colour":"red"}`)))
	unknownPlugin := h.Store("b", "storage-nowhere", storeConfig(nil))
	start(t, h)
	if err := unknownKey.WaitReady(t.Context()); !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), "colour") {
		t.Errorf("an unknown key: %v", err)
	}
	err := unknownPlugin.WaitReady(t.Context())
	if !errors.Is(err, pluginhost.ErrNotFound) || !strings.Contains(err.Error(), "storage-locked") {
		t.Errorf("an unknown plugin: %v; want the names of those there are", err)
	}
}

// FR-77: never two writers.
func TestSecondHostIsRefusedUntilTheFirstEnds(t *testing.T) {
	settings := []byte(`"` + filepath.Join(t.TempDir(), "lock") + `"`)
	w1, w2 := newWatcher(), newWatcher()
	cfg := config()
	cfg.QuarantineAfter, cfg.QuarantineRetry = 3, 20*time.Millisecond
	h1, h2 := newHost(t, cfg, w1), newHost(t, cfg, w2)
	s1 := h1.Store("main", "storage-locked", storeConfig(settings))
	s2 := h2.Store("main", "storage-locked", storeConfig(settings))
	stop1 := start(t, h1)
	if err := s1.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	start(t, h2)
	if err := s2.WaitReady(t.Context()); !errors.Is(err, storage.ErrFenced) {
		t.Errorf("the second host: %v, want fenced", err)
	}
	stop1()
	if _, err := s1.List(t.Context()); err == nil {
		t.Error("the first store answers after its host ended")
	}
	w2.wait(t, pluginhost.Started, 1)
	if _, err := s2.List(t.Context()); err != nil {
		t.Errorf("the second host's store, when the first has ended: %v", err)
	}
}

func TestPluginsLogIsTheHosts(t *testing.T) {
	var out output
	h := pluginhost.New(config(), slog.New(slog.NewTextHandler(&out, nil)), nil)
	s := h.Store("main", "storage-memory", storeConfig(memstore.Settings("disk")))
	stop := start(t, h)
	if err := s.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
	if want := "level=INFO msg=hello plugin=storage-memory topic=orders"; !strings.Contains(out.String(), want) {
		t.Errorf("the log lacks %q:\n%s", want, out.String())
	}
}

func TestShutdownEndsTheProcess(t *testing.T) {
	s, w := serving(t, config())
	openLog(t, s, 0)
	pid := w.wait(t, pluginhost.Started, 1).Pid
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatalf("shutdown: %v", err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the process after Shutdown: %v", err)
	}
	if err := s.Shutdown(t.Context()); !errors.Is(err, storage.ErrGone) {
		t.Errorf("a second shutdown: %v, want gone", err)
	}
	if r := s.Open(t.Context(), []storage.OpenSpec{spec(0)})[0]; !errors.Is(r.Err, storage.ErrGone) {
		t.Errorf("open after shutdown: %v, want gone", r.Err)
	}
}

func TestListAndPrecedence(t *testing.T) {
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"storage-memory", "storage-other", "Not A Name"} {
		if err := os.Symlink(exe, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "storage-text"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := config()
	cfg.Dir = dir
	cfg.Checksums = map[string]string{"storage-other": strings.Repeat("00", 32)}
	h := newHost(t, cfg, newWatcher())
	found, err := h.List()
	if err != nil {
		t.Fatal(err)
	}
	want := []pluginhost.Found{
		{Name: "storage-broken"}, {Name: "storage-locked"},
		{Name: "storage-memory", Path: filepath.Join(dir, "storage-memory")},
		{Name: "storage-other", Path: filepath.Join(dir, "storage-other"), Pinned: true},
	}
	if len(found) != len(want) {
		t.Fatalf("found %+v", found)
	}
	for i := range want {
		if found[i] != want[i] {
			t.Errorf("found %+v, want %+v", found[i], want[i])
		}
	}
}

func TestPinnedChecksums(t *testing.T) {
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "storage-memory")
	if err := os.Symlink(exe, path); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	cfg := config()
	cfg.Dir = dir
	cfg.Checksums = map[string]string{"storage-memory": hex.EncodeToString(sum[:]), "storage-locked": hex.EncodeToString(sum[:])}
	sum[31]++
	h := newHost(t, cfg, newWatcher())
	// The right file runs (without its argument it is no plugin, which it says);
	// a pinned name is never served from inside.
	if _, err := h.Probe(t.Context(), "storage-locked"); !errors.Is(err, pluginhost.ErrNotFound) {
		t.Errorf("pinned without a file: %v", err)
	}
	cfg.Checksums["storage-memory"] = hex.EncodeToString(sum[:])
	h = newHost(t, cfg, newWatcher())
	s := h.Store("main", "storage-memory", storeConfig(memstore.Settings("disk")))
	start(t, h)
	if err := s.WaitReady(t.Context()); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("another file than the pinned one: %v", err)
	}
}

func TestProbeAndCheck(t *testing.T) {
	h := newHost(t, config(), newWatcher())
	info, err := h.Probe(t.Context(), "storage-memory")
	if err != nil || info.Name == "" {
		t.Errorf("probe: %+v, %v", info, err)
	}
	only := storagetest.Options{Filter: func(name string) bool { return name == "pipeline-order" }}
	if _, err := h.Check(t.Context(), "storage-memory", []byte(`{}`), only); err == nil {
		t.Error("checked with one place for every case")
	}
	report, err := h.Check(t.Context(), "storage-memory", memstore.Settings(pluginhost.FreshName), only)
	if err != nil || !report.OK() {
		t.Errorf("check: %+v, %v", report, err)
	}
}

func TestValidate(t *testing.T) {
	for name, change := range map[string]func(*pluginhost.Config){
		"negative":      func(c *pluginhost.Config) { c.HealthTimeout = -1 },
		"backoff":       func(c *pluginhost.Config) { c.BackoffMin, c.BackoffMax = time.Second, time.Millisecond },
		"checksum":      func(c *pluginhost.Config) { c.Checksums = map[string]string{"storage-x": "12"} },
		"checksum name": func(c *pluginhost.Config) { c.Checksums = map[string]string{"../x": strings.Repeat("00", 32)} },
		"builtin name":  func(c *pluginhost.Config) { c.Builtin = map[string][]string{"a/b": nil} },
		"carrier":       func(c *pluginhost.Config) { c.Carriers = map[string]string{"main": "pigeon"} },
		"quarantine":    func(c *pluginhost.Config) { c.QuarantineAfter = -1 },
	} {
		cfg := config()
		change(&cfg)
		if err := cfg.Validate(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := (pluginhost.Config{}).Validate(); err != nil {
		t.Errorf("the zero configuration: %v", err)
	}
	known := pluginhost.Config{Carriers: map[string]string{"a": "auto", "b": "socket", "c": "grpc", "d": ""}}
	if err := known.Validate(); err != nil {
		t.Errorf("carriers of the configuration: %v", err)
	}
}
