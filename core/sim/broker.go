package sim

import (
	"context"
	"log/slog"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/replica"
	"github.com/brokerd/brokerd/core/sim/world"
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
	w    *world.World
	opts Options
	img  *image.Image
	disk *memstore.Disk
	// pages are those of logs whose ends are lent to the broker; nil: none is.
	pages  pages
	f      *world.Faults
	report *Report

	life    int // counts up at each start; work of an earlier life is dropped
	manager *replica.Manager
	groups  *groups // nil: there are none
	store   *plugin
	process *world.Plain
	calls   *world.Executor
	loops   *world.Loops
	up      bool

	memberIDs int // drawn by coordinators
	terms     int // of coordinators, over all lives
}

func newBroker(w *world.World, opts Options, f *world.Faults, report *Report) (*broker, error) {
	b := &broker{w: w, opts: opts, disk: &memstore.Disk{}, f: f, report: report}
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
	b.process = b.w.NewLife()
	b.calls = world.NewExecutor(b.process, b.f)
	b.loops = world.NewLoops(b.w, b.process)
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
		Executor:    b.calls,
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
	b.manager, b.up = m, true
	for _, l := range m.Loops() {
		b.loops.Add(l)
	}
	m.Apply(b.img)
	if b.opts.Groups > 0 {
		if b.groups, err = b.startGroups(); err != nil {
			return err
		}
		for _, l := range b.groups.Loops() {
			b.loops.Add(l)
		}
		b.groups.Apply(b.img)
	}
	b.w.Note("broker starts, life %d", b.life)
	return nil
}

// kill ends a life at once, and its plugin with it.
func (b *broker) kill() {
	b.w.Note("broker is killed")
	b.end()
	b.disk.Kill()
}

// end ends the life.
func (b *broker) end() {
	b.up = false
	b.life++
	b.process.End()
}

// pump is called after every event.
func (b *broker) pump() {
	if b.up {
		b.loops.Pump()
	}
}

// stopCleanly ends a life as SIGTERM does: its logs are closed.
func (b *broker) stopCleanly() bool {
	if b.groups != nil {
		b.groups.Stop()
		b.settle()
	}
	b.manager.Stop()
	b.settle()
	b.w.Note("broker stopped")
	b.end()
	return b.store.shutdown()
}

// settle runs the world until the broker has nothing to do.
func (b *broker) settle() {
	for range 100_000 {
		b.pump()
		if b.loops.Idle() && b.calls.Idle() && (b.groups == nil || b.groups.idle()) || b.w.Over() {
			return
		}
		b.w.Step()
	}
}

// plugin is a store whose process can die alone, and is started again by its
// host a little later: until then every call says so.
type plugin struct {
	storage.Store // of the process that is up
	b             *broker
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
			p.b.w.After(p.b.f.DiskDelay(), func() {
				run()
				p.b.f.Stepped()
			})
		},
		Before: p.b.f.Before,
		After:  p.b.f.After,
	})
	if err != nil {
		panic("sim: the store does not open: " + err.Error())
	}
	p.Store, p.lent = s, nil
	if p.b.pages != nil {
		p.lent = &granted{Store: s, w: p.b.w, report: p.b.report, pages: p.b.pages, logs: make(map[storage.Handle]*grantedLog)}
		p.Store = p.lent
	}
}

// die kills the process; what is under way fails, and so does every call until
// start.
func (p *plugin) die() {
	p.alive = false
	p.b.disk.Kill()
	if lent := p.lent; lent != nil {
		p.b.w.After(p.b.w.Between(0, 5*time.Millisecond), lent.revoke)
	}
}

func (p *plugin) shutdown() bool { return p.Shutdown(context.Background()) == nil }
