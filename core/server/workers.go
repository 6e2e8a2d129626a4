package server

import "sync"

// workers are goroutines that do what may have to wait for a handler or a client: one
// for each connection that has such work just now. They are lent to connections for a
// burst of replies, since most connections have nothing to send most of the time; who
// has worked last works next, while its stack is in the processor's cache.
type workers struct {
	all sync.WaitGroup

	mu    sync.Mutex
	idle  []*worker // in the order in which they have become so
	least int       // how many were idle at all times since the last trim
	ended bool      // no more work comes
}

type worker struct {
	jobs chan func() // has room for one, so that whoever gives it never waits
}

// do lets a worker do a job.
func (w *workers) do(job func()) {
	w.mu.Lock()
	n := len(w.idle)
	if n == 0 {
		w.mu.Unlock()
		one := &worker{jobs: make(chan func(), 1)}
		w.all.Go(func() { w.work(one, job) })
		return
	}
	one := w.idle[n-1]
	w.idle[n-1] = nil
	w.idle = w.idle[:n-1]
	w.least = min(w.least, n-1)
	w.mu.Unlock()
	one.jobs <- job
}

// work does jobs until the worker is let go of.
func (w *workers) work(one *worker, job func()) {
	for ok := true; ok; job, ok = <-one.jobs {
		job()
		w.mu.Lock()
		if w.ended {
			w.mu.Unlock()
			return
		}
		w.idle = append(w.idle, one)
		w.mu.Unlock()
	}
}

// trim lets go of the workers that nobody has needed since the last time.
func (w *workers) trim() {
	w.mu.Lock()
	gone := w.idle[:w.least]
	for _, one := range gone {
		close(one.jobs)
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
