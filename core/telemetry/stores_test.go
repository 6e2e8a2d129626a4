package telemetry

import (
	"strings"
	"testing"
)

func TestStoresAreLookedUpWhenAskedFor(t *testing.T) {
	m := NewMetrics()
	looks := int64(0)
	m.Stores(func() []StorePath {
		looks++
		return []StorePath{
			{
				Store: "main", Plugin: "p", Carrier: "files", Allowed: "files",
				GrantsHeld: 2, GrantsBegun: 9, GrantsRefused: 1, GrantsEnded: map[string]int64{"idle": 4, "lost": 3},
				Granted: Moved{10, 1000}, Called: Moved{1, 100}, LeasesHeld: 5, LeasedBytes: 70, SectionBytes: 700, CalledBytes: 7, TailBytes: looks,
				LeasesFailed: map[string]int64{"order": 1}, Sent: Carried{3, 30}, Received: Carried{4, 40}, Waits: 6, AppendsWaiting: 8,
			},
			{Store: "cold", Plugin: "q", Allowed: "grpc"},
		}
	})
	scrape(t, m)
	out := scrape(t, m)
	for _, want := range []string{
		`brokerd_pluginhost_carrier_info{allowed="files",carrier="files",plugin="p",store="main"} 1`,
		`brokerd_pluginhost_grants_count{store="main"} 2`,
		`brokerd_pluginhost_grants_count{store="cold"} 0`,
		`brokerd_pluginhost_grants_begun_total{store="main"} 9`,
		`brokerd_pluginhost_grants_refused_total{store="main"} 1`,
		`brokerd_pluginhost_grants_ended_total{reason="idle",store="main"} 4`,
		`brokerd_pluginhost_grants_ended_total{reason="lost",store="main"} 3`,
		`brokerd_pluginhost_appended_batches_total{store="main",way="grant"} 10`,
		`brokerd_pluginhost_appended_bytes_total{store="main",way="call"} 100`,
		`brokerd_pluginhost_leases_count{store="main"} 5`,
		`brokerd_pluginhost_read_bytes_total{store="main",way="lease"} 70`,
		`brokerd_pluginhost_read_bytes_total{store="main",way="call"} 7`,
		`brokerd_pluginhost_read_bytes_total{store="main",way="section"} 700`,
		`brokerd_pluginhost_failed_lease_reads_total{reason="order",store="main"} 1`,
		`brokerd_pluginhost_lane_units_total{direction="sent",store="main"} 3`,
		`brokerd_pluginhost_lane_bytes_total{direction="received",store="main"} 40`,
		`brokerd_pluginhost_lane_waits_total{store="main"} 6`,
		`brokerd_pluginhost_waiting_appends_count{store="main"} 8`,
		`brokerd_replica_tail_read_bytes_total{store="main"} 2`,
		`# TYPE brokerd_pluginhost_lane_waits_total counter`,
		`# TYPE brokerd_pluginhost_leases_count gauge`,
	} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(out, `carrier_info{allowed="grpc"`) {
		t.Error("a store that no process serves has a carrier")
	}
}
