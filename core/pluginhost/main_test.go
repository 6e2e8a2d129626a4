package pluginhost_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/brokerd/brokerd/core/pluginhost"
	transporttcp "github.com/brokerd/brokerd/plugins/transport-tcp"
	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// The roles that this test binary plays when it is executed by a test.
const (
	roleServe = "serve-memstore"
	roleLock  = "serve-locked" // holds the file that its settings name
	roleLinks = "serve-transport-tcp"
	roleFail  = "fail"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		var err error
		switch os.Args[1] {
		case roleServe:
			plugin.NewLogger(os.Stderr, nil).Info("hello", "topic", "orders")
			err = plugin.ServeStorage(memstore.NewProvider(memstore.Options{}))
		case roleLock:
			err = plugin.ServeStorage(locked{memstore.NewProvider(memstore.Options{})})
		case roleLinks:
			err = transporttcp.Serve()
		case roleFail:
			err = errors.New("broken on purpose")
		default:
			goto tests
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
tests:
	// The race detector would keep every process for a second after its end.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// locked is a store in memory that is held by one process at a time: its
// settings are the path of a file to lock.
type locked struct{ storage.Provider }

func (l locked) Open(ctx context.Context, cfg storage.Config) (storage.Store, storage.DirectoryID, error) {
	path := strings.Trim(string(cfg.Settings), `"`)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, storage.DirectoryID{}, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, storage.DirectoryID{}, storage.Errorf(storage.ErrFenced, "another process holds %s", path)
	}
	cfg.Settings = memstore.Settings("disk")
	s, dir, err := l.Provider.Open(ctx, cfg)
	return lockedStore{s, f}, dir, err
}

// lockedStore keeps the file open, and so the lock.
type lockedStore struct {
	storage.Store
	lock *os.File
}

func (s lockedStore) Shutdown(ctx context.Context) error {
	return errors.Join(s.Store.Shutdown(ctx), s.lock.Close())
}

// watcher keeps the events of a host.
type watcher struct {
	mu     sync.Mutex
	events []pluginhost.Event
	came   chan struct{}
}

func newWatcher() *watcher { return &watcher{came: make(chan struct{}, 1000)} }

func (w *watcher) on(e pluginhost.Event) {
	w.mu.Lock()
	w.events = append(w.events, e)
	w.mu.Unlock()
	w.came <- struct{}{}
}

// wait returns the nth event of a kind, counted from 1.
func (w *watcher) wait(t *testing.T, kind pluginhost.EventKind, n int) pluginhost.Event {
	t.Helper()
	limit := time.After(10 * time.Second)
	for {
		count := 0
		w.mu.Lock()
		for _, e := range w.events {
			if e.Kind == kind {
				if count++; count == n {
					w.mu.Unlock()
					return e
				}
			}
		}
		w.mu.Unlock()
		select {
		case <-w.came:
		case <-limit:
			t.Fatalf("no event %d of kind %d; events: %+v", n, kind, w.events)
		}
	}
}

// config has all that tests need, with quick times.
func config() pluginhost.Config {
	return pluginhost.Config{
		Builtin: map[string][]string{
			"storage-memory": {roleServe},
			"storage-locked": {roleLock},
			"storage-broken": {roleFail},
		},
		BackoffMin:     10 * time.Millisecond,
		BackoffMax:     100 * time.Millisecond,
		HealthInterval: 50 * time.Millisecond,
		HealthTimeout:  300 * time.Millisecond,
		DrainTimeout:   3 * time.Second,
	}
}

func storeConfig(settings []byte) storage.Config {
	return storage.Config{
		Settings:            settings,
		Identity:            storage.Identity{ClusterID: "cluster", NodeID: 1},
		ProposedDirectoryID: storage.DirectoryID{7},
	}
}

// output collects log lines.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// start runs a host until the test ends, and checks that Run returns then.
func start(t *testing.T, h *pluginhost.Host) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("run: %v", err)
				}
			case <-time.After(10 * time.Second):
				t.Error("Run did not return")
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

func newHost(t *testing.T, cfg pluginhost.Config, w *watcher) *pluginhost.Host {
	t.Helper()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	return pluginhost.New(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)), w.on)
}

// serving is a host with one store in memory that serves.
func serving(t *testing.T, cfg pluginhost.Config) (*pluginhost.Store, *watcher) {
	t.Helper()
	w := newWatcher()
	h := newHost(t, cfg, w)
	s := h.Store("main", "storage-memory", storeConfig(memstore.Settings("disk")))
	start(t, h)
	if err := s.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, w
}

func spec(n int32) storage.OpenSpec {
	return storage.OpenSpec{ID: storage.LogID{Topic: [16]byte{9}, Partition: n}, Create: true, LeaderEpoch: 1}
}

func openLog(t *testing.T, s storage.Store, n int32) storage.OpenResult {
	t.Helper()
	r := s.Open(t.Context(), []storage.OpenSpec{spec(n)})[0]
	if r.Err != nil {
		t.Fatalf("open a log: %v", r.Err)
	}
	return r
}

// appendOf is an append of one batch with one record.
func appendOf(h storage.Handle, base int64) storage.AppendRequest {
	data := recordbatch.Build(nil, recordbatch.Header{
		Info: recordbatch.Info{
			BaseOffset: base, LastOffset: base, LeaderEpoch: 1, MaxTimestamp: time.Now().UnixMilli(),
			ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Records: 1,
		},
		Payload: make([]byte, 900),
	})
	info, err := recordbatch.Parse(data)
	if err != nil {
		panic(err)
	}
	return storage.AppendRequest{Handle: h, LeaderEpoch: 1, BaseOffset: base, Batches: []storage.BatchInfo{info}, Data: [][]byte{data}}
}

// appendOne appends and waits.
func appendOne(s storage.Store, h storage.Handle, base int64) error {
	done := make(chan error, 1)
	s.Append(context.Background(), appendOf(h, base), func(_ storage.AppendResult, err error) { done <- err })
	return <-done
}
