package model

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
)

// NodeID is a broker's number in its cluster, from 0 or more. NoNode is none.
type NodeID int32

// NoNode stands where there is no broker.
const NoNode NodeID = -1

// TopicID is a topic's identity: a topic deleted and made again has another one.
// (KIP-516)
type TopicID [16]byte

// IsZero reports whether no ID is set.
func (t TopicID) IsZero() bool { return t == TopicID{} }

// String is Kafka's text form of a UUID: URL-safe base64 without padding.
func (t TopicID) String() string { return base64.RawURLEncoding.EncodeToString(t[:]) }

// ParseTopicID reads what String writes.
func ParseTopicID(s string) (TopicID, error) {
	var t TopicID
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(t) {
		return t, fmt.Errorf("topic ID %q is not 22 characters of URL-safe base64", s)
	}
	copy(t[:], b)
	return t, nil
}

// DirectoryID identifies one store of one node for ever.
type DirectoryID [16]byte

// IsZero reports whether no ID is set.
func (d DirectoryID) IsZero() bool { return d == DirectoryID{} }

// String is the ID in hexadecimal.
func (d DirectoryID) String() string { return hex.EncodeToString(d[:]) }

// ClusterID names a cluster for ever.
type ClusterID string

// LeaderEpoch is the term of a partition's leader. NoEpoch is none.
type LeaderEpoch = int32

// NoEpoch stands where no leader epoch is known.
const NoEpoch LeaderEpoch = -1

// PartitionEpoch counts the changes of a partition's registration.
type PartitionEpoch int32

// BrokerEpoch identifies one life of a broker: the metadata offset of its
// registration.
type BrokerEpoch int64

// NoProducerID stands in a batch without an idempotent producer.
const NoProducerID int64 = -1

// Partition is one partition of one topic, by identity.
type Partition struct {
	Topic TopicID
	Index int32
}

// String is for logs.
func (p Partition) String() string { return fmt.Sprintf("%s-%d", p.Topic, p.Index) }
