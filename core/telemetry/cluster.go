package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Cluster is what is known, at one moment, of this broker's part in its cluster. What is
// counted never becomes less.
type Cluster struct {
	// Fenced: this broker is, or is not registered.
	Fenced bool
	// Led are the partitions that this broker leads, and Leaderless those that it has a
	// replica of and nobody leads.
	Led        Partitions
	Leaderless int
	// LeaseOver: nobody has answered for this broker for so long that others may lead by now.
	LeaseOver  bool
	Quorum     Quorum
	Members    []Member    // of the quorum; none where this broker is not the active controller
	Controller *Controller // nil: likewise
	Decided    Decided
	Peers      []Peer
}

// Partitions counts some by what is wrong with them.
type Partitions struct {
	All             int
	UnderReplicated int // with replicas that are not in sync
	UnderMinISR     int // that take no records with acks=all
}

// Quorum is this broker's own place in the metadata's log. Offsets are exclusive ends.
type Quorum struct {
	Open                    bool // there is one
	Active, Voter, Leader   bool // Leader: it knows of one
	Term                    uint64
	End, Committed, Applied int64
}

// Member is another member of the quorum, as the active controller sees it.
type Member struct {
	Broker string
	Lag    int64
	// SilentSeconds is since when it was not heard of; -1: never.
	SilentSeconds float64
}

// Controller is what the active controller sees of the whole cluster.
type Controller struct {
	Partitions
	Leaderless      int
	BelowTarget     int     // with fewer replicas than they are to have
	Raised          int     // of those, what the controller is giving one more
	Lossy           int     // where records may be missing since an election
	LastLossSeconds float64 // since 1970; 0: there was none
	Brokers, Fenced int
}

// Decided is what this broker has decided as the active controller.
type Decided struct {
	Clean, Longest, Unclean int64 // elections
	Shrinks, Expands        int64 // of ISRs
}

// Peer is another broker.
type Peer struct {
	Broker string
	// Unreached: dials to it have failed of late.
	Unreached bool
	// Sent and Received are bytes of messages with batches.
	Sent, Received int64
	// Lag is how many records followers there lack of what is led here, and LagMax of the
	// partition of which they lack most.
	Lag, LagMax int64
}

// clusterMetric is a row of the table whose number is looked up when it is asked for.
type clusterMetric struct {
	Metric
	tell func(c *Cluster, add func(value float64, labels ...string))
}

// clusterMetrics are those of a broker among others, in the order of the document.
func clusterMetrics() []clusterMetric {
	all := append(ownMetrics(), peerMetrics()...)
	return append(append(all, quorumMetrics()...), controllerMetrics()...)
}

type teller = func(c *Cluster, add func(value float64, labels ...string))

// one tells of a number that there always is.
func one[T int | int64 | uint64 | float64](get func(c *Cluster) T) teller {
	return func(c *Cluster, add func(float64, ...string)) { add(float64(get(c))) }
}

