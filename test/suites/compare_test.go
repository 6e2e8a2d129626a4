package main

import (
	"slices"
	"strings"
	"testing"
)

// given reads results and excuses as they are written in files.
func given(t *testing.T, kafka, here, list string) (results, results, map[string]excuse) {
	t.Helper()
	k, err := readResults(strings.NewReader(kafka))
	if err != nil {
		t.Fatal(err)
	}
	h, err := readResults(strings.NewReader(here))
	if err != nil {
		t.Fatal(err)
	}
	e, err := readExcused(strings.NewReader(list))
	if err != nil {
		t.Fatal(err)
	}
	return k, h, e
}

func TestCompare(t *testing.T) {
	const kafka = "PASS a 1.0\nPASS a/sub 0.5\nFAIL b 1.0\nSKIP c 0.0\n"
	for _, c := range []struct {
		name, here, excused string
		partial             bool
		ok                  bool
		failing, stale      string
	}{
		{name: "as on Kafka", here: "PASS a 9.0\nPASS a/sub 9.0\nFAIL b 1.0\nSKIP c 0.0", ok: true},
		{name: "better than Kafka", here: "PASS a 9.0\nPASS a/sub 9.0\nPASS b 1.0\nPASS c 0.0", ok: true},
		{name: "fails", here: "PASS a 1.0\nFAIL a/sub 1.0", failing: "FAIL a/sub"},
		{name: "hung", here: "PASS a 1.0\nTIMEOUT a/sub 1.0", failing: "TIMEOUT a/sub"},
		{name: "skipped is not passed", here: "PASS a 1.0\nSKIP a/sub 1.0", failing: "SKIP a/sub"},
		{name: "not run is not passed", here: "PASS a 1.0", failing: "MISSING a/sub"},
		{name: "nothing ran", here: "", failing: "MISSING a, MISSING a/sub"},
		{name: "excused", here: "PASS a 1.0\nFAIL a/sub 1.0", excused: "a/sub SASL: logs in", ok: true},
		{name: "excused and not run", here: "PASS a 1.0", excused: "a/sub SASL: logs in", ok: true},
		{name: "an excuse covers no subtest", here: "FAIL a 1.0\nFAIL a/sub 1.0", excused: "a SASL: logs in", failing: "FAIL a/sub"},
		{name: "excused and passes", here: "PASS a 1.0\nPASS a/sub 1.0", excused: "a/sub SASL: logs in", stale: "a/sub"},
		{name: "excused and fails on Kafka", here: "PASS a 1.0\nPASS a/sub 1.0\nFAIL b 1.0", excused: "b SASL: logs in", stale: "b"},
		{name: "excused and skipped on Kafka", here: "PASS a 1.0\nPASS a/sub 1.0", excused: "c SASL: logs in", stale: "c"},
		{name: "excused and unknown", here: "PASS a 1.0\nPASS a/sub 1.0", excused: "d SASL: logs in", stale: "d"},
		{name: "a partial run lacks tests", here: "PASS a 1.0", partial: true, ok: true},
		{name: "a partial run fails", here: "FAIL a 1.0", partial: true, failing: "FAIL a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, h, e := given(t, kafka, c.here, c.excused)
			v := compare(k, h, e, c.partial)
			if v.ok() != c.ok {
				t.Errorf("ok is %v, want %v", v.ok(), c.ok)
			}
			var failing, stale []string
			for _, f := range v.failing {
				failing = append(failing, f.what+" "+f.name)
			}
			for _, f := range v.stale {
				stale = append(stale, f.name)
			}
			if got := strings.Join(failing, ", "); got != c.failing {
				t.Errorf("failing: %q, want %q", got, c.failing)
			}
			if got := strings.Join(stale, ", "); got != c.stale {
				t.Errorf("stale: %q, want %q", got, c.stale)
			}
		})
	}
}

// TestText: a person must see each test that fails the run, and why.
func TestText(t *testing.T) {
	k, h, e := given(t, "PASS a 1.0\nPASS b 1.0\nPASS c 1.0\n", "PASS b 1.0\nSKIP c 0.0", "b SASL: logs in\nc ACLs: denies")
	v := compare(k, h, e, false)
	out := v.text("some", k, h, e)
	for _, want := range []string{"1 ran here, 3 on Kafka", "MISSING a", "excused, but b: passes", "waits for ACLs: 1"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
}

func TestReadResultsRefuses(t *testing.T) {
	for _, bad := range []string{"PASS a", "PASSED a 1.0", "PASS a x", "PASS a 1.0\nFAIL a 1.0"} {
		if _, err := readResults(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestWriteReadsBack(t *testing.T) {
	const text = "FAIL b/c 12.5\nPASS a 1.0\nSKIP c 0.0\nTIMEOUT d 240.0\n"
	r, err := readResults(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := r.write(&out); err != nil {
		t.Fatal(err)
	}
	got, want := strings.Split(out.String(), "\n"), strings.Split(text, "\n")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("wrote %q, want %q", got, want)
	}
}
