package sim

import (
	"context"
	"log/slog"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/replica"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

const nodeID model.NodeID = 1

const storeName = "main"

var (
	directory = model.DirectoryID{0xd1}
	topicID   = model.TopicID{0x70}
)

// broker is one life of a broker's data path after another, on one disk.
type broker struct {
	w    *world
	opts Options
	img  *image.Image
	disk *memstore.Disk
	// pages are those of logs whose ends are lent to the broker; nil: none is.
	pages pages
	f     *faults

	life    int // counts up at each start; work of an earlier life is dropped
	manager *replica.Manager
	groups  *groups // nil: there are none
	store   *plugin
	lanes   map[replica.Lane]*lane
	loops   []turner
	turning []bool // by loop: a turn is scheduled
	timer   time.Time
	up      bool

	memberIDs int // drawn by coordinators
	terms     int // of coordinators, over all lives
}

// turner is a loop that the world turns.
type turner interface {
	Pending() int
	Deadline() (time.Time, bool)
	Turn(now time.Time)
}

// lane is the queue of one ordered sequence of calls.
type lane struct {
	queue   []func(context.Context)
	running bool
}

func newBroker(w *world, opts Options, f *faults) (*broker, error) {
	b := &broker{w: w, opts: opts, disk: &memstore.Disk{}, f: f}
	if opts.Granted {
		b.pages = make(pages)
	}
	records := []image.Record{
		&image.ClusterRecord{Cluster: image.Cluster{ID: "sim", FeatureLevel: 1, ReplicationFactorTarget: 3, MinISRTarget: 2}},
		&image.BrokerRecord{ID: nodeID, Directories: []model.DirectoryID{directory}},
	}
	records = append(records, topic(topicID, "orders", opts.Partitions)...)
	if opts.Groups > 0 {
		records = append(records, topic(auditID, auditTopic, 1)...)
		records = append(records, topic(offsetsID, model.OffsetsTopic, opts.OffsetsPartitions)...)
	}
	d := image.NewDelta(&image.Image{}, 1)
	for _, r := range records {
		if err := d.Apply(r); err != nil {
			return nil, err
		}
	}
	b.img = d.Image()
	return b, nil
}

func topic(id model.TopicID, name string, partitions int) []image.Record {
	records := []image.Record{&image.TopicRecord{ID: id, Name: name, ReplicationFactorTarget: 3}}
	for i := range partitions {
		records = append(records, &image.PartitionRecord{
			Partition: model.Partition{Topic: id, Index: int32(i)},
			Registration: image.Partition{
				Replicas: []model.NodeID{nodeID}, Directories: []model.DirectoryID{directory},
				ISR: []model.NodeID{nodeID}, Leader: nodeID,
			},
		})
	}
	return records
}

// start begins a life.
func (b *broker) start() error {
	b.life++
	b.lanes = make(map[replica.Lane]*lane)
	b.store = &plugin{b: b}
	b.store.start()
	cfg := replica.DefaultConfig()
	cfg.NodeID = nodeID
	cfg.Limits.AppendStall = 2 * time.Second
	cfg.Limits.SnapshotAfter = b.opts.SnapshotAfter
	cfg.Limits.ScanBatches = 7
	cfg.Limits.InFlightBatches = b.opts.InFlight
	cfg.OpenWait = 0
	settings := replica.DefaultBroker()
	settings.Flush = b.opts.Flush
	settings.RetentionEvery = 700 * time.Millisecond
	resolve := replica.SettingsOf(nodeID, settings)
	m, err := replica.New(cfg, replica.Deps{
		Directories: []replica.Directory{{ID: directory, Name: storeName, Plugin: "memstore", Store: b.store}},
		Logger:      slog.New(slog.DiscardHandler),
		Clock:       b.w,
		Executor:    &executor{b: b, life: b.life},
		Settings: func(img *image.Image, topic string) (replica.TopicSettings, error) {
			s, err := resolve(img, topic)
			s.Log.SegmentBytes = b.opts.SegmentBytes
			s.RetentionBytes = b.opts.RetentionBytes
			return s, err
		},
	})
	if err != nil {
		return err
	}
	b.manager, b.up, b.loops = m, true, nil
	for _, l := range m.Loops() {
		b.loops = append(b.loops, l)
	}
	m.Apply(b.img)
	if b.opts.Groups > 0 {
		if b.groups, err = b.startGroups(); err != nil {
			return err
		}
		for _, l := range b.groups.Loops() {
			b.loops = append(b.loops, l)
		}
		b.groups.Apply(b.img)
	}
	b.turning = make([]bool, len(b.loops))
	b.w.note("broker starts, life %d", b.life)
	return nil
}

// kill ends a life at once, and its plugin with it.
func (b *broker) kill() {
	b.w.note("broker is killed")
	b.up = false
	b.life++
	b.disk.Kill()
}

// pump schedules turns of loops that have something to do. It is called after
// every event.
func (b *broker) pump() {
	if !b.up {
		return
	}
	earliest := time.Time{}
	for i, l := range b.loops {
		if l.Pending() > 0 && !b.turning[i] {
			b.scheduleTurn(i, b.w.now.Add(b.w.between(0, time.Millisecond)))
		}
		if at, ok := l.Deadline(); ok && (earliest.IsZero() || at.Before(earliest)) {
			earliest = at
		}
	}
	if !earliest.IsZero() && !earliest.Equal(b.timer) {
		b.timer = earliest
		life := b.life
		b.w.at(earliest, func() {
			if life == b.life && b.up && b.timer.Equal(earliest) {
				b.timer = time.Time{}
				for _, l := range b.loops {
					l.Turn(b.w.now)
				}
			}
		})
	}
}

func (b *broker) scheduleTurn(i int, at time.Time) {
	b.turning[i] = true
	life := b.life
	b.w.at(at, func() {
		if life == b.life && b.up {
			b.turning[i] = false
			b.loops[i].Turn(b.w.now)
		}
	})
}

// stopCleanly ends a life as SIGTERM does: its logs are closed.
func (b *broker) stopCleanly() bool {
	if b.groups != nil {
		b.groups.Stop()
		b.settle()
	}
	b.manager.Stop()
	b.settle()
	b.w.note("broker stopped")
	b.up = false
	b.life++
	return b.store.shutdown()
}

// settle runs the world until the broker has nothing to do.
func (b *broker) settle() {
	for range 100_000 {
		b.pump()
		open := false
		for _, l := range b.loops {
			open = open || l.Pending() > 0
		}
		if !open && b.idle() || b.w.over() {
			return
		}
		b.w.step()
	}
}

// idle: no call of a store, or of the groups, is queued.
func (b *broker) idle() bool {
	if b.groups != nil && !b.groups.idle() {
		return false
	}
	for _, l := range b.lanes {
		if l.running || len(l.queue) > 0 {
			return false
		}
	}
	return b.store.pending == 0
}

// executor runs the calls of one life's manager when the world says.
type executor struct {
	b    *broker
	life int
}

// Ordered implements replica.Executor.
func (e *executor) Ordered(key replica.Lane, work func(context.Context)) {
	if e.life != e.b.life {
		return
	}
	l := e.b.lanes[key]
	if l == nil {
		l = &lane{}
		e.b.lanes[key] = l
	}
	l.queue = append(l.queue, work)
	e.runNext(l)
}

func (e *executor) runNext(l *lane) {
	if l.running || len(l.queue) == 0 {
		return
	}
	l.running = true
	e.b.w.after(e.b.f.storeDelay(), func() {
		if e.life != e.b.life {
			return
		}
		work := l.queue[0]
		l.queue = l.queue[1:]
		work(context.Background())
		l.running = false
		e.runNext(l)
	})
}

// Go implements replica.Executor.
func (e *executor) Go(_ model.DirectoryID, work func(context.Context)) {
	if e.life != e.b.life {
		return
	}
	e.b.store.pending++
	e.b.w.after(e.b.f.storeDelay(), func() {
		if e.life == e.b.life {
			e.b.store.pending--
			work(context.Background())
		}
	})
}

// plugin is a store whose process can die alone, and is started again by its
// host a little later: until then every call says so.
type plugin struct {
	storage.Store // of the process that is up
	b             *broker
	pending       int // calls that the executor has not run yet
	alive         bool
	lent          *granted // the store, when it lends the ends of logs
}

func (p *plugin) start() {
	if p.alive {
		return
	}
	p.alive = true
	s, _, err := memstore.Open(p.b.disk, storage.Config{Identity: storage.Identity{ClusterID: "sim", NodeID: int32(nodeID)}}, memstore.Options{
		Now: p.b.w.Now,
		Defer: func(run func()) {
			p.b.w.after(p.b.f.diskDelay(), func() {
				run()
				p.b.f.stepped()
			})
		},
		Before: p.b.f.before,
		After:  p.b.f.after,
	})
	if err != nil {
		panic("sim: the store does not open: " + err.Error())
	}
	p.Store, p.lent = s, nil
	if p.b.pages != nil {
		p.lent = &granted{Store: s, w: p.b.w, report: p.b.f.report, pages: p.b.pages, logs: make(map[storage.Handle]*grantedLog)}
		p.Store = p.lent
	}
}

// die kills the process; what is under way fails, and so does every call until
// start.
func (p *plugin) die() {
	p.alive = false
	p.b.disk.Kill()
	if lent := p.lent; lent != nil {
		p.b.w.after(p.b.w.between(0, 5*time.Millisecond), lent.revoke)
	}
}

func (p *plugin) shutdown() bool { return p.Shutdown(context.Background()) == nil }
