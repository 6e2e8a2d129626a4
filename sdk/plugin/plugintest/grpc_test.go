package plugintest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/plugin/internal/filestore"
	"github.com/brokerd/brokerd/sdk/plugin/plugintest"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
	"github.com/brokerd/brokerd/sdk/storage/storagetest"
)

// serveArg makes this test binary a plugin.
const serveArg = "serve-memstore"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == serveArg {
		if err := plugin.ServeStorage(memstore.NewProvider(memstore.Options{})); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// runKit runs the kit's cases as subtests.
func runKit(t *testing.T, target storagetest.Target, filter func(string) bool) {
	t.Helper()
	report := storagetest.Run(t.Context(), target, storagetest.Options{Filter: filter})
	for _, r := range report.Results {
		t.Run(r.Name, func(t *testing.T) {
			switch r.Status {
			case storagetest.Passed:
			case storagetest.NotApplicable:
				t.Skip(r.Message)
			default:
				t.Error(r.Message)
			}
		})
	}
	if !report.OK() {
		t.Errorf("the report is not OK: %d passed", report.Count(storagetest.Passed))
	}
}

func TestKitOverEachCarrier(t *testing.T) {
	for _, carrier := range []plugin.Carrier{plugin.CarrierGRPC, plugin.CarrierSocket} {
		t.Run(carrier.String(), func(t *testing.T) {
			runKit(t, plugintest.By(carrier, storagetest.Memory(memstore.Options{})), nil)
		})
	}
}

// fileTarget is the store that lends its files, called directly.
func fileTarget(t *testing.T, opt filestore.Options) storagetest.Target {
	provider := filestore.NewProvider(opt)
	root := t.TempDir()
	var n atomic.Int64
	fresh := func() (storage.Config, error) {
		dir := filepath.Join(root, fmt.Sprint(n.Add(1)))
		return storage.Config{
			Settings:            filestore.Settings(dir),
			Identity:            storage.Identity{ClusterID: "kit", NodeID: 1},
			ProposedDirectoryID: storage.DirectoryID{1},
		}, os.Mkdir(dir, 0o700)
	}
	return storagetest.Direct(provider, fresh, storagetest.Hooks{
		Kill: func(_ context.Context, cfg storage.Config, stores []storage.Store) error {
			disk, _, err := provider.Disk(cfg.Settings)
			if err != nil {
				return err
			}
			disk.Kill()
			for _, s := range stores {
				s.(*filestore.Store).LetGo()
			}
			return nil
		},
	})
}

// TestKitWithFiles runs the kit against a store whose files are written and read by
// the host: with grants that last, that are over soon, and that are full soon.
func TestKitWithFiles(t *testing.T) {
	for name, opt := range map[string]filestore.Options{
		"long":  {},
		"short": {OverAfter: 2, EndMark: 100},
		"small": {GrantBytes: 3000},
	} {
		t.Run(name, func(t *testing.T) {
			runKit(t, plugintest.By(plugin.CarrierFiles, fileTarget(t, opt)), nil)
		})
	}
}

// TestKitWithReferenceFiles runs it against the reference, which believes nothing
// that a host tells, uses files again, and can lose power and fill up.
func TestKitWithReferenceFiles(t *testing.T) {
	runKit(t, plugintest.By(plugin.CarrierFiles, storagetest.Files(t.TempDir(), memstore.Options{})), nil)
}

// TestKitAsTheHost runs it with the kit as the host of what is lent, over the lane.
func TestKitAsTheHost(t *testing.T) {
	runKit(t, plugintest.By(plugin.CarrierLent, storagetest.Files(t.TempDir(), memstore.Options{})), nil)
}

// The store that lends files keeps the contract itself, but that it believes its
// host.
func TestKitOfTheFileStore(t *testing.T) {
	runKit(t, fileTarget(t, filestore.Options{}), func(name string) bool { return name != "grant-lies" })
}

// TestKitAsProcess runs what a store in memory can show of a process: nothing
// that opens the same place twice.
func TestKitAsProcess(t *testing.T) {
	target := plugintest.Binary(plugintest.BinaryConfig{
		Name:     "memstore",
		Launch:   plugin.LaunchConfig{Args: []string{serveArg}},
		Volatile: true,
		Fresh: func() (storage.Config, error) {
			return storage.Config{
				Settings: memstore.Settings("one"),
				Identity: storage.Identity{ClusterID: "kit", NodeID: 1},
			}, nil
		},
	})
	runKit(t, target, func(name string) bool {
		switch name {
		case "append-large", "pipeline-order", "read-up-to", "scan-pages":
			return true
		}
		return false
	})
}
