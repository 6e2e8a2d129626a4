package memory

import (
	"context"
	"runtime/metrics"
	"time"
)

const (
	// restEvery is how often Rest looks at what the process does.
	restEvery = 250 * time.Millisecond
	// restLooks is how many looks in a row have to find little.
	restLooks = 4
	// restRate is what a process at rest may allocate from one look to the next, in bytes:
	// its heartbeats, and whoever asks for metrics.
	restRate = 256 << 10
	// restWork is what it has to have allocated, since it was last at rest, for that to
	// have left something behind.
	restWork = 1 << 20
)

// Rest calls release, until ctx ends, each time the process has come to rest: once after
// its start, and whenever it has allocated next to nothing for a second and more than a
// little before. It is for what costs time and gives memory back, which nobody needs to
// wait for then.
func Rest(ctx context.Context, release func()) {
	tick := time.NewTicker(restEvery)
	defer tick.Stop()
	allocated := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	w := watch{worked: true}
	for {
		metrics.Read(allocated)
		if w.look(allocated[0].Value.Uint64()) {
			release()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// watch tells when a process comes to rest.
type watch struct {
	last   uint64 // bytes allocated until the last look
	rested uint64 // and until it was last at rest
	calm   int    // looks in a row that have found little
	worked bool   // it has done more than a little since it was last at rest
}

// look is told how many bytes were allocated so far, and says whether it has come to rest
// just now.
func (w *watch) look(allocated uint64) bool {
	little := allocated-w.last <= restRate
	w.last = allocated
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
