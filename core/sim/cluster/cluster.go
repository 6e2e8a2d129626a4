package cluster

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/core/sim/check"
	"github.com/brokerd/brokerd/core/sim/world"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
)

const (
	clusterID model.ClusterID = "sim"
	topicName                 = "orders"
)

var topicID = model.TopicID{0x70}

// Options are the shape of one run.
type Options struct {
	Nodes         int
	Partitions    int
	Producers     int
	Batches       int // for each producer
	Pace          time.Duration
	Flush         partition.FlushPolicy
	Shards        int
	InFlight      int
	SnapshotAfter int
	SegmentBytes  int64
	Faulty        time.Duration
	Calm          time.Duration // the longest pause between two misfortunes
	FaultOneIn    int           // operations of a store fail, while faults are on
	// Log gets every event; nil: nobody.
	Log func(string)
}

// OptionsOf draws the shape of a run from its seed.
func OptionsOf(seed uint64) Options {
	w := world.New(seed^0xc105, nil)
	return Options{
		Nodes:         3,
		Partitions:    1 + w.Rand.IntN(4),
		Producers:     2 + w.Rand.IntN(4),
		Batches:       20 + w.Rand.IntN(60),
		Pace:          w.Between(10*time.Millisecond, 400*time.Millisecond),
		Flush:         partition.FlushPolicy(w.Rand.IntN(2)),
		Shards:        1 + w.Rand.IntN(2),
		InFlight:      1 << w.Rand.IntN(6),
		SnapshotAfter: 1 + w.Rand.IntN(30),
		SegmentBytes:  int64(200 + w.Rand.IntN(3000)),
		Faulty:        w.Between(5*time.Second, 20*time.Second),
		Calm:          w.Between(200*time.Millisecond, 4*time.Second),
		FaultOneIn:    20 + w.Rand.IntN(300),
	}
}

// Report is what happened in one run.
type Report struct {
	Seed        uint64
	Acked       int // records, by acknowledgement
	Reads       int // records
	Retried     int
	LostAnswers int
	Elections   int
	ISRChanges  int
	Truncations int
	Kills       int
	PowerLosses int
	Deaths      int // of stores alone
	Pauses      int
	Cuts        int
	Slow        int // ways made slow or lossy
	Stalls      int // of stores
	Full        int // times that a disk filled
	Failed      int // operations of stores
	LostBatches int
	Trace       uint64
	Violations  []string
}

// Crashes counts every end of a process.
func (r Report) Crashes() int { return r.Kills + r.Deaths + r.PowerLosses }

// cluster is one run.
type cluster struct {
	w       *world.World
	opts    Options
	report  *Report
	check   *check.Checker
	net     *memnet.Machine
	network *network
	nodes   []*node
	byPlace map[memnet.Node]*node
	faulty  bool
	img     *image.Image

	producers []*producer
	highest   map[model.Partition]int64 // high watermarks that readers saw
	drawn     uint64                    // directory IDs
}

// patience is how long after the last fault everything must serve.
const patience = 2 * time.Minute

// Run runs one seed. The error is the simulator's own; what brokers did wrong is in the
// report.
func Run(seed uint64, opts Options) (Report, error) {
	report := &Report{Seed: seed}
	w := world.New(seed, opts.Log)
	c := &cluster{w: w, opts: opts, report: report, faulty: true, byPlace: make(map[memnet.Node]*node), highest: make(map[model.Partition]int64)}
	c.check = check.New(func(v string) { w.Note("VIOLATION: %s", v) })
	c.net = memnet.New(memnet.Options{Seed: w.Rand.Uint64()})
	c.network = &network{c: c}
	if err := c.begin(); err != nil {
		return *report, err
	}
	end := w.Now().Add(opts.Faulty)
	c.runUntil(func() bool { return !w.Now().Before(end) || len(c.check.Violations()) > 0 })
	c.heal()
	c.serve()
	if len(c.check.Violations()) == 0 {
		c.finish()
	}
	c.fill()
	return *report, nil
}

func (c *cluster) begin() error {
	for range c.opts.Nodes {
		if _, err := c.addNode(); err != nil {
			return fmt.Errorf("add a node: %w", err)
		}
	}
	if err := c.metadata(); err != nil {
		return fmt.Errorf("make the metadata: %w", err)
	}
	for _, n := range c.nodes {
		if err := n.start(); err != nil {
			return fmt.Errorf("start node %d: %w", n.id, err)
		}
	}
	c.clients()
	c.watch()
	c.misfortunes()
	return nil
}