// state tells 1 of what is so.
func state(get func(c *Cluster) bool) teller {
	return func(c *Cluster, add func(float64, ...string)) { add(truth(get(c))) }
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// ownMetrics are of what this broker has.
func ownMetrics() []clusterMetric {
	return []clusterMetric{
		{Metric{"brokerd_broker_fenced_state", Gauge, nil, "1 while this broker is fenced, or not registered, by the metadata that it has: it leads nothing."}, state(func(c *Cluster) bool { return c.Fenced })},
		{Metric{"brokerd_replica_lease_state", Gauge, nil, "1 while the controller has answered this broker in time. 0: others may lead by now, and acks 0 and 1 wait for followers."}, state(func(c *Cluster) bool { return !c.LeaseOver })},
		{Metric{"brokerd_replica_led_partitions_count", Gauge, nil, "Partitions that this broker leads."}, one(func(c *Cluster) int { return c.Led.All })},
		{Metric{"brokerd_replica_under_replicated_partitions_count", Gauge, nil, "Those of them with replicas that are not in sync. More than 0 for longer than a restart takes: a broker is gone, or does not keep up."}, one(func(c *Cluster) int { return c.Led.UnderReplicated })},
		{Metric{"brokerd_replica_under_min_isr_partitions_count", Gauge, nil, "Those of them with so few replicas in sync that writes with acks=all are refused. More than 0: get brokers back."}, one(func(c *Cluster) int { return c.Led.UnderMinISR })},
		{Metric{"brokerd_replica_leaderless_partitions_count", Gauge, nil, "Partitions with a replica here that nobody leads, by the metadata that this broker has: they cannot be read or written."}, one(func(c *Cluster) int { return c.Leaderless })},
	}
}

// peerMetrics are of what goes between this broker and each other one.
func peerMetrics() []clusterMetric {
	each := func(get func(p *Peer) float64) teller {
		return func(c *Cluster, add func(float64, ...string)) {
			for i := range c.Peers {
				add(get(&c.Peers[i]), c.Peers[i].Broker)
			}
		}
	}
	row := func(name string, kind Kind, help string) Metric {
		return Metric{"brokerd_" + name, kind, []string{"broker"}, help}
	}
	return []clusterMetric{
		{row("replica_sent_bytes_total", Counter, "Bytes with record batches that were sent to followers on another broker."), each(func(p *Peer) float64 { return float64(p.Sent) })},
		{row("replica_received_bytes_total", Counter, "Bytes with record batches that leaders on another broker have sent."), each(func(p *Peer) float64 { return float64(p.Received) })},
		{row("replica_follower_lag_count", Gauge, "Records that followers on another broker have still to acknowledge of what this one leads, all partitions together. Those that have no link are left out: see brokerd_replica_under_replicated_partitions_count."), each(func(p *Peer) float64 { return float64(p.Lag) })},
		{row("replica_follower_lag_max_count", Gauge, "The same, of the partition in which it is most."), each(func(p *Peer) float64 { return float64(p.LagMax) })},
		{row("peer_reachable_state", Gauge, "0 while dials to another broker have failed in the last 10 seconds, and none has succeeded since; else 1. 0 for longer than a restart takes: it is gone, or the network between is."), each(func(p *Peer) float64 { return truth(!p.Unreached) })},
	}
}

// quorumMetrics are of the metadata's log.
func quorumMetrics() []clusterMetric {
	open := func(tell teller) teller {
		return func(c *Cluster, add func(float64, ...string)) {
			if c.Quorum.Open {
				tell(c, add)
			}
		}
	}
	row := func(name, help string, labels ...string) Metric {
		return Metric{"brokerd_quorum_" + name, Gauge, labels, help}
	}
	each := func(get func(m *Member) float64) teller {
		return func(c *Cluster, add func(float64, ...string)) {
			for i := range c.Members {
				add(get(&c.Members[i]), c.Members[i].Broker)
			}
		}
	}
	return []clusterMetric{
		{row("leader_state", "1 while this broker knows who leads the quorum. 0 on all: no majority of the voters is there, and leaders, in-sync replicas and topics do not change."), open(state(func(c *Cluster) bool { return c.Quorum.Leader }))},
		{row("voter_state", "1 while this broker votes for the active controller."), open(state(func(c *Cluster) bool { return c.Quorum.Voter }))},
		{row("term_count", "The term of Raft. It rises with each election of a controller."), open(one(func(c *Cluster) uint64 { return c.Quorum.Term }))},
		{row("offset_count", "Where the metadata's log ends here. Compare brokers: one that stays behind does not get it."), open(one(func(c *Cluster) int64 { return c.Quorum.End }))},
		{row("uncommitted_count", "Entries of the log here that are not committed, as far as this broker knows. High for long: a majority does not take them."), open(one(func(c *Cluster) int64 { return c.Quorum.End - c.Quorum.Committed }))},
		{row("unapplied_count", "Committed entries that this broker does not go by yet."), open(one(func(c *Cluster) int64 { return c.Quorum.Committed - c.Quorum.Applied }))},
		{row("member_lag_count", "Entries that another member lacks; told by the active controller alone.", "broker"), each(func(m *Member) float64 { return float64(m.Lag) })},
		{row("member_silence_seconds", "Since when the active controller has not heard of another member; -1: never since it leads.", "broker"), each(func(m *Member) float64 { return m.SilentSeconds })},
	}
}

// controllerMetrics are of what the active controller sees and does.
func controllerMetrics() []clusterMetric {
	active := func(get func(k *Controller) float64) teller {
		return func(c *Cluster, add func(float64, ...string)) {
			if c.Controller != nil {
				add(get(c.Controller))
			}
		}
	}
	row := func(name string, kind Kind, help string, labels ...string) Metric {
		return Metric{"brokerd_controller_" + name, kind, labels, help}
	}
	const alone = " Told by the active controller alone."
	return []clusterMetric{
		{row("active_state", Gauge, "1 while this broker is the active controller. The sum over all brokers is 1, but for moments."), state(func(c *Cluster) bool { return c.Quorum.Active })},
		{row("brokers_count", Gauge, "Brokers that are registered."+alone), active(func(k *Controller) float64 { return float64(k.Brokers) })},
		{row("fenced_brokers_count", Gauge, "Those of them that are fenced: stopped, starting, or not heard."+alone), active(func(k *Controller) float64 { return float64(k.Fenced) })},
		{row("partitions_count", Gauge, "Partitions of the cluster."+alone), active(func(k *Controller) float64 { return float64(k.All) })},
		{row("leaderless_partitions_count", Gauge, "Those that nobody leads. More than 0: they cannot be read or written."+alone), active(func(k *Controller) float64 { return float64(k.Leaderless) })},
		{row("under_replicated_partitions_count", Gauge, "Those with replicas that are not in sync."+alone), active(func(k *Controller) float64 { return float64(k.UnderReplicated) })},
		{row("under_min_isr_partitions_count", Gauge, "Those with so few replicas in sync that writes with acks=all are refused."+alone), active(func(k *Controller) float64 { return float64(k.UnderMinISR) })},
		{row("below_target_partitions_count", Gauge, "Those with fewer replicas than they are to have. More than 0 for long: there are too few brokers, or copying does not get on."+alone), active(func(k *Controller) float64 { return float64(k.BelowTarget) })},
		{row("raised_partitions_count", Gauge, "Those of them that are being given another replica."+alone), active(func(k *Controller) float64 { return float64(k.Raised) })},
		{row("lossy_partitions_count", Gauge, "Those that were ever given a leader which may lack acknowledged records: `brokerd cluster status` names those of late, `brokerd topic describe` all."+alone), active(func(k *Controller) float64 { return float64(k.Lossy) })},
		{row("last_loss_seconds", Gauge, "When that was last, in seconds since 1970; 0: never. Later than a day ago: see \"When records may be lost\" of docs/operators.md."+alone), active(func(k *Controller) float64 { return k.LastLossSeconds })},
		{
			row("leader_elections_total", Counter, "Leaders of partitions that this broker has chosen as the active controller. clean: it has all that was acknowledged; longest: all that were in sync may have lost something, as by a loss of power, and it has the longest log; unclean: it may lack anything.", "kind"),
			func(c *Cluster, add func(float64, ...string)) {
				add(float64(c.Decided.Clean), "clean")
				add(float64(c.Decided.Longest), "longest")
				add(float64(c.Decided.Unclean), "unclean")
			},
		},
		{
			row("isr_changes_total", Counter, "In-sync replicas that it has changed. shrink: replicas left; expand: replicas joined.", "kind"),
			func(c *Cluster, add func(float64, ...string)) {
				add(float64(c.Decided.Shrinks), "shrink")
				add(float64(c.Decided.Expands), "expand")
			},
		},
	}
}

// Cluster has the metrics of this broker among others looked up by look, whenever they are
// asked for. Labels are taken as they are: there are as many as brokers.
func (m *Metrics) Cluster(look func() Cluster) {
	c := clusterCollector{look: look, rows: clusterMetrics()}
	for _, r := range c.rows {
		c.descs = append(c.descs, prometheus.NewDesc(r.Name, r.Help, r.Labels, nil))
	}
	m.registry.MustRegister(c)
}

// clusterCollector is a prometheus.Collector.
type clusterCollector struct {
	look  func() Cluster
	rows  []clusterMetric
	descs []*prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c clusterCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c clusterCollector) Collect(to chan<- prometheus.Metric) {
	now := c.look()
	for i, r := range c.rows {
		kind := prometheus.GaugeValue
		if r.Kind == Counter {
			kind = prometheus.CounterValue
		}
		r.tell(&now, func(value float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(c.descs[i], kind, value, labels...)
		})
	}
}
