package main

import (
	"os"
	"strings"
	"testing"
)

// TestLists: every suite has Kafka's results and a list, and the list excuses only
// what passes on Kafka.
func TestLists(t *testing.T) {
	for _, su := range suites() {
		kafka, excused, err := measures(su.name)
		if err != nil {
			t.Errorf("%s: %v", su.name, err)
			continue
		}
		if len(kafka) == 0 {
			t.Errorf("%s: Kafka has no results", su.name)
		}
		for name := range excused {
			if kafka[name].status != passed {
				t.Errorf("%s: %s is excused, and does not pass on Kafka", su.name, name)
			}
		}
	}
}

// TestNoStrays: no file of a suite that is not run.
func TestNoStrays(t *testing.T) {
	for _, dir := range []string{"baselines", "excused"} {
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if !contains(names(), f.Name()) {
				t.Errorf("%s/%s is of no suite", dir, f.Name())
			}
		}
	}
}

func TestReadExcused(t *testing.T) {
	got, err := readExcused(strings.NewReader("# why\n\npkg.TestA/b[1:2]   KIP-848: its groups: the new ones\n"))
	if err != nil {
		t.Fatal(err)
	}
	if want := (excuse{"KIP-848", "its groups: the new ones"}); got["pkg.TestA/b[1:2]"] != want || len(got) != 1 {
		t.Errorf("read %v, want %v", got, want)
	}
	for why, bad := range map[string]string{
		"no reason":          "TestA",
		"no capability":      "TestA it is hard",
		"an empty reason":    "TestA SASL: ",
		"no such capability": "TestA groups: they are hard",
		"twice":              "TestA SASL: x\nTestA SASL: y",
	} {
		if _, err := readExcused(strings.NewReader(bad)); err == nil {
			t.Errorf("%s: %q was read", why, bad)
		}
	}
}
