package telemetry

import (
	"strings"
	"testing"
	"time"
)

func TestClusterIsLookedUpWhenAskedFor(t *testing.T) {
	m := NewMetrics()
	now := Cluster{
		Led: Partitions{All: 9, UnderReplicated: 4, UnderMinISR: 2}, Leaderless: 3, LeaseOver: true,
		Quorum:     Quorum{Open: true, Active: true, Voter: true, Leader: true, Term: 7, End: 100, Committed: 90, Applied: 85},
		Members:    []Member{{Broker: "2", Lag: 11, SilentSeconds: 0.5}, {Broker: "3", SilentSeconds: -1}},
		Controller: &Controller{Partitions: Partitions{All: 30, UnderReplicated: 20, UnderMinISR: 10}, Leaderless: 5, BelowTarget: 8, Raised: 7, Lossy: 6, LastLossSeconds: 1.5e9, Brokers: 3, Fenced: 1},
		Decided:    Decided{Clean: 12, Longest: 13, Unclean: 14, Shrinks: 15, Expands: 16},
		Peers:      []Peer{{Broker: "2", Sent: 1000, Received: 2000, Lag: 17, LagMax: 8}, {Broker: "3", Unreached: true}},
	}
	m.Cluster(func() Cluster { return now })
	out := scrape(t, m)
	tells(t, out,
		`brokerd_broker_fenced_state 0`,
		`brokerd_replica_lease_state 0`,
		`brokerd_replica_led_partitions_count 9`,
		`brokerd_replica_under_replicated_partitions_count 4`,
		`brokerd_replica_under_min_isr_partitions_count 2`,
		`brokerd_replica_leaderless_partitions_count 3`,
		`brokerd_replica_sent_bytes_total{broker="2"} 1000`,
		`brokerd_replica_received_bytes_total{broker="2"} 2000`,
		`brokerd_replica_follower_lag_count{broker="2"} 17`,
		`brokerd_replica_follower_lag_max_count{broker="2"} 8`,
		`brokerd_peer_reachable_state{broker="2"} 1`,
		`brokerd_peer_reachable_state{broker="3"} 0`,
		`brokerd_quorum_leader_state 1`,
		`brokerd_quorum_voter_state 1`,
		`brokerd_quorum_term_count 7`,
		`brokerd_quorum_offset_count 100`,
		`brokerd_quorum_uncommitted_count 10`,
		`brokerd_quorum_unapplied_count 5`,
		`brokerd_quorum_member_lag_count{broker="2"} 11`,
		`brokerd_quorum_member_silence_seconds{broker="2"} 0.5`,
		`brokerd_quorum_member_silence_seconds{broker="3"} -1`,
		`brokerd_controller_active_state 1`,
		`brokerd_controller_brokers_count 3`,
		`brokerd_controller_fenced_brokers_count 1`,
		`brokerd_controller_partitions_count 30`,
		`brokerd_controller_leaderless_partitions_count 5`,
		`brokerd_controller_under_replicated_partitions_count 20`,
		`brokerd_controller_under_min_isr_partitions_count 10`,
		`brokerd_controller_below_target_partitions_count 8`,
		`brokerd_controller_raised_partitions_count 7`,
		`brokerd_controller_lossy_partitions_count 6`,
		`brokerd_controller_last_loss_seconds 1.5e+09`,
		`brokerd_controller_leader_elections_total{kind="clean"} 12`,
		`brokerd_controller_leader_elections_total{kind="longest"} 13`,
		`brokerd_controller_leader_elections_total{kind="unclean"} 14`,
		`brokerd_controller_isr_changes_total{kind="shrink"} 15`,
		`brokerd_controller_isr_changes_total{kind="expand"} 16`,
		`# TYPE brokerd_controller_isr_changes_total counter`,
	)
	// Who is not the active controller says nothing of the whole cluster, and a broker
	// that has no log yet says nothing of it.
	now = Cluster{Fenced: true}
	out = scrape(t, m)
	for _, not := range []string{"brokerd_controller_partitions", "brokerd_controller_last_loss", "brokerd_quorum_", "brokerd_peer_reachable_state{"} {
		if strings.Contains(out, not) {
			t.Errorf("%s is told", not)
		}
	}
	tells(t, out, `brokerd_broker_fenced_state 1`, `brokerd_replica_lease_state 1`, `brokerd_controller_active_state 0`)
}

func TestPeersAndHeartbeatsAreCounted(t *testing.T) {
	m := NewMetrics()
	for _, want := range []string{`brokerd_broker_failed_heartbeats_total 0`, `brokerd_peer_links_rejected_total 0`} {
		if out := scrape(t, m); !strings.Contains(out, want+"\n") {
			t.Errorf("at the beginning: no %s", want)
		}
	}
	p := m.Peers()
	p.Begin("3")
	p.Made("2")
	p.Made("2")
	p.Lost("2")
	p.Unreached("2")
	p.Rejected()
	m.Broker().Beaten(time.Millisecond, true)
	m.Broker().Beaten(time.Second, false)
	out := scrape(t, m)
	tells(t, out,
		`brokerd_peer_links_made_total{broker="2"} 2`,
		`brokerd_peer_links_lost_total{broker="2"} 1`,
		`brokerd_peer_failed_dials_total{broker="2"} 1`,
		`brokerd_peer_failed_dials_total{broker="3"} 0`,
		`brokerd_peer_links_rejected_total 1`,
		`brokerd_broker_heartbeat_seconds_count 2`,
		`brokerd_broker_failed_heartbeats_total 1`,
	)
}
