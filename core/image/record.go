package image

import (
	"github.com/brokerd/brokerd/core/model"
)

// Record is one change of the metadata. The set is closed: only the records of
// this package are records.
type Record interface {
	kind() kind
	layout(*codec)
}

// kind is a record's type on disk and on the wire. A number is never used again
// for something else.
type kind uint16

const (
	kindCluster         kind = 1
	kindBroker          kind = 2
	kindBrokerFence     kind = 3
	kindBrokerRemoval   kind = 4
	kindTopic           kind = 5
	kindPartition       kind = 6
	kindPartitionChange kind = 7
	kindTopicRemoval    kind = 8
	kindTopicPurge      kind = 9
	kindConfig          kind = 10
	kindProducerIDs     kind = 11
	kindMember          kind = 12
	kindMemberRemoval   kind = 13
	kindPartitionTarget kind = 14
)

// String is the record's name for errors.
func (k kind) String() string {
	if r := k.record(); r != nil {
		return r.name
	}
	return "unknown"
}

// recordType is how a kind is made, and the newest version that is understood. What is
// written is the oldest version that has all that the record says: see versionOf.
type recordType struct {
	name    string
	version uint16
	empty   func() Record
}

func (k kind) record() *recordType {
	switch k {
	case kindCluster:
		return &recordType{"cluster", 1, func() Record { return &ClusterRecord{} }}
	case kindBroker:
		return &recordType{"broker", 2, func() Record { return &BrokerRecord{} }}
	case kindBrokerFence:
		return &recordType{"broker fence", 2, func() Record { return &BrokerFenceRecord{} }}
	case kindBrokerRemoval:
		return &recordType{"broker removal", 1, func() Record { return &BrokerRemovalRecord{} }}
	case kindTopic:
		return &recordType{"topic", 1, func() Record { return &TopicRecord{} }}
	case kindPartition:
		return &recordType{"partition", 3, func() Record { return &PartitionRecord{} }}
	case kindPartitionChange:
		return &recordType{"partition change", 3, func() Record { return &PartitionChangeRecord{} }}
	case kindTopicRemoval:
		return &recordType{"topic removal", 1, func() Record { return &TopicRemovalRecord{} }}
	case kindTopicPurge:
		return &recordType{"topic purge", 1, func() Record { return &TopicPurgeRecord{} }}
	case kindConfig:
		return &recordType{"config", 1, func() Record { return &ConfigRecord{} }}
	case kindProducerIDs:
		return &recordType{"producer IDs", 1, func() Record { return &ProducerIDsRecord{} }}
	case kindMember:
		return &recordType{"member", 1, func() Record { return &MemberRecord{} }}
	case kindMemberRemoval:
		return &recordType{"member removal", 1, func() Record { return &MemberRemovalRecord{} }}
	case kindPartitionTarget:
		return &recordType{"partition target", 1, func() Record { return &PartitionTargetRecord{} }}
	}
	return nil
}

// ClusterRecord is the first record of every metadata log. A later one changes
// the feature level or the targets; the ID never changes.
type ClusterRecord struct{ Cluster Cluster }

// BrokerRecord registers a broker, or registers it anew.
type BrokerRecord struct {
	ID model.NodeID
	// Epoch is the registration's, or 0: the offset at which the record is
	// applied. (KIP-631)
	Epoch       model.BrokerEpoch
	Incarnation [16]byte
	Rack        string
	Listeners   map[string]Endpoint
	Directories []model.DirectoryID
	Fenced      bool
	// Since version 2:
	ShuttingDown bool
	Offline      []model.DirectoryID
}

// BrokerFenceRecord says what a registered broker may do now: whether it is fenced, is
// shutting down, and which of its directories do not serve.
type BrokerFenceRecord struct {
	ID     model.NodeID
	Epoch  model.BrokerEpoch
	Fenced bool
	// Since version 2:
	ShuttingDown bool
	Offline      []model.DirectoryID
}

