package controller

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// cluster is a controller among brokers that hold logs: they die, lose what was not
// flushed, are wiped, and know the metadata late; controllers change, and lose or keep
// what they had proposed. Logs are lists of entries that are unique, so that what was
// committed can be looked for.
type cluster struct {
	*host
	t       *testing.T
	rand    *rand.Rand
	images  []*image.Image
	brokers map[model.NodeID]*node
	// committed is what clients were told of, by partition.
	committed map[model.Partition][]entry
	leaders   map[model.Partition]map[model.LeaderEpoch]model.NodeID
	// alone: whoever was elected last was the only one that could have everything.
	alone map[model.Partition]bool
	// unclean: the operator has anybody lead.
	unclean map[model.Partition]bool
	entries uint64
	waits   map[CommandID]func(Answer)
	late    []func() // what brokers have asked, and has not arrived
	trace   []string
	calm    bool         // no faults any more
	decided bytes.Buffer // every record proposed
	counts  struct{ commits, elections, eligible, longest, fenced, isr, reassigned, shutdowns, raised int }
}

// entry is a record of a log: the leader epoch, and what makes it unique.
type entry struct {
	epoch model.LeaderEpoch
	n     uint64
}

// node is a broker.
type node struct {
	id     model.NodeID
	life   byte
	dir    byte
	up     bool
	lost   bool // its logs may lack something since it was registered last
	epoch  model.BrokerEpoch
	leaves bool
	view   int // the image that it has
	logs   map[model.Partition][]entry
	// flushed is how much of a log survives the loss of power; damaged are those that have
	// lost something and not been copied from a leader since.
	flushed map[model.Partition]int
	damaged map[model.Partition]bool
	leads   map[model.Partition]*leading
}

// leading is what a leader knows by the answers to its own questions.
type leading struct {
	epoch   model.LeaderEpoch
	pepoch  model.PartitionEpoch
	isr     []model.NodeID
	pending []model.NodeID // asked for, and not known to be refused
	asking  bool           // not answered yet
}

func newCluster(t *testing.T, seed uint64) *cluster {
	cfg := DefaultConfig()
	cfg.RebalanceEvery = 3 * time.Second
	cfg.RaisesMax, cfg.RaiseAfter, cfg.RaiseAway = 2, 500*time.Millisecond, 2*time.Second
	c := &cluster{
		host: newHost(t, cfg, image.Cluster{ID: "c", FeatureLevel: 1, ReplicationFactorTarget: 3, MinISRTarget: 2}), t: t,
		rand: rand.New(rand.NewPCG(seed, 7)), brokers: map[model.NodeID]*node{}, committed: map[model.Partition][]entry{},
		leaders: map[model.Partition]map[model.LeaderEpoch]model.NodeID{}, waits: map[CommandID]func(Answer){},
		alone: map[model.Partition]bool{}, unclean: map[model.Partition]bool{},
	}
	c.images = []*image.Image{c.img}
	c.do(Lead{c.img})
	for id := range model.NodeID(4) {
		n := &node{id: id + 1, life: 1, dir: byte(id + 1), up: true, logs: map[model.Partition][]entry{}, flushed: map[model.Partition]int{}, damaged: map[model.Partition]bool{}, leads: map[model.Partition]*leading{}}
		c.brokers[n.id] = n
		c.register(n)
		c.settle()
		for fenced := true; fenced; {
			c.beat(n)
			c.settle()
			b, _ := c.img.Broker(n.id)
			fenced = b.Fenced
		}
		if id == 0 { // with a target of three
			c.ask(CreateTopics{Topics: []model.NewTopic{{Name: "w", Partitions: 3, ReplicationFactor: -1}}}, nil)
			c.settle()
		}
	}
	two := "2"
	c.ask(CreateTopics{Topics: []model.NewTopic{
		{Name: "t", Partitions: -1, ReplicationFactor: -1, Assignment: map[int32][]model.NodeID{0: {1, 2, 3}, 1: {2, 3, 4}}},
		{Name: "u", Partitions: -1, ReplicationFactor: -1, Assignment: map[int32][]model.NodeID{0: {4, 1}}, Configs: map[string]*string{image.MinISRKey: &two}},
		{Name: "v", Partitions: -1, ReplicationFactor: -1, Assignment: map[int32][]model.NodeID{0: {3}}},
	}}, nil)
	c.settle()
	return c
}

