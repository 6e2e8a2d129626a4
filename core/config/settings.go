package config

import (
	"strings"
	"time"
)

// setting is one row of the table of everything that can be said.
type setting struct {
	name  string
	about string
	// field is where the value goes in a Config.
	field func(c *Config) field
	// coarser are names with a larger unit that count where name is not said, the
	// finest first, as Kafka has them.
	coarser []coarser
}

type coarser struct {
	name string
	unit time.Duration
}

// envName is the setting's name in the environment.
func envName(name string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(name, ".", "_"))
}

const envPrefix = "BROKERD_"

// settings is the table, in the order in which it is shown.
func settings() []setting {
	out := nodeSettings()
	out = append(out, topicSettings()...)
	out = append(out, propertySettings()...)
	out = append(out, groupSettings()...)
	out = append(out, limitSettings()...)
	return append(out, pluginSettings()...)
}

func nodeSettings() []setting {
	return []setting{
		{name: "node.id", about: "this broker's number in its cluster; it never changes",
			field: func(c *Config) field { return intField[int32]{&c.NodeID} }},
		{name: "broker.rack", about: "the rack or zone; replicas are spread over racks",
			field: func(c *Config) field { return stringField[string]{&c.Rack} }},
		{name: "listeners", about: "what is bound: NAME://host:port, several with commas",
			field: func(c *Config) field { return listenersField{&c.Listeners} }},
		{name: "advertised.listeners", about: "what clients are told to dial; empty: as bound",
			field: func(c *Config) field { return listenersField{&c.Advertised} }},
		{name: "listener.security.protocol.map", about: "the protocol of each listener name",
			field: func(c *Config) field { return pairsField{&c.ProtocolsMap} }},
		{name: "data", about: "directory of all that the broker keeps",
			field: func(c *Config) field { return stringField[string]{&c.Data} }},
		{name: "flush", about: "what an acknowledgement waits for: replicated, always or interval",
			field: func(c *Config) field {
				return choiceField[FlushPolicy]{&c.Flush, []string{string(FlushReplicated), string(FlushAlways), string(FlushInterval)}}
			}},
		{name: "memory", about: "budget of requests, caches and queues together",
			field: func(c *Config) field { return bytesField[int64]{&c.Memory, true} }},
		{name: "cluster.name", about: "a name for people",
			field: func(c *Config) field { return stringField[string]{&c.Cluster.Name} }},
		{name: "cluster.bootstrap", about: "an empty data directory may found a cluster",
			field: func(c *Config) field { return boolField{&c.Cluster.Bootstrap} }},
		{name: "cluster.seeds", about: "where other brokers of the cluster are dialled by this one: host:port of their transport",
			field: func(c *Config) field { return listField{&c.Cluster.Seeds} }},
		{name: "controller.quorum.target", about: "brokers that vote for the controller, once there are as many",
			field: func(c *Config) field { return intField[int]{&c.Cluster.Voters} }},
		{name: "broker.session.timeout.ms", about: "a broker that the controller has not heard for so long is fenced",
			field: func(c *Config) field { return durationField{&c.Cluster.SessionTimeout} }},
		{name: "broker.heartbeat.interval.ms", about: "how often a broker tells the controller that it is there",
			field: func(c *Config) field { return durationField{&c.Cluster.HeartbeatEvery} }},
	}
}

func topicSettings() []setting {
	return []setting{
		{name: "num.partitions", about: "partitions of a topic made without a number",
			field: func(c *Config) field { return intField[int32]{&c.Topics.Partitions} }},
		{name: "default.replication.factor", about: "replicas aimed at; with fewer brokers a topic is made with what there is",
			field: func(c *Config) field { return intField[int16]{&c.Topics.ReplicationFactor} }},
		{name: "replication.policy", about: "target: with too few brokers a topic is made with fewer replicas, and marked; strict: refused",
			field: func(c *Config) field {
				return choiceField[ReplicationPolicy]{&c.Topics.Policy, []string{string(ReplicationTarget), string(ReplicationStrict)}}
			}},
		{name: "offsets.topic.replication.factor", about: "replicas aimed at for committed offsets",
			field: func(c *Config) field { return intField[int16]{&c.Topics.OffsetsReplication} }},
		{name: "offsets.topic.num.partitions", about: "partitions of the topic of committed offsets",
			field: func(c *Config) field { return intField[int32]{&c.Topics.OffsetsPartitions} }},
		{name: "transaction.state.log.replication.factor", about: "replicas aimed at for transaction state",
			field: func(c *Config) field { return intField[int16]{&c.Topics.TxnReplication} }},
		{name: "auto.create.topics.enable", about: "a client that asks for a topic may make it",
			field: func(c *Config) field { return boolField{&c.Topics.AutoCreate} }},
		{name: "delete.topic.enable", about: "topics can be deleted",
			field: func(c *Config) field { return boolField{&c.Topics.Delete} }},
	}
}

