package main

import (
	"encoding/json"
	"strings"
	"time"
)

// tally is what one process of a Go suite has shown of its tests so far.
type tally struct {
	ended    results
	began    map[string]time.Time // those that run, or wait for others of their kind
	paused   map[string]bool      // those of them that wait
	panicked bool                 // the process took itself down
	last     time.Time            // when a test last began or ended
}

func newTally(now time.Time) *tally {
	return &tally{ended: results{}, began: map[string]time.Time{}, paused: map[string]bool{}, last: now}
}

// event is a line of `go tool test2json`.
type event struct {
	Action  string
	Test    string
	Elapsed float64 // seconds
	Output  string
}

// take notes one line that was read at this time. Lines that are no event are the
// business of whoever reads the log.
func (t *tally) take(now time.Time, line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		return
	}
	if e.Action == "output" {
		// What Go prints of a panic, and of what no program can catch.
		t.panicked = t.panicked || strings.HasPrefix(e.Output, "panic: ") || strings.HasPrefix(e.Output, "fatal error: ")
		return
	}
	if e.Test == "" {
		return
	}
	t.last = now
	switch e.Action {
	case "run":
		t.began[e.Test] = now
	case "pause":
		t.paused[e.Test] = true
	case "cont":
		t.began[e.Test] = now
		delete(t.paused, e.Test)
	case "pass", "fail", "skip":
		st := map[string]status{"pass": passed, "fail": failed, "skip": skipped}[e.Action]
		t.ended[e.Test] = result{st, time.Duration(e.Elapsed * float64(time.Second))}
		delete(t.began, e.Test)
		delete(t.paused, e.Test)
	}
}

// running are the tests that had begun and not ended by now, but for those that wait
// and those with subtests, which wait for these; and for how long.
func (t *tally) running(now time.Time) map[string]time.Duration {
	all := map[string]time.Duration{}
	for name, began := range t.began {
		if !t.paused[name] && !t.waitsForSubtest(name) {
			all[name] = now.Sub(began)
		}
	}
	return all
}

func (t *tally) waitsForSubtest(name string) bool {
	for other := range t.began {
		if strings.HasPrefix(other, name+"/") {
			return true
		}
	}
	return false
}
