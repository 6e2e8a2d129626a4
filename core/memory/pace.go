package memory

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// paceEvery is how often Pace looks at what is in use: a collection finds that out,
	// and a process that has begun to use much has no more than its old pace until then.
	paceEvery = 250 * time.Millisecond
	// wasteShare is the part of what is in use that may wait to be collected in any case:
	// each collection goes through all that is in use.
	wasteShare = 4
	// paceStep is how much the percentage has to change by to be set, as a part of it:
	// to set it stops the process for a moment.
	paceStep = 8
)

// Pace sees to it, until ctx ends, that no more than about waste bytes wait to be
// collected in this process, or a quarter of what is in use, where that is more; left
// alone the collector waits until garbage is as much as what is in use, and it does so
// here where that is less. It is for a process that uses much and throws little away: for
// that, a collection is cheap, and to wait for it is memory that nobody has the use of.
//
// What it sets is the process's (debug.SetGCPercent), so that only a program's main calls
// it, once; when it returns, all is as before.
func Pace(ctx context.Context, waste int64) {
	percent := 100
	before := debug.SetGCPercent(percent)
	defer debug.SetGCPercent(before)
	tick := time.NewTicker(paceEvery)
	defer tick.Stop()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for {
		metrics.Read(live)
		next := pacePercent(int64(live[0].Value.Uint64()), waste)
		if change := max(next, percent) - min(next, percent); change > percent/paceStep {
			percent = next
			debug.SetGCPercent(percent)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// pacePercent is how much garbage may wait, in percent of what is in use.
func pacePercent(live, waste int64) int {
	waste = max(waste, live/wasteShare)
	if waste >= live {
		return 100
	}
	return int(100 * waste / live)
}
