package memory

import (
	"context"
	"runtime/metrics"
	"syscall"
	"time"
)

const (
	// restEvery is how often Rest looks at what the process does.
	restEvery = 250 * time.Millisecond
	// restLooks is how many looks in a row have to find little.
	restLooks = 4
	// restTime is what a process at rest may use of a processor from one look to the next: for
	// its heartbeats, and whoever asks for metrics. What it allocates does not tell: one that
	// is hard at work allocates next to nothing.
	restTime = restEvery / 20
	// restWork is what it has to have allocated, in bytes, since it was last at rest, for that
	// to have left something behind.
	restWork = 1 << 20
)

// Rest calls release, until ctx ends, each time the process has come to rest: once after
// its start, and whenever it has used next to nothing of a processor for a second, and
// allocated more than a little before. It is for what costs time and gives memory back, which
// nobody needs to wait for then.
func Rest(ctx context.Context, release func()) {
	tick := time.NewTicker(restEvery)
	defer tick.Stop()
	allocated := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	w := watch{worked: true}
	for {
		metrics.Read(allocated)
		if w.look(processorTime(), allocated[0].Value.Uint64()) {
			release()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// processorTime is what the process has used of processors so far.
func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic("memory: the system does not tell what this process uses: " + err.Error())
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// watch tells when a process comes to rest.
type watch struct {
	used   time.Duration // of processors, until the last look
	rested uint64        // bytes allocated until it was last at rest
	calm   int           // looks in a row that have found little
	worked bool          // it has done more than a little since it was last at rest
}

// look is told what was used of processors, and how many bytes were allocated, so far, and
// says whether the process has come to rest just now.
func (w *watch) look(used time.Duration, allocated uint64) bool {
	little := used-w.used <= restTime
	w.used = used
	if !little {
		w.calm = 0
		return false
	}
	w.calm++
	w.worked = w.worked || allocated-w.rested > restWork
	if w.calm < restLooks || !w.worked {
		return false
	}
	w.rested, w.worked = allocated, false
	return true
}
