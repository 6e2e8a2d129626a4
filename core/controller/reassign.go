package controller

import (
	"fmt"
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// alterReassignments gives partitions other replicas, or stops doing so, each on its own.
// Those that are added come first into sync; then the others go. It takes the place of a raise.
// (KIP-455)
func (d *decision) alterReassignments(op AlterReassignments) []error {
	errs := make([]error, len(op.Changes))
	asked := map[model.Partition]bool{}
	var records []image.Record
	for i, c := range op.Changes {
		if asked[c.Partition] {
			errs[i] = fmt.Errorf("partition %s is named more than once: %w", c.Partition, model.ErrInvalidRequest)
			continue
		}
		asked[c.Partition] = true
		_, t, ok := d.img.Partition(c.Partition)
		if !ok {
			errs[i] = fmt.Errorf("partition %s: %w", c.Partition, model.ErrUnknownTopicOrPartition)
			continue
		}
		e := d.edit(t, c.Partition.Index)
		if err := e.reassign(c.Replicas); err != nil {
			errs[i] = fmt.Errorf("partition %s-%d: %w", t.Name, c.Partition.Index, err)
			continue
		}
		r := e.finish()
		if e.was.Leader != model.NoNode && e.next.Leader == model.NoNode {
			errs[i] = fmt.Errorf("partition %s-%d: none of the replicas %v could lead: name one that is up and in sync (%v) among them, or wait until one is: %w", t.Name, c.Partition.Index, e.next.Replicas, e.was.ISR, model.ErrInvalidAssignment)
			continue
		}
		if r != nil {
			records = append(records, r)
		}
		if n := chosen(t, e.was, c.Replicas); n != e.was.Chosen || e.was.Raised {
			records = append(records, &image.PartitionTargetRecord{Partition: c.Partition, Chosen: n})
		}
	}
	d.emit(records...)
	return errs
}

// reassign begins to give the partition other replicas, or with none goes back to those
// that it had.
func (e *edit) reassign(target []model.NodeID) error {
	adding := func(n model.NodeID) bool { return slices.Contains(e.was.Adding, n) }
	before := without(e.was.Replicas, adding)
	if target == nil {
		if len(e.was.Adding) == 0 && len(e.was.Removing) == 0 {
			return model.ErrNoReassignment
		}
		target = before
	} else if err := e.d.checkTarget(target); err != nil {
		return err
	}
	in := func(list []model.NodeID) func(model.NodeID) bool {
		return func(n model.NodeID) bool { return slices.Contains(list, n) }
	}
	p := &e.next
	p.Adding = without(target, in(before))
	p.Removing = without(before, in(target))
	p.Raised = false
	e.assign(append(slices.Clone(target), p.Removing...))
	// Whoever was only being added may be the one that leads, or that did. Those that may have
	// lost something take nobody's place that has everything.
	had := len(e.was.ISR)+len(e.was.ELR) > 0
	dropped := without(e.was.LastKnownELR, in(p.Replicas))
	if len(e.complete()) == 0 && (had || len(e.known()) == 0 || len(dropped) > 0) {
		return fmt.Errorf("none of the replicas %v has everything: name one that has (of %v) among them: %w", p.Replicas, withEverything(e.was), model.ErrInvalidAssignment)
	}
	return nil
}

// withEverything are the replicas of which one has to stay.
func withEverything(p *image.Partition) []model.NodeID {
	if whole := slices.Concat(p.ISR, p.ELR); len(whole) > 0 {
		return whole
	}
	return p.LastKnownELR
}

func (d *decision) checkTarget(target []model.NodeID) error {
	if len(target) == 0 {
		return fmt.Errorf("no replicas: %w", model.ErrInvalidAssignment)
	}
	for i, n := range target {
		if slices.Contains(target[:i], n) {
			return fmt.Errorf("broker %d is named twice: %w", n, model.ErrInvalidAssignment)
		}
		if _, ok := d.img.Broker(n); !ok {
			return notRegistered(n)
		}
	}
	return nil
}

// assign gives the partition these replicas, each in the directory that it has, or that
// its broker puts new ones in. Others leave every list.
func (e *edit) assign(replicas []model.NodeID) {
	p := &e.next
	var dirs []model.DirectoryID
	for _, n := range replicas {
		if i := slices.Index(p.Replicas, n); i >= 0 {
			dirs = append(dirs, p.Directories[i])
			continue
		}
		dirs = append(dirs, e.d.defaultDirectory(n))
	}
	p.Replicas, p.Directories = replicas, dirs
	e.leave(func(n model.NodeID) bool { return !slices.Contains(replicas, n) })
}

// completeReassignment ends a reassignment once all of its target is in sync, and a raise once
// what it adds is.
func (e *edit) completeReassignment() {
	p := &e.next
	if len(p.Adding) == 0 && len(p.Removing) == 0 {
		return
	}
	target := without(p.Replicas, func(n model.NodeID) bool { return slices.Contains(p.Removing, n) })
	led := false
	for _, n := range target {
		if !slices.Contains(p.ISR, n) && !p.Raised {
			return
		}
		led = led || e.d.eligible(p, n)
	}
	if !led || p.Raised && !e.raised() {
		return
	}
	e.assign(target)
	p.Adding, p.Removing = nil, nil
	if p.Raised && e.d.cfg.RebalanceEvery > 0 {
		e.prefer()
	}
	p.Raised = false
}
