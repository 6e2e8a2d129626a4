package topicconfig

import (
	"math"
	"slices"
)

// Units of the broker's older properties.
const (
	minute = 60 * 1000
	hour   = 60 * minute
	day    = 24 * hour
)

// SegmentBytesMin is the smallest segment. (KIP-1030)
const SegmentBytesMin = 1 << 20

// table is every setting, in name order. It is never changed.
var table = []Definition{
	list("cleanup.policy", "delete", "a list of delete and compact, or empty", same("log.cleanup.policy"),
		"What happens to old records: delete removes old segments by retention.ms and retention.bytes, compact keeps the last record of each key, both do both, and an empty list keeps everything.",
		func(e string) bool { return e == "delete" || e == "compact" }),
	inert(integer("compression.gzip.level", Int, -1, -1, 9, same("compression.gzip.level"),
		"The level when compression.type is gzip, from 1 to 9; -1 is the codec's own default.")),
	inert(integer("compression.lz4.level", Int, 9, 1, 17, same("compression.lz4.level"),
		"The level when compression.type is lz4.")),
	choice("compression.type", "producer", []string{"uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"}, same("compression.type"),
		"The codec of stored batches: producer keeps what the producer chose, any other has the broker compress again what came in another codec."),
	inert(integer("compression.zstd.level", Int, 3, -131072, 22, same("compression.zstd.level"),
		"The level when compression.type is zstd.")),
	integer("delete.retention.ms", Long, day, 0, math.MaxInt64, same("log.cleaner.delete.retention.ms"),
		"How long a compacted topic keeps tombstones after they were first cleaned, in milliseconds."),
	inert(integer("file.delete.delay.ms", Long, minute, 0, math.MaxInt64, same("log.segment.delete.delay.ms"),
		"How long a deleted segment's file stays before it is removed, in milliseconds.")),
	integer("flush.messages", Long, math.MaxInt64, 1, math.MaxInt64, same("log.flush.interval.messages"),
		"After how many records the log is forced to disk: 1 forces each one before it is acknowledged. More than 1 leaves it to the broker's flush policy, as the default does."),
	integer("flush.ms", Long, math.MaxInt64, 0, math.MaxInt64, same("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
		"After how many milliseconds records are forced to disk: 0 forces each one before it is acknowledged, more shortens the period of the flush policy interval. The default leaves it to the broker's flush policy."),
	throttled("follower.replication.throttled.replicas", "by the broker that copies", "follower.replication.throttled.rate"),
	integer("index.interval.bytes", Int, 4096, 0, math.MaxInt64, same("log.index.interval.bytes"),
		"How many bytes of log lie between two index entries."),
	throttled("leader.replication.throttled.replicas", "by the broker that leads", "leader.replication.throttled.rate"),
	inert(integer("local.retention.bytes", Long, -2, -2, math.MaxInt64, same("log.local.retention.bytes"),
		"How many bytes of a tiered partition stay on local disk; -2 takes retention.bytes.")),
	inert(integer("local.retention.ms", Long, -2, -2, math.MaxInt64, same("log.local.retention.ms"),
		"How long a tiered partition's segments stay on local disk, in milliseconds; -2 takes retention.ms.")),
	integer("max.compaction.lag.ms", Long, math.MaxInt64, 1, math.MaxInt64, same("log.cleaner.max.compaction.lag.ms"),
		"The longest time that a record may stay uncompacted, in milliseconds."),
	integer("max.message.bytes", Int, 1048588, 0, math.MaxInt64, same("message.max.bytes"),
		"The largest record batch that is accepted, in bytes, after compression."),
	integer("message.timestamp.after.max.ms", Long, hour, 0, math.MaxInt64, same("log.message.timestamp.after.max.ms"),
		"How far a record's timestamp may lie ahead of the broker's clock, in milliseconds. (KIP-937, KIP-1030)"),
	integer("message.timestamp.before.max.ms", Long, math.MaxInt64, 0, math.MaxInt64, same("log.message.timestamp.before.max.ms"),
		"How far a record's timestamp may lie behind the broker's clock, in milliseconds. (KIP-937)"),
	choice("message.timestamp.type", "CreateTime", []string{"CreateTime", "LogAppendTime"}, same("log.message.timestamp.type"),
		"Whether a record keeps the time that its producer gave it (CreateTime) or gets the broker's (LogAppendTime)."),
	ratio("min.cleanable.dirty.ratio", "0.5", same("log.cleaner.min.cleanable.ratio"),
		"The part of a compacted log that must be uncompacted before it is compacted again."),
	integer("min.compaction.lag.ms", Long, 0, 0, math.MaxInt64, same("log.cleaner.min.compaction.lag.ms"),
		"How long a record stays uncompacted at least, in milliseconds."),
	clusterWide(integer("min.insync.replicas", Int, 2, 1, math.MaxInt64, same("min.insync.replicas"),
		"How many in-sync replicas must have a record before a producer with acks=all hears of it. While a topic has fewer replicas than its target, one less than it has is enough, so that two brokers go on when one dies.")),
	inert(boolean("preallocate", same("log.preallocate"),
		"Whether a new segment's file is given its full size at once.")),
	inert(boolean("remote.log.copy.disable", nil,
		"Whether a tiered topic stops copying segments to remote storage.")),
	inert(boolean("remote.log.delete.on.disable", nil,
		"Whether a topic's remote data goes when remote.storage.enable is switched off.")),
	inert(restricted(boolean("remote.storage.enable", nil,
		"Whether segments are copied to remote storage."),
		"false", "tiered storage is not supported yet")),
	integer("retention.bytes", Long, -1, -1, math.MaxInt64, same("log.retention.bytes"),
		"The size at which a partition's oldest segments are deleted, in bytes; -1 is no limit."),
	integer("retention.ms", Long, 7*day, -1, math.MaxInt64, []BrokerKey{
		{Name: "log.retention.ms", Scale: 1}, {Name: "log.retention.minutes", Scale: minute}, {Name: "log.retention.hours", Scale: hour}},
		"How long records are kept, in milliseconds; -1 is for ever."),
	integer("segment.bytes", Int, 1<<30, SegmentBytesMin, math.MaxInt64, same("log.segment.bytes"),
		"The size of a segment, in bytes. Retention and compaction work on whole segments."),
	integer("segment.index.bytes", Int, 10<<20, 4, math.MaxInt64, same("log.index.size.max.bytes"),
		"The largest size of a segment's index, in bytes."),
	integer("segment.jitter.ms", Long, 0, 0, math.MaxInt64, []BrokerKey{
		{Name: "log.roll.jitter.ms", Scale: 1}, {Name: "log.roll.jitter.hours", Scale: hour}},
		"The most that a segment's age limit is shortened at random, in milliseconds, so that segments do not roll all at once."),
	integer("segment.ms", Long, 7*day, 1, math.MaxInt64, []BrokerKey{
		{Name: "log.roll.ms", Scale: 1}, {Name: "log.roll.hours", Scale: hour}},
		"The age at which a segment is closed even when it is not full, in milliseconds."),
	clusterWide(boolean("unclean.leader.election.enable", same("unclean.leader.election.enable"),
		"Whether a replica that is not in sync may lead when no other is left, which loses acknowledged records.")),
}

func throttled(name, by, rate string) Definition {
	return list(name, "", "* or a list of partition:broker", nil,
		"The replicas, "+by+", of which what goes to those out of the ISR counts against that broker's "+rate+"; * is all. (KIP-73)",
		func(e string) bool { _, ok := parseReplica(e); return ok || e == "*" })
}

// Definitions returns every setting in name order.
func Definitions() []Definition { return slices.Clone(table) }

// Lookup finds a setting by its name.
func Lookup(name string) (Definition, bool) {
	i, ok := slices.BinarySearchFunc(table, name, func(d Definition, n string) int {
		switch {
		case d.Name < n:
			return -1
		case d.Name > n:
			return 1
		}
		return 0
	})
	if !ok {
		return Definition{}, false
	}
	return table[i], true
}

// LookupBroker finds the setting that a broker property stands in for.
func LookupBroker(name string) (Definition, BrokerKey, bool) {
	for _, d := range table {
		for _, k := range d.Broker {
			if k.Name == name {
				return d, k, true
			}
		}
	}
	return Definition{}, BrokerKey{}, false
}
