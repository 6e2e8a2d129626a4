package cluster

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/sim/check"
	"github.com/brokerd/brokerd/core/sim/world"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
)

const clusterID model.ClusterID = "sim"

const topicName = "orders" // of the producers

// cluster is one run.
type cluster struct {
	w        *world.World
	opts     Options
	report   *Report
	check    *check.Checker
	net      *memnet.Machine
	network  *network
	nodes    []*node
	made     int     // nodes, with those that have left
	retiring *node   // or nil
	gone     []*node // that were forgotten, and have come back
	byPlace  map[memnet.Node]*node
	faulty   bool
	round    int  // of faults
	last     bool // it is the last
	topic    model.TopicID

	producers []*producer
	highest   map[model.Partition]int64 // high watermarks that readers saw
	topics    int
	more      []model.TopicRef // topics beside that of the producers
	making    int              // topics that are being made
	leases    leases
	doubts    []*time.Time // until each of them, something may come to be
	drawn     uint64       // directory IDs
	falls     *world.World // draws which stores fall back
	events    int          // that have happened
	before    int          // likewise, this round
	pumpAll   bool         // nodes, whether they were touched or not
}

// patience is how long after the last fault everything must serve.
const patience = 2 * time.Minute

// eventsMax is many times what happens in a round. Brokers that do without an end what brings
// them nowhere come to it.
const eventsMax = 1_000_000

// Run runs one seed. The error is the simulator's own; what brokers did wrong is in the
// report. Raft draws from the one source of randomness of the process, which is the seed's
// until Run returns: a process runs one seed at a time.
func Run(seed uint64, opts Options) (Report, error) {
	return newCluster(seed, opts).run()
}

// run runs the seed to its end.
func (c *cluster) run() (Report, error) {
	defer seedRaft(c.report.Seed)()
	c.faulty = true
	if err := c.begin(); err != nil && len(c.check.Violations()) == 0 {
		return *c.report, err
	}
	for begun := c.w.Now(); !c.last && len(c.check.Violations()) == 0; {
		c.trouble(begun.Add(c.opts.Faulty))
		c.heal()
		c.serve()
	}
	if len(c.check.Violations()) == 0 {
		c.finish()
	}
	c.fill()
	return *c.report, nil
}

// newCluster makes a cluster that has no node yet.
func newCluster(seed uint64, opts Options) *cluster {
	w := world.New(seed, opts.Log)
	c := &cluster{
		w: w, opts: opts, report: &Report{Seed: seed}, byPlace: make(map[memnet.Node]*node), highest: make(map[model.Partition]int64),
		check: check.New(func(v string) { w.Note("VIOLATION: %s", v) }), net: memnet.New(memnet.Options{Seed: w.Rand.Uint64()}),
	}
	c.network = &network{c: c}
	return c
}

// trouble is one round of faults. The last one comes to the end.
func (c *cluster) trouble(end time.Time) {
	until := end
	if r := c.opts.Round; r > 0 && c.w.Now().Add(r).Before(end) {
		until = c.w.Now().Add(c.w.Between(r/2, r))
	}
	c.round++
	c.before = c.events
	c.faulty, c.last = true, until.Equal(end)
	for _, n := range c.nodes {
		n.faults.On = true
	}
	c.administer(c.round)
	c.misfortunes(c.round)
	c.fallbacks(c.round)
	c.runUntil(func() bool { return !c.w.Now().Before(until) || len(c.check.Violations()) > 0 })
}

func (c *cluster) begin() error {
	if err := c.startAll(); err != nil {
		return err
	}
	if err := c.form(); err != nil {
		return err
	}
	c.clients()
	c.watch()
	c.grow()
	return nil
}

// startAll adds the first nodes, and starts them.
func (c *cluster) startAll() error {
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
	return nil
}

// formMax is how long a cluster may take to form and to make a topic.
const formMax = 30 * time.Second

