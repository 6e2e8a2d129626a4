package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/brokerd/brokerd/test/ports"
	"github.com/brokerd/brokerd/test/rig"
)

// executable builds brokerd, once for all tests, and returns its path. TestMain sets
// it.
var executable func() (string, error)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "brokerd-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	executable = sync.OnceValues(func() (string, error) {
		path := filepath.Join(dir, "brokerd")
		return path, rig.Build(context.Background(), "", path, rig.Brokerd)
	})
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// full reports whether the whole matrix was asked for.
func full() bool { return os.Getenv("BROKERD_E2E_FULL") != "" }

// tool asks scripts/tools for something to be installed, and returns what it
// prints.
func tool(t *testing.T, name string) string {
	t.Helper()
	said, err := rig.Tool(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return said
}

// pollEvery is how often eventually looks.
const pollEvery = rig.PollEvery

// eventually calls f until it returns nil, and is the one way in which tests wait
// for what they cannot be told of. Its error is f's last one, and why it was
// given up.
func eventually(ctx context.Context, f func() error) error { return rig.Eventually(ctx, f) }

// testContext ends with the test or after the given time.
func testContext(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// freePort finds a port on loopback that nobody listens on.
func freePort(t *testing.T) int { return freePorts(t, 1) }

// freePorts finds the first of n ports in a row on loopback that nobody listens on.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	row, err := ports.InRow(n)
	if err != nil {
		t.Fatal(err)
	}
	return row[0]
}

// newClient is a franz-go client that is closed when the test ends.
func newClient(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	opts = append([]kgo.Opt{kgo.SeedBrokers(strings.Split(addr, ",")...), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)
	c, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// newAdmin is a client for administration.
func newAdmin(t *testing.T, addr string) *kadm.Client {
	t.Helper()
	return kadm.NewClient(newClient(t, addr))
}

// fromStart is a client that reads partition 0 of a topic from its start.
func fromStart(t *testing.T, addr, topic string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	all := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
	return newClient(t, addr, append([]kgo.Opt{kgo.ConsumePartitions(all)}, opts...)...)
}

// createTopic makes a topic whose records are never removed by age.
func createTopic(t *testing.T, addr, name string, partitions int32) {
	t.Helper()
	forever := "-1"
	_, err := newAdmin(t, addr).CreateTopic(testContext(t, startTimeout), partitions, -1, map[string]*string{"retention.ms": &forever}, name)
	if err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
}

// deleteTopic deletes a topic.
func deleteTopic(t *testing.T, addr, name string) {
	t.Helper()
	if _, err := newAdmin(t, addr).DeleteTopic(testContext(t, startTimeout), name); err != nil {
		t.Fatalf("delete topic %s: %v", name, err)
	}
}

// endOffset is the high watermark of partition 0.
func endOffset(t *testing.T, addr, topic string) int64 {
	t.Helper()
	ends, err := newAdmin(t, addr).ListEndOffsets(testContext(t, startTimeout), topic)
	if err != nil || ends.Error() != nil {
		t.Fatalf("end offset of %s: %v %v", topic, err, ends.Error())
	}
	end, ok := ends.Lookup(topic, 0)
	if !ok {
		t.Fatalf("end offset of %s: there is none", topic)
	}
	return end.Offset
}

// numbered makes n small records.
func numbered(n int) []*kgo.Record {
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = &kgo.Record{Key: fmt.Appendf(nil, "key %d", i%17), Value: fmt.Appendf(nil, "value %d", i)}
	}
	return rs
}

// check holds what was read against what was sent.
func check(t *testing.T, got, want []*kgo.Record) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i].Offset != int64(i) || string(got[i].Value) != string(want[i].Value) || string(got[i].Key) != string(want[i].Key) {
			t.Fatalf("record %d is %d %q=%q, want %q=%q", i, got[i].Offset, got[i].Key, got[i].Value, want[i].Key, want[i].Value)
		}
	}
}
