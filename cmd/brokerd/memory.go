package main

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"

	"github.com/brokerd/brokerd/core/memory"
)

// pluginWaste is how much may wait to be collected in a built-in plugin, which has no budget
// of its own and needs little.
const pluginWaste = 4 << 20

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
// needs.
func keepSmall(ctx context.Context, waste int64) {
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() { memory.Rest(ctx, release) })
	if os.Getenv("GOGC") == "" {
		memory.Pace(ctx, waste)
	}
}

// release gives back what nobody uses: what waits to be collected, and what only the start
// and the last burst of work needed of the program.
func release() {
	debug.FreeOSMemory()
	if err := memory.ForgetProgram(); err != nil {
		slog.Debug("pages of the program stay in memory", "err", err)
	}
}