func (c *cluster) note(format string, args ...any) {
	c.trace = append(c.trace, fmt.Sprintf(format, args...))
}

// do steps the machine, and hands out answers.
func (c *cluster) do(in Input) {
	proposed := len(c.proposals)
	answered := c.step(in)
	for _, p := range c.proposals[min(proposed, len(c.proposals)):] {
		c.decided.Write(image.AppendBatch(nil, p.Records))
	}
	for _, id := range answered {
		if f := c.waits[id]; f != nil {
			delete(c.waits, id)
			f(c.answers[id])
		}
	}
}

func (c *cluster) ask(op Op, answered func(Answer)) {
	c.next++
	id := c.next
	if answered != nil {
		c.waits[id] = answered
	}
	c.do(Command{id, op})
}

// send asks now, or later, when whoever asked may be in another life.
func (c *cluster) send(op Op, answered func(Answer)) {
	if c.calm || c.rand.IntN(3) > 0 {
		c.ask(op, answered)
		return
	}
	c.late = append(c.late, func() { c.ask(op, answered) })
}

// arrive has something arrive that is late.
func (c *cluster) arrive() {
	if len(c.late) == 0 {
		return
	}
	i := c.rand.IntN(len(c.late))
	ask := c.late[i]
	c.late = slices.Delete(c.late, i, i+1)
	ask()
}

// replay commits the oldest proposal to the metadata.
func (c *cluster) replay() Proposal {
	p := c.proposals[0]
	c.proposals = c.proposals[1:]
	records, err := image.DecodeBatch(image.AppendBatch(nil, p.Records))
	if err != nil {
		c.failf("%v", err)
	}
	was := c.img
	d := image.NewDelta(was, was.Offset+1)
	for _, r := range records {
		if err := d.Apply(r); err != nil {
			c.failf("proposal %d: %v", p.ID, err)
		}
	}
	c.img = d.Image()
	c.images = append(c.images, c.img)
	c.check(was, c.img)
	return p
}

func (c *cluster) commitOne() {
	alone := len(c.machine.inFlight) == 1
	decided := c.machine.next
	p := c.replay()
	if alone && !slices.ContainsFunc(p.Records, func(r image.Record) bool { _, ok := r.(*image.BrokerRecord); return ok }) {
		if a, b := slices.Collect(decided.Records()), slices.Collect(c.img.Records()); !bytes.Equal(image.AppendBatch(nil, a), image.AppendBatch(nil, b)) {
			c.failf("proposal %d replays to something else than was decided", p.ID)
		}
	}
	c.do(Committed{p.ID, c.img})
}

func (c *cluster) settle() {
	for len(c.proposals) > 0 {
		c.commitOne()
	}
}

// changeController has another one lead, after some of what the last one proposed was
// committed.
func (c *cluster) changeController() {
	keep := c.rand.IntN(len(c.proposals) + 1)
	c.note("controller changes: %d of %d proposals are committed", keep, len(c.proposals))
	for range keep {
		c.replay()
	}
	c.proposals = nil
	c.do(Resign{})
	c.do(Lead{c.img})
}

func (c *cluster) register(n *node) {
	dir := []model.DirectoryID{{n.dir}}
	r := Registration{ClusterID: "c", NodeID: n.id, Incarnation: [16]byte{n.life}, Directories: dir, FeatureLevelMin: 1, FeatureLevelMax: 1}
	if n.lost {
		r.MayHaveLost = dir
	}
	life := n.life
	c.ask(RegisterBroker{r}, func(a Answer) {
		c.note("register %d life %d: epoch %d, %v", n.id, life, a.Epoch, a.Err)
		if a.Err == nil && n.life == life {
			n.epoch, n.lost = a.Epoch, false
		}
	})
}

