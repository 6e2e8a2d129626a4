package memory_test

import (
	"sync"
	"testing"

	"github.com/brokerd/brokerd/core/memory"
)

// A tally counts whatever is added, by however many, and more than its total.
func TestTally(t *testing.T) {
	a := memory.NewTally(10)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { a.Add(3); a.Add(-1) })
	}
	all.Wait()
	if a.Used() != 40 || a.Total() != 10 || memory.NewTally(-1).Total() != 0 {
		t.Errorf("used %d of %d", a.Used(), a.Total())
	}
}
