package main

import (
	"slices"
	"strings"
	"testing"
)

// What NATS has a part in, on how many streams, and what its acknowledgements survive.
func TestNATSSides(t *testing.T) {
	all, o := testRows(t, "-nats", "-codecs", "none,lz4", "-partitions", "6,100")
	got := make(map[string]string)
	for _, r := range all {
		specs := r.specs(o)
		if r.nats == nil {
			if len(specs) != 2 {
				t.Errorf("%s has %d sides", r.name, len(specs))
			}
			continue
		}
		side := specs[len(specs)-1]
		if len(specs) != 3 || specs[0].role.isNATS() || !side.role.isNATS() || side.run == nil || side.partitions != r.sides[0].partitions {
			t.Errorf("%s: %d sides, %s on %d streams", r.name, len(specs), side.role, side.partitions)
		}
		if side.role.durability() != r.durability {
			t.Errorf("%s: survives %s, and the others %s", r.name, side.role.durability(), r.durability)
		}
		got[r.name] = string(side.role)
	}
	want := []string{
		"consume-100B-franz", "consume-100B-franz-100p", "consume-1KiB-franz", "consume-1KiB-franz-100p", "end-to-end", "fsync", "memory",
		"produce-100B-franz", "produce-100B-franz-100p", "produce-1KiB-franz", "produce-1KiB-franz-100p", "single-1000", "single-64", "start-empty", "sync",
	}
	for _, name := range want {
		if got[name] == "" {
			t.Errorf("%s is not measured on NATS", name)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("measured on NATS too: %v", got)
	}
	sync := all[slices.IndexFunc(all, func(r row) bool { return r.name == "sync" })]
	for _, c := range []struct {
		change func(*options)
		want   []role
	}{
		{func(*options) {}, []role{brokerd, kafka, nats}},
		{func(o *options) { o.nats = false }, []role{brokerd, kafka}},
		{func(o *options) { o.kafka = false }, []role{brokerd, nats}},
		{func(o *options) { o.kafka, o.beside = false, "other" }, []role{brokerd, kafka, nats}},
	} {
		o := o
		c.change(&o)
		var roles []role
		for _, s := range sync.specs(o) {
			roles = append(roles, s.role)
		}
		if !slices.Equal(roles, c.want) {
			t.Errorf("the sides are %v, not %v", roles, c.want)
		}
	}
}

func TestReportNATS(t *testing.T) {
	all, o := testRows(t, "-nats", "-rounds", "1")
	named := func(name string) *row { return &all[slices.IndexFunc(all, func(r row) bool { return r.name == name })] }
	sides := func(r *row, values ...[][]float64) []*side {
		var out []*side
		for i, spec := range r.specs(o)[:len(values)] {
			out = append(out, &side{sideSpec: spec, values: values[i]})
		}
		return out
	}
	out := newReport(o, nil)
	three := func(n float64) [][]float64 { return [][]float64{{n}, {n}, {n}, {n}, {n}} }
	out.add(named("fsync"), sides(named("fsync"), three(10), three(5), three(2)))
	out.add(named("produce-1KiB-franz"), sides(named("produce-1KiB-franz"), three(10), three(5), three(40)))
	out.add(named("connections"), sides(named("connections"), three(10), three(5)))
	text := out.text()
	for _, want := range []string{
		"| row | measure | brokerd | Kafka 4.4.0 | ratio | survives | NATS 2.15.2 | ratio | survives |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
		"| requests/s | 10.0 | flush.messages=1: 5.00 | 2.00 | fsync | 2.00 | 5.00 | fsync |\n",
		"| records/s | 10.0 | 5.00 | 2.00 | page cache | 40.0 | 0.25 | page cache |\n|  | MB/s | 10.0 | 5.00 |  |  | 40.0 |  |  |\n",
		"| p50, ms | 10.0 | 5.00 | 2.00 |  |  |  |  |\n",
		"- produce 1 KiB in batches of 1 MB, franz: NATS's client library has no batches",
		"4,000 at most under way at once.\n",
		"NATS has no part in: connections.\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	o.kafka = false
	alone := newReport(o, nil)
	alone.add(named("fsync"), sides(named("fsync"), three(10), three(2)))
	if want := "| requests/s | 10.0 |  |  | fsync | 2.00 | 5.00 | fsync |\n"; !strings.Contains(alone.text(), want) {
		t.Errorf("%q is missing in\n%s", want, alone.text())
	}
}
