package logstore

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
)

// pool runs work items on a fixed number of goroutines, in the order in which
// they were pushed. Its queue has no bound of its own: each log is in it at
// most once, and each call of a method that pushes waits for its items.
type pool struct {
	workers int

	mu     sync.Mutex
	wake   *sync.Cond
	queue  []func()
	closed bool
}

func newPool(workers int) *pool {
	p := &pool{workers: workers}
	p.wake = sync.NewCond(&p.mu)
	return p
}

// push queues an item. After close nothing is queued, and push reports false.
func (p *pool) push(item func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.queue = append(p.queue, item)
	p.wake.Signal()
	return true
}

// close lets run return when the queue is empty.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.wake.Broadcast()
}

// run works until ctx ends or the pool is closed and its queue is empty, and
// returns after the workers did.
func (p *pool) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, p.close)
	defer stop()
	var workers errgroup.Group
	for range p.workers {
		workers.Go(func() error {
			for item := p.next(); item != nil; item = p.next() {
				item()
			}
			return nil
		})
	}
	return workers.Wait()
}

// next waits for an item; nil ends a worker.
func (p *pool) next() func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) == 0 {
		if p.closed {
			return nil
		}
		p.wake.Wait()
	}
	item := p.queue[0]
	p.queue[0] = nil
	p.queue = p.queue[1:]
	if len(p.queue) == 0 {
		p.queue = nil
	}
	return item
}
