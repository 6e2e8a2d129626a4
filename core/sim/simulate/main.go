package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/brokerd/brokerd/core/sim/cluster"
)

// options are what is asked for.
type options struct {
	from, to  uint64
	minutes   float64
	processes int
	results   string
	longest   time.Duration // no seed begins later; zero: without an end
	nightly   bool
	failures  int // after so many that failed, no seed begins
	out       io.Writer
}

// length is how long each simulation lasts, in its own time.
func (o *options) length() time.Duration { return time.Duration(o.minutes * float64(time.Minute)) }

func main() {
	opts := options{out: os.Stdout}
	flag.Uint64Var(&opts.from, "from", 1, "the first seed")
	flag.Uint64Var(&opts.to, "to", 10_000, "the last seed, but for those in place of seeds in which too little happened")
	flag.Float64Var(&opts.minutes, "minutes", 10, "how many simulated minutes a seed lasts")
	flag.IntVar(&opts.processes, "processes", runtime.NumCPU(), "how many run at once")
	flag.StringVar(&opts.results, "results", defaultResults(), "the file of what seeds came to; seeds that it has are not run again")
	flag.DurationVar(&opts.longest, "for", 0, "begin no seed after so long; 0: go on to the end")
	flag.BoolVar(&opts.nightly, "nightly", false, "run seeds above all that the file has, until stopped")
	flag.IntVar(&opts.failures, "failures", 3, "begin no seed after so many have failed; nightly goes on")
	one := flag.Uint64("seed", 0, "run this seed alone, and print what it came to")
	events := flag.Bool("v", false, "with -seed: print every event")
	worker := flag.Bool("worker", false, "run the seeds that are named on the standard input; the program's own")
	flag.Usage = usage
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var failed bool
	var err error
	switch {
	case opts.minutes <= 0 || opts.processes < 1 || opts.to < opts.from || flag.NArg() > 0:
		err = errors.New("minutes and processes must be above zero, and the last seed not below the first; -h tells more")
	case *worker:
		err = work(os.Stdin, os.Stdout, opts.length())
	case *one != 0:
		failed, err = replay(opts, *one, *events)
	default:
		failed, err = simulate(ctx, opts)
	}
	stop()
	switch {
	case err != nil:
		say(os.Stderr, "%v\n", err)
		os.Exit(2)
	case failed:
		os.Exit(1)
	}
}

// say prints; where nobody can be told, the exit code tells.
func say(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }

func usage() {
	say(flag.CommandLine.Output(), "%s\n", `Simulated clusters under faults, one for each seed, for so many simulated minutes. Examples:
  simulate                              seeds 1 to 10,000, ten minutes each; goes on where it was stopped
  simulate -to 50 -minutes 2 -for 5m    a piece of it, in five minutes at most
  simulate -nightly                     seeds that were not run before, until it is stopped
  simulate -seed 42 -v                  one seed again, event by event`)
	flag.PrintDefaults()
}

func defaultResults() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "brokerd", "simulate.jsonl")
}

// replay runs one seed and prints what it came to.
func replay(opts options, seed uint64, events bool) (failed bool, err error) {
	shape := cluster.LongOptionsOf(seed, opts.length())
	if events {
		shape.Log = func(line string) { say(opts.out, "%s\n", line) }
	}
	r, err := cluster.Run(seed, shape)
	say(opts.out, "%s\n", r)
	for _, v := range r.Violations {
		say(opts.out, "violated: %s\n", v)
	}
	if why := r.Idle(); why != "" {
		say(opts.out, "it does not count: %s\n", why)
	}
	return r.Wrong() != "", err
}

// simulate does what is asked for, or less where ctx ends before, and tells whether a seed has
// failed.
func simulate(ctx context.Context, opts options) (failed bool, err error) {
	build, err := buildOf()
	if err != nil {
		return false, err
	}
	file, err := openResults(opts.results, build, opts.minutes)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, file.close()) }()
	t := newTally(opts, file)
	if opts.longest > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, opts.longest)
		defer cancel()
	}
	if err := runPool(ctx, opts, t); err != nil {
		return false, err
	}
	t.print()
	return len(t.failed) > 0, nil
}
