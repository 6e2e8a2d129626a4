package sim

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/brokerd/brokerd/core/coordinator"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// auditTopic is one that nobody is subscribed to, and that offsets are committed of.
const auditTopic = "audit"

var (
	auditID   = model.TopicID{0x71} // of the first topic of that name
	offsetsID = model.TopicID{0x72}
)

// groups is the group coordinator of one life of a broker.
type groups struct {
	*coordinator.Manager
	exec *groupExecutor
	log  *groupLog
}

func (b *broker) startGroups() (*groups, error) {
	cfg := coordinator.DefaultConfig()
	cfg.NodeID = nodeID
	cfg.Groups = b.opts.Coordination
	cfg.ChunkBytes = b.opts.ChunkBytes
	g := &groups{
		exec: &groupExecutor{b: b, life: b.life, lanes: make(map[int]*lane)},
		log:  &groupLog{m: b.manager},
	}
	var err error
	g.Manager, err = coordinator.New(cfg, coordinator.Deps{
		Log:        g.log,
		Controller: noController{},
		Logger:     slog.New(slog.DiscardHandler),
		Clock:      b.w,
		Events:     &groupEvents{b: b},
		NewID:      b.newMemberID,
		Executor:   g.exec,
	})
	return g, err
}

// newMemberID is unique in a world.
func (b *broker) newMemberID() string {
	b.memberIDs++
	return fmt.Sprintf("id%d", b.memberIDs)
}

func (g *groups) idle() bool { return g.exec.queued == 0 && g.log.appending == 0 }

// change applies records of metadata.
func (b *broker) change(records ...image.Record) error {
	d := image.NewDelta(b.img, b.img.Offset+1)
	for _, r := range records {
		if err := d.Apply(r); err != nil {
			return fmt.Errorf("change the metadata: %w", err)
		}
	}
	b.img = d.Image()
	if b.up {
		b.manager.Apply(b.img)
		b.groups.Apply(b.img)
	}
	return nil
}

// groupLog counts what is under way.
type groupLog struct {
	m         model.Partitions
	appending int
}

// Append implements coordinator.Log.
func (l *groupLog) Append(ctx context.Context, a model.Append, done func(model.Appended)) {
	l.appending++
	l.m.Append(ctx, a, func(r model.Appended) {
		l.appending--
		done(r)
	})
}

// Fetch implements coordinator.Log.
func (l *groupLog) Fetch(ctx context.Context, f model.Fetch) *model.FetchAnswer {
	return l.m.Fetch(ctx, f)
}

// EpochEnds implements coordinator.Log.
func (l *groupLog) EpochEnds(ctx context.Context, qs []model.EpochQuery) []model.EpochAnswer {
	return l.m.EpochEnds(ctx, qs)
}

// lane is the queue of one ordered sequence of calls.
type lane struct {
	queue   []func(context.Context)
	running bool
}

// groupExecutor runs the calls of one life's coordinator when the world says.
type groupExecutor struct {
	b      *broker
	life   int
	lanes  map[int]*lane
	queued int
}

// Ordered implements coordinator.Executor.
func (e *groupExecutor) Ordered(shard int, work func(context.Context)) {
	l := e.lanes[shard]
	if l == nil {
		l = &lane{}
		e.lanes[shard] = l
	}
	e.queued++
	l.queue = append(l.queue, work)
	e.runNext(l)
}

func (e *groupExecutor) runNext(l *lane) {
	if l.running || len(l.queue) == 0 {
		return
	}
	l.running = true
	e.after(func() {
		work := l.queue[0]
		l.queue = l.queue[1:]
		work(context.Background())
		l.running = false
		e.runNext(l)
	})
}

// Go implements coordinator.Executor. What reads waits, as in production, for logs
// that are being opened.
func (e *groupExecutor) Go(_ int, work func(context.Context)) {
	e.queued++
	e.goWhenOpen(work, e.b.w.Now().Add(openWait))
}

const openWait = 2 * time.Second

func (e *groupExecutor) goWhenOpen(work func(context.Context), until time.Time) {
	e.after(func() {
		if e.b.w.Now().Before(until) && e.opening() {
			e.queued++
			e.b.w.After(5*time.Millisecond, func() {
				if e.life == e.b.life {
					e.goWhenOpen(work, until)
				}
			})
			return
		}
		work(context.Background())
	})
}

// opening reports whether some partition of the offsets topic is not open yet.
func (e *groupExecutor) opening() bool {
	for i := range e.b.opts.OffsetsPartitions {
		p := model.Partition{Topic: offsetsID, Index: int32(i)}
		now, _, _ := e.b.img.Partition(p)
		if now.Leader != nodeID {
			continue
		}
		if e.b.manager.EpochEnds(context.Background(), []model.EpochQuery{{Partition: p, CurrentEpoch: now.LeaderEpoch, Epoch: now.LeaderEpoch}})[0].Err != nil {
			return true
		}
	}
	return false
}

func (e *groupExecutor) after(do func()) {
	e.b.w.After(e.b.f.StoreDelay(), func() {
		if e.life == e.b.life {
			e.queued--
			do()
		}
	})
}

// groupEvents counts the terms of coordinators: with each that begins to serve, the
// groups are what the log says, and not what members were told.
type groupEvents struct{ b *broker }

// Loaded implements coordinator.Events.
func (e *groupEvents) Loaded(time.Duration) {
	e.b.terms++
	e.b.w.Note("groups are loaded")
}

// LoadFailed implements coordinator.Events.
func (e *groupEvents) LoadFailed() {}

// Rebalanced implements coordinator.Events.
func (e *groupEvents) Rebalanced() { e.b.report.Rebalances++ }

// Committed implements coordinator.Events.
func (e *groupEvents) Committed(int) {}

// Expired implements coordinator.Events.
func (e *groupEvents) Expired(offsets int) { e.b.report.Expired += offsets }

// Refused implements coordinator.Events.
func (e *groupEvents) Refused() {}

// Full implements coordinator.Events.
func (e *groupEvents) Full() {}

// NotAvailable implements coordinator.Events.
func (e *groupEvents) NotAvailable(string) {}

// noController makes nothing: the offsets topic is there.
type noController struct{}

// CreateTopics implements coordinator.Controller.
func (noController) CreateTopics(context.Context, []model.NewTopic, bool) ([]model.TopicResult, error) {
	return nil, model.ErrNotController
}
