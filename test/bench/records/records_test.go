package main

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/test/bench/load"
	"pgregory.net/rapid"
)

func TestPercentile(t *testing.T) {
	var v []time.Duration
	for i := 1000; i >= 1; i-- {
		v = append(v, time.Duration(i))
	}
	for p, want := range map[float64]time.Duration{50: 500, 99: 990, 99.9: 999, 100: 1000, 0.01: 1} {
		if got := percentile(v, p); got != want {
			t.Errorf("p%v is %d, not %d", p, got, want)
		}
	}
	if percentile(nil, 50) != 0 || percentile([]time.Duration{7}, 99.9) != 7 {
		t.Error("of none or one")
	}
}

// So many of a hundred are at most the percentile, and fewer are below it.
func TestPercentileProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SliceOfN(rapid.Int64Range(0, 50), 1, 200).Draw(t, "values")
		p := rapid.Float64Range(0.1, 100).Draw(t, "p")
		var v []time.Duration
		for _, x := range n {
			v = append(v, time.Duration(x))
		}
		got := percentile(v, p)
		most, below := 0, 0
		for _, x := range v {
			if x <= got {
				most++
			}
			if x < got {
				below++
			}
		}
		if want := p / 100 * float64(len(v)); float64(most) < want-1e-9 || float64(below) >= want+1e-9 {
			t.Fatalf("%v: %d at most, %d below, of %d, at %v", got, most, below, len(v), p)
		}
	})
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   string
	}{
		{nil, "none"},
		{[]float64{2}, "2.00"},
		{[]float64{3, 1, 2}, "2.00 (1.00 to 3.00)"},
		{[]float64{4, 1, 2, 3}, "2.50 (1.00 to 4.00)"},
		{[]float64{123456.4, 999, 0.0123}, "999 (0.012 to 123,456)"},
	} {
		if got := spreadOf(c.values).text(digits); got != c.want {
			t.Errorf("%v: %q, not %q", c.values, got, c.want)
		}
	}
	if r := ratios([]float64{2, 3, 4}, []float64{1, 2}); !slices.Equal(r, []float64{2, 1.5}) {
		t.Errorf("ratios %v", r)
	}
	if r := ratios([]float64{2, 3}, []float64{0, 1}); !slices.Equal(r, []float64{3}) {
		t.Errorf("ratios to nothing %v", r)
	}
}

func TestDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0.00", 0.0234: "0.023", 0.5: "0.50", 12.34: "12.3", 123.4: "123", 999.7: "1000", 1234.6: "1,235", 4182017: "4,182,017", -1234: "-1,234"} {
		if got := digits(v); got != want {
			t.Errorf("%v: %q, not %q", v, got, want)
		}
	}
}

func testRows(t *testing.T, args ...string) ([]row, options) {
	t.Helper()
	o, err := parse(args)
	if err != nil {
		t.Fatal(err)
	}
	return rows(o, load.NewPrograms(t.TempDir())), o
}

// Rows have names of their own, and all that a run needs.
func TestRows(t *testing.T) {
	all, _ := testRows(t, "-clients", "raw,franz,librdkafka,java", "-codecs", "none,lz4,zstd", "-partitions", "1,6,100")
	seen := make(map[string]bool)
	for _, r := range all {
		if seen[r.name] {
			t.Errorf("%s is there twice", r.name)
		}
		seen[r.name] = true
		if r.title == "" || r.durability == "" || r.run == nil || len(r.sides) != 2 || len(r.metrics) == 0 {
			t.Errorf("%s: %+v", r.name, r)
		}
		if r.sides[0].role == kafka {
			t.Errorf("%s: brokerd is not the first", r.name)
		}
	}
	for _, name := range []string{"produce-100B-raw", "consume-1KiB-java-zstd-100p", "single-1000", "start-killed", "process-sync"} {
		if !seen[name] {
			t.Errorf("there is no %s", name)
		}
	}
}

