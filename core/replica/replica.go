package replica

import (
	"sync"
	"sync/atomic"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/storage"
)

// replica is one replica of this broker.
type replica struct {
	id    model.Partition
	topic string
	dirID model.DirectoryID
	dir   *Directory // dirID's; nil: it is not of this broker
	shard *Shard

	// view is what readers see; the shard publishes it.
	view atomic.Pointer[view]

	tail tail

	mu       sync.Mutex
	watchers map[*watcher]struct{} // who waits for the view to change

	// The rest belongs to the shard.
	machine  *partition.Machine
	log      storage.LogOptions
	effects  partition.Effects
	dirty    bool
	epoch    model.LeaderEpoch // opening with it
	gen      partition.Generation
	handle   storage.Handle
	life     int // of the store that gave handle
	opens    int // calls that are out; each may yet create the log
	deleting bool
	closed   bool
	offline  bool // as last counted
	// successor waits until the log is deleted.
	successor       *replica
	successorAssign *assignment
}

// view is a machine's view, and the handle through which it can be read.
type view struct {
	partition.View
	handle storage.Handle
}

// logID names the replica's log in its store.
func (r *replica) logID() storage.LogID {
	return storage.LogID{Topic: r.id.Topic, Partition: r.id.Index}
}

// publish shows readers the machine as it is now, and reports whether they
// have something to look at again.
func (r *replica) publish() (changed bool) {
	old := r.view.Load()
	now := r.machine.View()
	if old != nil && old.View == now && old.handle == r.handle {
		return false
	}
	r.view.Store(&view{View: now, handle: r.handle})
	return old == nil || old.HighWater != now.HighWater || old.Status != now.Status || old.handle != r.handle ||
		old.LogStart != now.LogStart || old.Epoch != now.Epoch
}

// watcher is one waiting reader. It may watch several replicas.
type watcher struct{ wake chan struct{} }

func newWatcher() *watcher { return &watcher{wake: make(chan struct{}, 1)} }

func (w *watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// watch wakes w whenever the view changes, until unwatch.
func (r *replica) watch(w *watcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watchers == nil {
		r.watchers = make(map[*watcher]struct{})
	}
	r.watchers[w] = struct{}{}
}

func (r *replica) unwatch(w *watcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.watchers, w)
}

// wake signals everybody who watches.
func (r *replica) wake() {
	r.mu.Lock()
	if len(r.watchers) == 0 {
		r.mu.Unlock()
		return
	}
	waiting := make([]*watcher, 0, len(r.watchers))
	for w := range r.watchers {
		waiting = append(waiting, w)
	}
	r.mu.Unlock()
	for _, w := range waiting {
		w.signal()
	}
}
