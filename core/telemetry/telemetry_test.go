package telemetry

import (
	"bytes"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

const document = "../../docs/metrics.md"

func TestDocument(t *testing.T) {
	if *update {
		if err := os.WriteFile(document, []byte(Markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(document)
	if err != nil || string(got) != Markdown() {
		t.Errorf("docs/metrics.md is not the table (%v); run: go test ./core/telemetry -run TestDocument -update", err)
	}
}

// What operators are told to look at is in the table.
func TestOperatorsAreToldOfMetricsThatThereAre(t *testing.T) {
	page, err := os.ReadFile("../../docs/operators.md")
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]bool)
	for _, m := range Table() {
		known[m.Name] = true
		if m.Kind == Histogram {
			known[m.Name+"_bucket"] = true
		}
	}
	named := regexp.MustCompile(`brokerd_[a-z_]+(\.\.\.)?`).FindAllString(string(page), -1)
	if len(named) < 20 {
		t.Errorf("the page names %d metrics: is it still the one?", len(named))
	}
	for _, name := range named {
		if !known[name] && !strings.HasSuffix(name, "...") {
			t.Errorf("docs/operators.md names %s, which there is not", name)
		}
	}
}

func TestTable(t *testing.T) {
	name := regexp.MustCompile(`^brokerd_[a-z]+(_[a-z]+)+$`)
	unit := regexp.MustCompile(`_(seconds|bytes|total|count|info|state)$`)
	seen := make(map[string]bool)
	for _, m := range Table() {
		if !name.MatchString(m.Name) || !unit.MatchString(m.Name) || seen[m.Name] {
			t.Errorf("metric %s has a bad name, or one that is there twice", m.Name)
		}
		if (m.Kind == Counter) != strings.HasSuffix(m.Name, "_total") {
			t.Errorf("metric %s: counters, and only they, end in _total", m.Name)
		}
		if m.Help == "" {
			t.Errorf("metric %s has no help", m.Name)
		}
		seen[m.Name] = true
	}
}

// tells expects whole lines in what was scraped.
func tells(t *testing.T, out string, lines ...string) {
	t.Helper()
	for _, want := range lines {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func TestLabelsAreBounded(t *testing.T) {
	m := NewMetrics()
	for i := range labelValuesMax + 50 {
		m.API().Produced(fmt.Sprintf("topic-%d", i), 1, 1)
	}
	m.API().Produced("topic-0", 1, 1)
	m.API().Fetched("\xff", 1)
	m.API().ClientSeen("bad\xff\xfename", strings.Repeat("x", 10000))
	out := scrape(t, m)
	if n := strings.Count(out, apiProducedRecords+"{"); n != labelValuesMax+1 {
		t.Errorf("%d series, want %d", n, labelValuesMax+1)
	}
	for _, want := range []string{`{topic="other"} 50`, `{topic="topic-0"} 2`} {
		if !strings.Contains(out, apiProducedRecords+want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(out, "xxxx") {
		t.Error("a label of 10,000 bytes was taken")
	}
}

func TestEventsAreCounted(t *testing.T) {
	m := NewMetrics()
	m.API().Answered(0, 9, time.Millisecond)
	m.API().Fetched("t", 7)
	m.API().FetchSessions(3, true)
	m.Broker().Is("v1", "c", "1")
	m.Broker().Ready(true)
	m.Broker().Holds(5, 2)
	m.Replica().Stored(2, 100, time.Millisecond)
	m.Replica().Reopened("t")
	m.Replica().Lost("t", 3)
	m.Replica().Offline(1)
	m.Replica().Quarantined(4)
	m.Server().ConnectionOpened("L")
	m.Server().ConnectionOpened("L")
	m.Server().ConnectionClosed("L", "idle")
	m.Server().RequestServed("L", 1, time.Second, 10, 20)
	m.Plugins().Happened("s", "p", true, false)
	m.Plugins().Happened("s", "p", false, true)
	m.Plugins().Happened("s", "p", false, false)
	out := scrape(t, m)
	tells(t, out,
		`brokerd_pluginhost_serving_state{plugin="p",store="s"} 0`,
		`brokerd_pluginhost_starts_total{plugin="p",store="s"} 1`,
		`brokerd_pluginhost_ends_total{plugin="p",store="s"} 1`,
		`brokerd_pluginhost_failures_total{plugin="p",store="s"} 1`,
		`brokerd_api_request_seconds_count{api="Produce"} 1`,
		`brokerd_api_fetched_bytes_total{topic="t"} 7`,
		`brokerd_api_fetch_sessions_count 3`,
		`brokerd_api_fetch_sessions_evicted_total 1`,
		`brokerd_broker_info{broker="1",cluster="c",version="v1"} 1`,
		`brokerd_broker_ready_state 1`,
		`brokerd_broker_partitions_count 5`,
		`brokerd_replica_stored_batches_total 2`,
		`brokerd_replica_stored_bytes_total 100`,
		`brokerd_replica_store_append_seconds_count 1`,
		`brokerd_replica_logs_reopened_total{topic="t"} 1`,
		`brokerd_replica_lost_records_total{topic="t"} 3`,
		`brokerd_replica_offline_count 1`,
		`brokerd_replica_quarantined_logs_count 4`,
		`brokerd_server_connections_count{listener="L"} 1`,
		`brokerd_server_connections_closed_total{listener="L",reason="idle"} 1`,
		`brokerd_server_request_seconds_count{api="Fetch"} 1`,
		`brokerd_server_received_bytes_total{listener="L"} 10`,
		`brokerd_server_sent_bytes_total{listener="L"} 20`,
		`brokerd_broker_warnings_count 2`,
	)
}

func TestCoordinatorCounts(t *testing.T) {
	m := NewMetrics()
	c := m.Coordinator()
	c.Loaded(time.Second)
	c.LoadFailed()
	c.Rebalanced()
	c.Committed(3)
	c.Expired(2)
	c.Refused()
	c.Full()
	c.Kept(5, 9)
	c.NotAvailable("creation")
	c.Holds("Stable", 7)
	c.Members(21)
	out := scrape(t, m)
	tells(t, out,
		`brokerd_coordinator_load_seconds_count 1`,
		`brokerd_coordinator_failed_loads_total 1`,
		`brokerd_coordinator_rebalances_total 1`,
		`brokerd_coordinator_committed_offsets_total 3`,
		`brokerd_coordinator_expired_offsets_total 2`,
		`brokerd_coordinator_refused_writes_total 1`,
		`brokerd_coordinator_refused_memory_total 1`,
		`brokerd_coordinator_memory_bytes 5`,
		`brokerd_coordinator_memory_limit_bytes 9`,
		`brokerd_coordinator_not_available_total{reason="creation"} 1`,
		`brokerd_coordinator_groups_count{state="Stable"} 7`,
		`brokerd_coordinator_members_count 21`,
	)
}

func TestLogger(t *testing.T) {
	var b bytes.Buffer
	l, err := NewLogger(&b, "warn", "json")
	if err != nil {
		t.Fatal(err)
	}
	l.Info("no")
	l.Warn("yes", "topic", "t")
	if got := b.String(); strings.Contains(got, "no") || !strings.Contains(got, `"topic":"t"`) {
		t.Errorf("logged %s", got)
	}
	for _, bad := range [][2]string{{"loud", "text"}, {"info", "xml"}} {
		if _, err := NewLogger(&b, bad[0], bad[1]); err == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}

// An alert sees the numbers that it is about before anything went wrong.
func TestAlertsBeginAtZero(t *testing.T) {
	m := NewMetrics()
	m.Replica().Begin("main")
	m.Coordinator().Begin("creation")
	out := scrape(t, m)
	tells(t, out,
		replicaLost+`{topic="other"} 0`, replicaDamaged+`{topic="other"} 0`,
		replicaFull+`{store="main"} 0`, replicaRefused+`{store="main"} 0`,
		coordinatorNotAvailable+`{reason="creation"} 0`, coordinatorFailedLoads+` 0`,
	)
}
