package config

import "strings"

// foreign is a key of Kafka's that is not a setting here, and why.
type foreign struct {
	name   string // a name, or a prefix that ends in a dot
	refuse bool   // to go on without it would be unsafe or surprising
	reason string
}

// kafkaKeys are the keys that people bring along in a server.properties.
func kafkaKeys() []foreign {
	const (
		sized      = "the broker sizes this by itself"
		quorum     = "the quorum is formed by `cluster`, and every node may vote"
		notServed  = "TLS and SASL are not served yet, and going on without them would leave the listener open"
		notYet     = "what it tunes is not served yet"
		placedData = "say `data: DIR`, or name stores below `storage`, so that no data ends up in a place nobody expects"
	)
	return []foreign{
		{"broker.id", true, "say `node.id` instead"},
		{"log.dir", true, placedData},
		{"log.dirs", true, placedData},
		{"metadata.log.dir", true, placedData},
		{"host.name", true, "say `listeners` instead"},
		{"port", true, "say `listeners` instead"},
		{"advertised.host.name", true, "say `advertised.listeners` instead"},
		{"advertised.port", true, "say `advertised.listeners` instead"},
		{"ssl.", true, notServed},
		{"sasl.", true, notServed},
		{"listener.name.", true, notServed},
		{"security.inter.broker.protocol", true, notServed},
		{"authorizer.class.name", true, "authorizers are not served yet, and going on without would allow everything"},
		{"super.users", true, "authorizers are not served yet, and going on without would allow everything"},
		{"create.topic.policy.class.name", true, "classes of Kafka's cannot be loaded here"},
		{"alter.config.policy.class.name", true, "classes of Kafka's cannot be loaded here"},
		{"remote.log.", true, "name a store below `storage` for that"},
		{"zookeeper.", false, "there is no ZooKeeper here"},
		{"process.roles", false, quorum},
		{"controller.", false, quorum},
		{"inter.broker.", false, "brokers speak to each other through `transport`"},
		{"control.plane.listener.name", false, quorum},
		{"num.network.threads", false, sized},
		{"num.io.threads", false, sized},
		{"num.replica.fetchers", false, sized},
		{"num.recovery.threads.per.data.dir", false, sized},
		{"background.threads", false, sized},
		{"socket.send.buffer.bytes", false, sized},
		{"socket.receive.buffer.bytes", false, sized},
		{"socket.listen.backlog.size", false, sized},
		{"queued.max.requests", false, "`memory` is the budget of all requests"},
		{"max.connections.per.ip", false, notYet},
		{"queued.max.request.bytes", false, "`memory` is the budget of all requests"},
		{"log.flush.scheduler.interval.ms", false, "say `flush: interval` and `log.flush.interval.ms` instead"},
		{"log.flush.", false, "recovery points are kept by the store"},
		{"log.cleaner.", false, notYet},
		{"log.preallocate", false, "the store decides"},
		{"log.segment.delete.delay.ms", false, "the store decides"},
		{"log.message.format.version", false, "there is one format"},
		{"log.message.downconversion.enable", false, "there is one format"},
		{"log.message.timestamp.difference.max.ms", false, "say log.message.timestamp.after.max.ms and before.max.ms instead"},
		{"inter.broker.protocol.version", false, "versions are negotiated"},
		{"group.", false, notYet},
		{"offsets.topic.", false, "the broker makes the topic with what it needs"},
		{"offsets.load.buffer.size", false, sized},
		{"offsets.commit.required.acks", false, "an offset is acknowledged when all in-sync replicas have it"},
		{"transaction.", false, notYet},
		{"transactional.id.expiration.ms", false, notYet},
		{"replica.", false, notYet},
		{"replica.selector.class", false, "consumers that tell their rack (client.rack) read from a replica in it, always"},
		{"leader.imbalance.", false, notYet},
		{"auto.leader.rebalance.enable", false, notYet},
		{"controlled.shutdown.", false, "every shutdown is a controlled one"},
		{"quota.", false, notYet},
		{"metadata.", false, quorum},
		{"metrics.", false, "metrics are at `admin.listen`"},
		{"metric.reporters", false, "metrics are at `admin.listen`"},
		{"auto.include.jmx.reporter", false, "metrics are at `admin.listen`"},
		{"confluent.", false, "it belongs to another product"},
		{"max.connection.creation.rate", false, notYet},
		{"request.timeout.ms", false, notYet},
		{"initial.broker.registration.timeout.ms", false, quorum},
		{"delegation.token.", true, notServed},
		{"principal.builder.class", true, "classes of Kafka's cannot be loaded here"},
	}
}

// kafkaKey looks a key up: the exact name first, then the longest prefix.
func kafkaKey(name string) (foreign, bool) {
	var best foreign
	for _, k := range kafkaKeys() {
		if k.name == name {
			return k, true
		}
		if strings.HasSuffix(k.name, ".") && strings.HasPrefix(name, k.name) && len(k.name) > len(best.name) {
			best = k
		}
	}
	return best, best.name != ""
}
