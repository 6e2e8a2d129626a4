package controller

import (
	"fmt"
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// rebalanceMax bounds the leaders that one proposal moves back.
const rebalanceMax = 1000

// prefer makes the first of the assignment the leader, where it is in sync and eligible.
func (e *edit) prefer() bool {
	first := e.next.Replicas[0]
	if e.was.Leader == first || !slices.Contains(e.next.ISR, first) || !e.d.eligible(&e.next, first) {
		return false
	}
	e.preferred = true
	return true
}

// electLeaders answers for each partition. (KIP-460)
func (d *decision) electLeaders(op ElectLeaders) Answer {
	errs := make([]error, len(op.Partitions))
	asked := map[model.Partition]bool{}
	var records []image.Record
	for i, at := range op.Partitions {
		p, t, ok := d.img.Partition(at)
		switch {
		case !ok:
			errs[i] = fmt.Errorf("partition %s: %w", at, model.ErrUnknownTopicOrPartition)
			continue
		case asked[at]:
			errs[i] = fmt.Errorf("partition %s-%d is named more than once: %w", t.Name, at.Index, model.ErrInvalidRequest)
			continue
		}
		asked[at] = true
		e := d.edit(t, at.Index)
		switch {
		case op.Unclean && p.Leader != model.NoNode:
			errs[i] = fmt.Errorf("partition %s-%d is led by broker %d: %w", t.Name, at.Index, p.Leader, model.ErrElectionNotNeeded)
			continue
		case op.Unclean:
			e.unclean = true
		case p.Leader == p.Replicas[0]:
			errs[i] = fmt.Errorf("partition %s-%d is led by its preferred replica %d: %w", t.Name, at.Index, p.Leader, model.ErrElectionNotNeeded)
			continue
		default:
			e.mode = asConfigured
			e.prefer()
		}
		r := e.finish()
		switch {
		case op.Unclean && e.next.Leader == model.NoNode:
			errs[i] = fmt.Errorf("partition %s-%d: none of the replicas %v is up: start one of them: %w", t.Name, at.Index, p.Replicas, model.ErrEligibleLeadersNotAvailable)
		case !op.Unclean && e.next.Leader != p.Replicas[0]:
			errs[i] = fmt.Errorf("partition %s-%d: the preferred replica %d is not in sync, or not up: start it, and try again when it is in sync: %w", t.Name, at.Index, p.Replicas[0], model.ErrPreferredLeaderNotAvailable)
		}
		if r != nil {
			records = append(records, r)
		}
	}
	d.emit(records...)
	return Answer{Errs: errs}
}

// rebalance moves leadership back to the preferred leaders of brokers that lack more than
// their share. It says whether there are more than one proposal takes.
func (d *decision) rebalance() (more bool) {
	due, led := map[model.NodeID]int{}, map[model.NodeID]int{}
	for t := range d.img.Topics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			due[p.Replicas[0]]++
			if p.Leader == p.Replicas[0] {
				led[p.Replicas[0]]++
			}
		}
	}
	moved := 0
	d.eachPartition(func(t *image.Topic, n int32, p *image.Partition) *edit {
		first := p.Replicas[0]
		if (due[first]-led[first])*100 <= due[first]*d.cfg.RebalanceAbove || p.Leader == first {
			return nil
		}
		e := d.edit(t, n)
		if !e.prefer() {
			return nil
		}
		if moved == rebalanceMax {
			more = true
			return nil
		}
		moved++
		return e
	})
	if moved > 0 {
		d.tell(Notice{Broker: model.NoNode, Text: fmt.Sprintf("leadership of %d partitions went back to their preferred leaders", moved)})
	}
	return more
}
