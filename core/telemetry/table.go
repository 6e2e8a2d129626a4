package telemetry

import (
	"fmt"
	"strings"
)

// Kind is what a metric's number does.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"   // only grows
	Gauge     Kind = "gauge"     // is what it is now
	Histogram Kind = "histogram" // counts by size
)

// Metric is one row of the table.
type Metric struct {
	Name   string // brokerd_<package>_<noun>_<unit>
	Kind   Kind
	Labels []string
	Help   string
}

// The names, for those who count.
const (
	apiRequestSeconds       = "brokerd_api_request_seconds"
	apiProducedRecords      = "brokerd_api_produced_records_total"
	apiProducedBytes        = "brokerd_api_produced_bytes_total"
	apiFetchedBytes         = "brokerd_api_fetched_bytes_total"
	apiFetchSessions        = "brokerd_api_fetch_sessions_count"
	apiEvictedSessions      = "brokerd_api_fetch_sessions_evicted_total"
	apiClients              = "brokerd_api_client_connections_total"
	replicaStoredBatches    = "brokerd_replica_stored_batches_total"
	replicaStoredBytes      = "brokerd_replica_stored_bytes_total"
	replicaStoreSeconds     = "brokerd_replica_store_append_seconds"
	replicaReopened         = "brokerd_replica_logs_reopened_total"
	replicaLost             = "brokerd_replica_lost_records_total"
	replicaDamaged          = "brokerd_replica_damaged_reads_total"
	replicaRefused          = "brokerd_replica_refused_appends_total"
	replicaFull             = "brokerd_replica_store_full_state"
	replicaOffline          = "brokerd_replica_offline_count"
	replicaQuarantined      = "brokerd_replica_quarantined_logs_count"
	coordinatorGroups       = "brokerd_coordinator_groups_count"
	coordinatorMembers      = "brokerd_coordinator_members_count"
	coordinatorRebalances   = "brokerd_coordinator_rebalances_total"
	coordinatorCommitted    = "brokerd_coordinator_committed_offsets_total"
	coordinatorExpired      = "brokerd_coordinator_expired_offsets_total"
	coordinatorRefused      = "brokerd_coordinator_refused_writes_total"
	coordinatorKept         = "brokerd_coordinator_memory_bytes"
	coordinatorKeptMax      = "brokerd_coordinator_memory_limit_bytes"
	coordinatorFull         = "brokerd_coordinator_refused_memory_total"
	coordinatorLoads        = "brokerd_coordinator_load_seconds"
	coordinatorFailedLoads  = "brokerd_coordinator_failed_loads_total"
	coordinatorNotAvailable = "brokerd_coordinator_not_available_total"
	serverConnections       = "brokerd_server_connections_count"
	serverClosed            = "brokerd_server_connections_closed_total"
	serverRequestSeconds    = "brokerd_server_request_seconds"
	serverBytesIn           = "brokerd_server_received_bytes_total"
	serverBytesOut          = "brokerd_server_sent_bytes_total"
	pluginServing           = "brokerd_pluginhost_serving_state"
	pluginStarts            = "brokerd_pluginhost_starts_total"
	pluginEnds              = "brokerd_pluginhost_ends_total"
	pluginFailures          = "brokerd_pluginhost_failures_total"
	brokerInfo              = "brokerd_broker_info"
	brokerReady             = "brokerd_broker_ready_state"
	brokerWarnings          = "brokerd_broker_warnings_count"
	brokerPartitions        = "brokerd_broker_partitions_count"
	brokerHeartbeats        = "brokerd_broker_heartbeat_seconds"
	brokerFailedHeartbeats  = "brokerd_broker_failed_heartbeats_total"
	peerLinksMade           = "brokerd_peer_links_made_total"
	peerLinksLost           = "brokerd_peer_links_lost_total"
	peerFailedDials         = "brokerd_peer_failed_dials_total"
	peerRejected            = "brokerd_peer_links_rejected_total"
)

// Table returns every metric, in the order of the document.
func Table() []Metric {
	table := counted()
	for _, m := range storeMetrics() {
		table = append(table, m.Metric)
	}
	for _, m := range clusterMetrics() {
		table = append(table, m.Metric)
	}
	return table
}