func TestChoose(t *testing.T) {
	all, _ := testRows(t)
	for names, want := range map[string]string{
		"sync":                "sync",
		"single":              "single-64 single-1000",
		"sync,single-64":      "sync single-64",
		"produce-1KiB,start":  "produce-1KiB-raw produce-1KiB-franz start-empty start-killed",
		"process":             "process-produce process-consume process-sync",
		"produce-100B-raw":    "produce-100B-raw",
		"fsync,fsync":         "fsync fsync",
		"end-to-end,single-6": "!",
		"nothing":             "!",
	} {
		chosen, err := choose(all, strings.Split(names, ","))
		var got []string
		for _, r := range chosen {
			got = append(got, r.name)
		}
		if want == "!" {
			if err == nil {
				t.Errorf("%s: %v", names, got)
			}
			continue
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v, %v", names, got, err)
		}
	}
	if chosen, err := choose(all, nil); err != nil || len(chosen) != len(all) {
		t.Errorf("all: %d of %d, %v", len(chosen), len(all), err)
	}
}

func TestParse(t *testing.T) {
	o, err := parse(nil)
	if err != nil || o.rounds != 5 || o.round != 3*time.Second || o.warm != 4*o.volume || !o.kafka || o.nats || o.force {
		t.Errorf("defaults: %+v, %v", o, err)
	}
	o, err = parse([]string{"-force", "-seconds", "0.5", "-args", "--set a=b", "-env", "A=1", "-env", "B=2"})
	if err != nil || o.warm != 0 || o.round != time.Second/2 || len(o.args) != 2 || len(o.env) != 2 {
		t.Errorf("%+v, %v", o, err)
	}
	for _, wrong := range [][]string{{"-rounds", "0"}, {"-seconds", "0"}, {"-seconds", "-1"}, {"-seconds", "x"}, {"-clients", "kcat"}, {"-codecs", "none,gzip"}, {"-partitions", "0"}, {"-env", "A"}, {"-volume", "0"}, {"rows"}} {
		if _, err := parse(wrong); err == nil {
			t.Errorf("%v is taken", wrong)
		}
	}
}

func TestReport(t *testing.T) {
	all, o := testRows(t, "-rounds", "3")
	r := &all[slices.IndexFunc(all, func(r row) bool { return r.name == "single-64" })]
	sides := []*side{
		{sideSpec: r.sides[0], values: [][]float64{{200, 210, 190}, {10, 11, 12}, {1, 1, 1}, {2, 2, 2}, {50, 50, 50}}},
		{sideSpec: r.sides[1], values: [][]float64{{100, 100, 100}, {20, 20, 20}, {2, 2, 2}, {4, 4, 4}, {500, 500, 500}}},
	}
	out := newReport(o, []string{"-rounds", "3"})
	out.add(r, sides)
	text := out.text()
	for _, want := range []string{
		"| 64 producers, one record of 100 B in flight each | requests/s | 200 (190 to 210) | 100 | 2.00 (1.90 to 2.10) | page cache |\n",
		"|  | server CPU, µs a request | 11.0 (10.0 to 12.0) | 20.0 | 0.55 (0.50 to 0.60) |  |\n",
		"|  | RSS, MiB | 50.0 | 500 |  |  |\n",
		"Repeat: `go run ./test/bench/records -rounds 3`",
		"Medians of 3 rounds",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "NOT TO BE REPORTED") {
		t.Error("it is not to be reported")
	}
	out.o.force = true
	if !strings.HasPrefix(out.text(), "NOT TO BE REPORTED") {
		t.Error("-force is not told")
	}
	alone := newReport(o, nil)
	alone.add(r, sides[:1])
	if !strings.Contains(alone.text(), "| requests/s | 200 (190 to 210) |  |  | page cache |") {
		t.Errorf("one side:\n%s", alone.text())
	}
}

func TestMetrics(t *testing.T) {
	m := measured{Result: load.Result{Records: 1000, Requests: 100, Bytes: 5e6, Elapsed: 2 * time.Second, Latencies: []time.Duration{time.Millisecond, 3 * time.Millisecond}}, cpu: time.Second, idle: 1 << 20, rss: 3 << 20, added: 2 << 20}
	for _, c := range []struct {
		m    metric
		want float64
	}{{recordRate, 500}, {recordCPU, 1000}, {rate, 50}, {requestCPU, 10_000}, {bandwidth, 2.5}, {idleRSS, 1}, {loadedRSS, 3}, {addedRSS, 2}, {seconds, 2}, {latency(50), 1}, {latency(99), 3}} {
		if got := c.m.of(m); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, not %v", c.m.name, got, c.want)
		}
	}
}