func (c *cluster) beat(n *node) {
	if n.epoch == 0 {
		c.register(n)
		return
	}
	life := n.life
	n.view = max(n.view, len(c.images)-1-c.rand.IntN(3))
	c.send(Heartbeat{Broker: n.id, Epoch: n.epoch, Offset: c.images[n.view].Offset, WantShutdown: n.leaves}, func(a Answer) {
		if n.life != life {
			return
		}
		if errors.Is(a.Err, model.ErrStaleBrokerEpoch) {
			n.epoch = 0
		}
		if a.Heartbeat.MayShutDown {
			c.counts.shutdowns++
			c.note("%d shuts down", n.id)
			c.kill(n)
		}
	})
}

func (c *cluster) kill(n *node) {
	n.up, n.leaves, n.epoch, n.life = false, false, 0, n.life+1
	n.leads = map[model.Partition]*leading{}
}

// start begins a broker's next life, with nothing of the metadata.
func (c *cluster) start(n *node) { n.up, n.view = true, 0 }

// led is a partition as n knows it, if n leads it as far as it knows.
func (c *cluster) led(n *node, at model.Partition) (*image.Partition, *leading) {
	img := c.images[n.view]
	p, _, ok := img.Partition(at)
	b, registered := img.Broker(n.id)
	if !n.up || !ok || !registered || b.Epoch != n.epoch || b.Fenced || p.Leader != n.id {
		return nil, nil
	}
	newest, _, _ := c.img.Partition(at)
	l := n.leads[at]
	if l == nil || l.epoch != p.LeaderEpoch {
		l = &leading{epoch: p.LeaderEpoch, pepoch: p.PartitionEpoch, isr: p.ISR}
		n.leads[at] = l
		switch has := sharedPrefix(n.logs[at], c.committed[at]); {
		case has == len(c.committed[at]):
		case newest.LeaderEpoch == p.LeaderEpoch && c.alone[at] && n.damaged[at]:
			c.committed[at] = c.committed[at][:has] // nobody else could have it
		case newest.LeaderEpoch == p.LeaderEpoch:
			c.failf("%s: %d leads in epoch %d and has %v, and committed were %v", at, n.id, p.LeaderEpoch, n.logs[at], c.committed[at])
		}
	}
	if p.PartitionEpoch > l.pepoch {
		l.pepoch, l.isr, l.pending = p.PartitionEpoch, p.ISR, nil
	}
	return p, l
}

// follows says whether f follows under a leader epoch: it knows no other.
func (c *cluster) follows(f *node, at model.Partition, leader model.NodeID, epoch model.LeaderEpoch) bool {
	img := c.images[f.view]
	p, _, ok := img.Partition(at)
	b, registered := img.Broker(f.id)
	return f.up && ok && registered && b.Epoch == f.epoch && p.Leader == leader && p.LeaderEpoch == epoch && slices.Contains(p.Replicas, f.id)
}

