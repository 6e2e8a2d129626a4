package storagetest_test

import (
	"testing"

	"github.com/brokerd/brokerd/sdk/storage/memstore"
	"github.com/brokerd/brokerd/sdk/storage/storagetest"
	"github.com/brokerd/brokerd/sdk/storage/storagetest/storagetesting"
)

// TestMemstoreConforms runs the kit on the reference store.
func TestMemstoreConforms(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		report := storagetesting.RunT(t, storagetest.Memory(memstore.Options{}), storagetest.Options{Seed: seed})
		for _, result := range report.Results {
			if result.Status == storagetest.NotApplicable && result.Name != "damage-derived" {
				t.Errorf("%s is not applicable: %s", result.Name, result.Message)
			}
		}
	}
}
