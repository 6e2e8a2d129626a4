package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/brokerd/brokerd/core/image/topicconfig"
)

// problem is a value that cannot be, and what to do.
type problem struct {
	name string
	msg  string
}

// Validate says everything that is wrong with c, a sentence each, or nil.
func (c Config) Validate() error {
	problems := c.problems()
	out := make([]error, 0, len(problems))
	for _, p := range problems {
		out = append(out, fmt.Errorf("%s: %s", p.name, p.msg))
	}
	return errors.Join(out...)
}

// checker collects problems.
type checker struct{ found []problem }

func (k *checker) check(ok bool, name, format string, args ...any) {
	if !ok {
		k.found = append(k.found, problem{name, fmt.Sprintf(format, args...)})
	}
}

func (c Config) problems() []problem {
	var k checker
	k.check(c.NodeID >= 0, "node.id", "%d is negative; a node's number is 0 or more", c.NodeID)
	k.check(c.Data != "", "data", "no directory is named; say where the broker may keep its files")
	k.check(c.Memory >= memoryBytesMin, "memory", "%s is too little; give at least %s", FormatBytes(c.Memory), FormatBytes(memoryBytesMin))
	c.checkCluster(&k)
	c.checkListeners(&k)
	c.checkTopics(&k)
	c.checkGroups(&k)
	c.checkLimits(&k)
	c.checkPlugins(&k)
	if c.Admin.Listen != "" {
		_, _, err := net.SplitHostPort(c.Admin.Listen)
		k.check(err == nil, "admin.listen", "%q is not host:port; write 127.0.0.1:9644, or \"\" for none", c.Admin.Listen)
	}
	return k.found
}

// RequestMemoryShare is how many of the largest requests memory holds at least:
// there is an answer to hold too, and there are other connections.
const RequestMemoryShare = 5

// ConnectionMemoryBytes is how much memory there is to be for each connection that
// may be open.
const ConnectionMemoryBytes = 64 << 10

// PartitionsMax is how many partitions the controller makes for one request.
const PartitionsMax = 10_000

// memoryBytesMin is what a broker needs to answer one large request at all.
const memoryBytesMin = 16 << 20

// votersMax is more than any cluster needs: each vote is one more to wait for.
const votersMax = 9

func (c Config) checkCluster(k *checker) {
	for _, s := range c.Cluster.Seeds {
		if c.Transport.Plugin != transportDefault {
			break // another's endpoints are its own
		}
		_, port, err := net.SplitHostPort(s)
		k.check(err == nil && port != "", "cluster.seeds", "%q is not host:port", s)
	}
	k.check(len(c.Cluster.Seeds) == 0 || c.Transport.Used(), "cluster.seeds",
		"other brokers are named, and transport.config does not say where this one listens to them, and how they prove who they are")
	v := c.Cluster.Voters
	k.check(v >= 1 && v <= votersMax, "controller.quorum.target", "%d is out of range; give 1 to %d", v, votersMax)
	k.check(v%2 == 1 || v < 1, "controller.quorum.target", "%d stand no more deaths than %d, and are slower; give an odd number", v, v-1)
	beat, session := c.Cluster.HeartbeatEvery, c.Cluster.SessionTimeout
	k.check(beat > 0, "broker.heartbeat.interval.ms", "%d is too little; give at least 1", beat.Milliseconds())
	k.check(session/2 >= beat || beat <= 0, "broker.session.timeout.ms",
		"%d is less than two of broker.heartbeat.interval.ms (%d), so that one that comes late would fence a broker; raise it, or lower the other", session.Milliseconds(), beat.Milliseconds())
}

