package wire

import "github.com/twmb/franz-go/pkg/kmsg"

// The API keys that are served, in Kafka's numbers.
const (
	KeyProduce                      int16 = 0
	KeyFetch                        int16 = 1
	KeyListOffsets                  int16 = 2
	KeyMetadata                     int16 = 3
	KeyOffsetCommit                 int16 = 8
	KeyOffsetFetch                  int16 = 9
	KeyFindCoordinator              int16 = 10
	KeyJoinGroup                    int16 = 11
	KeyHeartbeat                    int16 = 12
	KeyLeaveGroup                   int16 = 13
	KeySyncGroup                    int16 = 14
	KeyDescribeGroups               int16 = 15
	KeyListGroups                   int16 = 16
	KeyAPIVersions                  int16 = 18
	KeyCreateTopics                 int16 = 19
	KeyDeleteTopics                 int16 = 20
	KeyDeleteRecords                int16 = 21
	KeyInitProducerID               int16 = 22
	KeyOffsetForLeaderEpoch         int16 = 23
	KeyDescribeACLs                 int16 = 29
	KeyCreateACLs                   int16 = 30
	KeyDeleteACLs                   int16 = 31
	KeyDescribeConfigs              int16 = 32
	KeyAlterConfigs                 int16 = 33
	KeyDescribeLogDirs              int16 = 35
	KeyCreatePartitions             int16 = 37
	KeyDeleteGroups                 int16 = 42
	KeyElectLeaders                 int16 = 43
	KeyIncrementalAlterConfigs      int16 = 44
	KeyAlterPartitionReassignments  int16 = 45
	KeyListPartitionReassignments   int16 = 46
	KeyOffsetDelete                 int16 = 47
	KeyDescribeClientQuotas         int16 = 48
	KeyDescribeUserSCRAMCredentials int16 = 50
	KeyDescribeQuorum               int16 = 55
	KeyDescribeCluster              int16 = 60
	KeyDescribeProducers            int16 = 61
	KeyUnregisterBroker             int16 = 64
	KeyConsumerGroupDescribe        int16 = 69
	KeyListConfigResources          int16 = 74
	KeyDescribeTopicPartitions      int16 = 75
	KeyAddRaftVoter                 int16 = 80
	KeyRemoveRaftVoter              int16 = 81
)

// API is one API key and its versions.
type API struct {
	Key int16
	// Min and Max are what ApiVersions says.
	Min, Max int16
	// Serves is the least version that is answered. It is Min, but for Produce:
	// librdkafka stops compressing when versions 0 to 2 are not advertised, and
	// no client uses them. (KIP-896, KAFKA-18659)
	Serves int16
}

// Name is Kafka's name of the API.
func (a API) Name() string { return kmsg.NameForKey(a.Key) }

// Supports reports whether a request of this version is answered.
func (a API) Supports(version int16) bool { return version >= a.Serves && version <= a.Max }

// APIs returns every API that is served, in the order of the keys. The slice is
// the caller's. ApiVersions, the dispatch and the documentation are all made
// from this one table.
func APIs() []API {
	return []API{
		{Key: KeyProduce, Min: 0, Max: 13, Serves: 3},
		{Key: KeyFetch, Min: 4, Max: 18, Serves: 4},
		{Key: KeyListOffsets, Min: 1, Max: 11, Serves: 1},
		{Key: KeyMetadata, Min: 0, Max: 13, Serves: 0},
		{Key: KeyOffsetCommit, Min: 2, Max: 10, Serves: 2},
		{Key: KeyOffsetFetch, Min: 1, Max: 10, Serves: 1},
		{Key: KeyFindCoordinator, Min: 0, Max: 6, Serves: 0},
		{Key: KeyJoinGroup, Min: 0, Max: 9, Serves: 0},
		{Key: KeyHeartbeat, Min: 0, Max: 4, Serves: 0},
		{Key: KeyLeaveGroup, Min: 0, Max: 5, Serves: 0},
		{Key: KeySyncGroup, Min: 0, Max: 5, Serves: 0},
		{Key: KeyDescribeGroups, Min: 0, Max: 6, Serves: 0},
		{Key: KeyListGroups, Min: 0, Max: 5, Serves: 0},
		{Key: KeyAPIVersions, Min: 0, Max: 5, Serves: 0},
		{Key: KeyCreateTopics, Min: 2, Max: 7, Serves: 2},
		{Key: KeyDeleteTopics, Min: 1, Max: 6, Serves: 1},
		{Key: KeyDeleteRecords, Min: 0, Max: 2, Serves: 0},
		{Key: KeyInitProducerID, Min: 0, Max: 5, Serves: 0},
		{Key: KeyOffsetForLeaderEpoch, Min: 2, Max: 4, Serves: 2},
		{Key: KeyDescribeACLs, Min: 1, Max: 3, Serves: 1},
		{Key: KeyCreateACLs, Min: 1, Max: 3, Serves: 1},
		{Key: KeyDeleteACLs, Min: 1, Max: 3, Serves: 1},
		{Key: KeyDescribeConfigs, Min: 1, Max: 4, Serves: 1},
		{Key: KeyAlterConfigs, Min: 0, Max: 2, Serves: 0},
		{Key: KeyDescribeLogDirs, Min: 1, Max: 4, Serves: 1},
		{Key: KeyCreatePartitions, Min: 0, Max: 3, Serves: 0},
		{Key: KeyDeleteGroups, Min: 0, Max: 3, Serves: 0},
		{Key: KeyElectLeaders, Min: 0, Max: 2, Serves: 0},
		{Key: KeyIncrementalAlterConfigs, Min: 0, Max: 1, Serves: 0},
		{Key: KeyAlterPartitionReassignments, Min: 0, Max: 1, Serves: 0},
		{Key: KeyListPartitionReassignments, Min: 0, Max: 0, Serves: 0},
		{Key: KeyOffsetDelete, Min: 0, Max: 0, Serves: 0},
		{Key: KeyDescribeClientQuotas, Min: 0, Max: 1, Serves: 0},
		{Key: KeyDescribeUserSCRAMCredentials, Min: 0, Max: 0, Serves: 0},
		{Key: KeyDescribeQuorum, Min: 0, Max: 2, Serves: 0},
		{Key: KeyDescribeCluster, Min: 0, Max: 2, Serves: 0},
		{Key: KeyDescribeProducers, Min: 0, Max: 0, Serves: 0},
		{Key: KeyUnregisterBroker, Min: 0, Max: 0, Serves: 0},
		{Key: KeyConsumerGroupDescribe, Min: 0, Max: 1, Serves: 0},
		{Key: KeyListConfigResources, Min: 0, Max: 1, Serves: 0},
		{Key: KeyDescribeTopicPartitions, Min: 0, Max: 0, Serves: 0},
		{Key: KeyAddRaftVoter, Min: 0, Max: 1, Serves: 0},
		{Key: KeyRemoveRaftVoter, Min: 0, Max: 0, Serves: 0},
	}
}

// Table finds an API by its key in constant time. The zero value is empty; it
// is never changed after NewTable, so that it may be shared.
type Table struct {
	byKey map[int16]API
}

// NewTable indexes APIs.
func NewTable() Table {
	t := Table{byKey: make(map[int16]API)}
	for _, a := range APIs() {
		t.byKey[a.Key] = a
	}
	return t
}

// Lookup returns the API with this key, if it is served.
func (t Table) Lookup(key int16) (API, bool) {
	a, ok := t.byKey[key]
	return a, ok
}
