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

const clusterID model.ClusterID = "sim"

const topicName = "orders" // of the producers

// Options are the shape of one run.
type Options struct {
	Nodes, NodesMax int // at first, and with those that join
	Partitions      int
	Producers       int
	Batches         int // for each producer
	Pace            time.Duration
	Flush           partition.FlushPolicy
	Shards          int
	InFlight        int
	SnapshotAfter   int
	SegmentBytes    int64
	// SnapshotEntries are between two snapshots of the metadata.
	SnapshotEntries int
	Faulty          time.Duration
	LagMax          time.Duration // of followers
	RebalanceEvery  time.Duration // of leadership
	Usual           time.Duration // the longest way of a message, without faults
	StoreCall       time.Duration // likewise, the longest wait of a call before it reaches the store
	Calm            time.Duration // the longest pause between two misfortunes
	FaultOneIn      int           // operations of a store fail, while faults are on
	// Log gets every event; nil: nobody.
	Log func(string)
}

// OptionsOf draws the shape of a run from its seed.
func OptionsOf(seed uint64) Options {
	w := world.New(seed^0xc105, nil)
	nodes := []int{1, 3, 3, 3, 3, 3, 3, 5}[w.Rand.IntN(8)]
	batches, faulty := 20+w.Rand.IntN(60), w.Between(5*time.Second, 20*time.Second)
	return Options{
		Nodes:      nodes,
		NodesMax:   []int{nodes, nodes, max(nodes+1, 3)}[w.Rand.IntN(3)],
		Partitions: 1 + w.Rand.IntN(4),
		Producers:  2 + w.Rand.IntN(4),
		Batches:    batches,
		// A producer's batches last for a part of the time of faults, or for all of it.
		Pace:            time.Duration(1+w.Rand.IntN(5)) * faulty / time.Duration(batches),
		Flush:           partition.FlushPolicy(w.Rand.IntN(2)),
		Shards:          1 + w.Rand.IntN(2),
		InFlight:        1 << w.Rand.IntN(6),
		SnapshotAfter:   1 + w.Rand.IntN(30),
		SnapshotEntries: 5 + w.Rand.IntN(60),
		SegmentBytes:    int64(200 + w.Rand.IntN(3000)),
		Faulty:          faulty,
		LagMax:          among(w, 150*time.Millisecond, 500*time.Millisecond, 1500*time.Millisecond, 5*time.Second),
		RebalanceEvery:  among(w, 400*time.Millisecond, 2*time.Second, time.Hour),
		Usual:           among(w, time.Millisecond, time.Millisecond, 10*time.Millisecond, 50*time.Millisecond),
		StoreCall:       among(w, 500*time.Microsecond, 500*time.Microsecond, 20*time.Millisecond),
		Calm:            w.Between(100*time.Millisecond, 3*time.Second),
		FaultOneIn:      20 + w.Rand.IntN(300),
	}
}

func among(w *world.World, choice ...time.Duration) time.Duration {
	return choice[w.Rand.IntN(len(choice))]
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
	Fences      int // of live brokers
	Isolations  int // of leaders, with one follower
	Leaves      int // of brokers in order
	Wipes       int // of disks
	AllAtOnce   int // times that all nodes went
	Joins       int // of nodes
	Topics      int
	Changes     int // of settings
	SaveDeaths  int // of nodes, in a save of the quorum's disk
	Events      int // of the simulation
	Trace       uint64
	Violations  []string
}

// Crashes counts every end of a process.
func (r Report) Crashes() int { return r.Kills + r.Deaths + r.PowerLosses + r.SaveDeaths }

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
	topic   model.TopicID

	producers []*producer
	highest   map[model.Partition]int64 // high watermarks that readers saw
	topics    int
	making    int    // topics that are being made
	drawn     uint64 // directory IDs
	events    int    // that have happened
}

// patience is how long after the last fault everything must serve.
const patience = 2 * time.Minute

// eventsMax is many times what happens in a run. Brokers that do without an end what brings
// them nowhere come to it.
const eventsMax = 1_000_000

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
	for _, n := range c.nodes {
		if err := n.start(); err != nil {
			return fmt.Errorf("start node %d: %w", n.id, err)
		}
	}
	if err := c.form(); err != nil {
		return err
	}
	c.clients()
	c.administer()
	c.watch()
	c.misfortunes()
	return nil
}

// formMax is how long a cluster may take to form and to make a topic.
const formMax = 30 * time.Second

// form runs until all brokers serve, and the topic is made.
func (c *cluster) form() error {
	limit := c.w.Now().Add(formMax)
	until := func(done func() bool) {
		c.runUntil(func() bool { return done() || !c.w.Now().Before(limit) })
	}
	until(func() bool { return c.unserved() == "" })
	topic := model.NewTopic{Name: topicName, Partitions: int32(c.opts.Partitions), ReplicationFactor: int16(min(3, len(c.nodes)))}
	c.makeTopic(topic, func(id model.TopicID) { c.topic = id })
	until(func() bool { return c.topic != model.TopicID{} && c.unserved() == "" })
	if why := c.unserved(); why != "" || c.topic == (model.TopicID{}) {
		return fmt.Errorf("%s after the start, there is no cluster: topic %v, %s", formMax, c.topic, why)
	}
	return nil
}

func (c *cluster) newDirectory() model.DirectoryID {
	c.drawn++
	d := model.DirectoryID{0xd1}
	binary.BigEndian.PutUint64(d[8:], c.drawn)
	return d
}

// random draws bytes of the seed.
func (c *cluster) random(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(c.w.Rand.Uint32())
	}
	return b
}

// randomReader draws from the seed what production takes from crypto/rand.
type randomReader struct{ c *cluster }

func (r randomReader) Read(b []byte) (int, error) { return copy(b, r.c.random(len(b))), nil }

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
		if c.events++; c.events > eventsMax {
			c.check.Violate("more than %d events have happened: somebody does the same again and again", eventsMax)
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

// published tells of a node's new image.
func (c *cluster) published(n *node, img *image.Image) {
	old := c.check.Newest()
	c.check.Published(n.id, n.starts, img)
	if old != nil && img.Offset <= old.Offset {
		return
	}
	for t := range img.Topics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			if old != nil {
				if was, _, ok := old.Partition(model.Partition{Topic: t.ID, Index: int32(i)}); ok && was.PartitionEpoch == p.PartitionEpoch {
					continue
				}
			}
			c.w.Note("metadata %d: %s-%d is led by %d in epoch %d, ISR %v, ELR %v %v, partition epoch %d",
				img.Offset, t.Name, i, p.Leader, p.LeaderEpoch, p.ISR, p.ELR, p.LastKnownELR, p.PartitionEpoch)
		}
	}
}

// unserved says what is not as it should be in the end, or "".
func (c *cluster) unserved() string {
	if c.check.Newest() == nil {
		return "there is no metadata"
	}
	ids := make([]model.NodeID, 0, len(c.nodes))
	for _, n := range c.nodes {
		if !n.up() {
			return fmt.Sprintf("node %d is down", n.id)
		}
		if n.member.machine.Fenced() {
			return fmt.Sprintf("node %d is fenced", n.id)
		}
		ids = append(ids, n.id)
	}
	if why := check.Unsettled(c.check.Newest(), ids); why != "" {
		return why
	}
	if why := c.uncommitted(); why != "" {
		return why
	}
	if why := c.unvoted(); why != "" {
		return why
	}
	for _, p := range c.producers {
		if !p.done() {
			return fmt.Sprintf("producer %d has %d batches to send and %d unanswered", p.id, p.left, len(p.window))
		}
	}
	return ""
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
	r.Events = c.events
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
