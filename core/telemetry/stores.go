package telemetry

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// StorePath is what is known, at one moment, of the way that a store's records go. What
// is counted never becomes less.
type StorePath struct {
	Store, Plugin    string
	Carrier, Allowed string // Carrier "": no process serves

	GrantsHeld, GrantsBegun, GrantsRefused int64
	GrantsEnded                            map[string]int64 // by reason
	Granted, Called                        Moved            // appended under grants, and by calls
	LeasesHeld                             int
	LeasedBytes, CalledBytes, TailBytes    int64 // read from leases, by calls, and from memory
	SectionBytes                           int64 // sent from files
	LeasesFailed                           map[string]int64
	Sent, Received                         Carried
	Waits                                  int64
	AppendsWaiting                         int
}

// Moved is how much went some way.
type Moved struct{ Batches, Bytes int64 }

// Carried is what went over a lane in one direction.
type Carried struct{ Units, Bytes int64 }

// storeMetric is a row of the table whose number is looked up when it is asked for.
type storeMetric struct {
	Metric
	tell func(s *StorePath, add func(value int64, labels ...string))
}

// storeMetrics are those of the stores' paths, in the order of the document. Each has the
// store as its first label.
func storeMetrics() []storeMetric {
	one := func(get func(s *StorePath) int64) func(*StorePath, func(int64, ...string)) {
		return func(s *StorePath, add func(int64, ...string)) { add(get(s)) }
	}
	two := func(first, second string, get func(s *StorePath) (int64, int64)) func(*StorePath, func(int64, ...string)) {
		return func(s *StorePath, add func(int64, ...string)) {
			a, b := get(s)
			add(a, first)
			add(b, second)
		}
	}
	each := func(get func(s *StorePath) map[string]int64) func(*StorePath, func(int64, ...string)) {
		return func(s *StorePath, add func(int64, ...string)) {
			of := get(s)
			for _, reason := range slices.Sorted(maps.Keys(of)) {
				add(of[reason], reason)
			}
		}
	}
	row := func(name string, kind Kind, help string, labels ...string) Metric {
		return Metric{"brokerd_" + name, kind, append([]string{"store"}, labels...), help}
	}
	return []storeMetric{
		{
			row("pluginhost_carrier_info", Gauge, "Always 1, while the plugin serves. carrier: what carries the store's records: files (grants and leases), socket or grpc; allowed: the most that the configuration lets it be. Less than that: the plugin or the system does not have it.", "plugin", "carrier", "allowed"),
			func(s *StorePath, add func(int64, ...string)) {
				if s.Carrier != "" {
					add(1, s.Plugin, s.Carrier, s.Allowed)
				}
			},
		},
		{row("pluginhost_grants_count", Gauge, "Logs whose end the broker writes by itself."), one(func(s *StorePath) int64 { return s.GrantsHeld })},
		{row("pluginhost_grants_begun_total", Counter, "Grants that the plugin gave."), one(func(s *StorePath) int64 { return s.GrantsBegun })},
		{row("pluginhost_grants_refused_total", Counter, "Grants that were asked for, and not to be had or not in time."), one(func(s *StorePath) int64 { return s.GrantsRefused })},
		{
			row("pluginhost_grants_ended_total", Counter, "Grants that ended. idle: nothing was appended; over: the plugin ended it, as when a segment is full; unfit: an append did not fit it, as one of a new leader epoch, or beyond its limits; change: a call was to change the log, as retention does; behind: the plugin had too much left to hear of; failed: a write failed, or the plugin refused what it was told; lost: the plugin's process ended.", "reason"),
			each(func(s *StorePath) map[string]int64 { return s.GrantsEnded }),
		},
		{
			row("pluginhost_appended_batches_total", Counter, "Record batches that were appended. grant: written by the broker, counted when the plugin is told, some 250 ms later; call: by the plugin.", "way"),
			two("grant", "call", func(s *StorePath) (int64, int64) { return s.Granted.Batches, s.Called.Batches }),
		},
		{
			row("pluginhost_appended_bytes_total", Counter, "Their bytes.", "way"),
			two("grant", "call", func(s *StorePath) (int64, int64) { return s.Granted.Bytes, s.Called.Bytes }),
		},
		{row("pluginhost_waiting_appends_count", Gauge, "Appends that wait for the plugin: for its answer, or for a grant."), one(func(s *StorePath) int64 { return int64(s.AppendsWaiting) })},
		{row("pluginhost_leases_count", Gauge, "Stretches of files that the broker reads by itself."), one(func(s *StorePath) int64 { return int64(s.LeasesHeld) })},
		{
			row("pluginhost_read_bytes_total", Counter, "Bytes of record batches that were read from the store. section: sent from its file to the client without being read, having been checked before; lease: read by the broker; call: by the plugin. What memory has is in brokerd_replica_tail_read_bytes_total.", "way"),
			func(s *StorePath, add func(int64, ...string)) {
				add(s.SectionBytes, "section")
				add(s.LeasedBytes, "lease")
				add(s.CalledBytes, "call")
			},
		},
		{
			row("pluginhost_failed_lease_reads_total", Counter, "Reads from leases that were not served, and left to the plugin. batch: what was there is no batch, or its CRC is another; order: a batch had not the offsets that come there; read: the file ended, or could not be read. More than 0: a defect of the plugin, or of the disk.", "reason"),
			each(func(s *StorePath) map[string]int64 { return s.LeasesFailed }),
		},
		{
			row("pluginhost_lane_units_total", Counter, "Requests to the plugin (sent) and answers (received), calls that move no records left out.", "direction"),
			two("sent", "received", func(s *StorePath) (int64, int64) { return s.Sent.Units, s.Received.Units }),
		},
		{
			row("pluginhost_lane_bytes_total", Counter, "Their bytes.", "direction"),
			two("sent", "received", func(s *StorePath) (int64, int64) { return s.Sent.Bytes, s.Received.Bytes }),
		},
		{row("pluginhost_lane_waits_total", Counter, "Calls that had to wait, because as much was under way to the plugin as may be."), one(func(s *StorePath) int64 { return s.Waits })},
		{row("replica_tail_read_bytes_total", Counter, "Bytes of record batches that consumers were given from memory, without the store."), one(func(s *StorePath) int64 { return s.TailBytes })},
	}
}

// Stores has the metrics of the stores' paths looked up by look, whenever they are asked
// for. Labels are taken as they are: there are as many stores as are configured.
func (m *Metrics) Stores(look func() []StorePath) {
	rows := storeMetrics()
	c := storeCollector{look: look, rows: rows}
	for _, r := range rows {
		c.descs = append(c.descs, prometheus.NewDesc(r.Name, r.Help, r.Labels, nil))
	}
	m.registry.MustRegister(c)
}

// storeCollector is a prometheus.Collector.
type storeCollector struct {
	look  func() []StorePath
	rows  []storeMetric
	descs []*prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c storeCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c storeCollector) Collect(to chan<- prometheus.Metric) {
	for _, s := range c.look() {
		for i, r := range c.rows {
			kind := prometheus.GaugeValue
			if r.Kind == Counter {
				kind = prometheus.CounterValue
			}
			r.tell(&s, func(value int64, labels ...string) {
				to <- prometheus.MustNewConstMetric(c.descs[i], kind, float64(value), append([]string{s.Store}, labels...)...)
			})
		}
	}
}
