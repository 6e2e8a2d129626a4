package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/brokerd/brokerd/core/admin"
	"github.com/brokerd/brokerd/core/config"
	"github.com/brokerd/brokerd/core/quorum"
	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// TestMain makes the test's own binary the plugin, as brokerd's is, and checks
// that no broker, whether it started or failed to, left a goroutine behind.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve-memstore" {
		if err := plugin.ServeStorage(memstore.NewProvider(memstore.Options{})); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), // the tests' own client
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// running is a broker under test.
type running struct {
	*Broker
	log  *logBuffer
	stop func() error // once
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// settings are those of a broker under test, on a directory.
func settings(t *testing.T, dir string, more ...config.Override) config.Loaded {
	t.Helper()
	over := append([]config.Override{
		{Name: "data", Value: dir},
		{Name: "listeners", Value: "PLAINTEXT://127.0.0.1:0"},
		{Name: "storage.stores", Value: `{main: {plugin: memstore}}`},
	}, more...)
	cfg, err := config.Load(config.Sources{Overrides: over})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func newBroker(t *testing.T, cfg config.Loaded) *running {
	t.Helper()
	return newBrokerWith(t, cfg, Deps{Builtin: map[string][]string{"memstore": {"serve-memstore"}}})
}

func newBrokerWith(t *testing.T, cfg config.Loaded, deps Deps) *running {
	t.Helper()
	log := &logBuffer{}
	deps.Logger, deps.Version = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})), "test"
	b, err := New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	return &running{Broker: b, log: log}
}

// start runs a broker until the test ends.
func start(t *testing.T, cfg config.Loaded) *running {
	t.Helper()
	return startBroker(t, newBroker(t, cfg))
}

func startBroker(t *testing.T, b *running) *running {
	t.Helper()
	waitServing(t, b, launch(t, b))
	return b
}

// launch runs a broker until the test ends, and does not wait for it.
func launch(t *testing.T, b *running) (ran chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ran = make(chan error, 1)
	go func() { ran <- b.Run(ctx) }()
	b.stop = sync.OnceValue(func() error { cancel(); return <-ran })
	t.Cleanup(func() {
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v\n%s", err, b.log)
		}
	})
	return ran
}

func waitServing(t *testing.T, b *running, ran chan error) {
	t.Helper()
	select {
	case <-b.Ready():
	case err := <-ran:
		ran <- err
		t.Fatalf("Run: %v\n%s", err, b.log)
	}
}

func client(t *testing.T, b *running, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.Addresses()...), kgo.MetadataMinAge(20 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func get(t *testing.T, b *running, path string) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + b.AdminAddress() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// A record goes in and comes out, the status tells of it, and after the end
// nothing is left.
func TestBroker(t *testing.T) {
	b := start(t, settings(t, t.TempDir()))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := client(t, b, kgo.DefaultProduceTopic("greetings"), kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics("greetings"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err := c.ProduceSync(ctx, kgo.StringRecord("hello")).FirstErr(); err != nil {
		t.Fatalf("produce: %v\n%s", err, b.log)
	}
	fetches := c.PollFetches(ctx)
	if err := fetches.Err(); err != nil || fetches.NumRecords() != 1 || string(fetches.Records()[0].Value) != "hello" {
		t.Fatalf("consumed %v, %v\n%s", fetches.Records(), err, b.log)
	}
	_, body := get(t, b, "/v1/status")
	var s admin.Status
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		t.Fatal(err)
	}
	if !s.Ready || s.ClusterID == "" || s.Topics != 1 || s.Partitions != 1 || len(s.Stores) != 1 || s.Stores[0].PID == 0 || !s.Stores[0].Healthy ||
		len(s.Listeners) != 1 || s.Listeners[0].Advertised != b.Addresses()[0] || !strings.Contains(strings.Join(s.Warnings, "\n"), "not replicated") {
		t.Errorf("status %s", body)
	}
	if code, body := get(t, b, "/readyz"); code != http.StatusOK {
		t.Errorf("readyz: %d %s", code, body)
	}
	_, metrics := get(t, b, "/metrics")
	for _, want := range []string{`brokerd_api_produced_records_total{topic="greetings"} 1`, "brokerd_broker_partitions_count 1", "brokerd_broker_ready_state 1",
		`brokerd_pluginhost_serving_state{plugin="memstore",store="main"} 1`} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("no metric %s", want)
		}
	}
	if !strings.Contains(b.log.String(), "not replicated") { // FR-3
		t.Errorf("the log does not say that nothing is replicated:\n%s", b.log)
	}
	c.Close()
	if err := b.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := syscall.Kill(s.Stores[0].PID, 0); err == nil {
		t.Errorf("the plugin, process %d, is left", s.Stores[0].PID)
	}
}

