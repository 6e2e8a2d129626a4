package memory

import (
	"context"
	"testing"
	"time"
)

// A process is told to let go of memory once after its start, and once after each burst of
// work, however much it allocates at rest, as long as that is little.
func TestRestComesAfterWork(t *testing.T) {
	w := watch{worked: true}
	var allocated uint64
	var told []int
	for look, by := range []uint64{
		9 << 20, restRate, 10, 0, 0, // 4: at rest after the start
		0, 0, 0, 0, 0, // and still
		restRate + 1, 0, 0, 0, 0, // little work: nothing to let go of
		2 * restWork, 0, 0, restRate + 1, 0, 0, 0, 0, // 22: the first pause was too short
		0, 0, 0, 0, 0,
	} {
		allocated += by
		if w.look(allocated) {
			told = append(told, look)
		}
	}
	if len(told) != 2 || told[0] != 4 || told[1] != 22 {
		t.Errorf("at rest at looks %d, want 4 and 22", told)
	}
}

// Rest finds by itself that the process works, and that it does no more.
func TestRest(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	rested, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		Rest(ctx, func() {
			select {
			case rested <- struct{}{}:
			case <-ctx.Done():
			}
		})
	}()
	next := func(what string) {
		t.Helper()
		select {
		case <-rested:
		case <-time.After(20 * time.Second):
			t.Fatal("not at rest ", what)
		}
	}
	next("after the start")
	kept = make([]byte, 4*restWork)
	clear(kept)
	kept = nil
	next("after work")
	end()
	<-ended
}

// kept makes what a test allocates go to the heap.
var kept []byte
