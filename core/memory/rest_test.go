package memory

import (
	"context"
	"testing"
	"time"
)

// A process is told to let go of memory once after its start, and once after each burst of
// work that has left something behind, however little that allocates at a time.
func TestRestComesAfterWork(t *testing.T) {
	type look struct {
		used      time.Duration
		allocated uint64
	}
	const hard = restTime + 1
	w := watch{worked: true}
	var used time.Duration
	var allocated uint64
	var told []int
	for i, by := range []look{
		{hard, 9 << 20}, {restTime, 10}, {}, {}, {}, // 4: at rest after the start
		{}, {}, {}, {}, {restTime, 10}, // and still
		{hard, restWork / 2}, {}, {}, {}, {}, // little work: nothing to let go of
		{hard, restWork}, {}, {}, {hard, 10}, {}, {}, {}, {}, // 22: the first pause was too short
		{}, {}, {}, {}, {},
	} {
		used, allocated = used+by.used, allocated+by.allocated
		if w.look(used, allocated) {
			told = append(told, i)
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
