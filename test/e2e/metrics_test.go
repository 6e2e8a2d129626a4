package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// startWatched starts a broker whose metrics can be read.
func startWatched(t *testing.T, env []string, args ...string) *broker {
	t.Helper()
	admin := freePort(t)
	b := newBroker(t, t.TempDir(), append(args, "--admin-port", strconv.Itoa(admin))...)
	b.env, b.admin = env, admin
	b.start()
	return b
}

// metrics are those that the broker shows now, by name and labels as it writes them.
func (b *broker) metrics() map[string]float64 {
	b.t.Helper()
	return metricsAt(b.t, b.admin)
}

// metricsAt are those at a port.
func metricsAt(t *testing.T, port int) map[string]float64 {
	t.Helper()
	out := make(map[string]float64)
	for line := range strings.Lines(httpGet(t, fmt.Sprintf("http://127.0.0.1:%d/metrics", port))) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		name, value := line[:at], line[at+1:]
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("metric %q: %v", line, err)
		}
		out[strings.TrimPrefix(name, "brokerd_")] = n
	}
	return out
}

// lent is how many logs the broker may write by itself, and how many stretches of
// them it may read.
func (b *broker) lent() (grants, leases int) {
	m := b.metrics()
	return int(m[`pluginhost_grants_count{store="main"}`]), int(m[`pluginhost_leases_count{store="main"}`])
}

// lentDescriptors is the same, as the kernel has it: files of logs that are open for
// writing, and for reading.
func lentDescriptors(b *broker) (grants, leases int) {
	dir := fmt.Sprintf("/proc/%d/fd/", b.pid())
	entries, _ := os.ReadDir(dir) // none when it has ended
	for _, e := range entries {
		path, err := os.Readlink(dir + e.Name())
		if err != nil || !strings.HasPrefix(path, b.dir+"/") || !strings.Contains(filepath.Base(path), ".log") {
			continue
		}
		info, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", b.pid(), e.Name()))
		if err != nil {
			continue
		}
		_, flags, _ := strings.Cut(string(info), "flags:")
		mode, err := strconv.ParseInt(strings.Fields(flags)[0], 8, 64)
		switch {
		case err != nil:
		case mode&syscall.O_ACCMODE == syscall.O_RDONLY:
			leases++
		default:
			grants++
		}
	}
	return grants, leases
}

// The metrics tell what carries a store's records, over a fall-back to another carrier
// and the death of the plugin: every batch and byte once, by the way that it went.
func TestTheWayOfRecordsIsSeen(t *testing.T) {
	for _, carrier := range []string{carrierAuto, carrierSocket, carrierGRPC} {
		t.Run(carrier, func(t *testing.T) { seeTheWay(t, carrier) })
	}
}

// seenRecords are appended by one call each, and are more than the broker keeps in memory.
const (
	seenRecords = 48
	seenBytes   = 256 << 10
)

func seeTheWay(t *testing.T, carrier string) {
	b := startWatched(t, []string{lentMemory}, append(carrying(carrier), "--flush", "interval")...)
	createTopic(t, b.addr(), "seen", 1)
	files := carrier == carrierAuto
	want := map[string]string{carrierAuto: "files"}[carrier]
	if want == "" {
		want = carrier
	}
	before := b.seeCarrier(want, 1)
	c := newClient(t, b.addr(), kgo.DefaultProduceTopic("seen"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	produced := 0
	for life := range 2 {
		ctx := testContext(t, startTimeout)
		for range seenRecords {
			if err := c.ProduceSync(ctx, &kgo.Record{Value: make([]byte, seenBytes)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		produced += seenRecords
		reader := fromStart(t, b.addr(), "seen", kgo.FetchMaxBytes(2*seenBytes))
		for read := 0; read < produced; {
			fetches := reader.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				t.Fatal(err)
			}
			read += fetches.NumRecords()
		}
		reader.Close()
		now := b.seeCounted(produced, files)
		for name, n := range before {
			if strings.Contains(name, "_total{") && now[name] < n {
				t.Errorf("%s went from %v to %v", name, n, now[name])
			}
		}
		if before = now; life == 0 {
			signalPlugins(t, b, syscall.SIGKILL)
			before = b.seeCarrier(want, 2)
			if lost := before[`pluginhost_grants_ended_total{reason="lost",store="main"}`]; (lost == 1) != files {
				t.Errorf("%v grants were lost with the plugin", lost)
			}
		}
	}
}

// seeCarrier waits until the metrics show this carrier and no other, of the plugin's nth
// process.
func (b *broker) seeCarrier(want string, starts float64) (m map[string]float64) {
	b.t.Helper()
	row := fmt.Sprintf(`pluginhost_carrier_info{allowed=%q,carrier=%q,plugin="storage-file",store="main"}`, want, want)
	if err := eventually(testContext(b.t, startTimeout), func() error {
		shown := 0
		m = b.metrics()
		for name := range m {
			if strings.HasPrefix(name, "pluginhost_carrier_info") {
				shown++
			}
		}
		if n := m[`pluginhost_starts_total{plugin="storage-file",store="main"}`]; m[row] != 1 || shown != 1 || n != starts {
			return fmt.Errorf("%d carriers, %v of %s, %v starts", shown, m[row], row, n)
		}
		return nil
	}); err != nil {
		b.t.Fatal(err)
	}
	return m
}

// seeCounted waits until as many batches as were produced are counted as appended, and
// looks at the ways of records.
func (b *broker) seeCounted(produced int, files bool) (m map[string]float64) {
	b.t.Helper()
	of := func(name string) float64 { return m[name+`{store="main"}`] }
	way := func(name, way string) float64 { return m[fmt.Sprintf(`%s{store="main",way=%q}`, name, way)] }
	if err := eventually(testContext(b.t, startTimeout), func() error {
		m = b.metrics()
		const batches = "pluginhost_appended_batches_total"
		if sum := way(batches, "grant") + way(batches, "call"); sum != float64(produced) {
			return fmt.Errorf("%v batches of %d are counted", sum, produced)
		}
		if grants, leases := lentDescriptors(b); float64(grants) != of("pluginhost_grants_count") || float64(leases) != of("pluginhost_leases_count") {
			return fmt.Errorf("%d descriptors of grants, %d of leases", grants, leases)
		}
		return nil
	}); err != nil {
		b.t.Errorf("%v: %v", err, m)
	}
	cold := way("pluginhost_read_bytes_total", "lease") + way("pluginhost_read_bytes_total", "section")
	read := cold + way("pluginhost_read_bytes_total", "call") + of("replica_tail_read_bytes_total")
	sent := way("pluginhost_appended_bytes_total", "grant") + way("pluginhost_appended_bytes_total", "call")
	if least := float64(produced * seenBytes); sent < least || read < least || of("replica_tail_read_bytes_total") == 0 {
		b.t.Errorf("%v bytes were appended, %v read: %v", sent, read, m)
	}
	for name, n := range map[string]float64{
		"grants": of("pluginhost_grants_count"), "bytes under grants": way("pluginhost_appended_bytes_total", "grant"),
		"leases": of("pluginhost_leases_count"), "bytes by leases": cold,
	} {
		if (n > 0) != files {
			b.t.Errorf("%s: %v", name, n)
		}
	}
	if units := m[`pluginhost_lane_units_total{direction="sent",store="main"}`]; units == 0 || of("pluginhost_waiting_appends_count") != 0 {
		b.t.Errorf("%v units were sent: %v", units, m)
	}
	return m
}