// write appends at the leader and at those that follow it, and tells clients what all
// that may be in sync have, unless they are too few.
func (c *cluster) write(n *node, at model.Partition) {
	p, l := c.led(n, at)
	if p == nil {
		return
	}
	if c.rand.IntN(2) == 0 {
		c.entries++
		n.logs[at] = append(slices.Clip(n.logs[at]), entry{l.epoch, c.entries})
	}
	for _, id := range p.Replicas {
		if f := c.brokers[id]; id != n.id && (c.calm || c.rand.IntN(2) == 0) && c.follows(f, at, n.id, l.epoch) {
			f.flushed[at] = min(f.flushed[at], sharedPrefix(f.logs[at], n.logs[at]))
			f.logs[at], f.damaged[at] = slices.Clone(n.logs[at]), false
		}
	}
	_, t, _ := c.images[n.view].Partition(at)
	conf, err := c.images[n.view].TopicConfig(t.Name, n.id, nil)
	if err != nil {
		c.failf("%v", err)
	}
	if len(l.isr) < image.EffectiveMinISR(conf.MinISR, p.Counted(), int(t.ReplicationFactorTarget)) {
		return
	}
	end := len(n.logs[at])
	for _, id := range append(slices.Clone(l.isr), l.pending...) {
		f := c.brokers[id]
		if id == n.id {
			continue
		}
		if !c.follows(f, at, n.id, l.epoch) {
			return
		}
		end = min(end, sharedPrefix(n.logs[at], f.logs[at]))
	}
	if !slices.ContainsFunc(append(slices.Clone(l.isr), l.pending...), func(id model.NodeID) bool { return id != n.id }) {
		n.flushed[at] = end // alone, it flushes before it answers
	}
	if end > len(c.committed[at]) {
		c.counts.commits++
		c.committed[at] = slices.Clone(n.logs[at][:end])
	}
}

func sharedPrefix(a, b []entry) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// askISR has a leader ask for those that have all that it has.
func (c *cluster) askISR(n *node) {
	op := AlterISR{Broker: n.id, BrokerEpoch: n.epoch}
	var asked []*leading
	for _, at := range c.partitions() {
		p, l := c.led(n, at)
		if p == nil || l.asking || !c.calm && c.rand.IntN(2) == 0 {
			continue
		}
		again := l.pending
		l.pending, l.asking = nil, true
		change := model.ISRChange{Partition: at, LeaderEpoch: l.epoch, PartitionEpoch: l.pepoch}
		for _, id := range p.Replicas {
			f := c.brokers[id]
			in := id == n.id || c.follows(f, at, n.id, l.epoch) && slices.Equal(f.logs[at], n.logs[at])
			if again != nil { // what became of it is not known: the same once more
				in = slices.Contains(again, id)
			}
			if !in || id != n.id && !c.calm && again == nil && c.rand.IntN(8) == 0 {
				continue
			}
			change.ISR = append(change.ISR, model.Member{Node: id, Epoch: f.epoch})
			l.pending = append(l.pending, id)
		}
		op.Changes, asked = append(op.Changes, change), append(asked, l)
	}
	life := n.life
	c.send(op, func(a Answer) {
		for _, l := range asked {
			l.asking = false
		}
		for i, r := range a.ISR {
			l := asked[i]
			switch {
			case n.life != life || errors.Is(r.Err, model.ErrNotController):
			case r.Err == nil && r.PartitionEpoch > l.pepoch && r.LeaderEpoch == l.epoch:
				l.pepoch, l.isr, l.pending = r.PartitionEpoch, r.ISR, nil
			case r.Err == nil && r.PartitionEpoch == l.pepoch, errors.Is(r.Err, model.ErrIneligibleReplica):
				l.pending = nil
			}
		}
	})
}

func (c *cluster) partitions() []model.Partition {
	var out []model.Partition
	for t := range c.img.Topics() {
		for i := range t.Partitions {
			out = append(out, model.Partition{Topic: t.ID, Index: int32(i)})
		}
	}
	return out
}

// report says how long the logs are that are asked for.
func (c *cluster) report(n *node) {
	op := ReportLogs{Broker: n.id, Epoch: n.epoch}
	for _, at := range c.partitions() {
		if p, _, ok := c.images[n.view].Partition(at); ok && awaitsReports(p) && slices.Contains(p.LastKnownELR, n.id) {
			end := logEnd(at, n.logs[at])
			end.PartitionEpoch = p.PartitionEpoch
			op.Logs = append(op.Logs, end)
		}
	}
	if len(op.Logs) > 0 {
		c.send(op, nil)
	}
}

func logEnd(at model.Partition, log []entry) model.LogEnd {
	end := model.LogEnd{Partition: at, LastEpoch: model.NoEpoch, LEO: int64(len(log))}
	if len(log) > 0 {
		end.LastEpoch = log[len(log)-1].epoch
	}
	return end
}
