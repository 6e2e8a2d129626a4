package plugin_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// The roles that this test binary plays when it is executed by a test.
const (
	roleServe   = "serve-memstore" // a plugin
	roleTalk    = "serve-talking"  // a plugin that writes to its log and prints its environment
	roleFail    = "fail-at-start"  // something that dies before the handshake
	roleLender  = "serve-lender"   // a plugin that keeps nothing, and lends files
	roleFiles   = "serve-files"    // a plugin that lends its files
	roleLaunch  = "launch-and-wait"
	sayThis     = "the last words of a broken plugin"
	askedForEnv = "BROKERD_TEST_SEEN"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if role, ok := roles()[os.Args[1]]; ok {
			if err := role(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	// The race detector would keep every process for a second after its end.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func roles() map[string]func() error {
	return map[string]func() error{
		roleServe: func() error { return plugin.ServeStorage(memstore.NewProvider(memstore.Options{})) },
		roleTalk: func() error {
			log := plugin.NewLogger(os.Stderr, nil)
			log.Warn("talking", "topic", "orders", "partition", 3)
			log.Info("environment", "names", strings.Join(envNames(), ","))
			dir, err := os.Stat(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"))
			if err != nil {
				return err
			}
			log.Info("socket directory", "mode", dir.Mode().String())
			return plugin.ServeStorage(memstore.NewProvider(memstore.Options{}))
		},
		roleLender: func() error { return plugin.ServeStorage(lender{}) },
		roleFiles:  serveFiles,
		roleFail:   func() error { return fmt.Errorf("%s", sayThis) },
		roleLaunch: launchAndWait,
	}
}

func envNames() []string {
	var names []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		names = append(names, name)
	}
	return names
}

// launchAndWait is a host: it launches a plugin, prints its process ID, and
// waits to be killed.
func launchAndWait() error {
	p, err := plugin.Launch(context.Background(), plugin.LaunchConfig{Args: []string{roleServe}})
	if err != nil {
		return err
	}
	fmt.Println(p.Pid())
	<-p.Done()
	return nil
}

// config is what a store of a test is opened with.
func config() storage.Config {
	return storage.Config{
		Settings:            memstore.Settings("disk"),
		Identity:            storage.Identity{ClusterID: "cluster", NodeID: 1},
		ProposedDirectoryID: storage.DirectoryID{1},
	}
}

// openLog opens one log for writing.
func openLog(t testing.TB, s storage.Store, n int32) storage.OpenResult {
	t.Helper()
	r := s.Open(t.Context(), []storage.OpenSpec{{
		ID: storage.LogID{Topic: [16]byte{9}, Partition: n}, Label: "t", Create: true, LeaderEpoch: 1,
	}})[0]
	if r.Err != nil {
		t.Fatalf("open a log: %v", r.Err)
	}
	return r
}

// appendOf is an append of one batch with one record of the given size.
func appendOf(h storage.Handle, base int64, bytes int) storage.AppendRequest {
	payload := make([]byte, max(1, bytes-recordbatch.HeaderBytes))
	data := recordbatch.Build(nil, recordbatch.Header{
		Info: recordbatch.Info{
			BaseOffset: base, LastOffset: base, LeaderEpoch: 1, MaxTimestamp: time.Now().UnixMilli(),
			ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Records: 1,
		},
		Payload: payload,
	})
	info, err := recordbatch.Parse(data)
	if err != nil {
		panic(err)
	}
	return storage.AppendRequest{Handle: h, LeaderEpoch: 1, BaseOffset: base, Batches: []storage.BatchInfo{info}, Data: [][]byte{data}}
}

// launch launches a role of this binary, and kills it when the test ends.
func launch(t testing.TB, cfg plugin.LaunchConfig) *plugin.Process {
	t.Helper()
	p, err := plugin.Launch(t.Context(), cfg)
	if err != nil {
		t.Fatalf("launch: %v", err)
	}
	t.Cleanup(p.Kill)
	return p
}

// storeOf launches a plugin with a store in memory.
func storeOf(t testing.TB) (*plugin.Process, *plugin.Store) { return storeBy(t, plugin.CarrierFiles) }

// storeBy launches it with a carrier.
func storeBy(t testing.TB, by plugin.Carrier) (*plugin.Process, *plugin.Store) {
	t.Helper()
	p := launch(t, plugin.LaunchConfig{Args: []string{roleServe}, Carrier: by})
	s, dir, err := p.Store(t.Context(), config())
	if err != nil {
		t.Fatalf("open the store: %v", err)
	}
	if dir != config().ProposedDirectoryID {
		t.Fatalf("directory ID %x is not the proposed one", dir)
	}
	t.Cleanup(s.Abandon)
	return p, s
}
