package storagefile

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/plugin/plugintest"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/storagetest"
	"github.com/brokerd/brokerd/sdk/storage/storagetest/storagetesting"
)

// fileHooks reach what the plugin stores on real files.
func fileHooks() storagetest.Hooks {
	return storagetest.Hooks{
		Overwrite: func(_ context.Context, cfg storage.Config, _ storage.LogID, batch []byte, at int, with []byte) error {
			return storagetest.OverwriteInFiles(pathOf(cfg), batch, at, with)
		},
		Tear: func(_ context.Context, cfg storage.Config, _ storage.LogID, batch []byte, keep int) error {
			return storagetest.TearInFiles(pathOf(cfg), batch, keep)
		},
		DamageDerived: func(_ context.Context, cfg storage.Config, seed uint64) error {
			return storagetest.DamageFiles(pathOf(cfg), isDerived, seed)
		},
	}
}

// isDerived says whether a file can be made again from others.
func isDerived(path string) bool {
	name := filepath.Base(path)
	return strings.HasSuffix(name, "index") || name == "hint" || name == "meta"
}

// freshOnFiles names another directory of a file system in memory each time.
func freshOnFiles(t *testing.T) func() (storage.Config, error) {
	n, root := 0, memoryDir(t)
	return func() (storage.Config, error) {
		n++
		return config(fmt.Sprintf("%s/store-%d", root, n)), nil
	}
}

// buildPlugin builds the plugin's program, as it is shipped: the race detector
// looks at the same code in the tests that call it directly.
func buildPlugin(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "brokerd-storage-file")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/brokerd-storage-file").CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, out)
	}
	return path
}

// The whole kit, on the program as a broker starts it: each opening is a
// process, which is killed with -9 and started again on the same files, and
// whose files are torn and damaged in between. What no test without a machine
// of its own can do to a process (loss of power, a full disk) runs in
// TestConformanceInMemory; nothing else is left out, on any carrier. The last of them
// has the kit write and read what the program lends.
//
// Most of the time processes start, so that parts of the kit run side by side.
func TestConformanceAsProcess(t *testing.T) {
	const parts = 4
	program := buildPlugin(t)
	part, cases := map[string]int{}, map[string]storagetest.Case{}
	for i, c := range storagetest.Cases() {
		part[c.Name], cases[c.Name] = i%parts, c
	}
	for _, carrier := range []plugin.Carrier{plugin.CarrierFiles, plugin.CarrierSocket, plugin.CarrierGRPC, plugin.CarrierLent} {
		for n := range parts {
			t.Run(fmt.Sprint(carrier, "/part", n), func(t *testing.T) {
				t.Parallel()
				target := plugintest.Binary(plugintest.BinaryConfig{
					Name:   "storage-file",
					Launch: plugin.LaunchConfig{Path: program, Carrier: carrier},
					Fresh:  freshOnFiles(t),
					Hooks:  fileHooks(),
				})
				// All that is not about what is lent is the same there.
				about := func(c storagetest.Case) bool {
					lent := c.Offers != storagetest.Offers{}
					return lent == (carrier == plugin.CarrierLent)
				}
				report := storagetesting.RunT(t, target, storagetest.Options{
					Filter:      func(name string) bool { return part[name] == n && about(cases[name]) },
					CaseTimeout: 2 * time.Minute, // the machine may be busy
				})
				for _, r := range report.Results {
					c := cases[r.Name]
					if r.Status == storagetest.NotApplicable && !c.Needs.LosePower && !c.Needs.Fill {
						t.Errorf("%s did not run: %s", r.Name, r.Message)
					}
				}
			})
		}
	}
}
