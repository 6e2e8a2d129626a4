package image

import (
	"bytes"
	"cmp"
	"iter"
	"strconv"
	"strings"

	"github.com/brokerd/brokerd/core/image/topicconfig"
	"github.com/brokerd/brokerd/core/model"
)

// FeatureLevel is the newest level of metadata that this code reads and writes.
const FeatureLevel int16 = 1

// Cluster is what the first metadata record says of the whole cluster.
type Cluster struct {
	ID           model.ClusterID
	FeatureLevel int16 // finalized: what every member can read and write
	// ReplicationFactorTarget and MinISRTarget are aimed at when a topic is made
	// without explicit numbers.
	ReplicationFactorTarget int16
	MinISRTarget            int16
}

// Endpoint is where a listener of a broker can be reached.
type Endpoint struct {
	Host string
	Port int32
}

// Broker is a registered broker.
type Broker struct {
	ID          model.NodeID
	Epoch       model.BrokerEpoch
	Incarnation [16]byte
	Rack        string
	// Listeners are the advertised endpoints by listener name.
	Listeners map[string]Endpoint
	// Directories are the broker's stores, the default one first.
	Directories []model.DirectoryID
	// Fenced: it may lead nothing, be in no ISR, and nobody is told of it.
	Fenced bool
	// ShuttingDown: it gives up what it has. It may join no ISR, and lead nothing that
	// another can lead. (KIP-841)
	ShuttingDown bool
	// Offline are those of Directories that do not serve. (KIP-858)
	Offline []model.DirectoryID
}

// Topic is a topic and its partitions, in order.
type Topic struct {
	ID       model.TopicID
	Name     string
	Internal bool
	// ReplicationFactorTarget is what the topic is to have; its partitions have
	// fewer replicas while there are not enough brokers.
	ReplicationFactorTarget int16
	Partitions              []Partition
}

// Partition is the registration of one partition.
type Partition struct {
	// Replicas is the assignment, in order: the first is the preferred leader.
	Replicas []model.NodeID
	// Directories hold the replicas, one for each of Replicas.
	Directories []model.DirectoryID
	// ISR is empty only where nobody leads, and the ELR or LastKnownELR is not.
	ISR []model.NodeID
	// ELR are the replicas that have all that was committed, and are not in the ISR:
	// there are some only while the ISR is below its effective minimum. (KIP-966)
	ELR []model.NodeID
	// LastKnownELR are those that may have lost what they had, when their machine lost
	// power, while they were in the ISR or the ELR. With both of these empty, the one of
	// the longest log is to lead, once all of them have said how long theirs are.
	LastKnownELR   []model.NodeID
	Leader         model.NodeID // or NoNode
	LeaderEpoch    model.LeaderEpoch
	PartitionEpoch model.PartitionEpoch
	// Adding and Removing are those of Replicas that a reassignment under way adds, and
	// is going to remove. (KIP-455)
	Adding   []model.NodeID
	Removing []model.NodeID
	// Raised: the reassignment under way is the controller's own, by which a partition below
	// its target gets another replica.
	Raised bool
	// Chosen is how many replicas an operator has said that the partition is to have: fewer
	// than the topic's target; 0: nothing was said.
	Chosen int16
	// Loss is the last election after which acknowledged records may be missing; nil: there
	// was none.
	Loss *Loss
}

// Counted is how many replicas count for the minimum of the ISR: those that a reassignment
// adds do when it has come to its end.
func (p *Partition) Counted() int { return len(p.Replicas) - len(p.Adding) }

// TargetOf is how many replicas a partition of the topic is to have at least.
func (t *Topic) TargetOf(p *Partition) int {
	if p.Chosen > 0 {
		return int(p.Chosen)
	}
	return int(t.ReplicationFactorTarget)
}

// BelowTarget says whether a partition of the topic has fewer replicas than it is to have, not
// counting what is only being added.
func (t *Topic) BelowTarget(p *Partition) bool { return p.Counted() < t.TargetOf(p) }

