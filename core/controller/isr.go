package controller

import (
	"fmt"
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// alterISR changes the ISRs of partitions as their leader asks, each on its own, and all
// that is changed in one proposal. The checks are Kafka's, in its order. (AlterPartition:
// KIP-497, KIP-841, KIP-903)
func (d *decision) alterISR(op AlterISR) Answer {
	if _, err := d.broker(op.Broker, op.BrokerEpoch); err != nil {
		return Answer{Err: err}
	}
	results := make([]model.ISRResult, len(op.Changes))
	asked := map[model.Partition]bool{}
	var records []image.Record
	for i, c := range op.Changes {
		results[i].Leader = model.NoNode
		if asked[c.Partition] {
			results[i].Err = fmt.Errorf("partition %s is named more than once: %w", c.Partition, model.ErrInvalidRequest)
			continue
		}
		asked[c.Partition] = true
		p, t, err := d.checkISR(op.Broker, c)
		if err != nil {
			results[i].Err = err
			continue
		}
		e := d.edit(t, c.Partition.Index)
		// Also where nothing changes: by the next partition epoch what the leader asked before,
		// and never heard of, can not be committed any more.
		e.settled, e.raise = true, true
		e.next.ISR = inAssignmentOrder(p.Replicas, c.ISR)
		e.falls(c.Lost)
		if r := e.finish(); r != nil {
			records = append(records, r)
		}
	}
	before := d.img
	d.emit(records...)
	for i, c := range op.Changes {
		if results[i].Err == nil {
			was, _, _ := before.Partition(c.Partition)
			results[i] = d.isrResult(op.Broker, c.Partition, was)
		}
	}
	return Answer{ISR: results}
}

// isrResult is what a leader hears. Where its change has ended a reassignment it is told by the
// metadata alone: with the ISR the replicas have changed, and what its minimum is.
func (d *decision) isrResult(leader model.NodeID, at model.Partition, was *image.Partition) model.ISRResult {
	p, t, _ := d.img.Partition(at)
	if p.Leader != leader {
		return model.ISRResult{Leader: model.NoNode, Err: fmt.Errorf("partition %s-%d: the change made broker %d the leader: %w", t.Name, at.Index, p.Leader, model.ErrNewLeaderElected)}
	}
	if len(p.Replicas) != len(was.Replicas) || p.Counted() != was.Counted() {
		return model.ISRResult{Leader: model.NoNode, Err: fmt.Errorf("partition %s-%d: the change ended a reassignment: %w", t.Name, at.Index, model.ErrInvalidUpdateVersion)}
	}
	return model.ISRResult{Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, ISR: slices.Clone(p.ISR)}
}

// checkISR says whether a leader may have the ISR that it asks for.
func (d *decision) checkISR(from model.NodeID, c model.ISRChange) (*image.Partition, *image.Topic, error) {
	if _, ok := d.img.Topic(c.Partition.Topic); !ok {
		return nil, nil, fmt.Errorf("topic ID %s: %w", c.Partition.Topic, model.ErrUnknownTopicID)
	}
	p, t, ok := d.img.Partition(c.Partition)
	if !ok {
		return nil, nil, fmt.Errorf("partition %s: %w", c.Partition, model.ErrUnknownTopicOrPartition)
	}
	refuse := func(err error, why string, args ...any) (*image.Partition, *image.Topic, error) {
		return nil, nil, fmt.Errorf("partition %s-%d: %s: %w", t.Name, c.Partition.Index, fmt.Sprintf(why, args...), err)
	}
	switch {
	case c.LeaderEpoch > p.LeaderEpoch || c.PartitionEpoch > p.PartitionEpoch:
		return refuse(model.ErrNotController, "leader epoch %d and partition epoch %d are above %d and %d: another controller knows more",
			c.LeaderEpoch, c.PartitionEpoch, p.LeaderEpoch, p.PartitionEpoch)
	case c.LeaderEpoch < p.LeaderEpoch:
		return refuse(model.ErrFencedLeaderEpoch, "leader epoch %d is over: it is %d", c.LeaderEpoch, p.LeaderEpoch)
	case from != p.Leader:
		return refuse(model.ErrInvalidRequest, "broker %d does not lead it: broker %d does", from, p.Leader)
	case c.PartitionEpoch < p.PartitionEpoch:
		return refuse(model.ErrInvalidUpdateVersion, "partition epoch %d is over: it is %d", c.PartitionEpoch, p.PartitionEpoch)
	}
	if i := slices.IndexFunc(c.Lost, func(n model.NodeID) bool { return !slices.Contains(p.Replicas, n) }); i >= 0 {
		return refuse(model.ErrInvalidRequest, "broker %d is not one of the replicas %v", c.Lost[i], p.Replicas)
	}
	leads := slices.Contains(c.Lost, p.Leader)
	for i, m := range c.ISR {
		if !slices.Contains(p.Replicas, m.Node) {
			return refuse(model.ErrInvalidRequest, "broker %d is not one of the replicas %v", m.Node, p.Replicas)
		}
		if slices.ContainsFunc(c.ISR[:i], func(o model.Member) bool { return o.Node == m.Node }) {
			return refuse(model.ErrInvalidRequest, "broker %d is named twice", m.Node)
		}
		if slices.Contains(c.Lost, m.Node) {
			return refuse(model.ErrInvalidRequest, "broker %d cannot be in sync: its log lacks what it had", m.Node)
		}
		leads = leads || m.Node == p.Leader
	}
	if !leads {
		return refuse(model.ErrInvalidRequest, "the leader %d is not in the ISR that it asks for", p.Leader)
	}
	for _, m := range c.ISR {
		// One that is in sync, and that its leader has not heard from, has begun no other life
		// under this partition epoch.
		unheard := m.Epoch == model.NoBrokerEpoch && slices.Contains(p.ISR, m.Node)
		if b, ok := d.img.Broker(m.Node); !ok || b.Epoch != m.Epoch && !unheard || !d.eligible(p, m.Node) {
			return refuse(model.ErrIneligibleReplica, "broker %d may not be in sync: it is fenced, shutting down, or in another life than %d", m.Node, m.Epoch)
		}
	}
	return p, t, nil
}

// falls takes replicas for such as may lack what they had, by their leader's word. Where the
// leader is one, it leads no more under this leader epoch, under which its log went back.
func (e *edit) falls(lost []model.NodeID) {
	counted := func(n model.NodeID) bool { return slices.Contains(e.was.ISR, n) || slices.Contains(e.was.ELR, n) }
	e.lost = without(lost, func(n model.NodeID) bool { return !counted(n) })
	e.renew = slices.Contains(lost, e.was.Leader)
	if len(e.lost) > 0 {
		e.d.tell(Notice{Warn: true, Broker: e.was.Leader, Topic: e.t.Name, Partitions: []int32{e.at.Index},
			Text: fmt.Sprintf("the logs of replicas that were in sync lack what they had acknowledged, or cannot be read (%v)", e.lost)})
	}
}

func inAssignmentOrder(replicas []model.NodeID, members []model.Member) []model.NodeID {
	return without(replicas, func(n model.NodeID) bool {
		return !slices.ContainsFunc(members, func(m model.Member) bool { return m.Node == n })
	})
}
