package replica

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/storage"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

// Manager hosts all replicas of this broker. It implements model.Partitions,
// whose methods may be called concurrently; Apply is called by one goroutine,
// with each new image in order.
type Manager struct {
	cfg    Config
	deps   Deps
	dirs   map[model.DirectoryID]*Directory
	shards []*Shard
	work   *workers // nil when the executor is not ours
	exec   Executor
	budget *semaphore.Weighted
	spare  sync.Pool // of *request
	waker  *waker
	idle   sync.Pool // of *fetch

	outgoing  sync.Pool // of *outgoing
	incomings sync.Pool // of *incoming
	parcels   sync.Pool // of *parcel
	// following counts the replicas that follow each node; it belongs to Apply.
	following map[model.NodeID]int
	wanted    map[model.NodeID]bool // the nodes of following, as Streams was told
	epoch     atomic.Int64          // of this broker's registration
	window    atomic.Int64          // what each leader may have under way
	throttles *throttles

	image atomic.Pointer[image.Image]
	// replicas is replaced as a whole by Apply.
	replicas atomic.Pointer[map[model.Partition]*replica]
	strays   strays
	lease    lease
	doubts   doubts
	topics   map[model.TopicID]topicSeen // of the last Apply
	defaults map[string]string           // likewise
	offlines atomic.Int64

	mu          sync.Mutex
	purging     map[purge]int // logs of removed topics that are being deleted
	quarantined map[quarantineKey]Quarantined
	left        map[*Directory]unclosed // when the broker stopped
	closedAll   bool                    // likewise
	links       map[StreamID]*link
	traffic     map[model.NodeID]*traffic
}

var _ model.Partitions = (*Manager)(nil)

// New makes a manager. Nothing is started and no store is called.
func New(cfg Config, deps Deps) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("replica config: %w", err)
	}
	if len(deps.Directories) == 0 || deps.Logger == nil {
		return nil, errors.New("replica manager: at least one directory and a logger are needed")
	}
	if deps.Clock == nil {
		deps.Clock = loop.System{}
	}
	if deps.Events == nil {
		deps.Events = noEvents{}
	}
	if deps.Buffers == nil {
		deps.Buffers = memory.NewBuffers(cfg.TailBytes / idleShare)
	}
	if deps.Streams == nil {
		deps.Streams = noStreams{}
	}
	if deps.Controller == nil {
		deps.Controller = noController{}
	}
	if deps.Doubts == nil {
		deps.Doubts = noDoubts{}
	}
	if deps.Settings == nil {
		deps.Settings = SettingsOf(cfg.NodeID, DefaultBroker())
	}
	m := &Manager{
		cfg:         cfg,
		deps:        deps,
		dirs:        make(map[model.DirectoryID]*Directory),
		exec:        deps.Executor,
		budget:      semaphore.NewWeighted(cfg.AppendBytes),
		waker:       newWaker(),
		topics:      make(map[model.TopicID]topicSeen),
		purging:     make(map[purge]int),
		quarantined: make(map[quarantineKey]Quarantined),
		left:        make(map[*Directory]unclosed),
		links:       make(map[StreamID]*link),
		traffic:     make(map[model.NodeID]*traffic),
		following:   make(map[model.NodeID]int),
		wanted:      make(map[model.NodeID]bool),
		doubts:      doubts{keeper: deps.Doubts, log: deps.Logger},
	}
	m.throttles = newThrottles(cfg.Shards)
	m.lease.began = deps.Clock.Now()
	m.epoch.Store(int64(model.NoBrokerEpoch))
	m.window.Store(cfg.CopyBytes)
	m.deps.Directories = append([]Directory(nil), deps.Directories...)
	for i := range m.deps.Directories {
		d := &m.deps.Directories[i]
		if _, twice := m.dirs[d.ID]; twice || d.Store == nil {
			return nil, fmt.Errorf("replica manager: store %q has no store, or another's directory ID %s", d.Name, d.ID)
		}
		m.dirs[d.ID] = d
		d.fromMemory = make([]counter, cfg.Shards)
		d.health = &health{began: deps.Clock.Now()}
	}
	if m.exec == nil {
		m.work = newWorkers(cfg.Shards, cfg.StoreWorkers, m.deps.Directories)
		m.exec = m.work
	}
	tails := newTails(cfg.TailBytes, m.deps.Buffers)
	for i := range cfg.Shards {
		m.shards = append(m.shards, newShard(i, cfg, m.deps, m.exec, tails, m.waker, m.throttles, m))
	}
	m.replicas.Store(&map[model.Partition]*replica{})
	return m, nil
}

// Run runs the shards until ctx ends; then it takes nothing more, lets what is
// under way finish, and closes the logs, for at most Config.ShutdownTimeout. It
// returns nil after a clean end. Every append has been answered when it returns.
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
	calls.Go(func() error { m.waker.run(run); return nil })
	ended := make(chan struct{})
	loops.Go(func() error {
		select {
		case <-ctx.Done():
		case <-run.Done():
		}
		m.Stop()
		return nil
	})
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
		s.tellRest()
	}
	m.tellUnclosed()
	return err
}

