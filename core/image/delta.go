package image

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/brokerd/brokerd/core/model"
)

// ErrInconsistent is wrapped where a record does not fit the image: the log that
// it came from is not a log of this cluster's controller.
var ErrInconsistent = errors.New("metadata record does not fit the metadata before it")

// Delta collects the changes of one offset on top of an image. It belongs to one
// goroutine. After an error it must be thrown away.
type Delta struct {
	next Image
	// fresh are the topics that this delta has already copied and may change.
	fresh map[model.TopicID]*Topic
}

// NewDelta begins a delta that leads from base to offset. Base stays as it is.
func NewDelta(base *Image, offset int64) *Delta {
	d := &Delta{next: *base, fresh: map[model.TopicID]*Topic{}}
	d.next.Offset = offset
	return d
}

// FromRecords is the image that these records lead to, from nothing.
func FromRecords(offset int64, records ...Record) (*Image, error) {
	d := NewDelta(&Image{}, offset)
	for _, r := range records {
		if err := d.Apply(r); err != nil {
			return nil, err
		}
	}
	return d.Image(), nil
}

// Image publishes the result. The delta cannot be used afterwards.
func (d *Delta) Image() *Image {
	d.fresh = nil
	return &d.next
}

// Apply replays one record. The delta keeps r's slices and maps: they are not to
// be changed afterwards. An error wraps ErrInconsistent.
func (d *Delta) Apply(r Record) error {
	if err := d.replay(r); err != nil {
		return fmt.Errorf("replay %s record at offset %d: %w: %w", r.kind(), d.next.Offset, err, ErrInconsistent)
	}
	return nil
}

func (d *Delta) replay(r Record) error {
	if _, first := r.(*ClusterRecord); !first && d.next.Cluster.ID == "" {
		return errors.New("the first record does not name the cluster")
	}
	switch r := r.(type) {
	case *ClusterRecord:
		return d.cluster(r)
	case *BrokerRecord:
		return d.broker(r)
	case *BrokerFenceRecord:
		return d.brokerFence(r)
	case *BrokerRemovalRecord:
		return d.brokerRemoval(r)
	case *TopicRecord:
		return d.topic(r)
	case *PartitionRecord:
		return d.partition(r)
	case *PartitionChangeRecord:
		return d.partitionChange(r)
	case *PartitionTargetRecord:
		return d.partitionTarget(r)
	case *TopicRemovalRecord:
		return d.topicRemoval(r)
	case *TopicPurgeRecord:
		d.purge(r.ID, r.Directory)
		return nil
	case *ConfigRecord:
		return d.config(r)
	case *MemberRecord:
		return d.member(r)
	case *MemberRemovalRecord:
		return d.memberRemoval(r)
	case *ProducerIDsRecord:
		if r.Next < d.next.nextProducerID {
			return fmt.Errorf("producer IDs go back from %d to %d", d.next.nextProducerID, r.Next)
		}
		d.next.nextProducerID = r.Next
		return nil
	}
	return fmt.Errorf("no replay for %T", r)
}

func (d *Delta) cluster(r *ClusterRecord) error {
	old := d.next.Cluster
	if r.Cluster.ID == "" || old.ID != "" && r.Cluster.ID != old.ID {
		return fmt.Errorf("cluster %q is not cluster %q", r.Cluster.ID, old.ID)
	}
	if r.Cluster.FeatureLevel < 1 || r.Cluster.FeatureLevel > FeatureLevel {
		return fmt.Errorf("feature level %d: this release knows levels 1 to %d", r.Cluster.FeatureLevel, FeatureLevel)
	}
	d.next.Cluster = r.Cluster
	return nil
}

func (d *Delta) broker(r *BrokerRecord) error {
	if r.ID < 0 {
		return fmt.Errorf("broker %d", r.ID)
	}
	b := Broker(*r)
	keep(&b.Directories, b.Directories)
	keep(&b.Offline, b.Offline)
	if len(b.Listeners) == 0 {
		b.Listeners = nil
	}
	if b.Epoch == 0 {
		b.Epoch = model.BrokerEpoch(d.next.Offset)
	}
	d.putBroker(&b)
	return nil
}

func (d *Delta) brokerFence(r *BrokerFenceRecord) error {
	old, err := d.registered(r.ID, r.Epoch)
	if err != nil {
		return err
	}
	b := *old
	b.Fenced, b.ShuttingDown, b.Offline = r.Fenced, r.ShuttingDown, nil
	keep(&b.Offline, r.Offline)
	d.putBroker(&b)
	return nil
}

func (d *Delta) brokerRemoval(r *BrokerRemovalRecord) error {
	b, err := d.registered(r.ID, r.Epoch)
	if err != nil {
		return err
	}
	d.next.brokers = d.next.brokers.remove(r.ID, cmp.Compare[model.NodeID])
	for t := range d.next.RemovedTopics() {
		for _, dir := range b.Directories {
			d.purge(t.ID, dir)
		}
	}
	return nil
}

