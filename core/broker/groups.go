package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/api"
	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/coordinator"
	"github.com/brokerd/brokerd/core/group"
	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/quorum"
	"github.com/brokerd/brokerd/core/replica"
)

var _ api.Groups = (*coordinator.Manager)(nil)

func (b *Broker) newCoordinator(node *quorum.Node, manager *replica.Manager, incarnation [16]byte) (*coordinator.Manager, error) {
	cfg := coordinator.DefaultConfig()
	cfg.NodeID = model.NodeID(b.cfg.NodeID)
	g := b.cfg.Groups
	cfg.Groups = group.Settings{
		SessionMin: g.SessionMin, SessionMax: g.SessionMax, InitialDelay: g.InitialDelay, SizeMax: int(g.SizeMax),
		MetadataMax: int(g.MetadataMax), Retention: g.Retention, ExpiryEvery: g.ExpiryEvery, CommitTimeout: g.CommitTimeout,
	}
	cfg.Topic = b.offsetsTopic()
	cfg.Codec = batch.Codec(g.Codec)
	cfg.Static = b.cfg.TopicDefaults()
	b.metrics.Coordinator().Begin(coordinator.ReasonCreation, coordinator.ReasonWaiting, coordinator.ReasonLeader)
	c, err := coordinator.New(cfg, coordinator.Deps{
		Log: manager, Controller: node, Clock: b.deps.Clock, Logger: b.log, Events: b.metrics.Coordinator(), Incarnation: incarnation,
		Memory: group.Memory{
			Kept:   memory.NewTally(b.cfg.Memory / memoryParts * memoryGroups),
			Writes: memory.NewTally(b.cfg.Memory / memoryParts * memoryGroupWrites),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make the group coordinator: %w", err)
	}
	return c, nil
}

// censusTimeout is how long a scrape waits for the group coordinator.
const censusTimeout = time.Second

// countGroups sets the numbers of groups and members. Where the coordinator does not
// answer, they stay.
func (b *Broker) countGroups(ctx context.Context) {
	groups := b.now.Load().groups
	if groups == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, censusTimeout)
	defer cancel()
	census, err := groups.Census(ctx)
	if err != nil {
		b.log.Debug("groups were not counted", "err", err)
		return
	}
	counts := b.metrics.Coordinator()
	for state := model.GroupEmpty; state <= model.GroupStable; state++ {
		counts.Holds(state.String(), census.Groups[state])
	}
	counts.Members(census.Members)
	counts.Kept(groups.Memory())
}

func (b *Broker) offsetsTopic() coordinator.Topic {
	return coordinator.Topic{
		Partitions: b.cfg.Topics.OffsetsPartitions, ReplicationTarget: b.cfg.Topics.OffsetsReplication, SegmentBytes: b.cfg.Groups.SegmentBytes,
	}
}

// offsetsTopic is a controller that keeps clients from making or growing the offsets
// topic in a way that would lose what it is for.
type offsetsTopic struct {
	api.Controller
	topic coordinator.Topic
}

func (c offsetsTopic) CreateTopics(ctx context.Context, topics []model.NewTopic, validateOnly bool) ([]model.TopicResult, error) {
	all := make([]model.NewTopic, len(topics))
	for i, t := range topics {
		all[i] = c.topic.Complete(t)
	}
	return c.Controller.CreateTopics(ctx, all, validateOnly)
}

// CreatePartitions refuses the offsets topic: the number of its partitions says which
// of them holds a group, so that groups would lose sight of what they committed.
func (c offsetsTopic) CreatePartitions(ctx context.Context, more []model.MorePartitions, validateOnly bool) ([]error, error) {
	out := make([]error, len(more))
	var rest []model.MorePartitions
	var at []int
	for i, m := range more {
		if m.Topic == model.OffsetsTopic {
			out[i] = fmt.Errorf("groups are found by the number of partitions of %s, which therefore stays: %w", m.Topic, model.ErrInvalidPartitions)
			continue
		}
		rest, at = append(rest, m), append(at, i)
	}
	if len(rest) == 0 {
		return out, nil
	}
	errs, err := c.Controller.CreatePartitions(ctx, rest, validateOnly)
	if err != nil {
		return nil, err
	}
	for i, err := range errs {
		out[at[i]] = err
	}
	return out, nil
}