// BrokerRemovalRecord forgets a broker. Nothing is waited for from its
// directories any longer.
type BrokerRemovalRecord struct {
	ID    model.NodeID
	Epoch model.BrokerEpoch
}

// TopicRecord makes a topic without partitions; PartitionRecords follow.
type TopicRecord struct {
	ID                      model.TopicID
	Name                    string
	Internal                bool
	ReplicationFactorTarget int16
}

// PartitionRecord registers the next partition of a topic.
type PartitionRecord struct {
	Partition    model.Partition
	Registration Partition
}

// PartitionChangeRecord changes a partition. Each one raises the partition
// epoch by one; a change of leader raises the leader epoch by one.
type PartitionChangeRecord struct {
	Partition model.Partition
	// A nil slice leaves a field as it is; an empty one empties it.
	Replicas     []model.NodeID
	Directories  []model.DirectoryID
	ISR          []model.NodeID
	ELR          []model.NodeID
	LastKnownELR []model.NodeID
	// LeaderChange says that Leader, possibly the same broker again, begins a new
	// leader epoch.
	LeaderChange bool
	Leader       model.NodeID
	// Since version 2, nil and empty as above:
	Adding   []model.NodeID
	Removing []model.NodeID
	// Since version 3; nil: there is no other than there was.
	Loss *Loss
}

// PartitionTargetRecord says how many replicas an operator has chosen for a partition, and
// whether the controller is raising it. It says it until the next one, Raised no longer than
// replicas are added. It changes no epoch: replicas need not know.
type PartitionTargetRecord struct {
	Partition model.Partition
	Chosen    int16
	Raised    bool
}

// TopicRemovalRecord deletes a topic, its partitions and its settings. The topic
// is remembered as removed until each directory has said that its logs are gone.
type TopicRemovalRecord struct {
	ID          model.TopicID
	Name        string
	Directories []model.DirectoryID
}

// TopicPurgeRecord says that a directory holds no log of a removed topic.
type TopicPurgeRecord struct {
	ID        model.TopicID
	Directory model.DirectoryID
}

// ConfigRecord sets one key of a resource, or with Unset takes it away.
type ConfigRecord struct {
	Resource model.Resource
	Key      string
	Value    string
	Unset    bool
}

// ProducerIDsRecord says that producer IDs below Next are given out. (KIP-730)
type ProducerIDsRecord struct{ Next int64 }

func (*ClusterRecord) kind() kind         { return kindCluster }
func (*BrokerRecord) kind() kind          { return kindBroker }
func (*BrokerFenceRecord) kind() kind     { return kindBrokerFence }
func (*BrokerRemovalRecord) kind() kind   { return kindBrokerRemoval }
func (*TopicRecord) kind() kind           { return kindTopic }
func (*PartitionRecord) kind() kind       { return kindPartition }
func (*PartitionChangeRecord) kind() kind { return kindPartitionChange }
func (*PartitionTargetRecord) kind() kind { return kindPartitionTarget }
func (*TopicRemovalRecord) kind() kind    { return kindTopicRemoval }
func (*TopicPurgeRecord) kind() kind      { return kindTopicPurge }
func (*ConfigRecord) kind() kind          { return kindConfig }
func (*ProducerIDsRecord) kind() kind     { return kindProducerIDs }

// versionOf is the oldest version that has all that a record says, so that an older
// release reads whatever it could have written.
func versionOf(r Record) uint16 {
	newer := false
	switch r := r.(type) {
	case *BrokerRecord:
		newer = r.ShuttingDown || len(r.Offline) > 0
	case *BrokerFenceRecord:
		newer = r.ShuttingDown || len(r.Offline) > 0
	case *PartitionRecord:
		if r.Registration.Loss != nil {
			return 3
		}
		newer = len(r.Registration.Adding) > 0 || len(r.Registration.Removing) > 0
	case *PartitionChangeRecord:
		if r.Loss != nil {
			return 3
		}
		newer = r.Adding != nil || r.Removing != nil
	}
	if newer {
		return 2
	}
	return 1
}
