package config

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"time"
)

// Config is everything that a broker is told. Default makes one; Load layers
// the operator's wishes over it. It is a value: nothing changes it afterwards.
type Config struct {
	NodeID int32
	Rack   string
	// Listeners are bound; Advertised are told to clients, by listener name. A
	// listener that is not advertised by hand advertises itself (see Advertise).
	Listeners    []Listener
	Advertised   []Listener
	ProtocolsMap map[string]string

	Data   string // directory of everything that the broker keeps itself
	Flush  FlushPolicy
	Memory int64 // bytes: the one budget of requests, caches and queues

	Cluster   Cluster
	Topics    Topics
	Groups    Groups
	Server    Server
	Replicas  Replicas
	Storage   Storage
	Transport Transport
	Plugins   Plugins
	Admin     Admin
	Log       Log
}

// FlushPolicy says what an acknowledgement waits for on each replica's disk.
type FlushPolicy string

// The flush policies.
const (
	// FlushReplicated leaves records to the page cache while two in-sync
	// replicas have them, and flushes before each acknowledgement while fewer do.
	FlushReplicated FlushPolicy = "replicated"
	// FlushAlways flushes before each acknowledgement.
	FlushAlways FlushPolicy = "always"
	// FlushInterval flushes every log.flush.interval.ms, and acknowledges before.
	FlushInterval FlushPolicy = "interval"
)

// ReplicationPolicy says what becomes of a topic that wants more replicas than
// there are brokers.
type ReplicationPolicy string

// The replication policies.
const (
	ReplicationTarget ReplicationPolicy = "target" // made with what there is
	ReplicationStrict ReplicationPolicy = "strict" // refused
)

// Cluster says how this node finds or founds its cluster.
type Cluster struct {
	Name      string   // for people; the identity is a random ID
	Bootstrap bool     // an empty data directory may found a cluster
	Seeds     []string // endpoints of other members, as the transport has them
	// Voters is how many members vote, once there are as many. Odd.
	Voters int
	// SessionTimeout is the lease: a broker that the controller has not heard for so
	// long is fenced. It is the active controller's setting that counts.
	SessionTimeout time.Duration
	HeartbeatEvery time.Duration
}

// Topics are the defaults of topics that do not say otherwise, under Kafka's
// broker-level names.
type Topics struct {
	Partitions         int32
	ReplicationFactor  int16
	Policy             ReplicationPolicy
	OffsetsReplication int16
	OffsetsPartitions  int32
	TxnReplication     int16
	AutoCreate         bool
	Delete             bool // delete.topic.enable
	// Properties stand in for topic settings: every one of topicconfig's, by its
	// broker-level name, in that table's own units.
	Properties map[string]string
}

// Groups are the habits of the group coordinator, under Kafka's names.
type Groups struct {
	SessionMin    time.Duration
	SessionMax    time.Duration
	InitialDelay  time.Duration
	SizeMax       int32
	MetadataMax   int32         // bytes of one commit's metadata
	Retention     time.Duration // of the offsets of a group without members
	ExpiryEvery   time.Duration
	CommitTimeout time.Duration
	SegmentBytes  int64 // of the offsets topic
	Codec         int8  // of what is written to it, in Kafka's numbers
}

// Server limits what clients may hold open and ask.
type Server struct {
	RequestBytesMax  int64
	IdleMax          time.Duration
	ConnectionsMax   int
	FetchBytesMax    int64
	FetchSessionsMax int
}

// Replicas are the habits of partition replicas.
type Replicas struct {
	FlushInterval      time.Duration // with flush: interval
	RetentionInterval  time.Duration
	ProducerExpiration time.Duration
	// LagMax is the greatest age of what a follower in sync has not acknowledged.
	LagMax time.Duration
}

// Storage names the stores of this broker. Each is one plugin process.
type Storage struct {
	Default string
	Stores  map[string]Store
}

// Names are the stores' names, the default one first, the others in order.
func (s Storage) Names() []string {
	names := slices.Sorted(maps.Keys(s.Stores))
	slices.SortStableFunc(names, func(a, b string) int {
		switch s.Default {
		case a:
			return -1
		case b:
			return 1
		}
		return 0
	})
	return names
}

// Store is one plugin with its own section of the configuration.
type Store struct {
	Plugin string
	// Carrier is how much of what the plugin offers is used; empty: CarrierAuto.
	Carrier Carrier
	// Config is JSON; strings in it may hold references. See ResolveReferences.
	Config json.RawMessage
}