// Loss is an election that gave a partition a leader of which it is not known that it has all
// that was acknowledged.
type Loss struct {
	Epoch model.LeaderEpoch // that began with it
	// From is the offset from which on records may be missing, where the leader's log ended; -1:
	// the controller was not told.
	From int64
	// Unclean: it was nobody who was known to have all, by an operator's word or the topic's
	// setting. Else all who were may have lost something, and it had the longest log.
	Unclean bool
	// At is when, by the clock of the controller, in milliseconds since 1970.
	At int64
}

// RemovedTopic is a topic that was deleted while some directories may still hold
// its logs. A log of a topic that is neither in the image nor here is unknown,
// and must not be deleted.
type RemovedTopic struct {
	ID   model.TopicID
	Name string
	// Directories have not said yet that their logs of the topic are gone.
	Directories []model.DirectoryID
}

// Image is the metadata at Offset. The zero value is the empty image, before
// the first record. It is immutable and safe for concurrent use; values that it
// returns are shared: do not change them.
type Image struct {
	Offset  int64 // of the last record applied
	Cluster Cluster

	brokers        tree[model.NodeID, *Broker]
	topics         tree[model.TopicID, *Topic]
	topicNames     tree[string, model.TopicID]
	foldedNames    tree[string, string]
	configs        tree[model.Resource, map[string]string]
	removed        tree[model.TopicID, *RemovedTopic]
	members        tree[model.DirectoryID, *Member]
	partitions     int
	nextProducerID int64
}

func compareTopicIDs(a, b model.TopicID) int { return bytes.Compare(a[:], b[:]) }

func compareDirectoryIDs(a, b model.DirectoryID) int { return bytes.Compare(a[:], b[:]) }

func compareResources(a, b model.Resource) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), strings.Compare(a.Name, b.Name))
}

// Topic returns the topic with this ID.
func (i *Image) Topic(id model.TopicID) (*Topic, bool) {
	return i.topics.get(id, compareTopicIDs)
}

// TopicByName returns the topic with this name.
func (i *Image) TopicByName(name string) (*Topic, bool) {
	id, ok := i.topicNames.get(name, strings.Compare)
	if !ok {
		return nil, false
	}
	return i.Topic(id)
}

// TopicColliding returns the name of the topic that differs from name in '.' and
// '_' alone, or is it: Kafka's metric names cannot tell such topics apart.
func (i *Image) TopicColliding(name string) (string, bool) {
	return i.foldedNames.get(foldName(name), strings.Compare)
}

func foldName(name string) string { return strings.ReplaceAll(name, ".", "_") }

// Topics goes through all topics in name order.
func (i *Image) Topics() iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		for _, id := range i.topicNames.all() {
			if t, ok := i.Topic(id); ok && !yield(t) {
				return
			}
		}
	}
}

// TopicCount is the number of topics.
func (i *Image) TopicCount() int { return i.topics.size }

// PartitionCount is the number of partitions of all topics.
func (i *Image) PartitionCount() int { return i.partitions }

// Partition returns the registration of one partition, and its topic.
func (i *Image) Partition(p model.Partition) (*Partition, *Topic, bool) {
	t, ok := i.Topic(p.Topic)
	if !ok || p.Index < 0 || int(p.Index) >= len(t.Partitions) {
		return nil, nil, false
	}
	return &t.Partitions[p.Index], t, true
}

// Broker returns the registered broker with this ID, fenced or not.
func (i *Image) Broker(id model.NodeID) (*Broker, bool) {
	return i.brokers.get(id, cmp.Compare[model.NodeID])
}

// Brokers goes through all registered brokers in ID order.
func (i *Image) Brokers() iter.Seq[*Broker] {
	return func(yield func(*Broker) bool) {
		for _, b := range i.brokers.all() {
			if !yield(b) {
				return
			}
		}
	}
}

// BrokerCount is the number of registered brokers.
func (i *Image) BrokerCount() int { return i.brokers.size }

