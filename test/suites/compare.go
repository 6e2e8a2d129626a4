package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// verdict is what a comparison with Kafka comes to. Each list is sorted.
type verdict struct {
	passed  []string // here as on Kafka
	excused []string // pass on Kafka, not here, and are listed
	// What fails the run: tests that pass on Kafka and not here, and excuses that
	// are none.
	failing []finding
	stale   []finding
}

// finding is a test and what is wrong with it.
type finding struct {
	name, what string
}

// compare holds a run against Kafka's. A partial run is one that was told to run some
// tests: what it did not run is not held against it.
func compare(kafka, here results, excused map[string]excuse, partial bool) verdict {
	var v verdict
	for _, name := range slices.Sorted(maps.Keys(kafka)) {
		if kafka[name].status != passed {
			continue
		}
		got, ran := here[name]
		if !ran {
			if partial {
				continue
			}
			got.status = missing
		}
		_, listed := excused[name]
		switch {
		case got.status == passed && listed:
			v.stale = append(v.stale, finding{name, "passes: take it off the list"})
		case got.status == passed:
			v.passed = append(v.passed, name)
		case listed:
			v.excused = append(v.excused, name)
		default:
			v.failing = append(v.failing, finding{name, string(got.status)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(excused)) {
		if kafka[name].status != passed {
			v.stale = append(v.stale, finding{name, "does not pass on Kafka either, or is no test of this suite: take it off the list"})
		}
	}
	return v
}

// ok reports whether the run passed.
func (v verdict) ok() bool { return len(v.failing) == 0 && len(v.stale) == 0 }

// text tells the verdict to people.
func (v verdict) text(name string, kafka, here results, excused map[string]excuse) string {
	var w strings.Builder
	fmt.Fprintf(&w, "%s: %s\n", name, here.counts())
	fmt.Fprintf(&w, "%s: %d ran here, %d on Kafka; of those that pass on Kafka %d pass here, %d are excused, %d fail\n",
		name, here.ran(), kafka.ran(), len(v.passed), len(v.excused), len(v.failing))
	by := map[string]int{}
	for _, n := range v.excused {
		by[excused[n].capability]++
	}
	for _, c := range slices.Sorted(maps.Keys(by)) {
		fmt.Fprintf(&w, "  excused, waits for %s: %d\n", c, by[c])
	}
	for _, f := range v.failing {
		fmt.Fprintf(&w, "  %s %s\n", f.what, f.name)
	}
	for _, f := range v.stale {
		fmt.Fprintf(&w, "  excused, but %s: %s\n", f.name, f.what)
	}
	return w.String()
}