func (c Config) checkListeners(k *checker) {
	k.check(len(c.Listeners) > 0, "listeners", "there is none, so no client could connect; write PLAINTEXT://host:9092")
	names := make(map[string]bool)
	addresses := make(map[string]string)
	for _, l := range c.Listeners {
		k.check(!names[l.Name], "listeners", "the name %s is there twice; every listener has a name of its own", l.Name)
		names[l.Name] = true
		if other, twice := addresses[l.Address()]; twice && l.Port != 0 {
			k.check(false, "listeners", "%s and %s want the same address; give each a port", other, l.Name)
		}
		addresses[l.Address()] = l.Name
		switch protocol := c.protocolOf(l.Name); protocol {
		case "PLAINTEXT":
		case "":
			k.check(false, "listeners", "nothing says what protocol %s speaks; add listener.security.protocol.map: %s:PLAINTEXT", l.Name, l.Name)
		default:
			k.check(false, "listeners", "%s speaks %s, and only PLAINTEXT is served yet", l.Name, protocol)
		}
	}
	for _, a := range c.Advertised {
		k.check(names[a.Name], "advertised.listeners", "%s is not among the listeners (%s); names must agree", a.Name, listenersField{&c.Listeners}.format())
		k.check(!a.Wildcard(), "advertised.listeners", "%s cannot be dialled by anybody; name a host or an address of this machine", a)
	}
}

func (c Config) protocolOf(listener string) string {
	if p, ok := c.ProtocolsMap[listener]; ok {
		return strings.ToUpper(p)
	}
	switch listener {
	case "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL":
		return listener
	}
	return ""
}

func (c Config) checkTopics(k *checker) {
	t := c.Topics
	k.check(t.Partitions >= 1, "num.partitions", "%d is too few; a topic has at least 1", t.Partitions)
	k.check(t.Partitions <= PartitionsMax, "num.partitions", "%d is more than a topic can be made with, which is %d", t.Partitions, PartitionsMax)
	k.check(t.OffsetsPartitions >= 1, "offsets.topic.num.partitions", "%d is too few; a topic has at least 1", t.OffsetsPartitions)
	k.check(t.OffsetsPartitions <= PartitionsMax, "offsets.topic.num.partitions", "%d is more than a topic can be made with, which is %d", t.OffsetsPartitions, PartitionsMax)
	for _, f := range []struct {
		name  string
		count int16
	}{
		{"default.replication.factor", t.ReplicationFactor},
		{"offsets.topic.replication.factor", t.OffsetsReplication},
		{"transaction.state.log.replication.factor", t.TxnReplication},
	} {
		k.check(f.count >= 1, f.name, "%d is too few; there is at least 1 replica", f.count)
	}
	minISR := t.number("min.insync.replicas")
	k.check(minISR <= int64(t.ReplicationFactor) || t.ReplicationFactor < 1, "min.insync.replicas",
		"%d is more than default.replication.factor (%d), so that acks=all could never succeed; lower it, or raise the other", minISR, t.ReplicationFactor)
	batch := t.number("message.max.bytes")
	k.check(batch <= c.Server.RequestBytesMax, "message.max.bytes",
		"%d is more than socket.request.max.bytes (%d), so that such a batch could never arrive; lower it, or raise the other", batch, c.Server.RequestBytesMax)
	if err := topicconfig.ValidateBroker(t.Properties); err != nil {
		k.check(false, "topic defaults", "%s", err)
	}
}

func (c Config) checkGroups(k *checker) {
	g := c.Groups
	k.check(g.SessionMin > 0, "group.min.session.timeout.ms", "%d is too little; give at least 1", g.SessionMin.Milliseconds())
	k.check(g.SessionMax >= g.SessionMin, "group.max.session.timeout.ms", "%d is less than group.min.session.timeout.ms (%d), so that no member could join; raise it, or lower the other",
		g.SessionMax.Milliseconds(), g.SessionMin.Milliseconds())
	k.check(g.InitialDelay >= 0, "group.initial.rebalance.delay.ms", "%d is negative", g.InitialDelay.Milliseconds())
	k.check(g.SizeMax >= 1, "group.max.size", "%d is too few; a group has at least 1 member", g.SizeMax)
	k.check(g.MetadataMax >= 0, "offset.metadata.max.bytes", "%d is negative", g.MetadataMax)
	k.check(g.Retention > 0, "offsets.retention.minutes", "%s is too little; offsets would go as soon as their group has no members", g.Retention)
	k.check(g.ExpiryEvery > 0, "offsets.retention.check.interval.ms", "%d is too little; give at least 1", g.ExpiryEvery.Milliseconds())
	k.check(g.CommitTimeout > 0, "offsets.commit.timeout.ms", "%d is too little; give at least 1", g.CommitTimeout.Milliseconds())
	k.check(g.Codec >= 0 && g.Codec <= codecMax, "offsets.topic.compression.codec", "%d is none of 0 (none), 1 (gzip), 2 (snappy), 3 (lz4) and 4 (zstd)", g.Codec)
	segment, _ := topicconfig.Lookup("segment.bytes")
	err := segment.Check(strconv.FormatInt(g.SegmentBytes, 10))
	k.check(err == nil, "offsets.topic.segment.bytes", "it cannot be %d: it must be %s", g.SegmentBytes, segment.Allowed)
}

