package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What the bare loop has a part in, on how many partitions, and behind whom.
func TestBareSides(t *testing.T) {
	all, o := testRows(t, "-bare", "-nats", "-kafka=false", "-clients", "raw,franz,librdkafka,java", "-codecs", "none,lz4")
	var got []string
	for _, r := range all {
		specs := r.specs(o)
		if side := specs[len(specs)-1]; side.role == bare {
			got = append(got, r.name)
			if specs[0].role != brokerd || side.run == nil || side.partitions != specs[0].partitions || r.durability != pageCache {
				t.Errorf("%s: %+v beside %+v", r.name, side, specs[0])
			}
		}
		without := o
		without.bare = false
		if slices.ContainsFunc(r.specs(without), func(s sideSpec) bool { return s.role == bare }) {
			t.Errorf("%s: it is measured without -bare", r.name)
		}
	}
	slices.Sort(got)
	if want := []string{"produce-100B-raw", "produce-100B-raw-lz4", "produce-1KiB-raw", "produce-1KiB-raw-lz4", "single-1000", "single-64", "sync"}; !slices.Equal(got, want) {
		t.Errorf("the bare loop is in %v, not in %v", got, want)
	}
}

func TestReportBare(t *testing.T) {
	all, o := testRows(t, "-bare", "-rounds", "1")
	named := func(name string) *row { return &all[slices.IndexFunc(all, func(r row) bool { return r.name == name })] }
	five := func(n float64) [][]float64 { return [][]float64{{n}, {n}, {n}, {n}, {n}} }
	sides := func(r *row, values ...float64) (out []*side) {
		for i, spec := range r.specs(o) {
			out = append(out, &side{sideSpec: spec, values: five(values[i])})
		}
		return out
	}
	out := newReport(o, nil)
	out.add(named("single-64"), sides(named("single-64"), 10, 5, 40))
	out.add(named("end-to-end"), sides(named("end-to-end"), 10, 5))
	text := out.text()
	for _, want := range []string{
		"| row | measure | brokerd | Kafka 4.4.0 | ratio | survives | bare loop | ratio |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n",
		"| requests/s | 10.0 | 5.00 | 2.00 | page cache | 40.0 | 0.25 |\n",
		"|  | RSS, MiB | 10.0 | 5.00 |  |  | 40.0 |  |\n",
		"| p50, ms | 10.0 | 5.00 | 2.00 | page cache |  |  |\n",
		"\n\nThe bare loop is a floor",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	o.nats = true
	both := newReport(o, nil)
	both.add(named("single-64"), sides(named("single-64"), 10, 5, 2, 40))
	if want := "| requests/s | 10.0 | 5.00 | 2.00 | page cache | 2.00 | 5.00 | page cache | 40.0 | 0.25 |\n"; !strings.Contains(both.text(), want) {
		t.Errorf("%q is missing in\n%s", want, both.text())
	}
}

// brokerd's own arguments are not for the bare loop.
func TestBareArguments(t *testing.T) {
	b := &bench{o: options{args: []string{"--set", "a=b"}}}
	for r, want := range map[role][]string{bare: nil, always: {"--set", "a=b"}, brokerd: {"--flush", "interval", "--set", "a=b"}} {
		if got := b.arguments(r); !slices.Equal(got, want) {
			t.Errorf("%s gets %v, not %v", r, got, want)
		}
	}
}

// The congestion control is told where it can be read.
func TestCongestion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control")
	if got := congestion(path); got != "" {
		t.Errorf("%q of no file", got)
	}
	for text, want := range map[string]string{"bbr\n": ", TCP congestion control bbr (brokerd and the bare loop send with reno over loopback)", "\n": ""} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := congestion(path); got != want {
			t.Errorf("%q of %q, not %q", got, text, want)
		}
	}
}
