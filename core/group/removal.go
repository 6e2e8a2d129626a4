package group

import (
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// removalBytesMax bounds one write of tombstones, so that it fits into a batch: many
// offsets take several. A tombstone takes its key, and tombstoneBytes in a batch.
const (
	removalBytesMax = 64 << 10
	tombstoneBytes  = 40
)

// removal is the outcome of a write that removes offsets of a group, or the last of
// the group.
type removal struct {
	group *group
	keys  []model.TopicPartition
	whole bool // and the group itself
	again bool // refused, it is tried again when the group is next looked at
	job   *job
}

// job is a client's removal, which may take several writes.
type job struct {
	request    RequestID
	waits      bool
	left       int
	err        error
	partitions []error // of DeleteOffsets; nil: Delete
}

func (j *job) finish(err error, out *Effects) {
	if !j.waits {
		return
	}
	j.waits = false
	switch {
	case j.partitions == nil:
		respond(out, j.request, Done{err})
	case err != nil:
		respond(out, j.request, Deleted{model.DeletedOffsets{Err: err}})
	default:
		respond(out, j.request, Deleted{model.DeletedOffsets{Partitions: j.partitions}})
	}
}

// delete removes a group that nobody is a member of.
func (m *Machine) delete(now time.Time, in *Delete, out *Effects) {
	g, ok := m.groups[in.Group]
	var err error
	switch {
	case !ok:
		err = fmt.Errorf("there is no group %q: %w", in.Group, model.ErrGroupIDNotFound)
	case g.deleting:
		err = errDeleting(g)
	case g.state != model.GroupEmpty:
		err = fmt.Errorf("group %q has %d members: %w", g.id, len(g.members), model.ErrNonEmptyGroup)
	default:
		err = m.full()
	}
	if err != nil {
		respond(out, in.ID, Done{err})
		return
	}
	keys := g.keys(func(model.TopicPartition) bool { return true })
	if len(keys) == 0 && !g.recorded {
		m.dropGroup(g)
		respond(out, in.ID, Done{})
		return
	}
	m.remove(now, g, keys, removal{whole: true, job: &job{request: in.ID, waits: true}}, out)
}

// deleteOffsets removes offsets that no member needs.
func (m *Machine) deleteOffsets(now time.Time, in *DeleteOffsets, out *Effects) {
	g, err := m.checkDeleteOffsets(in.Group)
	if err != nil {
		respond(out, in.ID, Deleted{model.DeletedOffsets{Err: err}})
		return
	}
	j := &job{request: in.ID, waits: true, partitions: make([]error, len(in.Partitions))}
	wanted := make(map[model.TopicPartition]struct{})
	for i, key := range in.Partitions {
		if g.isSubscribed(key.Topic) {
			j.partitions[i] = fmt.Errorf("members of group %q read topic %q: %w", g.id, key.Topic, model.ErrGroupSubscribed)
			continue
		}
		wanted[key] = struct{}{}
	}
	keys := g.keys(func(key model.TopicPartition) bool { _, ok := wanted[key]; return ok })
	if len(keys) == 0 {
		j.finish(nil, out)
		return
	}
	m.remove(now, g, keys, removal{job: j}, out)
}

func (m *Machine) checkDeleteOffsets(id string) (*group, error) {
	if id == "" {
		return nil, fmt.Errorf("delete offsets: %w", model.ErrInvalidGroupID)
	}
	g, ok := m.groups[id]
	switch {
	case !ok:
		return nil, fmt.Errorf("there is no group %q: %w", id, model.ErrGroupIDNotFound)
	case g.deleting:
		return nil, errDeleting(g)
	case g.state != model.GroupEmpty && g.protocolType != consumerProtocol:
		return nil, fmt.Errorf("group %q has members that are no consumers: %w", id, model.ErrNonEmptyGroup)
	}
	return g, m.full()
}

func errDeleting(g *group) error {
	return fmt.Errorf("group %q is being deleted: %w", g.id, model.ErrCoordinatorNotAvailable)
}

// topicsDeleted removes the offsets of topics that are no more.
func (m *Machine) topicsDeleted(now time.Time, in *TopicsDeleted, out *Effects) {
	switch m.phase {
	case phaseLoading, phaseBroken:
		m.gone = append(m.gone, in.Topics...)
	case phaseServing:
		m.removeTopics(now, in.Topics, out)
	}
}

func (m *Machine) removeTopics(now time.Time, topics []string, out *Effects) {
	gone := make(map[string]struct{}, len(topics))
	for _, topic := range topics {
		gone[topic] = struct{}{}
	}
	for _, g := range m.order {
		keys := g.keys(func(key model.TopicPartition) bool { _, ok := gone[key.Topic]; return ok })
		if len(keys) > 0 && !g.deleting {
			m.remove(now, g, keys, removal{again: true}, out)
		}
	}
}

// keys are the offsets that there are, or that are about to be, in order.
func (g *group) keys(wanted func(model.TopicPartition) bool) []model.TopicPartition {
	var keys []model.TopicPartition
	for key := range g.offsets {
		if wanted(key) {
			keys = append(keys, key)
		}
	}
	for key := range g.underWay {
		if _, known := g.offsets[key]; !known && wanted(key) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

// remove writes the tombstones of offsets, in as many writes as that takes; r says
// what else is to be done. The group's own is the last.
func (m *Machine) remove(now time.Time, g *group, keys []model.TopicPartition, r removal, out *Effects) {
	r.group = g
	g.deleting = g.deleting || r.whole
	at := now.UnixMilli()
	for {
		part, bytes := r, 0
		var records []Record
		for len(keys) > 0 && bytes < removalBytesMax {
			record := Record{Key: offsetKey(g.id, keys[0]), Timestamp: at}
			bytes += len(record.Key) + tombstoneBytes
			records = append(records, record)
			part.keys = append(part.keys, keys[0])
			keys = keys[1:]
		}
		part.whole = r.whole && len(keys) == 0
		if part.whole && g.recorded {
			records = append(records, Record{Key: groupKey(g.id), Timestamp: at})
		}
		g.begin(part.keys)
		if r.job != nil {
			r.job.left++
		}
		m.write(now, g, records, &part, out)
		if len(keys) == 0 {
			return
		}
	}
}

func (r *removal) written(m *Machine, _ time.Time, err error, out *Effects) {
	g := r.group
	g.end(r.keys)
	if err == nil {
		for _, key := range r.keys {
			m.dropOffset(g, key)
			delete(g.offsets, key)
			g.offsets = trim(g.offsets, &g.widest.offsets)
		}
	}
	switch {
	case err == nil && r.whole && len(g.offsets) == 0 && len(g.underWay) == 0:
		m.dropGroup(g)
	case err == nil && r.whole: // an earlier part was refused
		g.forgetMembership()
		m.measureTopics(g)
	case r.whole:
		g.deleting = false
	case err != nil && r.again:
		g.doom(r.keys)
	}
	if r.job == nil {
		return
	}
	if r.job.left--; r.job.err == nil {
		r.job.err = err
	}
	if r.job.left == 0 {
		r.job.finish(r.job.err, out)
	}
}

// doom marks offsets that are still to be removed; a new commit lifts that.
func (g *group) doom(keys []model.TopicPartition) {
	for _, key := range keys {
		if value, ok := g.offsets[key]; ok {
			value.doomed = true
			g.offsets[key] = value
		}
	}
}

func (r *removal) late(_ *Machine, _ time.Time, err error, out *Effects) bool {
	r.abandon(err, out)
	return false
}

func (r *removal) abandon(err error, out *Effects) {
	if r.job != nil {
		r.job.finish(err, out)
	}
}
