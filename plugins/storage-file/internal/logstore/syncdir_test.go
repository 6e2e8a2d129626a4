package logstore

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

// Who asks while a sync is under way gets the next one, which all of them share,
// and its error.
func TestSharedSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, end := make(chan struct{}), make(chan error)
		s := newSharedSync(func() error { begun <- struct{}{}; return <-end })
		errs := make(chan error, 10)
		ask := func() { errs <- s.do() }
		go ask()
		<-begun
		for range 9 {
			go ask()
		}
		synctest.Wait()
		end <- nil
		if err := <-errs; err != nil {
			t.Errorf("the first: %v", err)
		}
		<-begun
		if len(errs) > 0 {
			t.Error("a sync that began before the call answered it")
		}
		want := errors.New("no luck")
		end <- want
		for range 9 {
			if err := <-errs; !errors.Is(err, want) {
				t.Errorf("the others: %v", err)
			}
		}
	})
}

// Making many logs in one call syncs the store's directory, once, and each
// of them is there after a loss of power, empty and intact.
func TestCreationsAreDurable(t *testing.T) {
	const logs = 200
	var syncs atomic.Int64
	fs := vfs.NewMem(vfs.MemConfig{Before: func(op vfs.Op) error {
		if op.Kind == "sync" || op.Kind == "syncdir" {
			syncs.Add(1)
		}
		return nil
	}})
	cfg := testConfig("boot-1")
	cfg.Runners = 16
	s := mustStart(t, fs, cfg)
	specs := make([]storage.OpenSpec, logs)
	for i := range specs {
		specs[i] = storage.OpenSpec{ID: storage.LogID{Partition: int32(i)}, Label: "topic", Create: true}
	}
	before := syncs.Load()
	for _, res := range s.Open(t.Context(), specs) {
		if res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	if n := syncs.Load() - before; n != 1 {
		t.Errorf("%d syncs for %d logs", n, logs)
	}
	for seed := range uint64(5) {
		again := mustStart(t, fs.AfterPowerLoss(vfs.MemConfig{}, newRand(seed)), testConfig("boot-2"))
		for i := range specs {
			specs[i].Create = false
		}
		for i, res := range again.Open(t.Context(), specs) {
			if res.Err != nil || res.LEO != 0 || res.Verdict != storage.VerdictIntact || res.Cut != "" {
				t.Fatalf("log %d after a loss of power: %+v", i, res)
			}
		}
	}
}
