package telemetry

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics is the table come alive, in a registry of its own. All methods may be
// called concurrently.
type Metrics struct {
	registry   *prometheus.Registry
	counters   map[string]*counter
	gauges     map[string]*prometheus.GaugeVec
	histograms map[string]*histogram
	labels     bounded
}

type counter struct {
	*prometheus.CounterVec
	one series[prometheus.Counter]
}

type histogram struct {
	*prometheus.HistogramVec
	one series[prometheus.Observer]
}

// series are those of a metric with one label or none, which are found without a lock:
// most of what is counted of each request is.
type series[T any] struct {
	mu    sync.Mutex
	known atomic.Pointer[map[string]T] // is replaced, never changed
}

func (s *series[T]) of(value string) (T, bool) {
	known := s.known.Load()
	if known == nil {
		var none T
		return none, false
	}
	one, ok := (*known)[value]
	return one, ok
}

// add makes a series known, of which there are up to labelValuesMax.
func (s *series[T]) add(value string, one T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[string]T)
	if known := s.known.Load(); known != nil {
		maps.Copy(next, *known)
	}
	next[strings.Clone(value)] = one
	s.known.Store(&next)
}

// requestBuckets reach from what memory answers to what a long poll waits.
var requestBuckets = [...]float64{.0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30}

// NewMetrics makes every metric of the table that is counted here, and those of the Go
// process. Stores and Cluster add the others.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry:   prometheus.NewRegistry(),
		counters:   make(map[string]*counter),
		gauges:     make(map[string]*prometheus.GaugeVec),
		histograms: make(map[string]*histogram),
	}
	for _, row := range counted() {
		switch row.Kind {
		case Counter:
			v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: row.Name, Help: row.Help}, row.Labels)
			m.counters[row.Name] = &counter{CounterVec: v}
			m.registry.MustRegister(v)
		case Gauge:
			v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: row.Name, Help: row.Help}, row.Labels)
			m.gauges[row.Name] = v
			m.registry.MustRegister(v)
		case Histogram:
			v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: row.Name, Help: row.Help, Buckets: requestBuckets[:]}, row.Labels)
			m.histograms[row.Name] = &histogram{HistogramVec: v}
			m.registry.MustRegister(v)
		default:
			panic(fmt.Sprintf("metric %s has no kind", row.Name))
		}
	}
	for _, name := range []string{replicaLost, replicaDamaged} { // so that an alert sees them from the start
		m.counters[name].WithLabelValues(labelOther)
	}
	for _, name := range []string{brokerFailedHeartbeats, peerRejected} {
		m.counters[name].WithLabelValues()
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the metrics to a scraper.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

func (m *Metrics) add(name string, n float64, values ...string) {
	c := m.counters[name]
	if len(values) <= 1 {
		if one, ok := c.one.of(first(values)); ok {
			one.Add(n)
			return
		}
	}
	bound := m.labels.bound(name, values)
	one := c.WithLabelValues(bound...)
	one.Add(n)
	if len(values) <= 1 && first(bound) == first(values) {
		c.one.add(first(values), one)
	}
}

// first is the value of the only label, or "" where there is none.
func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

func (m *Metrics) set(name string, n float64, values ...string) {
	m.gauges[name].WithLabelValues(m.labels.bound(name, values)...).Set(n)
}

func (m *Metrics) shift(name string, n float64, values ...string) {
	m.gauges[name].WithLabelValues(m.labels.bound(name, values)...).Add(n)
}

func (m *Metrics) observe(name string, n float64, values ...string) {
	h := m.histograms[name]
	if len(values) <= 1 {
		if one, ok := h.one.of(first(values)); ok {
			one.Observe(n)
			return
		}
	}
	bound := m.labels.bound(name, values)
	one := h.WithLabelValues(bound...)
	one.Observe(n)
	if len(values) <= 1 && first(bound) == first(values) {
		h.one.add(first(values), one)
	}
}

const (
	labelValuesMax = 1000
	labelBytesMax  = 249 // the longest topic name
	labelOther     = "other"
)

// bounded keeps the number of series of each metric finite, whatever clients
// send.
type bounded struct {
	mu   sync.RWMutex
	seen map[string]map[string]bool // metric to joined label values
}

// bound returns the values themselves, or "other" for each once the metric has
// as many series as it may.
func (b *bounded) bound(metric string, values []string) []string {
	if len(values) == 0 {
		return nil
	}
	key := values[0]
	if len(values) > 1 {
		key = strings.Join(values, "\x00")
	}
	b.mu.RLock()
	known := b.seen[metric][key]
	b.mu.RUnlock()
	if known || b.admit(metric, key) {
		return values
	}
	others := make([]string, len(values))
	for i := range others {
		others[i] = labelOther
	}
	return others
}

func (b *bounded) admit(metric, key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen == nil {
		b.seen = make(map[string]map[string]bool)
	}
	if b.seen[metric] == nil {
		b.seen[metric] = make(map[string]bool)
	}
	if b.seen[metric][key] {
		return true
	}
	if len(b.seen[metric]) >= labelValuesMax || len(key) > 2*labelBytesMax || !utf8.ValidString(key) {
		return false
	}
	b.seen[metric][key] = true
	return true
}
