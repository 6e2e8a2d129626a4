package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// checkRaise: a raise adds one replica to those that a partition below its target has, on a
// broker that is alive; not too many are under way; what is asked of its ISR is never less
// than it was, nor more than is in sync; and it ends with who was added in sync, unless the broker has
// gone or an operator has asked for something else.
func (c *cluster) checkRaise(was, is *image.Image, at model.Partition, old, p *image.Partition) {
	_, t, _ := is.Partition(at)
	oldTopic, hadTopic := was.Topic(at.Topic)
	if !hadTopic || !old.Raised && !p.Raised {
		return
	}
	begun := p.Raised && (!old.Raised || !slices.Equal(p.Adding, old.Adding))
	least := func(img *image.Image, p *image.Partition) int {
		conf, err := img.TopicConfig(t.Name, model.NoNode, nil)
		if err != nil {
			c.failf("%v", err)
		}
		return image.EffectiveMinISR(conf.MinISR, p.Counted(), int(t.ReplicationFactorTarget))
	}
	switch {
	case begun:
		c.counts.raised++
		if !oldTopic.BelowTarget(old) || len(p.Adding) != 1 || len(p.Removing) > 0 || !c.alive(is, p.Adding[0]) ||
			len(p.Replicas) != old.Counted()+1 || p.Chosen != old.Chosen {
			c.failf("%s: raised to %+v after %+v", at, p, old)
		}
		if least(is, p) != least(is, old) {
			c.failf("%s: %d in sync are asked for of %+v, after %d of %+v", at, least(is, p), p, least(is, old), old)
		}
	case !p.Raised && len(p.Adding)+len(p.Removing) == 0 && len(p.Replicas) > old.Counted() && len(p.Replicas) == len(old.Replicas):
		if !slices.Contains(p.ISR, old.Adding[0]) || least(is, p) < least(is, old) || len(p.ISR) < least(is, p) {
			c.failf("%s: a raise ended with %+v, of which %d in sync are asked for, after %+v and %d", at, p, least(is, p), old, least(is, old))
		}
	}
	underWay := 0
	for i := range is.Topics() {
		for n := range i.Partitions {
			if i.Partitions[n].Raised {
				underWay++
			}
		}
	}
	if most := c.machine.cfg.RaisesMax; underWay > most {
		c.failf("%d raises are under way, of at most %d", underWay, most)
	}
}

func (c *cluster) alive(img *image.Image, n model.NodeID) bool {
	b, ok := img.Broker(n)
	return ok && !b.Fenced && !b.ShuttingDown
}

// Raised from one broker to three or six, in racks or not, partitions and leaders are spread, and
// no replica is where it need not be.
func TestRaiseSpreads(t *testing.T) {
	for _, tt := range []struct {
		brokers, racks, partitions int
	}{{3, 0, 50}, {3, 3, 7}, {6, 3, 50}, {5, 0, 3}, {6, 2, 12}} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			c := newRaising(t, tt.brokers, tt.racks, tt.partitions)
			for range 100 {
				c.elapse(200*time.Millisecond, false)
				c.everybody()
			}
			c.spread(tt.brokers, tt.racks)
		})
	}
}

