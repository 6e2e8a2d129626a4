package model_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/brokerd/brokerd/core/model"
)

// A frame is free when the last of its keepers has dropped it, and not before; then it
// can be lent again.
func TestFrame(t *testing.T) {
	var freed atomic.Int32
	f := model.NewFrame(10, func() { freed.Add(1) })
	for lent := range int32(3) {
		f.Keep()
		var all sync.WaitGroup
		for range 8 {
			f.Keep()
			all.Go(f.Drop)
		}
		all.Wait()
		if freed.Load() != lent {
			t.Fatal("free while the lender keeps it")
		}
		f.Drop()
		if freed.Load() != lent+1 {
			t.Fatalf("freed %d times, want %d", freed.Load(), lent+1)
		}
	}
	var plain model.Frame
	plain.Keep()
	plain.Drop()
}
