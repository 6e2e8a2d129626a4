package transporttest

import (
	"runtime"
	"time"
)

// heapSlack is how much memory a case allows beside what the contract does, for what is
// not messages: connections, goroutines, what was allocated meanwhile.
const heapSlack = 8 << 20

// heap is how much memory the transports use, after a collection of garbage.
func (e *env) heap() int64 {
	if e.target.Usage != nil {
		return e.usage().HeapBytes
	}
	runtime.GC()
	runtime.GC() // what pools hold is given back by the second
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// processor is the processor time that the transports have used so far.
func (e *env) processor() time.Duration {
	if e.target.Usage != nil {
		return e.usage().Processor
	}
	spent, err := processorTime()
	if err != nil {
		panic(lacking("processor time is not measured on this system: " + err.Error()))
	}
	return spent
}

// usage asks the target.
func (e *env) usage() Usage {
	ctx, cancel := e.within()
	defer cancel()
	u, err := e.target.Usage(ctx)
	if err != nil {
		panic(failure("the target cannot tell what its transports use: " + err.Error()))
	}
	return u
}
