package model

import "strconv"

// Commands are what the edge asks of the controller, and its answers. Each
// answer stands for the command at the same place of its slice.

// NewTopic asks for a topic. (KIP-4)
type NewTopic struct {
	Name string
	// Partitions is the count, or -1 for the broker's default.
	Partitions int32
	// ReplicationFactor is the count, or -1 for the target of the cluster: the
	// topic is then made with what there is, and marked.
	ReplicationFactor int16
	// ReplicationTarget, if above 0, stands in for the cluster's target.
	ReplicationTarget int16
	// Assignment names the replicas of each partition by hand; nil where the
	// controller places them. With it the two numbers above are -1.
	Assignment map[int32][]NodeID
	// Configs are the topic's own settings. A nil value is an error.
	Configs map[string]*string
	// Internal topics are made by the broker for itself.
	Internal bool
}

// TopicResult answers for one topic.
type TopicResult struct {
	Name              string
	ID                TopicID
	Partitions        int32
	ReplicationFactor int16
	Err               error // nil, or one that wraps a sentinel and says why
}

// TopicRef names a topic by name, or by ID where Name is empty.
type TopicRef struct {
	Name string
	ID   TopicID
}

// MorePartitions asks that a topic grow to Count partitions.
type MorePartitions struct {
	Topic string
	Count int32
	// Assignment names the replicas of each new partition, or is nil.
	Assignment [][]NodeID
}

// ResourceType is what a configuration belongs to, in Kafka's numbers.
type ResourceType int8

// The resources that have a configuration here.
const (
	ResourceUnknown ResourceType = 0
	ResourceTopic   ResourceType = 2
	ResourceBroker  ResourceType = 4
)

// Resource is a topic by its name, or a broker by its id; the broker "" is the
// default of all.
type Resource struct {
	Type ResourceType
	Name string
}

// BrokerResource is one broker; with NoNode, the default of all.
func BrokerResource(id NodeID) Resource {
	if id == NoNode {
		return Resource{Type: ResourceBroker}
	}
	return Resource{Type: ResourceBroker, Name: strconv.Itoa(int(id))}
}

// ConfigOpKind is what is done to one key. (KIP-339)
type ConfigOpKind int8

// The operations, in Kafka's numbers.
const (
	ConfigSet      ConfigOpKind = 0
	ConfigDelete   ConfigOpKind = 1
	ConfigAppend   ConfigOpKind = 2
	ConfigSubtract ConfigOpKind = 3
)

// ConfigOp changes one key.
type ConfigOp struct {
	Key   string
	Kind  ConfigOpKind
	Value *string
}

// ConfigChange changes one resource, all or nothing. With Replace the Ops (all
// ConfigSet) become its whole configuration, as AlterConfigs has it.
type ConfigChange struct {
	Resource Resource
	Replace  bool
	Ops      []ConfigOp
}

// ProducerIDBlock is a range of producer IDs that nobody else will be given.
// (KIP-730)
type ProducerIDBlock struct {
	First int64
	Count int32
}