func (c *cluster) newDirectory() model.DirectoryID {
	c.drawn++
	d := model.DirectoryID{0xd1}
	binary.BigEndian.PutUint64(d[8:], c.drawn)
	return d
}

func (c *cluster) metadata() error {
	records := []image.Record{&image.ClusterRecord{Cluster: image.Cluster{ID: clusterID, FeatureLevel: 1, ReplicationFactorTarget: 3, MinISRTarget: 2}}}
	for _, n := range c.nodes {
		records = append(records, &image.BrokerRecord{ID: n.id, Directories: []model.DirectoryID{n.directory}})
	}
	records = append(records, &image.TopicRecord{ID: topicID, Name: topicName, ReplicationFactorTarget: 3})
	for i := range c.opts.Partitions {
		n := c.nodes[i%len(c.nodes)]
		records = append(records, &image.PartitionRecord{
			Partition: model.Partition{Topic: topicID, Index: int32(i)},
			Registration: image.Partition{
				Replicas: []model.NodeID{n.id}, Directories: []model.DirectoryID{n.directory}, ISR: []model.NodeID{n.id}, Leader: n.id,
			},
		})
	}
	img, err := image.FromRecords(1, records...)
	c.img = img
	return err
}

// elect gives a node that has started what it leads, in a new leader epoch.
func (c *cluster) elect(n *node) error {
	d := image.NewDelta(c.img, c.img.Offset+1)
	for i := range c.opts.Partitions {
		id := model.Partition{Topic: topicID, Index: int32(i)}
		if p, _, _ := c.img.Partition(id); p.Leader == n.id {
			if err := d.Apply(&image.PartitionChangeRecord{Partition: id, LeaderChange: true, Leader: n.id}); err != nil {
				return fmt.Errorf("elect node %d: %w", n.id, err)
			}
		}
	}
	c.img = d.Image()
	for _, o := range c.nodes {
		if o.up() {
			o.published(c.img)
		}
	}
	return nil
}

func (c *cluster) runUntil(stop func() bool) {
	for !stop() {
		for _, n := range c.nodes {
			if n.up() && !n.paused {
				n.loops.Pump()
			}
		}
		c.network.pump()
		if c.w.Over() {
			return
		}
		c.w.Step()
	}
}

// serve runs until all is served, or patience ends.
func (c *cluster) serve() {
	limit := c.w.Now().Add(patience)
	c.runUntil(func() bool {
		return len(c.check.Violations()) > 0 || !c.w.Now().Before(limit) || c.unserved() == ""
	})
	if why := c.unserved(); why != "" && len(c.check.Violations()) == 0 {
		c.check.Violate("%s after the faults ended, %s", patience, why)
	}
}

// unserved says what is not as it should be in the end, or "".
func (c *cluster) unserved() string {
	for _, p := range c.producers {
		if !p.done() {
			return fmt.Sprintf("producer %d has %d batches to send and %d unanswered", p.id, p.left, len(p.window))
		}
	}
	ids := make([]model.NodeID, 0, len(c.nodes))
	for _, n := range c.nodes {
		if !n.up() {
			return fmt.Sprintf("node %d is down", n.id)
		}
		ids = append(ids, n.id)
	}
	if why := check.Unsettled(c.check.Newest(), ids); why != "" {
		return why
	}
	return c.uncommitted()
}

// uncommitted says which partition has records above its high watermark, or "".
func (c *cluster) uncommitted() string {
	img := c.check.Newest()
	led := 0
	for _, n := range c.nodes {
		for _, l := range n.leads() {
			if p, _, ok := img.Partition(l.Partition); !ok || p.Leader != n.id || p.LeaderEpoch != l.Epoch {
				continue
			}
			if led++; l.HighWatermark < l.LEO {
				return fmt.Sprintf("partition %d is committed up to %d of %d", l.Partition.Index, l.HighWatermark, l.LEO)
			}
		}
	}
	if led < img.PartitionCount() {
		return fmt.Sprintf("%d of %d partitions are served", led, img.PartitionCount())
	}
	return ""
}

// fill completes the report.
func (c *cluster) fill() {
	r := c.report
	for _, n := range c.nodes {
		r.Failed += n.faults.Failed
	}
	r.Elections, r.ISRChanges = c.check.Elections(), c.check.ISRChanges()
	r.Violations, r.Trace = c.check.Violations(), c.w.Trace()
}

// someNode draws a node that is up and not paused.
func (c *cluster) someNode() *node {
	var up []*node
	for _, n := range c.nodes {
		if n.up() && !n.paused {
			up = append(up, n)
		}
	}
	if len(up) == 0 {
		return nil
	}
	return up[c.w.Rand.IntN(len(up))]
}