// Metadata outlives the broker: names, settings and identity.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	first := start(t, settings(t, dir))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	value := "3600000"
	if _, err := kadm.NewClient(client(t, first)).CreateTopic(ctx, 3, -1, map[string]*string{"retention.ms": &value}, "kept"); err != nil {
		t.Fatalf("create: %v\n%s", err, first.log)
	}
	identity := first.now.Load().quorum.Identity()
	if err := first.stop(); err != nil {
		t.Fatalf("stop: %v\n%s", err, first.log)
	}
	second := start(t, settings(t, dir))
	if again := second.now.Load().quorum.Identity(); again != identity {
		t.Errorf("identity %v became %v", identity, again)
	}
	topics, err := kadm.NewClient(client(t, second)).ListTopics(ctx, "kept")
	if err != nil || topics["kept"].Err != nil || len(topics["kept"].Partitions) != 3 {
		t.Errorf("topic after the restart: %+v, %v\n%s", topics["kept"], err, second.log)
	}
}

func TestStartMistakes(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	held := start(t, settings(t, filepath.Join(t.TempDir(), "held")))
	node7 := filepath.Join(t.TempDir(), "node7")
	if err := start(t, settings(t, node7, config.Override{Name: "node.id", Value: "7"})).stop(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		dir  string
		over []config.Override
		is   error
		want string
	}{
		{"port in use", "", []config.Override{{Name: "listeners", Value: "PLAINTEXT://" + taken.Addr().String()}}, syscall.EADDRINUSE, taken.Addr().String()},
		{"admin port in use", "", []config.Override{{Name: "admin.listen", Value: taken.Addr().String()}}, syscall.EADDRINUSE, taken.Addr().String()},
		{"directory in use", held.cfg.Data, nil, ErrLocked, fmt.Sprintf("held by the brokerd with process ID %d", os.Getpid())},
		{"another node's directory", node7, nil, nil, "belongs to node 7 and not to node 1"},
		{"no such plugin", "", []config.Override{{Name: "storage.stores", Value: "{main: {plugin: nosuch}}"}}, nil, "there is no plugin nosuch"},
		{"a plugin's unknown key", "", []config.Override{{Name: "storage.stores", Value: "{main: {plugin: memstore, config: {dsk: x}}}"}}, nil, "dsk"},
		{"no bootstrap", "", []config.Override{{Name: "cluster.bootstrap", Value: "false"}}, nil, "cluster.bootstrap"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := tc.dir
			if dir == "" {
				dir = t.TempDir()
			}
			b := newBroker(t, settings(t, dir, tc.over...))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err := b.Run(ctx)
			if err == nil || !strings.Contains(err.Error(), tc.want) || (tc.is != nil && !errors.Is(err, tc.is)) {
				t.Errorf("Run: %v, want %s\n%s", err, tc.want, b.log)
			}
			if _, err := os.Stat(quorum.Database(b.quorumDir())); tc.dir == "" && err == nil {
				t.Error("a cluster was created")
			}
			if _, err := os.Stat(filepath.Join(dir, foundingName)); err == nil {
				t.Error("a proposal was left behind")
			}
		})
	}
}

func TestDeletesCanBeForbidden(t *testing.T) {
	b := start(t, settings(t, t.TempDir(), config.Override{Name: "delete.topic.enable", Value: "false"}))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	adm := kadm.NewClient(client(t, b))
	if _, err := adm.CreateTopic(ctx, 1, -1, nil, "kept"); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.DeleteTopic(ctx, "kept"); !errors.Is(err, kerr.PolicyViolation) {
		t.Errorf("delete: %v", err)
	}
}

// The least and an ordinary memory are both enough to serve.
func TestMemoryIsShared(t *testing.T) {
	for _, memory := range []string{"16MiB", "64MiB"} {
		b := start(t, settings(t, t.TempDir(), config.Override{Name: "memory", Value: memory}))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		c := client(t, b, kgo.DefaultProduceTopic("t"), kgo.AllowAutoTopicCreation())
		if err := c.ProduceSync(ctx, &kgo.Record{Value: bytes.Repeat([]byte("x"), 900_000)}).FirstErr(); err != nil {
			t.Errorf("memory %s: %v", memory, err)
		}
	}
}

// FR-79: what clients elsewhere would stumble over is said at the start.
func TestReachIsWarnedOf(t *testing.T) {
	b := start(t, settings(t, t.TempDir(),
		config.Override{Name: "listeners", Value: "PLAINTEXT://0.0.0.0:0"},
		config.Override{Name: "advertised.listeners", Value: "PLAINTEXT://127.0.0.1:9092"},
		config.Override{Name: "admin.listen", Value: "0.0.0.0:0"},
		config.Override{Name: "flush", Value: "interval"}))
	for _, want := range []string{"advertised.listeners", "admin.listen is 0.0.0.0:0", "flush is interval"} {
		if !strings.Contains(b.log.String(), want) {
			t.Errorf("the log does not warn of %s:\n%s", want, b.log)
		}
	}
	if got := b.Addresses(); len(got) != 1 || got[0] != "127.0.0.1:9092" {
		t.Errorf("advertises %v", got)
	}
}
