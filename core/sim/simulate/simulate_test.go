package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/sim/cluster"
)

// TestMain is the process that runs seeds, where it is started as one.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-worker") {
		main()
		return
	}
	os.Exit(m.Run())
}

// asked are two short seeds in two processes.
func asked(t *testing.T) (options, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	return options{
		from: 1, to: 2, minutes: 0.1, processes: 2, failures: 3, out: &out, results: filepath.Join(t.TempDir(), "new", "results.jsonl"),
	}, &out
}

func TestGoesOnWhereItWasStopped(t *testing.T) {
	opts, out := asked(t)
	for _, want := range []string{"2 seeds clean, 0 failed, 0 in which too little happened; 2 of them run now", "2 seeds clean, 0 failed, 0 in which too little happened; 0 of them run now"} {
		out.Reset()
		failed, err := simulate(context.Background(), opts)
		if err != nil || failed || !strings.Contains(out.String(), want) {
			t.Fatalf("failed %v, %v, and it prints\n%s\nwant %q", failed, err, out, want)
		}
	}
	// A line that was cut off costs its seed alone; so does another length cost all.
	lines, err := os.ReadFile(opts.results)
	if err != nil {
		t.Fatal(err)
	}
	lines = bytes.TrimSpace(lines)
	if err := os.WriteFile(opts.results, lines[:len(lines)-10], 0o600); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if _, err := simulate(context.Background(), opts); err != nil || !strings.Contains(out.String(), "1 of them run now") {
		t.Errorf("%v, and it prints\n%s", err, out)
	}
	for minutes, want := range map[float64]int{0.1: 2, 0.2: 0} {
		file, err := openResults(opts.results, mustBuild(t), minutes)
		if err != nil {
			t.Fatal(err)
		}
		if len(file.done) != want || file.highest != 2 {
			t.Errorf("the file has %d seeds of %g minutes, up to %d", len(file.done), minutes, file.highest)
		}
		if err := file.close(); err != nil {
			t.Fatal(err)
		}
	}
}

func mustBuild(t *testing.T) string {
	t.Helper()
	build, err := buildOf()
	if err != nil {
		t.Fatal(err)
	}
	return build
}

func TestBeginsNothingAfterItsTime(t *testing.T) {
	opts, out := asked(t)
	opts.longest = time.Nanosecond
	if failed, err := simulate(context.Background(), opts); err != nil || failed || !strings.Contains(out.String(), "0 seeds clean") {
		t.Errorf("failed %v, %v, and it prints\n%s", failed, err, out)
	}
}

// tallyOf is a tally of an empty file.
func tallyOf(t *testing.T, opts options) *tally {
	t.Helper()
	file, err := openResults(opts.results, "build", opts.minutes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.close(); err != nil {
			t.Error(err)
		}
	})
	return newTally(opts, file)
}

func resultOf(seed uint64, wrong, idle string) result {
	return result{Report: cluster.Report{Seed: seed, Seconds: 6}, Wrong: wrong, Idle: idle}
}

func TestAnotherSeedInPlaceOfAnIdleOne(t *testing.T) {
	opts, _ := asked(t)
	tally := tallyOf(t, opts)
	var ran []uint64
	for {
		seed, ok := tally.next()
		if !ok {
			break
		}
		ran = append(ran, seed)
		idle := ""
		if seed == 1 {
			idle = "nothing happened"
		}
		if err := tally.came(resultOf(seed, "", idle)); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(ran, []uint64{1, 2, 3}) || tally.clean != 2 || tally.idle != 1 {
		t.Errorf("seeds %v were run: %d clean, %d idle", ran, tally.clean, tally.idle)
	}
}

func TestASeedThatFails(t *testing.T) {
	opts, out := asked(t)
	opts.failures = 1
	tally := tallyOf(t, opts)
	if err := tally.came(resultOf(1, "violated: everything", "")); err != nil {
		t.Fatal(err)
	}
	if want := "go run ./core/sim/simulate -minutes 0.1 -seed 1 -v"; !strings.Contains(out.String(), want) {
		t.Errorf("it prints\n%s\nwant %q", out, want)
	}
	if seed, ok := tally.next(); ok {
		t.Errorf("seed %d is to be run after as many have failed as may", seed)
	}
	if seed, ok := newTally(opts, tally.file).next(); !ok || seed != 1 {
		t.Errorf("then seed %d is next, %v: one that failed is run again", seed, ok)
	}
}

func TestNightsGoOn(t *testing.T) {
	opts, _ := asked(t)
	opts.nightly, opts.failures = true, 1
	tally := tallyOf(t, opts)
	for want := uint64(1); want < 5; want++ {
		if seed, ok := tally.next(); !ok || seed != want {
			t.Fatalf("seed %d is next, %v; want %d", seed, ok, want)
		}
		if err := tally.came(resultOf(want, "violated: everything", "")); err != nil {
			t.Fatal(err)
		}
	}
	if seed, _ := newTally(opts, tally.file).next(); seed != 5 {
		t.Errorf("the next night begins with seed %d", seed)
	}
}

func TestAProcessThatDies(t *testing.T) {
	opts, _ := asked(t)
	p, err := startProcess(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if r, err := p.run(1); err == nil {
		t.Errorf("it answers %v", r)
	}
	p.end()
}

func TestAsksForWhatCannotBe(t *testing.T) {
	if err := work(strings.NewReader("x\n"), &bytes.Buffer{}, time.Second); err == nil {
		t.Error("a seed that is no number is run")
	}
	opts, _ := asked(t)
	opts.results = filepath.Join(t.TempDir(), "file", "under")
	if err := os.WriteFile(filepath.Dir(opts.results), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := simulate(context.Background(), opts); err == nil {
		t.Error("there is no file for results, and nobody says so")
	}
}