// codecMax is the greatest of Kafka's numbers of codecs.
const codecMax = 4

func (c Config) checkLimits(k *checker) {
	s := c.Server
	k.check(s.RequestBytesMax >= 1024 && s.RequestBytesMax <= 1<<31-1, "socket.request.max.bytes", "%d is out of range; give 1024 to 2147483647", s.RequestBytesMax)
	k.check(s.RequestBytesMax <= c.Memory/RequestMemoryShare, "socket.request.max.bytes",
		"%d is more than a fifth of memory (%s), so that such a request could never be read; lower it, or raise the other", s.RequestBytesMax, FormatBytes(c.Memory))
	k.check(s.IdleMax != 0, "connections.max.idle.ms", "0 would close every connection at once; give at least 1, or -1 for never")
	k.check(s.ConnectionsMax >= 1, "max.connections", "%d is too few; give at least 1", s.ConnectionsMax)
	k.check(s.FetchBytesMax >= 1024, "fetch.max.bytes", "%d is too little; give at least 1024", s.FetchBytesMax)
	k.check(s.FetchSessionsMax >= 0, "max.incremental.fetch.session.cache.slots", "%d is negative", s.FetchSessionsMax)
	r := c.Replicas
	k.check(r.FlushInterval > 0, "log.flush.interval.ms", "%d is too little; give at least 1", r.FlushInterval.Milliseconds())
	k.check(r.RetentionInterval > 0, "log.retention.check.interval.ms", "%d is too little; give at least 1", r.RetentionInterval.Milliseconds())
	k.check(r.LagMax > 0, "replica.lag.time.max.ms", "%d is too little; give at least 1", r.LagMax.Milliseconds())
	k.check(r.ProducerExpiration > 0, "producer.id.expiration.ms", "%d is too little; give at least 1", r.ProducerExpiration.Milliseconds())
}

// pluginName keeps a plugin's or a store's name usable as a file's name.
var pluginName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)

func (c Config) checkPlugins(k *checker) {
	names := make([]string, 0, len(c.Storage.Stores))
	for name := range c.Storage.Stores {
		names = append(names, name)
	}
	slices.Sort(names)
	k.check(len(names) > 0, "storage.stores", "there is none; name one, such as main: {plugin: storage-file}")
	_, ok := c.Storage.Stores[c.Storage.Default]
	k.check(ok || len(names) == 0, "storage.default", "%q is not among the stores (%s)", c.Storage.Default, strings.Join(names, ", "))
	for _, name := range names {
		k.check(pluginName.MatchString(name), "storage.stores", "the store's name %q is not made of small letters, digits and dashes, a letter first", name)
		plugin, carrier := c.Storage.Stores[name].Plugin, c.Storage.Stores[name].Carrier
		k.check(carrier == "" || slices.Contains(carriers(), string(carrier)), "storage.stores", "store %s: there is no carrier %q; it is one of %s",
			name, carrier, strings.Join(carriers(), ", "))
		k.check(pluginName.MatchString(plugin), "storage.stores", "store %s: the plugin's name %q is not made of small letters, digits and dashes, a letter first", name, plugin)
	}
	for plugin, sum := range c.Plugins.Checksums {
		k.check(pluginName.MatchString(plugin), "plugins.checksums", "the plugin's name %q is not made of small letters, digits and dashes, a letter first", plugin)
		raw, err := hex.DecodeString(sum)
		k.check(err == nil && len(raw) == 32, "plugins.checksums", "that of %s is not 64 hexadecimal digits; `sha256sum FILE` prints it", plugin)
	}
}