// counted are those that are counted as things happen.
func counted() []Metric {
	return []Metric{
		{brokerInfo, Gauge, []string{"version", "cluster", "broker"}, "Always 1; the labels tell who this is."},
		{brokerReady, Gauge, nil, "1 while the broker serves clients."},
		{brokerWarnings, Gauge, nil, "Warnings that /v1/status lists now."},
		{brokerPartitions, Gauge, nil, "Replicas on this broker."},
		{brokerHeartbeats, Histogram, nil, "Time from a heartbeat of this broker to the active controller's answer, changes of the metadata that it waits for included. As long as broker.session.timeout.ms: this broker is about to be fenced."},
		{brokerFailedHeartbeats, Counter, nil, "Heartbeats that were answered by an error. Those that were given up for the next one are not counted: see brokerd_replica_lease_state."},
		{peerLinksMade, Counter, []string{"broker"}, "Links that this broker has made to another one. There are up to three at a time; growing for long: they do not stand."},
		{peerLinksLost, Counter, []string{"broker"}, "Those that have ended and not by this broker's doing."},
		{peerFailedDials, Counter, []string{"broker"}, "Times that another broker could not be reached; it is tried again."},
		{peerRejected, Counter, nil, "Links that were ended since who is at the other end is not what it should be: another cluster's broker, or one without the secret. Growing: read the log."},
		{serverConnections, Gauge, []string{"listener"}, "Connections that are open."},
		{serverClosed, Counter, []string{"listener", "reason"}, "Connections that ended, by what ended them."},
		{serverRequestSeconds, Histogram, []string{"api"}, "Time from a request's last byte to the last byte of its reply, sent; a long poll's waiting included."},
		{serverBytesIn, Counter, []string{"listener"}, "Bytes of requests."},
		{serverBytesOut, Counter, []string{"listener"}, "Bytes of replies."},
		{apiRequestSeconds, Histogram, []string{"api"}, "Time in which a request was answered, sending left out; a long poll's waiting included."},
		{apiProducedRecords, Counter, []string{"topic"}, "Records that producers appended."},
		{apiProducedBytes, Counter, []string{"topic"}, "Bytes of record batches that producers appended, in the codec in which they are kept."},
		{apiFetchedBytes, Counter, []string{"topic"}, "Bytes of record batches that consumers were given."},
		{apiFetchSessions, Gauge, nil, "Fetch sessions that are remembered."},
		{apiEvictedSessions, Counter, nil, "Fetch sessions that made room for others."},
		{apiClients, Counter, []string{"software", "software_version"}, "Connections by the name that the client's library gave."},
		{coordinatorGroups, Gauge, []string{"state"}, "Groups that this broker coordinates, by state."},
		{coordinatorMembers, Gauge, nil, "Members of those groups."},
		{coordinatorRebalances, Counter, nil, "Rebalances that groups have begun."},
		{coordinatorCommitted, Counter, nil, "Offsets that groups have committed."},
		{coordinatorExpired, Counter, nil, "Committed offsets that were kept long enough."},
		{coordinatorRefused, Counter, nil, "Times that groups' records could not be written, so that clients had to try again."},
		{coordinatorKept, Gauge, nil, "Memory that groups take: their members, assignments and offsets."},
		{coordinatorKeptMax, Gauge, nil, "Memory that they may take."},
		{coordinatorFull, Counter, nil, "Joins, assignments and commits that were refused because groups take all the memory that they may: raise memory."},
		{coordinatorLoads, Histogram, nil, "Time in which the groups of one partition were read from the log, when this broker came to coordinate them."},
		{coordinatorFailedLoads, Counter, nil, "Times that they could not be read, and were tried again."},
		{coordinatorNotAvailable, Counter, []string{"reason"}, "Clients that were not told their group's coordinator. creation: the offsets topic cannot be made; waiting: it is being made; leader: the group's partition has no leader."},
		{pluginServing, Gauge, []string{"store", "plugin"}, "1 while the store's plugin serves."},
		{pluginStarts, Counter, []string{"store", "plugin"}, "Times that the store's plugin came to serve."},
		{pluginEnds, Counter, []string{"store", "plugin"}, "Times that it ended after it had served, the broker's own stop left out."},
		{pluginFailures, Counter, []string{"store", "plugin"}, "Times that it did not come to serve."},
		{replicaStoredBatches, Counter, nil, "Record batches that stores took."},
		{replicaStoredBytes, Counter, nil, "Bytes of record batches that stores took."},
		{replicaStoreSeconds, Histogram, nil, "Time in which a store took an append."},
		{replicaReopened, Counter, []string{"topic"}, "Logs that were opened again, because the outcome of an append was unknown."},
		{replicaLost, Counter, []string{"topic"}, "Acknowledged records that a store no longer has. More than 0: find out why."},
		{replicaDamaged, Counter, []string{"topic"}, "Reads that met damaged records. More than 0: restore a backup, or give the range up."},
		{replicaRefused, Counter, []string{"store"}, "Appends that a store had no room for."},
		{replicaFull, Gauge, []string{"store"}, "1 while a store has no room for appends."},
		{replicaOffline, Gauge, nil, "Replicas on this broker that do not serve."},
		{replicaQuarantined, Gauge, nil, "Logs in stores that the metadata does not know, left alone."},
	}
}

// Markdown is the table as a document.
func Markdown() string {
	var b strings.Builder
	b.WriteString("# Metrics\n\nServed in Prometheus' text form at `/metrics` of `admin.listen`. This page is made from the broker's own table.\n\n")
	b.WriteString("| metric | kind | labels | meaning |\n|---|---|---|---|\n")
	for _, m := range Table() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Kind, strings.Join(m.Labels, ", "), m.Help)
	}
	fmt.Fprintf(&b, "\nA label takes at most %d values; what comes later counts as `%s`.\n", labelValuesMax, labelOther)
	return b.String()
}