// form runs until all brokers serve, and the topic is made.
func (c *cluster) form() error {
	limit := c.w.Now().Add(formMax)
	until := func(done func() bool) {
		c.runUntil(func() bool { return done() || !c.w.Now().Before(limit) || len(c.check.Violations()) > 0 })
	}
	until(func() bool { return c.unserved() == "" })
	topic := model.NewTopic{Name: topicName, Partitions: int32(c.opts.Partitions), ReplicationFactor: c.replicas(min(3, len(c.nodes)))}
	if c.opts.Throttle > 0 {
		topic.Configs = throttled()
	}
	c.makeTopic(topic, func(id model.TopicID) { c.topic = id })
	until(func() bool { return c.topic != model.TopicID{} && c.unserved() == "" })
	if why := c.unserved(); why != "" || c.topic == (model.TopicID{}) {
		return fmt.Errorf("%s after the start, there is no cluster: topic %v, %s", formMax, c.topic, why)
	}
	return nil
}

// seedRaft makes what Raft draws the seed's, until it is undone.
func seedRaft(seed uint64) (undo func()) {
	var s [32]byte
	binary.LittleEndian.PutUint64(s[:], seed)
	was := rand.Reader
	rand.Reader = mathrand.NewChaCha8(s)
	return func() { rand.Reader = was }
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
			if (n.touched || c.pumpAll) && n.up() && !n.paused {
				n.touched = false
				n.loops.Pump()
			}
		}
		for _, n := range c.gone {
			if n.up() {
				n.loops.Pump()
			}
		}
		c.network.pump()
		if c.w.Over() {
			return
		}
		if c.events++; c.events-c.before > eventsMax {
			c.check.Violate("more than %d events have happened in a round: somebody does the same again and again", eventsMax)
			return
		}
		c.w.Step()
	}
}

// serve runs until all is served, or patience ends.
func (c *cluster) serve() {
	limit := c.w.Now().Add(patience)
	var look time.Time
	c.runUntil(func() bool {
		if len(c.check.Violations()) > 0 || !c.w.Now().Before(limit) {
			return true
		}
		if c.w.Now().Before(look) {
			return false
		}
		look = c.w.Now().Add(lookEvery)
		return c.unserved() == ""
	})
	if why := c.unserved(); why != "" && len(c.check.Violations()) == 0 {
		c.check.Violate("%s after the faults ended, %s", patience, why)
	}
}

// lookEvery is between two looks at whether all is served.
const lookEvery = 5 * time.Millisecond

// published tells of a node's new image.
func (c *cluster) published(n *node, img *image.Image) {
	old := c.check.Newest()
	c.check.Published(n.id, n.starts, img)
	if old != nil && img.Offset <= old.Offset {
		return
	}
	c.leases.fences(c.w.Now(), img)
	for t := range img.Topics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			if old != nil {
				if was, _, ok := old.Partition(model.Partition{Topic: t.ID, Index: int32(i)}); ok && was.PartitionEpoch == p.PartitionEpoch {
					continue
				}
			}
			c.raises(old, t, i)
			c.counted(model.Partition{Topic: t.ID, Index: int32(i)}, p)
			c.loseLast(p)
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
		if n.member.Fenced() {
			return fmt.Sprintf("node %d is fenced", n.id)
		}
		if n.fallen {
			return fmt.Sprintf("node %d takes its logs for such as lack something", n.id)
		}
		ids = append(ids, n.id)
	}
	for _, n := range c.gone {
		if n.up() {
			return fmt.Sprintf("node %d runs, and was forgotten", n.id)
		}
		if _, registered := c.check.Newest().Broker(n.id); registered {
			return fmt.Sprintf("node %d is registered again, and was forgotten", n.id)
		}
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
	if why := c.unraised(); why != "" {
		return why
	}
	for _, p := range c.producers {
		if len(p.window) > 0 || c.last && p.left > 0 {
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
	r.Elections, r.ISRChanges, r.Moves = c.check.Elections(), c.check.ISRChanges(), c.check.Moves()
	r.Events, r.Rounds, r.Seconds = c.events, c.round, int(c.w.Now().Sub(world.Epoch).Seconds())
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
