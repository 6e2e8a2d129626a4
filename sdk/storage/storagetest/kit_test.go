package storagetest_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/brokerd/brokerd/sdk/storage/memstore"
	"github.com/brokerd/brokerd/sdk/storage/storagetest"
	"github.com/brokerd/brokerd/sdk/storage/storagetest/storagetesting"
)

// TestMemstoreConforms runs the kit on the reference store.
func TestMemstoreConforms(t *testing.T) {
	for seed := uint64(1); seed <= 2; seed++ {
		report := storagetesting.RunT(t, storagetest.Memory(memstore.Options{}), storagetest.Options{Seed: seed})
		for _, result := range report.Results {
			if result.Status == storagetest.NotApplicable && result.Name != "damage-derived" && !asksForFiles(result.Name) {
				t.Errorf("%s is not applicable: %s", result.Name, result.Message)
			}
		}
	}
}

// asksForFiles says whether a case is about files that are lent.
func asksForFiles(name string) bool {
	for _, c := range storagetest.Cases() {
		if c.Name == name {
			return c.Offers != storagetest.Offers{}
		}
	}
	return false
}

// TestMemfilesConforms runs the kit on the reference of stores that lend files.
func TestMemfilesConforms(t *testing.T) {
	for seed := uint64(1); seed <= 2; seed++ {
		report := storagetesting.RunT(t, storagetest.Files(t.TempDir(), memstore.Options{}), storagetest.Options{Seed: seed})
		for _, result := range report.Results {
			if result.Status == storagetest.NotApplicable && result.Name != "damage-derived" {
				t.Errorf("%s is not applicable: %s", result.Name, result.Message)
			}
		}
	}
}

// TestDeferredMemstoreConforms runs the kit on the reference store with the
// steps of its appends run late, by another goroutine, in a shuffled order.
func TestDeferredMemstoreConforms(t *testing.T) {
	steps := newShuffler()
	done := make(chan struct{})
	go func() {
		defer close(done)
		steps.run()
	}()
	defer func() {
		steps.stop()
		<-done
	}()
	storagetesting.RunT(t, storagetest.Memory(memstore.Options{Defer: steps.add}), storagetest.Options{Seed: 7})
}

// TestSeedsThatFailed runs seeds that once found a fault of a reference store or
// of the kit itself.
func TestSeedsThatFailed(t *testing.T) {
	memory := func() storagetest.Target { return storagetest.Memory(memstore.Options{}) }
	files := func() storagetest.Target { return storagetest.Files(t.TempDir(), memstore.Options{}) }
	for _, failed := range []struct {
		name   string
		target func() storagetest.Target
		seeds  []uint64
	}{
		{"model-power", memory, []uint64{19, 146}}, // a trim inside a batch that was not flushed, then torn
		{"damage-length", memory, []uint64{151, 184}},
		// A truncation takes all behind a file that an earlier one left since it was lent.
		{"model", files, []uint64{12, 21, 31}},
		{"model-kill", files, []uint64{19, 29, 30}},
		{"model-power", files, []uint64{62, 78, 91}},
	} {
		for _, seed := range failed.seeds {
			report := storagetest.Run(t.Context(), failed.target(), storagetest.Options{
				Seed:   seed,
				Filter: func(n string) bool { return n == failed.name },
			})
			if !report.OK() {
				t.Errorf("seed %d: %+v", seed, report.Results)
			}
		}
	}
}

// shuffler runs functions in a random order.
type shuffler struct {
	mu      sync.Mutex
	changed *sync.Cond
	due     []func()
	stopped bool
}

func newShuffler() *shuffler {
	s := &shuffler{}
	s.changed = sync.NewCond(&s.mu)
	return s
}

func (s *shuffler) add(run func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = append(s.due, run)
	s.changed.Signal()
}

func (s *shuffler) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.changed.Signal()
}

func (s *shuffler) run() {
	rng := rand.New(rand.NewPCG(1, 2))
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for len(s.due) == 0 && !s.stopped {
			s.changed.Wait()
		}
		if s.stopped {
			return
		}
		i, last := rng.IntN(len(s.due)), len(s.due)-1
		next := s.due[i]
		s.due[i], s.due = s.due[last], s.due[:last]
		s.mu.Unlock()
		next()
		s.mu.Lock()
	}
}
