package main

import (
	"strings"
	"sync"
	"time"

	"github.com/brokerd/brokerd/core/sim/cluster"
)

// tally decides which seed is next, and adds up what they came to. It may be called from many
// goroutines.
type tally struct {
	opts  options
	began time.Time

	mu     sync.Mutex // also guards file
	file   *results
	at     uint64 // the next seed
	last   uint64 // which may move, for those in which too little happened
	clean  int
	idle   int
	failed []uint64
	ran    int // of all, now
	cpu    time.Duration
	total  cluster.Report
}

func newTally(opts options, file *results) *tally {
	t := &tally{opts: opts, began: time.Now(), file: file, at: opts.from, last: opts.to}
	if opts.nightly {
		t.at = max(opts.from, file.highest+1)
	}
	return t
}

// next is a seed that is to be run, if there is one.
func (t *tally) next() (uint64, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.opts.nightly || t.at <= t.last && len(t.failed) < t.opts.failures {
		seed := t.at
		t.at++
		old, done := t.file.done[seed]
		if !done || old.Wrong != "" {
			return seed, true
		}
		t.count(old)
	}
	return 0, false
}

// count adds a result. A seed in which too little happened has another run in its place.
func (t *tally) count(r result) {
	switch {
	case r.Wrong != "":
		t.failed = append(t.failed, r.Report.Seed)
	case r.Idle != "":
		t.idle++
		t.last++
	default:
		t.clean++
		t.total.Add(r.Report)
		t.cpu += r.CPU
	}
}

// came notes what a seed came to.
func (t *tally) came(r result) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ran++
	t.count(r)
	n := &r.Report
	switch out := t.opts.out; {
	case r.Wrong != "":
		say(out, "seed %d FAILED: %s\n  show it: go run ./core/sim/simulate -minutes %g -seed %d -v\n", n.Seed, strings.TrimSpace(r.Wrong), t.opts.minutes, n.Seed)
	default:
		say(out, "seed %d: %d acknowledged, %d elections, %d ISR changes, %d truncations, %d crashes; %d s in %.1f s of processor; %d of %d clean, %d to go, %s",
			n.Seed, n.Acked, n.Elections, n.ISRChanges, n.Truncations, n.Crashes(), n.Seconds, r.CPU.Seconds(), t.clean, t.clean+len(t.failed), t.toGo(), time.Since(t.began).Round(time.Second))
		if r.Idle != "" {
			say(out, "; does not count: %s", r.Idle)
		}
		say(out, "\n")
	}
	return t.file.add(r)
}

// toGo is how many seeds are left, or as good as none where there is no end.
func (t *tally) toGo() uint64 {
	if t.opts.nightly || t.at > t.last {
		return 0
	}
	return t.last - t.at + 1
}

// print tells all.
func (t *tally) print() {
	out := t.opts.out
	say(out, "\n%d seeds clean, %d failed, %d in which too little happened; %d of them run now, in %s\n",
		t.clean, len(t.failed), t.idle, t.ran, time.Since(t.began).Round(time.Second))
	if t.clean > 0 {
		minutes := float64(t.total.Seconds) / 60
		say(out, "%.1f simulated hours, %.2f s of processor for each simulated minute\n%s\n", minutes/60, t.cpu.Seconds()/minutes, t.total)
	}
	for _, seed := range t.failed {
		say(out, "seed %d failed: go run ./core/sim/simulate -minutes %g -seed %d -v\n", seed, t.opts.minutes, seed)
	}
	say(out, "what each came to is in %s\n", t.opts.results)
}