func (d *Delta) registered(id model.NodeID, epoch model.BrokerEpoch) (*Broker, error) {
	b, ok := d.next.Broker(id)
	if !ok || b.Epoch != epoch {
		return nil, fmt.Errorf("broker %d is not registered with epoch %d", id, epoch)
	}
	return b, nil
}

func (d *Delta) putBroker(b *Broker) {
	d.next.brokers = d.next.brokers.put(b.ID, b, cmp.Compare[model.NodeID])
}

func (d *Delta) topic(r *TopicRecord) error {
	if _, ok := d.next.topics.get(r.ID, compareTopicIDs); ok || r.ID.IsZero() {
		return fmt.Errorf("topic %s %q: its ID is taken", r.ID, r.Name)
	}
	if _, ok := d.next.Removed(r.ID); ok {
		return fmt.Errorf("topic %s %q: its ID was a removed topic's", r.ID, r.Name)
	}
	if _, ok := d.next.topicNames.get(r.Name, strings.Compare); ok || r.Name == "" {
		return fmt.Errorf("topic %s %q: its name is taken", r.ID, r.Name)
	}
	t := &Topic{ID: r.ID, Name: r.Name, Internal: r.Internal, ReplicationFactorTarget: r.ReplicationFactorTarget}
	d.fresh[t.ID] = t
	d.next.topics = d.next.topics.put(t.ID, t, compareTopicIDs)
	d.next.topicNames = d.next.topicNames.put(t.Name, t.ID, strings.Compare)
	d.next.foldedNames = d.next.foldedNames.put(foldName(t.Name), t.Name, strings.Compare)
	return nil
}

// own is the topic as this delta may change it: copied on the first change.
func (d *Delta) own(id model.TopicID) (*Topic, bool) {
	if t, ok := d.fresh[id]; ok {
		return t, true
	}
	old, ok := d.next.Topic(id)
	if !ok {
		return nil, false
	}
	t := *old
	t.Partitions = slices.Clone(old.Partitions)
	d.fresh[id] = &t
	d.next.topics = d.next.topics.put(id, &t, compareTopicIDs)
	return &t, true
}

func (d *Delta) partition(r *PartitionRecord) error {
	t, ok := d.own(r.Partition.Topic)
	if !ok || int(r.Partition.Index) != len(t.Partitions) {
		return fmt.Errorf("partition %s is not the next of its topic", r.Partition)
	}
	if err := r.Registration.check(); err != nil {
		return fmt.Errorf("partition %s: %w", r.Partition, err)
	}
	p := r.Registration
	for _, field := range []*[]model.NodeID{&p.ISR, &p.ELR, &p.LastKnownELR, &p.Adding, &p.Removing} {
		keep(field, *field)
	}
	t.Partitions = append(t.Partitions, p)
	d.next.partitions++
	return nil
}

func (d *Delta) partitionChange(r *PartitionChangeRecord) error {
	t, ok := d.own(r.Partition.Topic)
	if !ok || r.Partition.Index < 0 || int(r.Partition.Index) >= len(t.Partitions) {
		return fmt.Errorf("partition %s does not exist", r.Partition)
	}
	p := t.Partitions[r.Partition.Index]
	keep(&p.Replicas, r.Replicas)
	keep(&p.Directories, r.Directories)
	keep(&p.ISR, r.ISR)
	keep(&p.ELR, r.ELR)
	keep(&p.LastKnownELR, r.LastKnownELR)
	keep(&p.Adding, r.Adding)
	keep(&p.Removing, r.Removing)
	if r.Loss != nil {
		p.Loss = r.Loss
	}
	if r.LeaderChange {
		p.Leader = r.Leader
		p.LeaderEpoch++
	}
	p.PartitionEpoch++
	p.Raised = p.Raised && len(p.Adding) > 0
	if err := p.check(); err != nil {
		return fmt.Errorf("partition %s: %w", r.Partition, err)
	}
	t.Partitions[r.Partition.Index] = p
	return nil
}

func (d *Delta) partitionTarget(r *PartitionTargetRecord) error {
	t, ok := d.own(r.Partition.Topic)
	if !ok || r.Partition.Index < 0 || int(r.Partition.Index) >= len(t.Partitions) {
		return fmt.Errorf("partition %s does not exist", r.Partition)
	}
	p := &t.Partitions[r.Partition.Index]
	if r.Chosen < 0 || r.Raised && len(p.Adding) == 0 {
		return fmt.Errorf("partition %s: %d replicas were chosen, raised %v", r.Partition, r.Chosen, r.Raised)
	}
	p.Chosen, p.Raised = r.Chosen, r.Raised
	return nil
}

// keep takes a changed field; an empty list is kept as nil, as a snapshot reads
// it.
func keep[T any](field *[]T, changed []T) {
	if changed == nil {
		return
	}
	*field = changed
	if len(changed) == 0 {
		*field = nil
	}
}