// Config returns what was set for a resource, without defaults; nil if nothing.
func (i *Image) Config(r model.Resource) map[string]string {
	c, _ := i.configs.get(r, compareResources)
	return c
}

// TopicConfig is a topic's settings on one broker, with all defaults filled in:
// its own, else the metadata's for this broker, else the metadata's for all
// brokers, else those that the broker was started with (static, may be nil), else
// the cluster's targets and Kafka's defaults. Min ISR has no layer of a broker's own. With NoNode it is what the cluster
// goes by, whichever broker has the topic.
func (i *Image) TopicConfig(topic string, node model.NodeID, static map[string]string) (topicconfig.Config, error) {
	return topicconfig.Resolve(i.BrokerDefaults(node, static), i.Config(model.Resource{Type: model.ResourceTopic, Name: topic}))
}

// BrokerDefaults is the broker properties that stand in for topic settings: this
// broker's, unless it is NoNode, over those of all brokers over static ones over
// the cluster's target of min ISR. The map is the caller's.
func (i *Image) BrokerDefaults(node model.NodeID, static map[string]string) map[string]string {
	merged := make(map[string]string, len(static)+1)
	topicconfig.Overlay(merged, static)
	if i.Cluster.MinISRTarget > 0 {
		merged[MinISRKey] = strconv.Itoa(int(i.Cluster.MinISRTarget))
	}
	topicconfig.Overlay(merged, i.Config(model.Resource{Type: model.ResourceBroker}))
	if node != model.NoNode {
		minISR, set := merged[MinISRKey]
		topicconfig.Overlay(merged, i.Config(model.BrokerResource(node)))
		if set {
			merged[MinISRKey] = minISR
		}
	}
	topicconfig.DropAlone(merged)
	return merged
}

// BrokerConfig is a broker's settings of its own that are changed while it runs: what the
// metadata says of it, else of all brokers, else the default.
func (i *Image) BrokerConfig(node model.NodeID) topicconfig.Broker {
	return topicconfig.ResolveBroker(i.Config(model.BrokerResource(node)), i.Config(model.BrokerResource(model.NoNode)))
}

// MinISRKey is the setting of the least ISR that acks=all is answered under. Leader and
// controller have to go by the same, so that no broker has its own.
const MinISRKey = "min.insync.replicas"

// EffectiveMinISR is min ISR as it can be asked of a partition of which this many
// replicas count (see Counted): no more than there are, as in Kafka; and below the topic's target
// one less than there are, so that two brokers go on when one dies.
func EffectiveMinISR(minISR, replicas, target int) int {
	possible := replicas
	if replicas < target {
		possible = replicas - 1
	}
	return min(max(1, minISR), max(1, possible))
}

// MinISR gives the effective min ISR of partitions: what their leaders and the controller go
// by. static is as in TopicConfig. What it returns belongs to one goroutine, and costs least
// where the partitions of a topic come after each other.
func (i *Image) MinISR(static map[string]string) func(*Topic, *Partition) int {
	defaults := i.BrokerDefaults(model.NoNode, static)
	var of *Topic
	var minISR int // of it
	return func(t *Topic, p *Partition) int {
		if t != of {
			of, minISR = t, topicconfig.MinISR(defaults, i.Config(model.Resource{Type: model.ResourceTopic, Name: t.Name}))
		}
		return EffectiveMinISR(minISR, p.Counted(), int(t.ReplicationFactorTarget))
	}
}

// NextProducerID is the first producer ID that was never given out.
func (i *Image) NextProducerID() int64 { return i.nextProducerID }

// Removed returns the deleted topic with this ID, while directories may still
// hold its logs.
func (i *Image) Removed(id model.TopicID) (*RemovedTopic, bool) {
	return i.removed.get(id, compareTopicIDs)
}

// RemovedTopics goes through the deleted topics whose logs may still exist.
func (i *Image) RemovedTopics() iter.Seq[*RemovedTopic] {
	return func(yield func(*RemovedTopic) bool) {
		for _, r := range i.removed.all() {
			if !yield(r) {
				return
			}
		}
	}
}
