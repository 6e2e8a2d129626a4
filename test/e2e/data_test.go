package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// dataset is real records, each a key and a value of one line.
type dataset struct {
	name    string
	records []*kgo.Record
}

// datasets are the real records: the machine's package index, timed flights,
// and webhook payloads. The timestamps of flights are their departures; keys and
// headers are what each set has to tell.
func datasets(t *testing.T) []dataset {
	t.Helper()
	dir := tool(t, "data")
	return []dataset{
		{"packages", packages(t, filepath.Join(dir, "packages.txt"))},
		{"flights", flights(t, filepath.Join(dir, "flights.json"))},
		{"webhooks", webhooks(t, filepath.Join(dir, "webhooks.json"))},
	}
}

// packages reads the package index: one record for each stanza, keyed by the
// package's name, its value the stanza as one line of JSON.
func packages(t *testing.T, path string) []*kgo.Record {
	var out []*kgo.Record
	for stanza := range bytes.SplitSeq(readFile(t, path), []byte("\n\n")) {
		fields := map[string]string{}
		last := ""
		for line := range bytes.SplitSeq(stanza, []byte("\n")) {
			if len(line) > 0 && line[0] == ' ' {
				fields[last] += "\n" + string(line[1:])
			} else if k, v, ok := strings.Cut(string(line), ": "); ok {
				last, fields[k] = k, v
			}
		}
		if fields["Package"] == "" {
			continue
		}
		out = append(out, &kgo.Record{
			Key: []byte(fields["Package"]), Value: oneLine(t, fields),
			Headers: []kgo.RecordHeader{{Key: "section", Value: []byte(fields["Section"])}},
		})
	}
	return atLeast(t, "packages", out, 10_000)
}

// flights reads 20,000 flights, stamped with their departure.
func flights(t *testing.T, path string) []*kgo.Record {
	var rows []struct {
		Date        string `json:"date"`
		Delay       int    `json:"delay"`
		Distance    int    `json:"distance"`
		Origin      string `json:"origin"`
		Destination string `json:"destination"`
	}
	decode(t, path, &rows)
	var out []*kgo.Record
	for _, r := range rows {
		at, err := time.Parse("2006/01/02 15:04", r.Date)
		if err != nil {
			t.Fatalf("flight: %v", err)
		}
		out = append(out, &kgo.Record{
			Key: []byte(r.Origin), Value: oneLine(t, r), Timestamp: at,
			Headers: []kgo.RecordHeader{{Key: "to", Value: []byte(r.Destination)}, {Key: "to", Value: nil}},
		})
	}
	return atLeast(t, "flights", out, 20_000)
}

// webhooks reads the example payloads, keyed by event.
func webhooks(t *testing.T, path string) []*kgo.Record {
	var events []struct {
		Name     string            `json:"name"`
		Examples []json.RawMessage `json:"examples"`
	}
	decode(t, path, &events)
	var out []*kgo.Record
	for _, e := range events {
		for _, x := range e.Examples {
			var line bytes.Buffer
			if err := json.Compact(&line, x); err != nil {
				t.Fatalf("webhook %s: %v", e.Name, err)
			}
			out = append(out, &kgo.Record{Key: []byte(e.Name), Value: line.Bytes()})
		}
	}
	return atLeast(t, "webhooks", out, 329)
}

func atLeast(t *testing.T, name string, rs []*kgo.Record, n int) []*kgo.Record {
	t.Helper()
	if len(rs) < n {
		t.Fatalf("%s: %d records, want at least %d", name, len(rs), n)
	}
	return rs
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func decode(t *testing.T, path string, into any) {
	t.Helper()
	if err := json.Unmarshal(readFile(t, path), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func oneLine(t *testing.T, v any) []byte {
	t.Helper()
	line, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// same reports whether two records are alike: where they are, key, value, and, where the
// producer set them, headers and time.
func same(a, b *kgo.Record, headers, timestamp bool) bool {
	alike := func(a, b kgo.RecordHeader) bool { return a.Key == b.Key && bytes.Equal(a.Value, b.Value) }
	return a.Partition == b.Partition && a.Offset == b.Offset && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value) &&
		(!headers || slices.EqualFunc(a.Headers, b.Headers, alike)) &&
		(!timestamp || a.Timestamp.UnixMilli() == b.Timestamp.UnixMilli())
}

// fingerprint shows what same compares.
func fingerprint(r *kgo.Record, headers, timestamp bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %d %q %q", r.Partition, r.Offset, r.Key, r.Value)
	if headers {
		for _, h := range r.Headers {
			fmt.Fprintf(&b, " %s=%q", h.Key, h.Value)
		}
	}
	if timestamp {
		fmt.Fprintf(&b, " %d", r.Timestamp.UnixMilli())
	}
	return b.String()
}
