package storagefile

import (
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage/storagetest"
)

func TestZZSeeds(t *testing.T) {
	p := &provider{fs: vfs.OS{}, now: time.Now}
	for seed := uint64(1); seed < 60; seed++ {
		report := storagetest.Run(t.Context(), storagetest.Direct(p, freshOnFiles(t), fileHooks()), storagetest.Options{Seed: seed, Filter: func(n string) bool {
			return strings.HasPrefix(n, "grant") || strings.HasPrefix(n, "lease") || strings.HasPrefix(n, "model") || strings.HasPrefix(n, "files") || strings.Contains(n, "parts") || strings.Contains(n, "buf")
		}})
		for _, r := range report.Results {
			if r.Status == storagetest.Failed {
				t.Errorf("seed %d %s: %s", seed, r.Name, r.Message)
			}
		}
	}
}
