package coordinator

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// workers is the Executor of production: for each shard one goroutine that
// appends, and a few that load.
type workers struct {
	lanes []chan func(context.Context)
	loads []chan func(context.Context)
}

func newWorkers(shards int) *workers {
	w := &workers{}
	for range shards {
		// Full would mean more under way than a shard allows itself: see the limits.
		w.lanes = append(w.lanes, make(chan func(context.Context), appendsMax))
		w.loads = append(w.loads, make(chan func(context.Context), loadsMax))
	}
	return w
}

// Ordered implements Executor.
func (w *workers) Ordered(shard int, work func(context.Context)) { w.lanes[shard] <- work }

// Go implements Executor.
func (w *workers) Go(shard int, work func(context.Context)) { w.loads[shard] <- work }

// run runs work until ctx ends, which also ends the waiting of what runs then.
func (w *workers) run(ctx context.Context) error {
	var g errgroup.Group
	for i := range w.lanes {
		g.Go(func() error { runAll(ctx, w.lanes[i]); return nil })
		for range loadsMax {
			g.Go(func() error { runAll(ctx, w.loads[i]); return nil })
		}
	}
	return g.Wait()
}

func runAll(ctx context.Context, queue <-chan func(context.Context)) {
	for {
		select {
		case work := <-queue:
			work(ctx)
		case <-ctx.Done():
			return
		}
	}
}
