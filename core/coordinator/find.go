package coordinator

import (
	"context"
	"errors"
	"fmt"

	"github.com/brokerd/brokerd/core/model"
)

// The reasons for which nobody is told a coordinator, as they are counted.
const (
	ReasonCreation = "creation" // the offsets topic is not there, and cannot be made
	ReasonWaiting  = "waiting"  // it is being made
	ReasonLeader   = "leader"   // the group's partition has no leader
)

// creation is an attempt to make the offsets topic. One caller makes it for all.
type creation struct {
	done chan struct{}
	// Once done is closed:
	err    error
	gaveUp bool // the caller who made it, and not the controller
}

// Coordinator implements the port of the edge. Whoever waited for the topic waits for
// the group's partition, too: clients take much longer to come back when they are told
// that it is being loaded.
func (m *Manager) Coordinator(ctx context.Context, group string) (model.NodeID, error) {
	for waited := false; ; waited = true {
		m.mu.Lock()
		changed := m.changed
		m.mu.Unlock()
		v := m.view.Load()
		if v.partitions > 0 {
			node, err := m.leader(v, group)
			if waited && err == nil && m.mustLoad(node, PartitionOf(group, v.partitions)) && waitFor(ctx, changed) {
				continue
			}
			return node, err
		}
		if v.img == nil {
			if !waitFor(ctx, changed) {
				return model.NoNode, m.notAvailable(ReasonWaiting, "the metadata is not there yet")
			}
			continue
		}
		if ctx.Err() != nil {
			return model.NoNode, m.notAvailable(ReasonWaiting, fmt.Sprintf("topic %s is not there", model.OffsetsTopic))
		}
		if err := m.create(ctx); errors.Is(ctx.Err(), context.Canceled) {
			m.deps.Events.NotAvailable(ReasonWaiting) // whoever asked has gone: nothing is wrong
			return model.NoNode, fmt.Errorf("nobody waits for topic %s: %w", model.OffsetsTopic, model.ErrCoordinatorNotAvailable)
		} else if err != nil {
			return model.NoNode, m.notAvailable(ReasonCreation, fmt.Sprintf("topic %s cannot be made: %s", model.OffsetsTopic, err))
		}
		if !waitFor(ctx, changed) {
			return model.NoNode, m.notAvailable(ReasonWaiting, fmt.Sprintf("topic %s is being made", model.OffsetsTopic))
		}
	}
}

// mustLoad reports whether this broker coordinates the groups of a partition, and does
// not serve them yet.
func (m *Manager) mustLoad(node model.NodeID, index int32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return node == m.cfg.NodeID && !m.served[index]
}

// waitFor waits until something happens or ctx ends.
func waitFor(ctx context.Context, happens <-chan struct{}) bool {
	select {
	case <-happens:
		return true
	case <-ctx.Done():
		return false
	}
}

// leader is who leads the group's partition.
func (m *Manager) leader(v *view, group string) (model.NodeID, error) {
	p := model.Partition{Topic: v.topic, Index: PartitionOf(group, v.partitions)}
	reg, _, ok := v.img.Partition(p)
	if !ok || reg.Leader == model.NoNode {
		return model.NoNode, m.notAvailable(ReasonLeader, fmt.Sprintf("partition %d of %s has no leader", p.Index, model.OffsetsTopic))
	}
	return reg.Leader, nil
}

// create asks for the topic, or waits for whoever does.
func (m *Manager) create(ctx context.Context) error {
	m.mu.Lock()
	c := m.creating
	first := c == nil
	if first {
		c = &creation{done: make(chan struct{})}
		m.creating = c
	}
	m.mu.Unlock()
	if !first {
		if !waitFor(ctx, c.done) {
			return nil // it is still being made
		}
		if c.gaveUp {
			return m.create(ctx)
		}
		return c.err
	}
	c.err = m.createNow(ctx)
	c.gaveUp = c.err != nil && ctx.Err() != nil
	m.mu.Lock()
	m.creating = nil
	m.mu.Unlock()
	close(c.done)
	return c.err
}

func (m *Manager) createNow(ctx context.Context) error {
	if m.view.Load().partitions > 0 {
		return nil // somebody else was faster
	}
	results, err := m.deps.Controller.CreateTopics(ctx, []model.NewTopic{m.cfg.Topic.New()}, false)
	if err != nil {
		return err
	}
	if r := results[0]; errors.Is(r.Err, model.ErrTopicExists) {
		return nil // another broker was faster
	} else if r.Err != nil {
		return r.Err
	}
	m.deps.Logger.Info("made the topic of committed offsets", "topic", model.OffsetsTopic,
		"partitions", results[0].Partitions, "replication_factor", results[0].ReplicationFactor)
	return nil
}

// notAvailable counts the reason, logs it now and then, and makes the error of it.
func (m *Manager) notAvailable(reason, text string) error {
	m.deps.Events.NotAvailable(reason)
	now := m.deps.Clock.Now()
	m.mu.Lock()
	r := m.troubles[reason]
	if r == nil {
		r = &rare{}
		m.troubles[reason] = r
	}
	times, log := r.tell(now)
	m.mu.Unlock()
	if log {
		m.deps.Logger.Warn("clients are not told their groups' coordinator", "reason", reason, "times", times, "err", text)
	}
	return fmt.Errorf("%s: %w", text, model.ErrCoordinatorNotAvailable)
}
