package image

import (
	"github.com/brokerd/brokerd/core/model"
)

// Cluster is what the first metadata records say of the whole cluster.
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
	Listeners   map[string]Endpoint
	Directories []model.DirectoryID
	Fenced      bool
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
	Directories    []model.DirectoryID
	ISR            []model.NodeID
	ELR            []model.NodeID
	LastKnownELR   []model.NodeID
	Leader         model.NodeID // or NoNode
	LeaderEpoch    model.LeaderEpoch
	PartitionEpoch model.PartitionEpoch
}

// Image is the metadata at Offset. The zero value is the empty image, before
// the first record.
type Image struct {
	Offset         int64 // of the last record applied
	Cluster        Cluster
	brokers        map[model.NodeID]*Broker
	topics         map[model.TopicID]*Topic
	topicNames     map[string]model.TopicID
	configs        map[model.Resource]map[string]string
	nextProducerID int64
}

// Topic returns the topic with this ID. The value is shared: do not change it.
func (i *Image) Topic(id model.TopicID) (*Topic, bool) {
	t, ok := i.topics[id]
	return t, ok
}

// TopicByName returns the topic with this name.
func (i *Image) TopicByName(name string) (*Topic, bool) {
	id, ok := i.topicNames[name]
	if !ok {
		return nil, false
	}
	return i.Topic(id)
}
