package main

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/brokerd/brokerd/core/memory"
)

const (
	// pluginWaste is how much may wait to be collected in a built-in plugin, which has
	// no budget of its own and needs little.
	pluginWaste = 4 << 20
	// settled is how long after a start there is nothing more that only a start needs.
	settled = time.Second
)

// waste is how much may wait to be collected in the broker, where that is not little
// beside what is in use: a part of the budget, and no less than what a small one does
// not have.
func waste(budget int64) int64 {
	const share, least = 32, 4 << 20
	return max(budget/share, least)
}

// heapLimit is how large the garbage collector lets the broker's heap become before it
// works harder, whatever is in use: the budget, and what the program itself needs.
func heapLimit(budget int64) int64 {
	const own = 64 << 20
	return budget + own
}

// keepSmall sees to it, until ctx ends, that the process takes no more memory than it
// needs; it has started when started is closed.
func keepSmall(ctx context.Context, waste int64, started <-chan struct{}) {
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() { forgetStart(ctx, started) })
	if os.Getenv("GOGC") == "" {
		memory.Pace(ctx, waste)
	}
}

// forgetStart lets go of what only the start needed of the program.
func forgetStart(ctx context.Context, started <-chan struct{}) {
	select {
	case <-started:
	case <-ctx.Done():
		return
	}
	select {
	case <-time.After(settled):
	case <-ctx.Done():
		return
	}
	if err := memory.ForgetProgram(); err != nil {
		slog.Debug("pages of the program stay in memory", "err", err)
	}
}
