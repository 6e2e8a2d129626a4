package replica

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/core/loop"
)

// watcher is one waiting reader. It may watch several replicas.
type watcher struct {
	wake chan struct{}
	// missing is how many bytes it waits for; below 1 it is woken. What arrives is
	// taken from it, also twice, but never forgotten: who is woken looks.
	missing atomic.Int64
	timer   *time.Timer // the machine's
	stop    func() bool // of another clock's timer
}

func newWatcher() *watcher {
	w := &watcher{wake: make(chan struct{}, 1)}
	w.missing.Store(1)
	return w
}

func (w *watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// arm is for a watcher that is about to look, before it looks: wakes from before are
// forgotten.
func (w *watcher) arm(missing int) {
	w.missing.Store(int64(missing))
	select {
	case <-w.wake:
	default:
	}
}

// after gives a channel that receives after d, until disarm.
func (w *watcher) after(clock loop.Clock, d time.Duration) (fire <-chan time.Time) {
	if _, machines := clock.(loop.System); !machines {
		fire, w.stop = clock.NewTimer(d)
		return fire
	}
	if w.timer == nil {
		w.timer = time.NewTimer(d)
	} else {
		w.timer.Reset(d)
	}
	return w.timer.C
}

// disarm ends what after began.
func (w *watcher) disarm() {
	if w.stop != nil {
		w.stop()
		w.stop = nil
		return
	}
	w.timer.Stop()
}

// watch is a watcher's place with one replica. Its fields are guarded by the lock of
// the replica's watchers, but for the watcher.
type watch struct {
	watcher    *watcher
	seen       int64 // of watchers.arrived
	prev, next *watch
}

// ring is watches one after the other, between its own; the zero value is empty.
type ring struct{ ends watch }

func (g *ring) first() *watch {
	if g.ends.next == nil || g.ends.next == &g.ends {
		return nil
	}
	return g.ends.next
}

func (g *ring) push(w *watch) {
	if g.ends.next == nil {
		g.ends.next, g.ends.prev = &g.ends, &g.ends
	}
	w.prev, w.next = g.ends.prev, &g.ends
	w.prev.next, g.ends.prev = w, w
}

func (w *watch) remove() {
	w.prev.next, w.next.prev = w.next, w.prev
	w.prev, w.next = nil, nil
}

// take moves all of another ring to the end of this one.
func (g *ring) take(o *ring) {
	first, last := o.first(), o.ends.prev
	if first == nil {
		return
	}
	if g.ends.next == nil {
		g.ends.next, g.ends.prev = &g.ends, &g.ends
	}
	first.prev, last.next = g.ends.prev, &g.ends
	first.prev.next, g.ends.prev = first, last
	o.ends.next, o.ends.prev = &o.ends, &o.ends
}

const (
	// wakeAtOnce is how many watchers whoever changed a replica wakes himself. More of
	// them would keep him from the next append: they are left to a goroutine.
	wakeAtOnce = 4
	// wakeTogether is how many that goroutine wakes while it keeps the replica's
	// watchers from changing.
	wakeTogether = 16
)

// anything is more bytes than anybody waits for: a change of which everybody hears.
const anything = 1 << 40

// watchers are who waits for a replica's view to change.
type watchers struct {
	mu      sync.Mutex
	arrived int64 // bytes that became readable, and for other changes anything
	count   int   // in both rings
	waiting ring
	waking  ring // to be woken by the waker
	queued  bool // the waker knows
}

// watch has w woken whenever the view changes, until unwatch.
func (r *replica) watch(w *watch) {
	s := &r.watchers
	s.mu.Lock()
	defer s.mu.Unlock()
	w.seen = s.arrived
	s.waiting.push(w)
	s.count++
}

func (r *replica) unwatch(w *watch) {
	s := &r.watchers
	s.mu.Lock()
	defer s.mu.Unlock()
	w.remove()
	s.count--
}

// wake tells everybody who watches that so many bytes became readable.
func (r *replica) wake(bytes int64) {
	s := &r.watchers
	s.mu.Lock()
	s.arrived += bytes
	if s.count > wakeAtOnce {
		s.waking.take(&s.waiting)
		hand := !s.queued
		s.queued = true
		s.mu.Unlock()
		if hand {
			r.shard.waker.put(r)
		}
		return
	}
	for w := s.waiting.first(); w != nil && w != &s.waiting.ends; w = w.next {
		s.tell(w)
	}
	for s.wakeSome() { // they were left to the waker when they were more
	}
	s.mu.Unlock()
}

func (s *watchers) tell(w *watch) {
	bytes := s.arrived - w.seen
	w.seen = s.arrived
	if w.watcher.missing.Add(-bytes) <= 0 {
		w.watcher.signal()
	}
}

// wakeSome wakes a few, and reports whether any is left.
func (s *watchers) wakeSome() bool {
	for range wakeTogether {
		w := s.waking.first()
		if w == nil {
			return false
		}
		w.remove()
		s.waiting.push(w)
		s.tell(w)
	}
	return s.waking.first() != nil
}

// waker wakes the many watchers of one replica, beside the loops.
type waker struct {
	ready chan struct{}

	mu    sync.Mutex
	queue []*replica
}

func newWaker() *waker { return &waker{ready: make(chan struct{}, 1)} }

func (k *waker) put(r *replica) {
	k.mu.Lock()
	k.queue = append(k.queue, r)
	k.mu.Unlock()
	select {
	case k.ready <- struct{}{}:
	default:
	}
}

// run wakes until ctx ends.
func (k *waker) run(ctx context.Context) {
	var all []*replica
	for {
		k.mu.Lock()
		all, k.queue = k.queue, all[:0]
		k.mu.Unlock()
		for _, r := range all {
			for r.wakeSome() {
				runtime.Gosched() // appends need not wait until all of them have run
			}
		}
		if len(all) > 0 {
			clear(all)
			continue
		}
		select {
		case <-k.ready:
		case <-ctx.Done():
			return
		}
	}
}

func (r *replica) wakeSome() bool {
	s := &r.watchers
	s.mu.Lock()
	defer s.mu.Unlock()
	more := s.wakeSome()
	s.queued = more
	return more
}
