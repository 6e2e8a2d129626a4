package coordinator

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/model"
	"golang.org/x/sync/errgroup"
)

// Manager hosts the groups whose coordinator this broker is. The methods that the
// edge calls may be called concurrently; Apply is called by one goroutine, with each
// new image in order.
type Manager struct {
	cfg    Config
	deps   Deps
	shards []*Shard
	work   *workers // nil when the executor is not ours

	commits sync.Pool // of *request

	view atomic.Pointer[view]
	led  map[int32]lead // of the last Apply
	told int            // the batch limit that the shards know

	mu       sync.Mutex
	changed  chan struct{} // closed by the next Apply, and when a partition is served
	served   map[int32]bool
	creating *creation
	troubles map[string]*rare // by reason
}

// view is the metadata as it was applied last.
type view struct {
	img        *image.Image // nil before the first
	topic      model.TopicID
	partitions int // of the offsets topic; 0: there is none
}

// New makes a manager. Nothing is started and nobody is called.
func New(cfg Config, deps Deps) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("coordinator config: %w", err)
	}
	deps, err := deps.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("coordinator: %w", err)
	}
	m := &Manager{cfg: cfg, deps: deps, led: make(map[int32]lead), changed: make(chan struct{}),
		served: make(map[int32]bool), troubles: make(map[string]*rare)}
	m.view.Store(&view{})
	exec := deps.Executor
	if exec == nil {
		m.work = newWorkers(cfg.Shards)
		exec = m.work
	}
	for i := range cfg.Shards {
		m.shards = append(m.shards, newShard(i, cfg, m.deps, exec, m))
	}
	return m, nil
}

// Run runs the shards until ctx ends; then it takes nothing more, answers whoever
// waits, and lets what is being written finish, for at most Config.ShutdownTimeout.
// It returns nil after a clean end. Every question has been answered when it returns.
func (m *Manager) Run(ctx context.Context) error {
	var loops, calls errgroup.Group
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	for _, s := range m.shards {
		loops.Go(func() error { return s.loop.Run(run) })
	}
	if m.work != nil {
		calls.Go(func() error { return m.work.run(run) })
	}
	ended := make(chan struct{})
	calls.Go(func() error {
		defer close(ended)
		return loops.Wait()
	})
	late := m.awaitEnd(ctx, ended, stop)
	stop()
	err := calls.Wait()
	if late != nil {
		err = late // the loops say no more than that they were stopped
	}
	for _, s := range m.shards {
		s.abandon()
	}
	return err
}

// awaitEnd tells the loops to end when ctx does, and stops them at the deadline.
func (m *Manager) awaitEnd(ctx context.Context, ended <-chan struct{}, stop context.CancelFunc) error {
	<-ctx.Done()
	m.Stop()
	fire, release := m.deps.Clock.NewTimer(m.cfg.ShutdownTimeout)
	defer release()
	select {
	case <-ended:
		return nil
	case <-fire:
		stop()
		<-ended
		return fmt.Errorf("write what groups have committed: not done within %s", m.cfg.ShutdownTimeout)
	}
}

// Stop tells the shards to end. Run does it when its context ends; a simulator that
// turns the loops itself calls it.
func (m *Manager) Stop() {
	for _, s := range m.shards {
		s.complete(Input{kind: inputStop})
	}
}

// Loops are the shards' loops, for a simulator that turns them itself instead of
// calling Run.
func (m *Manager) Loops() []*loop.Loop[Input] {
	all := make([]*loop.Loop[Input], len(m.shards))
	for i, s := range m.shards {
		all[i] = s.loop
	}
	return all
}

// serves implements host.
func (m *Manager) serves(index int32, does bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.served[index] == does {
		return
	}
	m.served[index] = does
	m.wakeLocked()
}

// wakeLocked wakes those who wait for something to change. m.mu is held.
func (m *Manager) wakeLocked() {
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *Manager) shardOf(index int32) *Shard { return m.shards[int(index)%len(m.shards)] }
