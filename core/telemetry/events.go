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

// Holds says how many replicas the broker has, how many of them do not serve,
// and how many warnings stand.
func (b Broker) Holds(replicas, offline, warnings int) {
	b.m.set(brokerPartitions, float64(replicas))
	b.m.set(brokerPartitionsDown, float64(offline))
	b.m.set(brokerWarnings, float64(warnings))
}
