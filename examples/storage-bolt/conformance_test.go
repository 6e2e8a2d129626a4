package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/plugin/plugintest"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/storagetest"
	"github.com/brokerd/brokerd/sdk/storage/storagetest/storagetesting"
)

// TestMain lets the test's executable be the plugin, so that the kit can start
// and kill it as a process.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "serve" {
		main()
		return
	}
	os.Exit(m.Run())
}

// memoryDir is a directory in memory where there is one: how long a disk takes
// for its syncs says nothing here.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "storage-bolt-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// places returns configurations that each name a file of its own.
func places(t *testing.T) func() (storage.Config, error) {
	dir, n := memoryDir(t), 0
	return func() (storage.Config, error) {
		n++
		return configFor(filepath.Join(dir, strconv.Itoa(n), "logs.db"))
	}
}

func configFor(path string) (storage.Config, error) {
	section, err := json.Marshal(settings{Path: path, Reserve: 4096})
	return storage.Config{
		Settings:            section,
		Identity:            storage.Identity{ClusterID: "conformance", NodeID: 1},
		ProposedDirectoryID: storage.DirectoryID{4, 2},
	}, err
}

// devices are one for each directory, with as much room as it is told.
type devices struct {
	mu    sync.Mutex
	total map[string]int64
}

// room is what a provider asks.
func (d *devices) room(dir string) (storage.Usage, error) {
	d.mu.Lock()
	total, limited := d.total[dir]
	d.mu.Unlock()
	if !limited {
		return deviceRoom(dir)
	}
	taken, err := allocated(dir)
	return storage.Usage{Total: total, Free: total - taken}, err
}

// setFree is what the kit asks.
func (d *devices) setFree(_ context.Context, cfg storage.Config, bytes int64) error {
	var set settings
	if err := json.Unmarshal(cfg.Settings, &set); err != nil {
		return err
	}
	dir := filepath.Dir(set.Path)
	taken, err := allocated(dir)
	d.mu.Lock()
	defer d.mu.Unlock()
	if delete(d.total, dir); bytes >= 0 {
		d.total[dir] = taken + bytes
	}
	return err
}

// allocated is what the one file in a directory occupies; what bbolt has not
// written of it yet does not.
func allocated(dir string) (int64, error) {
	const block = 512 // by definition of st_blocks
	var s syscall.Stat_t
	err := syscall.Stat(filepath.Join(dir, "logs.db"), &s)
	return s.Blocks * block, err
}

// TestConformance calls the store directly, on devices that can fill up.
func TestConformance(t *testing.T) {
	d := &devices{total: make(map[string]int64)}
	hooks := storagetest.Hooks{SetFree: d.setFree}
	storagetesting.RunT(t, storagetest.Direct(newProvider(d.room), places(t), hooks), storagetest.Options{})
}

// TestConformanceAsProcess starts it as a broker does, and kills it: the cases
// that need a kill, since a process for each opening takes its time. What carries
// the calls is nothing to the plugin.
func TestConformanceAsProcess(t *testing.T) {
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	kills := make(map[string]bool)
	for _, c := range storagetest.Cases() {
		kills[c.Name] = c.Needs.Kill && c.Offers == storagetest.Offers{}
	}
	for _, carrier := range []plugin.Carrier{plugin.CarrierFiles, plugin.CarrierGRPC} {
		t.Run(carrier.String(), func(t *testing.T) {
			storagetesting.RunT(t, plugintest.Binary(plugintest.BinaryConfig{
				Name:   "storage-bolt",
				Launch: plugin.LaunchConfig{Path: executable, Args: []string{"serve"}, Carrier: carrier},
				Fresh:  places(t),
			}), storagetest.Options{Filter: func(name string) bool { return kills[name] }})
		})
	}
}
