package server

import "sync"

// handOverAt is how many jobs wait before a second worker is woken for what takes no
// time, and so on up to one for each processor.
const handOverAt = 8

// workers are goroutines that ask for answers and send them, which may have to wait for a
// handler or a client. What needs no waiting is done by few of them, as many as there are
// processors, one job after the other, so that a burst wakes few. Who finds that he may
// have to wait says so (worker.waits), and then is one more: so there are as many as have
// waited at once, and nobody's job waits for another's. Who has worked last works next,
// while its stack is in the processor's cache.
type workers struct {
	all        sync.WaitGroup
	processors int

	mu    sync.Mutex
	due   jobs
	busy  int       // workers who take jobs, or do one that does not wait
	idle  []*worker // in the order in which they have become so
	least int       // how many were idle at all times since the last trim
	ended bool      // no more work comes
}

type worker struct {
	of    *workers
	wake  chan struct{} // has room for one, so that whoever wakes never waits; closed at the end
	apart bool          // it may wait, and is none of the busy; its own
}

// job is done on a worker's goroutine.
type job func(*worker)

// jobs is a queue, whose room is used again.
type jobs struct {
	all  []job
	from int
}

func (j *jobs) len() int { return len(j.all) - j.from }

func (j *jobs) push(one job) {
	if j.from > 0 && len(j.all) == cap(j.all) {
		n := copy(j.all, j.all[j.from:])
		clear(j.all[n:])
		j.all, j.from = j.all[:n], 0
	}
	j.all = append(j.all, one)
}

func (j *jobs) take() job {
	one := j.all[j.from]
	j.all[j.from] = nil
	if j.from++; j.from == len(j.all) {
		j.all, j.from = j.all[:0], 0
	}
	return one
}

// do lets a worker do a job.
func (w *workers) do(one job) {
	w.mu.Lock()
	w.due.push(one)
	w.wakeAndUnlock()
}

// wakeAndUnlock wakes a worker if there are jobs that the busy are too few for.
func (w *workers) wakeAndUnlock() {
	if w.due.len() == 0 || w.busy > 0 && (w.busy >= w.processors || w.due.len() < handOverAt) {
		w.mu.Unlock()
		return
	}
	w.busy++
	n := len(w.idle)
	if n == 0 {
		w.mu.Unlock()
		one := &worker{of: w, wake: make(chan struct{}, 1)}
		w.all.Go(func() { w.work(one) })
		return
	}
	one := w.idle[n-1]
	w.idle[n-1] = nil
	w.idle = w.idle[:n-1]
	w.least = min(w.least, n-1)
	w.mu.Unlock()
	one.wake <- struct{}{}
}

// waits says that the job under way may take a while, so that others get another worker.
// It is called by the job, as often as it likes; nil is whoever is no worker.
func (one *worker) waits() {
	if one == nil || one.apart {
		return
	}
	one.apart = true
	w := one.of
	w.mu.Lock()
	w.busy--
	w.wakeAndUnlock()
}

// work does jobs until the worker is let go of.
func (w *workers) work(one *worker) {
	for {
		if next, stays := w.next(one); next != nil {
			next(one)
		} else if !stays {
			return
		} else if _, ok := <-one.wake; !ok {
			return
		}
	}
}

// next takes a job for one who is busy, or was before he did a job apart. Where there is
// none, or others do it, he is idle, unless he is not to stay.
func (w *workers) next(one *worker) (next job, stays bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one.apart {
		one.apart = false
		w.busy++
	}
	if w.due.len() > 0 && w.busy <= max(1, w.processors) {
		return w.due.take(), true
	}
	w.busy--
	if w.ended {
		return nil, false
	}
	w.idle = append(w.idle, one)
	return nil, true
}

// trim lets go of the workers that nobody has needed since the last time.
func (w *workers) trim() {
	w.mu.Lock()
	gone := w.idle[:w.least]
	for _, one := range gone {
		close(one.wake)
	}
	n := copy(w.idle, w.idle[len(gone):])
	clear(w.idle[n:])
	w.idle = w.idle[:n]
	w.least = n
	w.mu.Unlock()
}

// end waits for all workers. There are no more jobs, but those that are being done.
func (w *workers) end() {
	w.mu.Lock()
	w.ended, w.least = true, len(w.idle)
	w.mu.Unlock()
	w.trim()
	w.all.Wait()
}
