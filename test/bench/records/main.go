package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	rows   []string
	rounds int
	round  time.Duration
	volume int64 // bytes of a round of batches, and of what is consumed
	killed int64 // bytes of log of the server that is killed
	warm   int64
	// clients send full batches and consume.
	clients []string
	kafka   bool
	force   bool
	dir     string

	producers, inFlight, consumers int

	program, beside string
	args, env       []string
	profiles        string
}

// The clients of rows with full batches.
const (
	raw   = "raw"   // package load's own
	franz = "franz" // franz-go
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "records:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("records", flag.ContinueOnError)
	var seconds float64
	var names, warm, brokerdArgs string
	f.StringVar(&names, "rows", "", "rows to run, separated by commas (default: all; see -list)")
	list := f.Bool("list", false, "print the names of all rows")
	clients := f.String("clients", raw+","+franz, "clients that send full batches and consume")
	killed := f.Int64("killed", killedBytes>>20, "MiB of log in the row start-killed")
	f.IntVar(&o.rounds, "rounds", 5, "alternations, after one that is not counted")
	f.Float64Var(&seconds, "seconds", 3, "length of a round, where it is not bounded by -volume")
	volume := f.Int64("volume", 1536, "MiB of a round of full batches, and of what is consumed")
	f.StringVar(&warm, "warm", "", "MiB to write and delete at first (default: what the run will use; none with -force)")
	f.BoolVar(&o.kafka, "kafka", true, "measure Apache Kafka too")
	f.BoolVar(&o.force, "force", false, "print whatever else the machine does: not to be reported")
	f.StringVar(&o.dir, "dir", "", "where the servers' data is (default: the folder for temporary files)")
	f.IntVar(&o.producers, "producers", partitions, "connections that send full batches")
	f.IntVar(&o.inFlight, "inflight", 2, "full batches in flight on each")
	f.IntVar(&o.consumers, "consumers", 3, "connections that consume")
	f.StringVar(&o.program, "brokerd", "", "a brokerd that was built before, instead of this tree's")
	f.StringVar(&o.beside, "beside", "", "a brokerd that was built before, in Kafka's place")
	f.StringVar(&brokerdArgs, "args", "", "arguments for `brokerd dev`, separated by spaces")
	f.Func("env", "name=value in the environment of brokerd (repeatable)", func(v string) error {
		if !strings.Contains(v, "=") {
			return errors.New("want name=value")
		}
		o.env = append(o.env, v)
		return nil
	})
	f.StringVar(&o.profiles, "cpuprofile", "", "folder for profiles of brokerd's processes, of the counted rounds")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.args = strings.Fields(brokerdArgs)
	o.round, o.volume, o.killed = time.Duration(seconds*float64(time.Second)), *volume<<20, *killed<<20
	o.clients = strings.Split(*clients, ",")
	for _, c := range o.clients {
		if c != raw && c != franz {
			return o, fmt.Errorf("client %q: %s and %s are known", c, raw, franz)
		}
	}
	if *list {
		all, err := rows(o)
		if err != nil {
			return o, err
		}
		for _, r := range all {
			fmt.Printf("%-20s %s\n", r.name, r.title)
		}
		return o, flag.ErrHelp
	}
	if names != "" {
		o.rows = strings.Split(names, ",")
	}
	switch {
	case warm != "":
		var mib int64
		if _, err := fmt.Sscan(warm, &mib); err != nil || mib < 0 {
			return o, fmt.Errorf("-warm is %q, which is not a number of MiB", warm)
		}
		o.warm = mib << 20
	case !o.force:
		o.warm = 4 * o.volume
	}
	if f.NArg() > 0 || o.rounds < 1 || o.round <= 0 || o.volume <= 0 || o.producers < 1 || o.inFlight < 1 || o.consumers < 1 {
		return o, errors.New("only flags are expected, and their numbers above 0; see -help")
	}
	return o, nil
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	all, err := rows(o)
	if err != nil {
		return err
	}
	chosen, err := choose(all, o.rows)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, "brokerd-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{o: o, dir: dir, servers: make(map[role]*started), built: make(map[string]string)}
	defer b.close()
	if err := b.warmMemory(); err != nil {
		return err
	}
	out := newReport(o, args)
	for i := range chosen {
		sides, err := b.measure(ctx, &chosen[i])
		if err != nil {
			return fmt.Errorf("%s: %w", chosen[i].name, err)
		}
		out.add(&chosen[i], sides)
	}
	fmt.Print(out.text())
	return nil
}

// choose takes the named rows, or those whose names begin so, or all.
func choose(all []row, names []string) ([]row, error) {
	if len(names) == 0 {
		return all, nil
	}
	var out []row
	for _, name := range names {
		n := len(out)
		for _, r := range all {
			if r.name == name {
				out = append(out[:n], r)
				break
			}
			if strings.HasPrefix(r.name, name+"-") {
				out = append(out, r)
			}
		}
		if n == len(out) {
			return nil, fmt.Errorf("there is no row %q; -list prints them", name)
		}
	}
	return out, nil
}