// awaitEnd waits for the loops to end, by themselves or stopped at the deadline.
func (m *Manager) awaitEnd(ctx context.Context, ended <-chan struct{}, stop context.CancelFunc) error {
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	fire, release := m.deps.Clock.NewTimer(m.cfg.ShutdownTimeout)
	defer release()
	select {
	case <-ended:
		return nil
	case <-fire:
		stop()
		<-ended
		return fmt.Errorf("close the logs: not done within %s", m.cfg.ShutdownTimeout)
	}
}

// Stop tells the shards to end. Run does it when its context ends; a simulator
// that turns the loops itself calls it.
func (m *Manager) Stop() {
	for _, s := range m.shards {
		s.loop.Complete(Input{kind: inputStop})
	}
}

// Loops are the shards' loops, for a simulator that turns them itself instead
// of calling Run.
func (m *Manager) Loops() []*loop.Loop[Input] {
	all := make([]*loop.Loop[Input], len(m.shards))
	for i, s := range m.shards {
		all[i] = s.loop
	}
	return all
}

// abandon answers whoever still waits after the loop has ended, and lets go of
// what is held, so that those who wait for room hear of the end too.
func (s *Shard) abandon() {
	err := fmt.Errorf("the broker has stopped: %w", model.ErrNotLeaderOrFollower)
	for i, q := range s.requests {
		id := partition.RequestID(i)
		if q != nil && !q.answered {
			s.respond(&partition.Response{ID: id, BaseOffset: -1, LogAppendTime: -1, LogStart: -1, Epoch: model.NoEpoch, Err: err})
		}
		if q != nil && !q.released {
			s.release(id)
		}
	}
}

// find returns a replica of this broker.
func (m *Manager) find(p model.Partition) (*replica, error) {
	if r, ok := (*m.replicas.Load())[p]; ok {
		return r, nil
	}
	return nil, fmt.Errorf("partition %s has no replica here: %w", p, model.ErrNotLeaderOrFollower)
}

// Append implements model.Partitions. While Config.AppendBytes are under way,
// or the partition's mailbox is full, it waits, until ctx ends; and so does the
// connection that the append came from. The answer to an append that ctx ended
// is ErrRequestTimedOut, and nothing was appended.
func (m *Manager) Append(ctx context.Context, a model.Append, done func(model.Appended)) {
	fail := func(err error) {
		done(model.Appended{BaseOffset: -1, LogAppendTime: -1, LogStart: -1, LeaderEpoch: model.NoEpoch, Err: err, Refused: true, Spent: true})
	}
	r, err := m.find(a.Partition)
	if err != nil {
		r = m.strays.remember(a.Partition, &a.Batch, func() *replica { return (*m.replicas.Load())[a.Partition] })
	}
	if r == nil {
		fail(err)
		return
	}
	weight := min(int64(len(a.Data)), m.cfg.AppendBytes)
	if err := m.budget.Acquire(ctx, weight); err != nil {
		fail(fmt.Errorf("too much is under way: %w: %w", err, model.ErrRequestTimedOut))
		return
	}
	timeout := a.Timeout
	if timeout <= 0 {
		timeout = m.cfg.AppendTimeout
	}
	q := m.newRequest()
	q.data, q.frame, q.keeps, q.weight, q.done, q.timeout = a.Data, a.Frame, a.Frame, weight, done, timeout
	q.appendIn.Batch, q.appendIn.Acks, q.appendIn.LogAppendTime, q.appendIn.Under = a.Batch, a.Acks, a.LogAppendTime, a.Under
	if a.Frame != nil {
		a.Frame.Keep()
	}
	if err := m.post(ctx, r, q); err != nil {
		m.budget.Release(weight)
		m.spent(q)
		fail(err)
	}
}

func (m *Manager) newRequest() *request {
	if q, ok := m.spare.Get().(*request); ok {
		return q
	}
	return &request{}
}

// spent implements host: nobody knows the request any more. A payload that a store may
// still read keeps its frame for good.
func (m *Manager) spent(q *request) {
	if q.keeps != nil && !q.stray {
		q.keeps.Drop()
	}
	infos := q.infos[:0]
	if cap(infos) > batchesKept {
		infos = nil
	}
	*q = request{infos: infos}
	m.spare.Put(q)
}

// post gives a request to the replica's shard. An error wraps a sentinel.
func (m *Manager) post(ctx context.Context, r *replica, q *request) error {
	err := r.shard.loop.Post(ctx, Input{kind: inputRequest, replica: r, request: q})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, loop.ErrClosed):
		return fmt.Errorf("the broker is stopping: %w", model.ErrNotLeaderOrFollower)
	}
	return fmt.Errorf("partition %s is busy: %w: %w", r.id, err, model.ErrRequestTimedOut)
}

