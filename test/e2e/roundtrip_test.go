package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// load is one topic of the matrix: one set of records, sent by one producer
// with one codec.
type load struct {
	set      dataset
	producer producer
	codec    string
}

func (l load) topic() string { return l.set.name + "-" + l.producer.name + "-" + l.codec }

// loads are the combinations to run: all of them, or enough that each producer
// meets each codec and each set.
func loads(sets []dataset) []load {
	var out []load
	for _, p := range producers() {
		for i, c := range codecs {
			for j, s := range sets {
				if full() || j == i%len(sets) {
					out = append(out, load{s, p, c})
				}
			}
		}
	}
	return out
}

// TestRoundTrip sends real records by each producer with each codec, and reads
// them back by each consumer, equal to the byte, before and after a restart.
func TestRoundTrip(t *testing.T) {
	sets := datasets(t)
	addr, restart := os.Getenv("BROKERD_E2E_BOOTSTRAP"), func() {}
	if addr == "" {
		b := startBroker(t, "--flush", "interval")
		addr = b.addr()
		restart = func() { b.stop(); b.start() }
	}
	all := loads(sets)
	sent := 0
	for _, l := range all {
		createTopic(t, addr, l.topic(), 1)
		l.producer.produce(t, addr, l.topic(), l.codec, l.set.records)
		sent += len(l.set.records)
	}
	t.Logf("%d topics, %d records sent", len(all), sent)
	compared := 0
	for _, when := range []string{"before restart", "after restart"} {
		for i, l := range all {
			for j, c := range consumers() {
				// A JVM for each topic and consumer is slow: unless all is
				// asked for, the console consumer takes its share.
				if !full() && c.name == "console-consumer" && (i+j)%3 != 0 {
					continue
				}
				got := c.consume(t, addr, l.topic(), len(l.set.records))
				compare(t, fmt.Sprintf("%s, %s, read by %s", when, l.topic(), c.name), l, c, got)
				compared += len(got)
				if l.producer.timestamps && l.set.name == "flights" && c.since != nil {
					bySince(t, addr, l, c)
				}
			}
		}
		if when == "before restart" {
			restart()
		}
	}
	t.Logf("%d records compared", compared)
}

// compare checks what a consumer read against what was sent.
func compare(t *testing.T, what string, l load, c consumer, got []*kgo.Record) {
	t.Helper()
	if len(got) != len(l.set.records) {
		t.Fatalf("%s: %d records, want %d", what, len(got), len(l.set.records))
	}
	headers := l.producer.headers && c.headers
	for i, want := range l.set.records {
		at := &kgo.Record{Offset: int64(i), Key: want.Key, Value: want.Value, Headers: want.Headers, Timestamp: want.Timestamp}
		timestamp := l.producer.timestamps && !want.Timestamp.IsZero()
		if !same(got[i], at, headers, timestamp) {
			t.Fatalf("%s: record %d\n got %s\nwant %s", what, i, trim(fingerprint(got[i], headers, timestamp)), trim(fingerprint(at, headers, timestamp)))
		}
	}
}

// bySince checks that reading from a time begins at the first record of that
// time or later.
func bySince(t *testing.T, addr string, l load, c consumer) {
	t.Helper()
	for _, i := range []int{0, len(l.set.records) / 2, len(l.set.records) - 1} {
		from := l.set.records[i].Timestamp.Add(-time.Millisecond)
		want := -1
		for j, r := range l.set.records {
			if !r.Timestamp.Before(from) {
				want = j
				break
			}
		}
		if got := c.since(t, addr, l.topic(), from); got.Offset != int64(want) {
			t.Fatalf("%s, read by %s from %s: offset %d, want %d", l.topic(), c.name, from, got.Offset, want)
		}
	}
}
