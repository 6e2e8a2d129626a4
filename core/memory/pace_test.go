package memory_test

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/memory"
)

// What waits to be collected is bounded, however much is in use, and when Pace ends the
// process has its old pace again.
func TestPace(t *testing.T) {
	const live, waste = 64 << 20, 4 << 20
	const slack = 4 << 20 // of the program itself
	before := debug.SetGCPercent(300)
	defer debug.SetGCPercent(before)
	used := make([]byte, live)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		memory.Pace(ctx, waste)
	}()
	runtime.GC() // it is known what is in use
	if got := waitFor(t, "/gc/gogc:percent", 1, 30); got < 25 {
		t.Errorf("%d percent may wait, though a quarter may in any case", got)
	}
	if got := metric("/gc/heap/goal:bytes"); got < live || got > live+live/4+slack {
		t.Errorf("the heap may become %d MiB, %d of them in use", got>>20, live>>20)
	}
	runtime.KeepAlive(used) // and then no more

	runtime.GC() // little is in use: as much may wait
	waitFor(t, "/gc/gogc:percent", 50, 100)
	end()
	<-ended
	if got := metric("/gc/gogc:percent"); got != 300 {
		t.Errorf("%d percent afterwards, and 300 before", got)
	}
}

func waitFor(t *testing.T, name string, least, most int64) int64 {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(10 * time.Second)
	for {
		if got := metric(name); got >= least && got <= most {
			return got
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%s is %d, want %d to %d", name, metric(name), least, most)
		}
	}
}

func metric(name string) int64 {
	s := []metrics.Sample{{Name: name}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64())
}