// Trim implements model.Partitions.
func (m *Manager) Trim(ctx context.Context, qs []model.TrimQuery) []model.TrimAnswer {
	type answer struct {
		i int
		a model.TrimAnswer
	}
	answers := make(chan answer, len(qs)) // room for all: nobody waits to answer
	out := make([]model.TrimAnswer, len(qs))
	for i, q := range qs {
		out[i] = model.TrimAnswer{LowWatermark: -1, Err: fmt.Errorf("trim: %w", model.ErrRequestTimedOut)}
		m.StartTrim(ctx, q, func(a model.TrimAnswer) { answers <- answer{i, a} })
	}
	for range qs {
		select {
		case a := <-answers:
			out[a.i] = a.a
		case <-ctx.Done():
			return out
		}
	}
	return out
}

// StartTrim is Trim without waiting for the answer: done is called exactly
// once, possibly before StartTrim returns, and must not block.
func (m *Manager) StartTrim(ctx context.Context, q model.TrimQuery, done func(model.TrimAnswer)) {
	r, err := m.find(q.Partition)
	if err == nil {
		err = m.post(ctx, r, &request{isTrim: true, trimIn: partition.Trim{To: q.Offset}, trimmed: done})
	}
	if err != nil {
		done(model.TrimAnswer{LowWatermark: -1, Err: err})
	}
}

// Directories implements model.Partitions. Directories that are not this
// broker's, where the metadata has replicas of it, come last.
func (m *Manager) Directories(ctx context.Context) []model.Directory {
	byDir := make(map[model.DirectoryID][]*replica)
	for _, r := range *m.replicas.Load() {
		byDir[r.dirID] = append(byDir[r.dirID], r)
	}
	out := make([]model.Directory, 0, len(m.deps.Directories))
	for i := range m.deps.Directories {
		d := &m.deps.Directories[i]
		out = append(out, m.describe(ctx, d, byDir[d.ID]))
		delete(byDir, d.ID)
	}
	for _, id := range slices.SortedFunc(maps.Keys(byDir), func(a, b model.DirectoryID) int { return slices.Compare(a[:], b[:]) }) {
		out = append(out, model.Directory{
			ID: id, Name: id.String(), Replicas: statuses(byDir[id], nil),
			Err: fmt.Errorf("%w: %w", notOurs(id), model.ErrStorage),
		})
	}
	return out
}

// TailBytes is how many bytes readers of each directory were given from the ends of logs
// in memory, in the order of Deps.Directories.
func (m *Manager) TailBytes() []int64 {
	out := make([]int64, len(m.deps.Directories))
	for i := range m.deps.Directories {
		for shard := range m.deps.Directories[i].fromMemory {
			out[i] += m.deps.Directories[i].fromMemory[shard].n.Load()
		}
	}
	return out
}

// notOurs is why a replica is offline whose directory this broker does not have.
func notOurs(id model.DirectoryID) error {
	return fmt.Errorf("its store, directory %s, is not one of this broker's", id)
}

func (m *Manager) describe(ctx context.Context, d *Directory, replicas []*replica) model.Directory {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.StoreTimeout)
	defer cancel()
	out := model.Directory{ID: d.ID, Name: d.Name, Plugin: d.Plugin}
	usage, err := d.Store.Usage(ctx)
	if err == nil {
		out.TotalBytes, out.FreeBytes = usage.Total, usage.Free
	}
	logs, listErr := d.Store.List(ctx)
	if err = errors.Join(err, listErr); err != nil {
		out.Err = fmt.Errorf("ask store %s: %w: %w", d.Name, err, model.ErrStorage)
	}
	bytes := make(map[storage.LogID]int64, len(logs))
	for _, l := range logs {
		bytes[l.ID] = l.Bytes
	}
	out.Replicas = statuses(replicas, bytes)
	return out
}

func statuses(replicas []*replica, bytes map[storage.LogID]int64) []model.ReplicaStatus {
	var out []model.ReplicaStatus
	for _, r := range sorted(replicas) {
		v := r.view.Load()
		out = append(out, model.ReplicaStatus{
			Partition: r.id, Leader: v.Status != partition.StatusNone && !v.Follows, LeaderEpoch: v.Epoch,
			LogStart: v.LogStart, HighWatermark: v.HighWater, LEO: v.LEO, Bytes: bytes[r.logID()], Offline: v.Why,
		})
	}
	return out
}

// clockNow implements host.
func (m *Manager) clockNow() time.Time { return m.deps.Clock.Now() }

// windowNow implements host.
func (m *Manager) windowNow() int64 { return m.window.Load() }

// letGo implements host.
func (m *Manager) letGo(weight int64) { m.budget.Release(weight) }

// offline implements host.
func (m *Manager) offline(delta int) {
	m.deps.Events.Offline(int(m.offlines.Add(int64(delta))))
}

// shardOf spreads partitions over shards, always alike.
func (m *Manager) shardOf(p model.Partition) *Shard {
	h := fnv.New32a()
	_, _ = h.Write(p.Topic[:])
	return m.shards[(h.Sum32()+uint32(p.Index))%uint32(len(m.shards))]
}