// check says what is wrong with a registration that no controller writes.
func (p *Partition) check() error {
	switch {
	case len(p.Replicas) == 0:
		return errors.New("no replicas")
	case len(p.Directories) != len(p.Replicas):
		return fmt.Errorf("%d directories for %d replicas", len(p.Directories), len(p.Replicas))
	case p.Leader != model.NoNode && !slices.Contains(p.Replicas, p.Leader):
		return fmt.Errorf("leader %d is not one of the replicas %v", p.Leader, p.Replicas)
	}
	for _, of := range []struct {
		what  string
		nodes []model.NodeID
	}{{"ISR", p.ISR}, {"ELR", p.ELR}, {"last known ELR", p.LastKnownELR}, {"adding", p.Adding}, {"removing", p.Removing}} {
		for _, n := range of.nodes {
			if !slices.Contains(p.Replicas, n) {
				return fmt.Errorf("broker %d of the %s is not one of the replicas %v", n, of.what, p.Replicas)
			}
		}
	}
	return nil
}

// topicRemoval deletes a topic. In a snapshot it stands for one that was deleted
// before, so that the topic need not be there.
func (d *Delta) topicRemoval(r *TopicRemovalRecord) error {
	if t, ok := d.next.Topic(r.ID); ok {
		delete(d.fresh, r.ID)
		d.next.topics = d.next.topics.remove(r.ID, compareTopicIDs)
		d.next.topicNames = d.next.topicNames.remove(t.Name, strings.Compare)
		d.next.foldedNames = d.next.foldedNames.remove(foldName(t.Name), strings.Compare)
		d.next.configs = d.next.configs.remove(model.Resource{Type: model.ResourceTopic, Name: t.Name}, compareResources)
		d.next.partitions -= len(t.Partitions)
	}
	gone := RemovedTopic(*r)
	keep(&gone.Directories, gone.Directories)
	if len(gone.Directories) > 0 {
		d.next.removed = d.next.removed.put(gone.ID, &gone, compareTopicIDs)
	}
	return nil
}

// purge forgets a removed topic when its last directory has confirmed.
func (d *Delta) purge(id model.TopicID, dir model.DirectoryID) {
	old, ok := d.next.Removed(id)
	if !ok {
		return
	}
	left := slices.DeleteFunc(slices.Clone(old.Directories), func(o model.DirectoryID) bool { return o == dir })
	if len(left) == 0 {
		d.next.removed = d.next.removed.remove(id, compareTopicIDs)
		return
	}
	d.next.removed = d.next.removed.put(id, &RemovedTopic{ID: id, Name: old.Name, Directories: left}, compareTopicIDs)
}

func (d *Delta) config(r *ConfigRecord) error {
	if r.Resource.Type == model.ResourceTopic {
		if _, ok := d.next.TopicByName(r.Resource.Name); !ok {
			return fmt.Errorf("topic %q does not exist", r.Resource.Name)
		}
	}
	c := maps.Clone(d.next.Config(r.Resource))
	if r.Unset {
		delete(c, r.Key)
	} else {
		if c == nil {
			c = map[string]string{}
		}
		c[r.Key] = r.Value
	}
	if len(c) == 0 {
		d.next.configs = d.next.configs.remove(r.Resource, compareResources)
		return nil
	}
	d.next.configs = d.next.configs.put(r.Resource, c, compareResources)
	return nil
}

// Records are the records from which FromRecords makes an equal image: a
// snapshot. Equal images have equal records.
func (i *Image) Records() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		if i.Cluster.ID == "" || !yield(&ClusterRecord{Cluster: i.Cluster}) {
			return
		}
		for b := range i.Brokers() {
			r := BrokerRecord(*b)
			if !yield(&r) {
				return
			}
		}
		for t := range i.Topics() {
			if !t.records(yield) {
				return
			}
		}
		for resource, config := range i.configs.all() {
			for _, key := range slices.Sorted(maps.Keys(config)) {
				if !yield(&ConfigRecord{Resource: resource, Key: key, Value: config[key]}) {
					return
				}
			}
		}
		for t := range i.RemovedTopics() {
			r := TopicRemovalRecord(*t)
			if !yield(&r) {
				return
			}
		}
		if i.nextProducerID != 0 && !yield(&ProducerIDsRecord{Next: i.nextProducerID}) {
			return
		}
		for m := range i.Members() {
			r := MemberRecord(*m)
			if !yield(&r) {
				return
			}
		}
	}
}

func (t *Topic) records(yield func(Record) bool) bool {
	if !yield(&TopicRecord{ID: t.ID, Name: t.Name, Internal: t.Internal, ReplicationFactorTarget: t.ReplicationFactorTarget}) {
		return false
	}
	for n, p := range t.Partitions {
		target := &PartitionTargetRecord{Partition: model.Partition{Topic: t.ID, Index: int32(n)}, Chosen: p.Chosen, Raised: p.Raised}
		p.Chosen, p.Raised = 0, false
		if !yield(&PartitionRecord{Partition: target.Partition, Registration: p}) {
			return false
		}
		if (target.Chosen != 0 || target.Raised) && !yield(target) {
			return false
		}
	}
	return true
}