// newRaising is a cluster of brokers that never die, with topics of the time when there was one.
func newRaising(t *testing.T, brokers, racks, partitions int) *cluster {
	c := &cluster{host: newHost(t, DefaultConfig(), image.Cluster{ID: "c", FeatureLevel: 1, ReplicationFactorTarget: 3, MinISRTarget: 2}), t: t,
		brokers: map[model.NodeID]*node{}, waits: map[CommandID]func(Answer){}, leaders: map[model.Partition]map[model.LeaderEpoch]model.NodeID{},
		alone: map[model.Partition]bool{}, unclean: map[model.Partition]bool{}, calm: true}
	c.images = []*image.Image{c.img}
	c.do(Lead{c.img})
	for i := range brokers {
		n := &node{id: model.NodeID(i + 1), life: 1, dir: byte(i + 1), up: true}
		c.brokers[n.id] = n
		r := Registration{ClusterID: "c", NodeID: n.id, Incarnation: [16]byte{1}, Directories: []model.DirectoryID{{n.dir}}, FeatureLevelMin: 1, FeatureLevelMax: 1}
		if racks > 0 {
			r.Rack = fmt.Sprint(i % racks)
		}
		c.ask(RegisterBroker{r}, func(a Answer) { n.epoch = a.Epoch })
		c.settle()
		c.everybody()
		if i == 0 {
			c.ask(CreateTopics{Topics: []model.NewTopic{
				{Name: model.OffsetsTopic, Partitions: int32(partitions), ReplicationFactor: -1, Internal: true},
				{Name: "a", Partitions: 6, ReplicationFactor: -1}, {Name: "b", Partitions: 1, ReplicationFactor: -1}, {Name: "c", Partitions: 1, ReplicationFactor: -1},
			}}, nil)
			c.settle()
		}
	}
	return c
}

// everybody beats, and has all replicas in sync.
func (c *cluster) everybody() {
	for _, id := range c.ids() {
		n := c.brokers[id]
		c.ask(Heartbeat{Broker: id, Epoch: n.epoch, Offset: c.img.Offset}, nil)
		c.settle()
		op := AlterISR{Broker: id, BrokerEpoch: n.epoch}
		for _, at := range c.partitions() {
			p, _, _ := c.img.Partition(at)
			if p.Leader != id || len(p.ISR) == len(p.Replicas) {
				continue
			}
			change := model.ISRChange{Partition: at, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
			for _, r := range p.Replicas {
				change.ISR = append(change.ISR, model.Member{Node: r, Epoch: c.brokers[r].epoch})
			}
			op.Changes = append(op.Changes, change)
		}
		c.ask(op, nil)
		c.settle()
	}
}

func (c *cluster) ids() (ids []model.NodeID) {
	for b := range c.img.Brokers() {
		ids = append(ids, b.ID)
	}
	return ids
}

// spread expects three replicas of each partition, in as many racks as there are, and as many
// leaders of each topic, and of all, on each broker, up to a few. Who is in the rack of the first
// broker, which keeps what it has, has nothing.
func (c *cluster) spread(brokers, racks int) {
	c.t.Helper()
	all, load := map[model.NodeID]int{}, map[model.NodeID]int{}
	for t := range c.img.Topics() {
		led := map[model.NodeID]int{}
		for i := range t.Partitions {
			p := &t.Partitions[i]
			in := map[string]bool{}
			for _, n := range p.Replicas {
				b, _ := c.img.Broker(n)
				in[b.Rack] = true
				load[n]++
			}
			led[p.Leader]++
			all[p.Leader]++
			if len(p.ISR) != 3 || len(p.Replicas) != 3 || p.Leader != p.Replicas[0] || len(in) < min(3, racks) {
				c.failf("%s-%d: %+v in %d racks", t.Name, i, p, len(in))
			}
		}
		share := (len(t.Partitions) + len(led) - 1) / len(led)
		for n, count := range led {
			if count > share+1 {
				c.failf("broker %d leads %d of %d partitions of %s: %v", n, count, len(t.Partitions), t.Name, led)
			}
		}
	}
	for _, id := range c.ids() {
		first, _ := c.img.Broker(1)
		if b, _ := c.img.Broker(id); id != 1 && racks > 0 && b.Rack == first.Rack {
			continue
		}
		if share := c.img.PartitionCount() / len(load); all[id] < share-2 || all[id] > share+3 {
			c.failf("broker %d leads %d of %d partitions: %v", id, all[id], c.img.PartitionCount(), all)
		}
		if share := 2 * c.img.PartitionCount() / len(load); load[id] < share/2 {
			c.failf("broker %d has %d replicas: %v", id, load[id], load)
		}
	}
}
