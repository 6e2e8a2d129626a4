package controller

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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
	trace   []string
	calm    bool         // no faults any more
	decided bytes.Buffer // every record proposed
	counts  struct{ commits, elections, eligible, longest, fenced, isr, reassigned, shutdowns int }
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

func (c *cluster) failf(format string, args ...any) {
	c.t.Helper()
	c.t.Fatalf("%s\n%s", strings.Join(c.trace[max(0, len(c.trace)-60):], "\n"), fmt.Sprintf(format, args...))
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
	c.ask(Heartbeat{Broker: n.id, Epoch: n.epoch, Offset: c.images[n.view].Offset, WantShutdown: n.leaves}, func(a Answer) {
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
	if len(l.isr) < image.EffectiveMinISR(conf.MinISR, len(p.Replicas), int(t.ReplicationFactorTarget)) {
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
	c.ask(op, func(a Answer) {
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
			op.Logs = append(op.Logs, logEnd(at, n.logs[at]))
		}
	}
	if len(op.Logs) > 0 {
		c.ask(op, nil)
	}
}

func logEnd(at model.Partition, log []entry) model.LogEnd {
	end := model.LogEnd{Partition: at, LastEpoch: model.NoEpoch, LEO: int64(len(log))}
	if len(log) > 0 {
		end.LastEpoch = log[len(log)-1].epoch
	}
	return end
}

// check holds a change of the metadata against the rules.
func (c *cluster) check(was, is *image.Image) {
	for t := range is.Topics() {
		for i := range t.Partitions {
			at := model.Partition{Topic: t.ID, Index: int32(i)}
			p := &t.Partitions[i]
			old, _, ok := was.Partition(at)
			if !ok {
				old = &image.Partition{Leader: model.NoNode, LeaderEpoch: -1, PartitionEpoch: -1, ISR: p.ISR}
			}
			c.checkEpochs(at, old, p)
			c.checkISR(is, at, old, p)
			if p.Leader != old.Leader && p.Leader != model.NoNode && ok {
				c.checkLeader(was, is, at, old, p)
			}
		}
	}
	for b := range is.Brokers() {
		if old, ok := was.Broker(b.ID); ok && b.Fenced && !old.Fenced {
			c.counts.fenced++
		}
	}
}

func (c *cluster) checkEpochs(at model.Partition, old, p *image.Partition) {
	same := p.Leader == old.Leader && slices.Equal(p.ISR, old.ISR) && slices.Equal(p.Replicas, old.Replicas) && slices.Equal(p.ELR, old.ELR)
	switch {
	case p.PartitionEpoch < old.PartitionEpoch || !same && p.PartitionEpoch == old.PartitionEpoch:
		c.failf("%s: partition epoch %d after %d: %+v", at, p.PartitionEpoch, old.PartitionEpoch, p)
	case p.LeaderEpoch < old.LeaderEpoch || p.Leader != old.Leader && p.LeaderEpoch == old.LeaderEpoch:
		c.failf("%s: leader epoch %d after %d: %+v", at, p.LeaderEpoch, old.LeaderEpoch, p)
	}
	if c.leaders[at] == nil {
		c.leaders[at] = map[model.LeaderEpoch]model.NodeID{}
	}
	if n, ok := c.leaders[at][p.LeaderEpoch]; ok && n != p.Leader {
		c.failf("%s: leader epoch %d is of %d and of %d", at, p.LeaderEpoch, n, p.Leader)
	}
	c.leaders[at][p.LeaderEpoch] = p.Leader
	if len(old.Adding)+len(old.Removing) > 0 && len(p.Adding)+len(p.Removing) == 0 {
		c.counts.reassigned++
	}
}

func (c *cluster) checkISR(is *image.Image, at model.Partition, old, p *image.Partition) {
	for _, id := range p.ISR {
		b, ok := is.Broker(id)
		dir := model.DirectoryID{}
		if i := slices.Index(p.Replicas, id); i < 0 {
			c.failf("%s: %d is in sync, and no replica: %+v", at, id, p)
		} else {
			dir = p.Directories[i]
		}
		if fresh := !slices.Contains(old.ISR, id); fresh && (!ok || b.Fenced || b.ShuttingDown || !slices.Contains(b.Directories, dir)) {
			c.failf("%s: %d joins the ISR, and may not: %+v, %+v", at, id, b, p)
		}
		if slices.Contains(p.ELR, id) || slices.Contains(p.LastKnownELR, id) {
			c.failf("%s: %d is in the ISR and the ELR: %+v", at, id, p)
		}
	}
	if !slices.Equal(old.ISR, p.ISR) {
		c.counts.isr++
	}
	switch {
	case p.Leader != model.NoNode && !slices.Contains(p.ISR, p.Leader):
		c.failf("%s: the leader is not in sync: %+v", at, p)
	case len(p.ISR)+len(p.ELR)+len(p.LastKnownELR) == 0:
		c.failf("%s: nobody is known to have it: %+v", at, p)
	}
	if b, ok := is.Broker(p.Leader); p.Leader != model.NoNode && (!ok || b.Fenced) {
		c.failf("%s: its leader is fenced: %+v", at, p)
	}
}

// checkLeader: whoever is elected was in the ISR or the ELR, and has everything; or all of
// those may have lost something, and it has the longest log of them.
func (c *cluster) checkLeader(was, is *image.Image, at model.Partition, old, p *image.Partition) {
	c.counts.elections++
	log := c.brokers[p.Leader].logs[at]
	c.note("%s: %d leads in epoch %d: %+v after %+v", at, p.Leader, p.LeaderEpoch, p, old)
	if b, ok := is.Broker(p.Leader); !ok || b.Fenced || b.ShuttingDown {
		c.failf("%s: elected a leader that is not alive: %+v, %+v", at, p, b)
	}
	for _, id := range p.ISR {
		if b, ok := is.Broker(id); !ok || b.Fenced || b.ShuttingDown {
			c.failf("%s: a new leader has an ISR with %d, which is not alive: %+v", at, id, p)
		}
	}
	if c.unclean[at] {
		return
	}
	completed := len(old.Adding)+len(old.Removing) > 0 && len(p.Adding)+len(p.Removing) == 0 && old.Leader != model.NoNode
	switch {
	case slices.Contains(old.ISR, p.Leader) || slices.Contains(old.ELR, p.Leader) || completed:
		if slices.Contains(old.ELR, p.Leader) {
			c.counts.eligible++
		}
		// It is judged when it begins to lead: it may be dead by now.
		c.alone[at] = len(old.ISR) == 1 && len(old.ELR)+len(old.LastKnownELR) == 0
	case awaitsReports(old) && slices.Contains(old.LastKnownELR, p.Leader):
		c.counts.longest++
		kept := sharedPrefix(log, c.committed[at])
		// Unless it has died since it said so: it is judged in its next life.
		b, _ := is.Broker(p.Leader)
		same := c.brokers[p.Leader].up && c.brokers[p.Leader].life == b.Incarnation[0]
		for _, id := range old.LastKnownELR {
			other := c.brokers[id].logs[at]
			if same && (compareEnds(logEnd(at, other), logEnd(at, log)) > 0 || sharedPrefix(other, c.committed[at]) > kept) {
				c.failf("%s: leader %d has %v, and %d had %v", at, p.Leader, log, id, other)
			}
		}
		c.committed[at] = c.committed[at][:kept] // the loss was said aloud
	default:
		c.failf("%s: %d was neither in the ISR nor in the ELR: %+v, after %+v", at, p.Leader, p, old)
	}
}

// turn does one thing of many.
func (c *cluster) turn() {
	ids := []model.NodeID{1, 2, 3, 4}
	n := c.brokers[ids[c.rand.IntN(4)]]
	switch r := c.rand.IntN(100); {
	case r < 20 && len(c.proposals) > 0:
		c.commitOne()
	case r < 45:
		for _, at := range c.partitions() {
			c.write(n, at)
		}
	case r < 57:
		if n.up {
			c.askISR(n)
		}
	case r < 75:
		c.everybodyBeats()
	case r < 83:
		if n.up {
			n.view = max(n.view, c.rand.IntN(len(c.images)))
			c.report(n)
		}
	case r < 85:
		c.changeController()
	case r < 89:
		c.live(n)
	case r < 92:
		c.administer()
	case r < 93 && n.up:
		n.leaves = true
	case r < 94:
		c.elapse(time.Minute, true)
	default:
		c.elapse(time.Duration(c.rand.IntN(400))*time.Millisecond, false)
	}
}

func (c *cluster) everybodyBeats() {
	for id := range model.NodeID(4) {
		if n := c.brokers[id+1]; n.up && c.rand.IntN(8) > 0 {
			c.beat(n)
		}
	}
}

// elapse lets time go by for the controller, which is awake or paused.
func (c *cluster) elapse(d time.Duration, paused bool) {
	for end := c.now.Add(d); !paused; {
		at, ok := c.machine.Deadline()
		if !ok || at.After(end) {
			c.now = end
			return
		}
		c.now = at
		c.do(Due{})
	}
	c.now = c.now.Add(d)
	c.do(Due{})
}

// live ends a broker's life, or begins its next.
func (c *cluster) live(n *node) {
	switch {
	case !n.up:
		c.note("%d starts", n.id)
		c.start(n)
	case c.rand.IntN(12) == 0:
		c.note("all lose power")
		for id := range model.NodeID(4) {
			c.powerCut(c.brokers[id+1])
		}
	case c.rand.IntN(5) == 0:
		c.note("%d loses power", n.id)
		c.powerCut(n)
	case c.rand.IntN(8) == 0 && c.spare(n):
		c.note("%d is wiped", n.id)
		c.kill(n)
		n.dir += 10
		n.logs, n.flushed, n.damaged = map[model.Partition][]entry{}, map[model.Partition]int{}, map[model.Partition]bool{}
	default:
		c.note("%d is killed", n.id)
		c.kill(n)
	}
}

func (c *cluster) powerCut(n *node) {
	if !n.up {
		return
	}
	c.kill(n)
	n.lost = true
	for _, at := range c.partitions() {
		if left := n.flushed[at] + c.rand.IntN(len(n.logs[at])-n.flushed[at]+1); left < len(n.logs[at]) {
			n.logs[at], n.damaged[at] = n.logs[at][:left], true
		}
		n.flushed[at] = len(n.logs[at])
	}
}

// spare says whether others have all that n has, so that a wiped disk costs nothing that
// could have been kept.
func (c *cluster) spare(n *node) bool {
	for _, at := range c.partitions() {
		p, _, _ := c.img.Partition(at)
		others := 0
		for _, id := range append(slices.Clone(p.ISR), p.ELR...) {
			if i := slices.Index(p.Replicas, id); id != n.id && p.Directories[i] == (model.DirectoryID{c.brokers[id].dir}) {
				others++
			}
		}
		if others == 0 && slices.Contains(p.Replicas, n.id) {
			return false
		}
	}
	return true
}

func (c *cluster) administer() {
	at := c.partitions()[c.rand.IntN(len(c.partitions()))]
	switch c.rand.IntN(4) {
	case 0:
		one := fmt.Sprint(1 + c.rand.IntN(3))
		c.ask(AlterConfigs{Changes: []model.ConfigChange{{
			Resource: model.Resource{Type: model.ResourceTopic, Name: []string{"t", "u"}[c.rand.IntN(2)]},
			Ops:      []model.ConfigOp{{Key: image.MinISRKey, Kind: model.ConfigOpKind(c.rand.IntN(2)), Value: &one}},
		}}}, nil)
	case 1:
		c.ask(ElectLeaders{Partitions: c.partitions()}, nil)
	default:
		target := []model.NodeID{1, 2, 3, 4}
		c.rand.Shuffle(4, func(i, j int) { target[i], target[j] = target[j], target[i] })
		target = target[:1+c.rand.IntN(4)]
		if c.rand.IntN(3) == 0 {
			target = nil
		}
		c.note("reassign %s to %v", at, target)
		c.ask(AlterReassignments{Changes: []model.Reassignment{{Partition: at, Replicas: target}}}, nil)
	}
}

// recover ends the faults. Then everything is led and in sync within a bound.
func (c *cluster) recover() {
	whole := func() bool {
		for _, at := range c.partitions() {
			if p, _, _ := c.img.Partition(at); p.Leader == model.NoNode || len(p.ISR) < len(p.Replicas) {
				return false
			}
		}
		return true
	}
	c.calm = true
	for round := range 100 {
		for id := range model.NodeID(4) {
			n := c.brokers[id+1]
			if n.up && n.leaves {
				c.kill(n)
			}
			if !n.up {
				c.start(n)
			}
			n.view = len(c.images) - 1
			c.beat(n)
			c.report(n)
			c.settle()
			n.view = len(c.images) - 1
			for _, at := range c.partitions() {
				c.write(n, at)
			}
			c.askISR(n)
			c.settle()
		}
		if whole() {
			return
		}
		if round == 50 {
			c.uncleanly()
		}
		c.elapse(200*time.Millisecond, false)
		c.settle()
	}
	for _, at := range c.partitions() {
		p, _, _ := c.img.Partition(at)
		c.note("%s: %+v", at, p)
	}
	c.failf("faults are over, and not everything is served")
}

// uncleanly is the operator's way out, where everybody who had everything is wiped.
func (c *cluster) uncleanly() {
	var stuck []model.Partition
	for _, at := range c.partitions() {
		p, _, _ := c.img.Partition(at)
		if p.Leader != model.NoNode {
			continue
		}
		stuck = append(stuck, at)
		for i, id := range p.Replicas {
			had := slices.Contains(p.ISR, id) || slices.Contains(p.ELR, id) || slices.Contains(p.LastKnownELR, id)
			if had && p.Directories[i] == (model.DirectoryID{c.brokers[id].dir}) {
				c.failf("%s: nobody leads, though %d could: %+v", at, id, p)
			}
		}
		c.note("%s: the operator has anybody lead", at)
		c.unclean[at], c.committed[at] = true, nil
	}
	c.ask(ElectLeaders{Partitions: stuck, Unclean: true}, nil)
	c.settle()
	clear(c.unclean)
}

// Whatever brokers and controllers do, and lose: epochs rise, an epoch has one leader, the
// ISR holds only whom it may, nobody is elected who lacks what clients were told of, what
// is replayed is what was decided, and in the end everything is served. One seed decides
// the same, byte for byte.
func TestClusterKeepsWhatWasCommitted(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 60
	}
	var sum [8]int
	run := func(t *testing.T, seed uint64) *cluster {
		c := newCluster(t, seed)
		for range 600 {
			c.turn()
		}
		c.recover()
		return c
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := run(t, seed)
			if seed%30 == 0 {
				if again := run(t, seed); !bytes.Equal(again.decided.Bytes(), c.decided.Bytes()) {
					t.Errorf("decided otherwise: %s", hex.EncodeToString(again.decided.Bytes()[:32]))
				}
			}
			for i, n := range []int{c.counts.commits, c.counts.elections, c.counts.eligible, c.counts.longest, c.counts.fenced, c.counts.isr, c.counts.reassigned, c.counts.shutdowns} {
				sum[i] += n
			}
		})
	}
	t.Logf("%d seeds: commits, elections, of the ELR, of the longest log, fenced, ISR changes, reassignments, shutdowns: %v", seeds, sum)
	for i, n := range sum {
		if n < int(seeds)/4 {
			t.Errorf("count %d is %d of %d seeds: too little happened", i, n, seeds)
		}
	}
}
