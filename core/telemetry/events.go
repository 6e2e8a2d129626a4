package telemetry

import (
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// API counts what the edge tells (core/api's Events).
type API struct{ m *Metrics }

// API returns the counter of the edge's events.
func (m *Metrics) API() API { return API{m} }

// Answered counts a request and its time.
func (a API) Answered(key, _ int16, took time.Duration) {
	a.m.observe(apiRequestSeconds, took.Seconds(), kmsg.NameForKey(key))
}

// Produced counts an append.
func (a API) Produced(topic string, records, bytes int) {
	a.m.add(apiProducedRecords, float64(records), topic)
	a.m.add(apiProducedBytes, float64(bytes), topic)
}

// Fetched counts what a consumer was given.
func (a API) Fetched(topic string, bytes int) {
	a.m.add(apiFetchedBytes, float64(bytes), topic)
}

// FetchSessions counts fetch sessions.
func (a API) FetchSessions(open int, evicted bool) {
	a.m.set(apiFetchSessions, float64(open))
	if evicted {
		a.m.add(apiEvictedSessions, 1)
	}
}

// ClientSeen counts a client's library.
func (a API) ClientSeen(software, version string) {
	a.m.add(apiClients, 1, strings.ToValidUTF8(software, "?"), strings.ToValidUTF8(version, "?"))
}

// Broker counts what the broker knows of itself.
type Broker struct{ m *Metrics }

// Broker returns the counter of the broker's own state.
func (m *Metrics) Broker() Broker { return Broker{m} }

// Is says who this broker is.
func (b Broker) Is(version, cluster, broker string) {
	b.m.set(brokerInfo, 1, version, cluster, broker)
}

// Ready says whether the broker serves.
func (b Broker) Ready(ready bool) {
	n := 0.0
	if ready {
		n = 1
	}
	b.m.set(brokerReady, n)
}

// Holds says how many replicas the broker has, and how many warnings stand.
func (b Broker) Holds(replicas, warnings int) {
	b.m.set(brokerPartitions, float64(replicas))
	b.m.set(brokerWarnings, float64(warnings))
}

// Beaten counts a heartbeat that was answered, well or with an error.
func (b Broker) Beaten(took time.Duration, ok bool) {
	b.m.observe(brokerHeartbeats, took.Seconds())
	if !ok {
		b.m.add(brokerFailedHeartbeats, 1)
	}
}

// Peers counts what happens to links with other brokers. Those that this broker makes are
// counted by the broker that it means to reach.
type Peers struct{ m *Metrics }

// Peers returns the counter of links.
func (m *Metrics) Peers() Peers { return Peers{m} }

// Begin makes the numbers of a broker appear as 0.
func (p Peers) Begin(broker string) {
	p.m.add(peerLinksMade, 0, broker)
	p.m.add(peerLinksLost, 0, broker)
	p.m.add(peerFailedDials, 0, broker)
}

// Made counts a link that stands.
func (p Peers) Made(broker string) { p.m.add(peerLinksMade, 1, broker) }

// Lost counts one that has ended.
func (p Peers) Lost(broker string) { p.m.add(peerLinksLost, 1, broker) }

// Unreached counts a dial that has failed.
func (p Peers) Unreached(broker string) { p.m.add(peerFailedDials, 1, broker) }

// Rejected counts a link with somebody that is not what it should be.
func (p Peers) Rejected() { p.m.add(peerRejected, 1) }

// Replica counts what replicas tell (core/replica's Events).
type Replica struct{ m *Metrics }

// Replica returns the counter of the replicas' events.
func (m *Metrics) Replica() Replica { return Replica{m} }

// Stored counts an append that a store took.
func (r Replica) Stored(batches, bytes int, took time.Duration) {
	r.m.add(replicaStoredBatches, float64(batches))
	r.m.add(replicaStoredBytes, float64(bytes))
	r.m.observe(replicaStoreSeconds, took.Seconds())
}

// Reopened counts a log that was opened again.
func (r Replica) Reopened(topic string) { r.m.add(replicaReopened, 1, topic) }

// Lost counts acknowledged records that are no longer there.
func (r Replica) Lost(topic string, records int64) { r.m.add(replicaLost, float64(records), topic) }

// Offline says how many replicas do not serve.
func (r Replica) Offline(replicas int) { r.m.set(replicaOffline, float64(replicas)) }

// Quarantined says how many logs the metadata does not know.
func (r Replica) Quarantined(logs int) { r.m.set(replicaQuarantined, float64(logs)) }

// Damaged counts a read that met damaged records.
func (r Replica) Damaged(topic string) { r.m.add(replicaDamaged, 1, topic) }

// Refused counts an append that a store had no room for.
func (r Replica) Refused(store string) { r.m.add(replicaRefused, 1, store) }

// Full says whether a store has no room for appends.
func (r Replica) Full(store string, full bool) {
	n := 0.0
	if full {
		n = 1
	}
	r.m.set(replicaFull, n, store)
}

// Begin makes the numbers of a store that alerts are about appear as 0.
func (r Replica) Begin(store string) {
	r.Full(store, false)
	r.m.add(replicaRefused, 0, store)
}

// Coordinator counts what the group coordinator tells (core/coordinator's Events).
type Coordinator struct{ m *Metrics }

// Coordinator returns the counter of the group coordinator's events.
func (m *Metrics) Coordinator() Coordinator { return Coordinator{m} }

// Loaded counts a partition whose groups are served.
func (c Coordinator) Loaded(took time.Duration) { c.m.observe(coordinatorLoads, took.Seconds()) }

// LoadFailed counts a load that will be tried again.
func (c Coordinator) LoadFailed() { c.m.add(coordinatorFailedLoads, 1) }

// Rebalanced counts a group that has begun a rebalance.
func (c Coordinator) Rebalanced() { c.m.add(coordinatorRebalances, 1) }

// Committed counts offsets that a group has committed.
func (c Coordinator) Committed(offsets int) { c.m.add(coordinatorCommitted, float64(offsets)) }

// Expired counts offsets that were kept long enough.
func (c Coordinator) Expired(offsets int) { c.m.add(coordinatorExpired, float64(offsets)) }

// Refused counts a write that failed.
func (c Coordinator) Refused() { c.m.add(coordinatorRefused, 1) }

// Full counts a request for which groups have no memory.
func (c Coordinator) Full() { c.m.add(coordinatorFull, 1) }

// Kept sets how many bytes groups keep, and how many they may.
func (c Coordinator) Kept(used, limit int64) {
	c.m.set(coordinatorKept, float64(used))
	c.m.set(coordinatorKeptMax, float64(limit))
}

// NotAvailable counts a client that was not told its group's coordinator.
func (c Coordinator) NotAvailable(reason string) { c.m.add(coordinatorNotAvailable, 1, reason) }

// Begin makes the numbers that alerts are about appear as 0.
func (c Coordinator) Begin(reasons ...string) {
	c.m.add(coordinatorFailedLoads, 0)
	c.m.add(coordinatorRefused, 0)
	c.m.add(coordinatorFull, 0)
	for _, r := range reasons {
		c.m.add(coordinatorNotAvailable, 0, r)
	}
}

// Holds says how many groups there are in a state.
func (c Coordinator) Holds(state string, groups int) {
	c.m.set(coordinatorGroups, float64(groups), state)
}

// Members says how many members all groups have together.
func (c Coordinator) Members(members int) { c.m.set(coordinatorMembers, float64(members)) }

// Server counts what the server of client connections tells.
type Server struct{ m *Metrics }

// Server returns the counter of the server's events.
func (m *Metrics) Server() Server { return Server{m} }

// ConnectionOpened counts a connection.
func (s Server) ConnectionOpened(listener string) { s.m.shift(serverConnections, 1, listener) }

// ConnectionClosed counts its end.
func (s Server) ConnectionClosed(listener, reason string) {
	s.m.shift(serverConnections, -1, listener)
	s.m.add(serverClosed, 1, listener, reason)
}

// RequestServed counts a request whose reply was sent.
func (s Server) RequestServed(listener string, key int16, took time.Duration, bytesIn, bytesOut int) {
	s.m.observe(serverRequestSeconds, took.Seconds(), kmsg.NameForKey(key))
	s.m.add(serverBytesIn, float64(bytesIn), listener)
	s.m.add(serverBytesOut, float64(bytesOut), listener)
}

// Plugins counts what happens to plugins.
type Plugins struct{ m *Metrics }

// Plugins returns the counter of plugins' lives.
func (m *Metrics) Plugins() Plugins { return Plugins{m} }

// Happened counts a plugin that came to serve (started), one that ended after it
// had, or, with neither, one that failed to.
func (p Plugins) Happened(store, plugin string, started, ended bool) {
	switch {
	case started:
		p.m.set(pluginServing, 1, store, plugin)
		p.m.add(pluginStarts, 1, store, plugin)
	case ended:
		p.m.set(pluginServing, 0, store, plugin)
		p.m.add(pluginEnds, 1, store, plugin)
	default:
		p.m.set(pluginServing, 0, store, plugin)
		p.m.add(pluginFailures, 1, store, plugin)
	}
}
