package replica

import (
	"context"
	"errors"
	"sync"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/storage"
	"golang.org/x/sync/errgroup"
)

// Lane is a sequence of appends: one shard's to one store.
type Lane struct {
	Shard     int
	Directory model.DirectoryID
}

// Executor runs calls of stores away from the loops that ask for them. Neither
// method waits or runs the work before it returns. What is queued is bounded by
// the limits of the machines that ask.
type Executor interface {
	// Ordered runs the work of one lane in the order of the calls, one after
	// the other.
	Ordered(lane Lane, work func(ctx context.Context))
	// Go runs work side by side with other work.
	Go(dir model.DirectoryID, work func(ctx context.Context))
}

// workers is the Executor of production. Each lane has a goroutine, each store
// a few for the rest, so that a store that hangs holds up nobody else's.
type workers struct {
	perStore int
	lanes    map[Lane]*laneQueue
	stores   map[model.DirectoryID]*workQueue
}

func newWorkers(shards, perStore int, dirs []Directory) *workers {
	w := &workers{
		perStore: perStore,
		lanes:    make(map[Lane]*laneQueue),
		stores:   make(map[model.DirectoryID]*workQueue),
	}
	for _, d := range dirs {
		w.stores[d.ID] = newWorkQueue()
		for i := range shards {
			w.lanes[Lane{i, d.ID}] = newLaneQueue()
		}
	}
	return w
}

// Ordered implements Executor.
func (w *workers) Ordered(lane Lane, work func(context.Context)) { w.lanes[lane].put(work) }

// Go implements Executor.
func (w *workers) Go(dir model.DirectoryID, work func(context.Context)) { w.stores[dir].put(work) }

// run runs work until ctx ends, which also ends the waiting of what runs then.
func (w *workers) run(ctx context.Context) error {
	var g errgroup.Group
	for _, q := range w.lanes {
		g.Go(func() error { q.run(ctx); return nil })
	}
	for _, q := range w.stores {
		for range w.perStore {
			g.Go(func() error { q.run(ctx); return nil })
		}
	}
	return g.Wait()
}

// laneQueue is the work of one lane, with one runner, which takes all that is there at
// once and is woken only where it waits.
type laneQueue struct {
	wake chan struct{} // capacity 1

	mu     sync.Mutex
	queue  []func(context.Context)
	parked bool // the runner waits
	ending bool // it does not wait any more
}

func newLaneQueue() *laneQueue { return &laneQueue{wake: make(chan struct{}, 1)} }

func (q *laneQueue) put(work func(context.Context)) {
	q.mu.Lock()
	q.queue = append(q.queue, work)
	q.wakeAndUnlock()
}

func (q *laneQueue) end() {
	q.mu.Lock()
	q.ending = true
	q.wakeAndUnlock()
}

func (q *laneQueue) wakeAndUnlock() {
	parked := q.parked
	q.parked = false
	q.mu.Unlock()
	if parked {
		q.wake <- struct{}{}
	}
}

// take gives all that is there, and takes room for what comes next. Where there is
// nothing, the runner is to wait, unless it is to end.
func (q *laneQueue) take(room []func(context.Context)) (all []func(context.Context), ending bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all = q.queue
	q.queue = room[:0]
	q.parked = len(all) == 0 && !q.ending
	return all, q.ending
}

func (q *laneQueue) run(ctx context.Context) {
	release := context.AfterFunc(ctx, q.end)
	defer release()
	var all []func(context.Context)
	for {
		var ending bool
		all, ending = q.take(all)
		for i, work := range all {
			all[i] = nil
			work(ctx)
		}
		switch {
		case len(all) > 0:
		case ending:
			return
		default:
			<-q.wake
		}
	}
}

// workQueue is a first-in, first-out queue of work.
type workQueue struct {
	wake chan struct{} // capacity 1: a runner that takes work and leaves some passes it on

	mu    sync.Mutex
	queue []func(context.Context)
}

func newWorkQueue() *workQueue { return &workQueue{wake: make(chan struct{}, 1)} }

func (q *workQueue) put(work func(context.Context)) {
	q.mu.Lock()
	q.queue = append(q.queue, work)
	q.mu.Unlock()
	q.signal()
}

func (q *workQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *workQueue) take() (work func(context.Context), more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 {
		return nil, false
	}
	work = q.queue[0]
	q.queue[0] = nil
	q.queue = q.queue[1:]
	return work, len(q.queue) > 0
}

func (q *workQueue) run(ctx context.Context) {
	for {
		if work, more := q.take(); work != nil {
			if more {
				q.signal()
			}
			work(ctx)
			continue
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			return
		}
	}
}

// faultOfOpening is faultOf for the calls that complete an opening. One that is
// fenced there was so by an opening asked for before it, which came late: the log
// is to be opened once more, where Open itself says who else holds it.
func faultOfOpening(err error) partition.Fault {
	if fault := faultOf(err); fault != partition.FaultFenced {
		return fault
	}
	return partition.FaultGone
}

// faultOf is what a store's error promises, for a machine.
func faultOf(err error) partition.Fault {
	if err == nil {
		return partition.FaultNone
	}
	class := storage.Class(err)
	for _, f := range faults {
		if errors.Is(class, f.class) {
			return f.fault
		}
	}
	return partition.FaultGone
}

// faults are the classes of a store's errors, for a machine.
var faults = []struct {
	class error
	fault partition.Fault
}{
	{storage.ErrRetry, partition.FaultRetry},
	{storage.ErrFenced, partition.FaultFenced},
	{storage.ErrCorrupt, partition.FaultCorrupt},
	{storage.ErrFull, partition.FaultFull},
	{storage.ErrInvalid, partition.FaultInvalid},
	{storage.ErrUnknown, partition.FaultUnknown},
}
