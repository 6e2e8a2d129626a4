package controller

import (
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// electionMode says whether a topic's unclean.leader.election.enable counts.
type electionMode bool

const (
	cleanOnly    electionMode = false
	asConfigured electionMode = true
)

// withoutBroker takes a broker out of every ISR and gives what it leads to
// others, before it is fenced, removed or registered anew. The last member of
// an ISR stays in it: only it is known to have everything.
func (d *decision) withoutBroker(id model.NodeID, mode electionMode) {
	d.eachPartition(func(t *image.Topic, p *image.Partition) (change, bool) {
		if !slices.Contains(p.ISR, id) && p.Leader != id {
			return change{}, false
		}
		c := change{isr: p.ISR}
		if len(p.ISR) > 1 {
			c.isr = slices.DeleteFunc(slices.Clone(p.ISR), func(n model.NodeID) bool { return n == id })
		}
		alive := func(n model.NodeID) bool { return n != id && d.alive(n) }
		c.leader, c.isr = elect(p, c.isr, alive, mode == asConfigured && d.unclean(t))
		return c, true
	})
}

// electLeaderless elects again where nobody leads, now that a broker serves or a
// setting allows more.
func (d *decision) electLeaderless() {
	d.eachPartition(func(t *image.Topic, p *image.Partition) (change, bool) {
		if p.Leader != model.NoNode {
			return change{}, false
		}
		var c change
		c.leader, c.isr = elect(p, p.ISR, d.alive, d.unclean(t))
		return c, true
	})
}

// change is what becomes of a partition's leader and ISR.
type change struct {
	leader model.NodeID
	isr    []model.NodeID
}

// eachPartition asks decide about each partition, and emits what differs.
func (d *decision) eachPartition(decide func(*image.Topic, *image.Partition) (change, bool)) {
	var records []image.Record
	for t := range d.img.Topics() {
		for n := range t.Partitions {
			p := &t.Partitions[n]
			c, ok := decide(t, p)
			if !ok {
				continue
			}
			r := &image.PartitionChangeRecord{Partition: model.Partition{Topic: t.ID, Index: int32(n)}}
			if !slices.Equal(c.isr, p.ISR) {
				r.ISR = c.isr
			}
			if c.leader != p.Leader {
				r.LeaderChange, r.Leader = true, c.leader
			}
			if r.ISR != nil || r.LeaderChange {
				records = append(records, r)
			}
		}
	}
	d.emit(records...)
}

// elect is Kafka's clean election: the leader stays while it may; else the first
// of the assignment that is in sync and alive. Nobody leads when there is none,
// unless unclean election is on: then the first that is alive, alone in the ISR.
func elect(p *image.Partition, isr []model.NodeID, alive func(model.NodeID) bool, unclean bool) (model.NodeID, []model.NodeID) {
	may := func(n model.NodeID) bool { return slices.Contains(isr, n) && alive(n) }
	if p.Leader != model.NoNode && may(p.Leader) {
		return p.Leader, isr
	}
	if i := slices.IndexFunc(p.Replicas, may); i >= 0 {
		return p.Replicas[i], isr
	}
	if i := slices.IndexFunc(p.Replicas, alive); unclean && i >= 0 {
		return p.Replicas[i], []model.NodeID{p.Replicas[i]}
	}
	return model.NoNode, isr
}

func (d *decision) alive(n model.NodeID) bool {
	b, ok := d.img.Broker(n)
	return ok && !b.Fenced
}

func (d *decision) unclean(t *image.Topic) bool {
	c, err := d.img.TopicConfig(t.Name, model.NoNode, d.cfg.TopicDefaults)
	return err == nil && c.UncleanElection
}