// Carrier is what records and calls go by between the broker and a plugin.
type Carrier string

// The carriers.
const (
	// CarrierAuto is the best that the plugin and the platform have: the broker
	// writes and reads the store's files itself where the store lends them.
	CarrierAuto Carrier = "auto"
	// CarrierSocket leaves files to the plugin: all goes over a pair of sockets.
	CarrierSocket Carrier = "socket"
	// CarrierGRPC is gRPC alone.
	CarrierGRPC Carrier = "grpc"
)

// carriers is all of them.
func carriers() []string {
	return []string{string(CarrierAuto), string(CarrierSocket), string(CarrierGRPC)}
}

// Transport is the plugin that carries messages between brokers. It is used where the
// operator says anything of it: a broker that is to stay alone needs none.
type Transport struct {
	Plugin string
	// Carrier is how much of what the plugin offers is used: CarrierAuto has its connections
	// passed to the broker.
	Carrier Carrier
	// Config is JSON; strings in it may hold references. See ResolveReferences.
	Config json.RawMessage
}

// Used says whether this broker is to have a transport: a section of settings, or a
// plugin other than the default one, which cannot do without settings.
func (t Transport) Used() bool {
	var section map[string]json.RawMessage
	return t.Plugin != transportDefault || json.Unmarshal(t.Config, &section) == nil && len(section) > 0
}

const transportDefault = "transport-tcp"

// Plugins says where plugins are found and what is known of them.
type Plugins struct {
	// Dir holds executables named as the plugin is; empty: only the built-in ones.
	Dir string
	// Checksums pin a plugin's executable by SHA-256 in hexadecimal.
	Checksums map[string]string
	// Environment names the variables of the broker that plugins may see.
	Environment []string
}

// Admin is the HTTP listener for people and monitoring. Empty Listen: none.
type Admin struct {
	Listen string
}

// Log is how the broker writes its log.
type Log struct {
	Level  string
	Format string
}

// Default returns the defaults. configs/dev.yaml says the same, with reasons.
func Default() Config {
	return Config{
		NodeID:       1,
		Listeners:    []Listener{{Name: "PLAINTEXT", Host: "127.0.0.1", Port: 9092}},
		ProtocolsMap: map[string]string{"PLAINTEXT": "PLAINTEXT"},
		Data:         "./data",
		Flush:        FlushReplicated,
		Memory:       512 << 20,
		Cluster: Cluster{
			Name: "dev", Bootstrap: true, Voters: 3,
			SessionTimeout: time.Second, HeartbeatEvery: 200 * time.Millisecond,
		},
		Topics: Topics{
			Partitions:         1,
			ReplicationFactor:  3,
			Policy:             ReplicationTarget,
			OffsetsReplication: 3,
			OffsetsPartitions:  50,
			TxnReplication:     3,
			AutoCreate:         true,
			Delete:             true,
			Properties:         defaultProperties(),
		},
		Groups: Groups{
			SessionMin:    6 * time.Second,
			SessionMax:    30 * time.Minute,
			InitialDelay:  3 * time.Second,
			SizeMax:       math.MaxInt32,
			MetadataMax:   4096,
			Retention:     7 * 24 * time.Hour,
			ExpiryEvery:   10 * time.Minute,
			CommitTimeout: 5 * time.Second,
			SegmentBytes:  100 << 20,
		},
		Server: Server{
			RequestBytesMax:  100 << 20,
			IdleMax:          10 * time.Minute,
			ConnectionsMax:   8192,
			FetchBytesMax:    55 << 20,
			FetchSessionsMax: 1000,
		},
		Replicas: Replicas{
			FlushInterval:      time.Second,
			RetentionInterval:  5 * time.Minute,
			ProducerExpiration: 24 * time.Hour,
			LagMax:             5 * time.Second,
		},
		Storage: Storage{
			Default: "main",
			Stores:  map[string]Store{"main": {Plugin: "storage-file", Carrier: CarrierAuto, Config: json.RawMessage(`{"path":"${data}/main"}`)}},
		},
		Transport: Transport{Plugin: transportDefault, Carrier: CarrierAuto, Config: json.RawMessage(`{}`)},
		Plugins:   Plugins{Checksums: map[string]string{}},
		Admin:     Admin{Listen: "127.0.0.1:0"},
		Log:       Log{Level: "info", Format: "text"},
	}
}