func groupSettings() []setting {
	return []setting{
		{name: "group.min.session.timeout.ms", about: "shortest session that a group's member may ask for",
			field: func(c *Config) field { return durationField{&c.Groups.SessionMin} }},
		{name: "group.max.session.timeout.ms", about: "longest session that a group's member may ask for",
			field: func(c *Config) field { return durationField{&c.Groups.SessionMax} }},
		{name: "group.initial.rebalance.delay.ms", about: "how long the first rebalance of an empty group waits for more members",
			field: func(c *Config) field { return durationField{&c.Groups.InitialDelay} }},
		{name: "group.max.size", about: "most members of a group",
			field: func(c *Config) field { return intField[int32]{&c.Groups.SizeMax} }},
		{name: "offset.metadata.max.bytes", about: "most metadata of one committed offset",
			field: func(c *Config) field { return intField[int32]{&c.Groups.MetadataMax} }},
		{name: "offsets.retention.minutes", about: "how long the offsets of a group without members are kept",
			field: func(c *Config) field { return minutesField{&c.Groups.Retention} }},
		{name: "offsets.retention.check.interval.ms", about: "how often that is looked at",
			field: func(c *Config) field { return durationField{&c.Groups.ExpiryEvery} }},
		{name: "offsets.commit.timeout.ms", about: "how long a client waits for its offsets to be written",
			field: func(c *Config) field { return durationField{&c.Groups.CommitTimeout} }},
		{name: "offsets.topic.segment.bytes", about: "segment.bytes of the topic of committed offsets, when it is made",
			field: func(c *Config) field { return bytesField[int64]{&c.Groups.SegmentBytes, false} }},
		{name: "offsets.topic.compression.codec", about: "how committed offsets are compressed: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd",
			field: func(c *Config) field { return intField[int8]{&c.Groups.Codec} }},
	}
}

func limitSettings() []setting {
	return []setting{
		{name: "socket.request.max.bytes", about: "largest request",
			field: func(c *Config) field { return bytesField[int64]{&c.Server.RequestBytesMax, false} }},
		{name: "connections.max.idle.ms", about: "a connection that says nothing for so long is closed; -1: never",
			field: func(c *Config) field { return durationField{&c.Server.IdleMax} }},
		{name: "max.connections", about: "connections at a time",
			field: func(c *Config) field { return intField[int]{&c.Server.ConnectionsMax} }},
		{name: "fetch.max.bytes", about: "most records in one answer",
			field: func(c *Config) field { return bytesField[int64]{&c.Server.FetchBytesMax, false} }},
		{name: "max.incremental.fetch.session.cache.slots", about: "fetch sessions that are remembered",
			field: func(c *Config) field { return intField[int]{&c.Server.FetchSessionsMax} }},
		{name: "log.flush.interval.ms", about: "with flush: interval, the time between two",
			field: func(c *Config) field { return durationField{&c.Replicas.FlushInterval} }},
		{name: "log.retention.check.interval.ms", about: "how often retention is looked at",
			field: func(c *Config) field { return durationField{&c.Replicas.RetentionInterval} }},
		{name: "producer.id.expiration.ms", about: "an idle producer's sequence numbers are forgotten after this",
			field: func(c *Config) field { return durationField{&c.Replicas.ProducerExpiration} }},
		{name: "replica.lag.time.max.ms", about: "a follower that has not acknowledged a record of this age is no longer in sync",
			field: func(c *Config) field { return durationField{&c.Replicas.LagMax} }},
	}
}

func pluginSettings() []setting {
	return []setting{
		{name: "storage.default", about: "the store of new replicas",
			field: func(c *Config) field { return stringField[string]{&c.Storage.Default} }},
		{name: "storage.stores", about: "stores by name, each a plugin, its config, and maybe a carrier",
			field: func(c *Config) field { return storesField{&c.Storage.Stores} }},
		{name: "transport.plugin", about: "the plugin that carries messages between brokers",
			field: func(c *Config) field { return stringField[string]{&c.Transport.Plugin} }},
		{name: "transport.config", about: "that plugin's own section",
			field: func(c *Config) field { return rawField{&c.Transport.Config} }},
		{name: "transport.carrier", about: "what messages go by: auto, socket or grpc; the last two leave connections to the plugin",
			field: func(c *Config) field { return choiceField[Carrier]{&c.Transport.Carrier, carriers()} }},
		{name: "plugins.dir", about: "where executables of plugins are; empty: built-in ones only",
			field: func(c *Config) field { return stringField[string]{&c.Plugins.Dir} }},
		{name: "plugins.checksums", about: "SHA-256 of a plugin's executable, by plugin",
			field: func(c *Config) field { return pairsField{&c.Plugins.Checksums} }},
		{name: "plugins.environment", about: "variables of the broker that plugins may see",
			field: func(c *Config) field { return listField{&c.Plugins.Environment} }},
		{name: "admin.listen", about: "HTTP address of metrics, health and status; empty: none",
			field: func(c *Config) field { return stringField[string]{&c.Admin.Listen} }},
		{name: "log.level", about: "debug, info, warn or error",
			field: func(c *Config) field {
				return choiceField[string]{&c.Log.Level, []string{"debug", "info", "warn", "error"}}
			}},
		{name: "log.format", about: "text for people, json for machines",
			field: func(c *Config) field { return choiceField[string]{&c.Log.Format, []string{"text", "json"}} }},
	}
}
