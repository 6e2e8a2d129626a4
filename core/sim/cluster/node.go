package cluster

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/quorum"
	"github.com/brokerd/brokerd/core/replica"
	"github.com/brokerd/brokerd/core/sim/world"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
)

// node is one broker and its host: one life of the broker after another, on one disk
// until that is wiped.
type node struct {
	c        *cluster
	id       model.NodeID
	endpoint string
	place    memnet.Node

	disk        *memstore.Disk
	directory   model.DirectoryID
	mayHaveLost bool // the disk has lost power, and not all was flushed, since the broker was registered last; or fell
	wiped       bool // likewise, its disks
	// fell is what the store has lost while the broker lived on, until that is settled.
	fell []fall
	// unheard and fallen are what the broker keeps: that logs may have lost their ends before
	// this life, and the cluster has not heard of it; and that some have in this life.
	unheard, fallen bool
	toldOf          int // the last life that was registered
	// alone has the partitions of which the node knows that it alone is in sync, with the
	// high watermark when it had to know; lonely those of which it has heard it.
	alone      map[model.Partition]int64
	lonely     map[model.Partition]bool
	quorumDisk *quorumDisk
	faults     *world.Faults
	clock      clock
	wall       time.Duration // how far the wall clock is from the node's own

	starts  int
	retired bool  // it does not start again
	lost    *left // what it had, if it was lost for ever
	life    *life // of the last start
	paused  bool
	// touched: something has reached the process that its loops may have to do with, since they
	// were looked at. A test compares it with looking at all, always.
	touched bool
	parked  []func() // what is due and waits for the end of the pause

	// Of the life that is up.
	store       *store
	calls       *world.Executor
	loops       *world.Loops
	links       *links
	finder      *quorum.Finder // until there is a quorum
	quorum      *quorum.Node
	member      *member
	manager     *replica.Manager
	incarnation [16]byte
	img         *image.Image
}

func (c *cluster) addNode() (*node, error) {
	c.made++
	id := model.NodeID(c.made)
	n := &node{c: c, id: id, endpoint: fmt.Sprintf("node%d:9090", id), disk: &memstore.Disk{}, directory: c.newDirectory()}
	n.quorumDisk = &quorumDisk{n: n}
	n.clock.drift = c.w.Between(-driftMax, driftMax)
	n.faults = &world.Faults{W: c.w, On: c.faulty, OneIn: c.opts.FaultOneIn, Call: c.opts.StoreCall}
	place, err := c.net.AddNode(n.endpoint)
	if err != nil {
		return nil, err
	}
	n.place = place
	c.nodes = append(c.nodes, n)
	c.byPlace[place] = n
	return n, nil
}

// driftMax is how much a clock may be off in a second.
const driftMax = 500 * time.Microsecond

// Now is the node's own time.
func (n *node) Now() time.Time { return n.clock.at(n.c.w.Now()) }

// NewTimer implements loop.Clock. Nothing in a simulation may wait.
func (n *node) NewTimer(time.Duration) (<-chan time.Time, func() bool) {
	panic("cluster: somebody waits on the only goroutine")
}

// AfterFunc implements loop.Clock, likewise.
func (n *node) AfterFunc(time.Duration, func()) func() bool {
	panic("cluster: somebody waits on the only goroutine")
}

// up: a process runs, paused or not.
func (n *node) up() bool { return n.life != nil && !n.life.over }

// start begins a life.
func (n *node) start() error {
	n.starts++
	n.unheard, n.fallen = n.unheard || n.fallen, false
	n.life, n.touched = &life{n: n}, true
	n.store = &store{n: n}
	n.store.start()
	n.calls = world.NewExecutor(n.life, n.faults)
	n.loops = world.NewLoops(n.c.w, n.life)
	n.img = nil
	n.alone, n.lonely = make(map[model.Partition]int64), make(map[model.Partition]bool)
	n.incarnation = [16]byte(n.c.random(16))
	n.c.w.Note("node %d starts, life %d", n.id, n.starts)
	for _, start := range []func() error{n.startLinks, n.startReplicas, n.startMember, n.startMetadata} {
		if err := start(); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) startReplicas() error {
	o := &n.c.opts
	cfg := replica.DefaultConfig()
	cfg.NodeID = n.id
	cfg.Shards = o.Shards
	cfg.Limits.AppendStall = 2 * time.Second
	cfg.DirectoryTimeout = 500 * time.Millisecond
	cfg.Limits.SnapshotAfter = o.SnapshotAfter
	cfg.Limits.ScanBatches = 7
	cfg.Limits.InFlightBatches = o.InFlight
	cfg.Limits.LagMax = o.LagMax
	cfg.OpenWait = 0
	settings := replica.DefaultBroker()
	settings.Flush = o.Flush
	settings.RetentionEvery = 700 * time.Millisecond
	resolve := replica.SettingsOf(n.id, settings)
	m, err := replica.New(cfg, replica.Deps{
		Directories: []replica.Directory{{ID: n.directory, Name: "main", Plugin: "memstore", Store: n.store}},
		Logger:      n.logger(),
		Clock:       n,
		Executor:    n.calls,
		Incarnation: n.incarnation,
		Doubts:      keeper{n},
		Streams:     n.links,
		Controller:  alterer{n},
		Purged:      n.purged,
		Settings: func(img *image.Image, topic string) (replica.TopicSettings, error) {
			s, err := resolve(img, topic)
			s.Log.SegmentBytes = o.SegmentBytes
			s.RetentionBytes = -1
			return s, err
		},
	})
	if err != nil {
		return err
	}
	n.manager = m
	n.links.streams = m
	for _, l := range m.Loops() {
		n.loops.Add(l)
	}
	return nil
}

// published: the node has a new image.
func (n *node) published(img *image.Image) {
	n.img = img
	n.c.published(n, img)
	n.isAlone(img)
	n.manager.Apply(img)
	n.member.see(img)
}

// logger hands what the node logs to the trace.
func (n *node) logger() *slog.Logger {
	if n.c.opts.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(&noter{n: n})
}

// kill ends the process at once, and its store's with it.
func (n *node) kill(how memnet.Death) {
	n.end()
	n.c.net.Stop(n.c.w.Now(), n.place, how)
	n.disk.Kill()
}

// end ends the life.
func (n *node) end() {
	n.life.over, n.paused, n.parked = true, false, nil
}

// pause stops the process; the kernel of its host goes on.
func (n *node) pause() {
	n.paused = true
	n.c.net.Pause(n.place)
}

// resume lets it go on, with what was due in the meantime.
func (n *node) resume() {
	if !n.paused {
		return
	}
	n.paused = false
	n.c.net.Resume(n.c.w.Now(), n.place)
	parked, l := n.parked, n.life
	n.parked = nil
	for _, do := range parked {
		n.c.w.After(0, func() { l.do(do) })
	}
}
