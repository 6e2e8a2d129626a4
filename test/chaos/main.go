package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/brokerd/brokerd/test/rig"
)

// options are what is asked for.
type options struct {
	events  []event
	count   int
	growths int
	// powerCuts is how often all lose power at once, and flush is the brokers' policy then.
	powerCuts int
	flush     string
	rolling   int
	soak      time.Duration
	longest   time.Duration // of a fault
	hurry     int           // events before all must serve again
	seed      uint64
	brokerd   string
	dir       string
	keep      bool
	out       io.Writer
}

func main() {
	opts := options{out: os.Stdout}
	names := flag.String("events", "", "kinds of events, by commas; all, which it is where nothing else is asked for, or none")
	flag.IntVar(&opts.count, "count", 3, "events of each kind")
	flag.IntVar(&opts.growths, "growths", 0, "how often one broker becomes three")
	flag.IntVar(&opts.rolling, "rolling", 0, "how often all brokers are restarted in turn, under load by franz-go, librdkafka and Java; no other events unless named")
	flag.DurationVar(&opts.soak, "soak", 0, "how long brokers are at full load, with two busy loops beside it: none may be fenced, nor what is in sync change; no other events unless named")
	flag.DurationVar(&opts.longest, "longest", 5*time.Second, "how long a fault lasts at most; a tenth of it at least")
	flag.IntVar(&opts.hurry, "hurry", 1, "how many events come one upon the other before all must serve again")
	flag.Uint64Var(&opts.seed, "seed", uint64(time.Now().UnixNano()%100000), "what decides which, when and how long")
	flag.StringVar(&opts.brokerd, "brokerd", "", "the executable; built where none is named")
	flag.StringVar(&opts.dir, "dir", "", "directory of all data and outputs; a temporary one where none is named")
	flag.BoolVar(&opts.keep, "keep", false, "keep that directory also where nothing is wrong")
	network := flag.String("net", "namespaces", "namespaces: each broker in a network namespace (needs root); wires: a proxy between them")
	flag.IntVar(&opts.powerCuts, "power-cuts", 0, "how often all three lose power at once")
	flag.StringVar(&opts.flush, "flush", "replicated", "the flush policy of brokers that lose power: always or replicated")
	flag.Usage = usage
	flag.Parse()
	var broken bool
	err := chooseNetwork(*network)
	if err != nil {
		say(os.Stderr, "%v\n", err)
		os.Exit(2)
	}
	if *names == "" && opts.rolling == 0 && opts.soak == 0 {
		*names = "all"
	}
	if opts.events, err = choose(*names); err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		broken, err = chaos(ctx, opts)
		stop()
	}
	switch {
	case err != nil:
		say(os.Stderr, "%v\n", err)
		os.Exit(2)
	case broken:
		os.Exit(1)
	}
}

// chooseNetwork has the program be where the brokers' network can be.
func chooseNetwork(kind string) error {
	switch kind {
	case "wires":
		return nil
	case "namespaces":
		if err := enterHub(); err != nil {
			return fmt.Errorf("THIS MACHINE GIVES NO NETWORK NAMESPACES: %w. Nothing was tried. A proxy between the brokers, which cuts connections and drops no packet, is used where it is asked for: -net wires, or BROKERD_CHAOS_NET=wires for the tests", err)
		}
		return nil
	}
	return fmt.Errorf("there is no network %q", kind)
}

// say prints; where nobody can be told, the exit code tells.
func say(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }

func usage() {
	say(flag.CommandLine.Output(), "%s\n", "Three real brokers under load and faults. Kinds of events:")
	for _, e := range events() {
		say(flag.CommandLine.Output(), "  %-16s %s\n", e.name, e.about)
	}
	flag.PrintDefaults()
}

// choose finds kinds of events by their names.
func choose(names string) ([]event, error) {
	all := events()
	switch names {
	case "all":
		return all, nil
	case "none", "":
		return nil, nil
	}
	var out []event
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(e event) bool { return e.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no event %q; -h lists them", name)
		}
		out = append(out, all[i])
	}
	return out, nil
}

// chaos does what is asked for, or less where ctx ends before, and tells whether a promise was
// broken.
func chaos(ctx context.Context, opts options) (broken bool, err error) {
	if len(opts.events) > 0 && opts.hurry < 1 {
		return false, fmt.Errorf("-hurry %d: after one event at least all must serve again", opts.hurry)
	}
	if opts.dir == "" {
		if opts.dir, err = os.MkdirTemp("", "brokerd-chaos-"); err != nil {
			return false, err
		}
	}
	if err := os.MkdirAll(opts.dir, 0o755); err != nil {
		return false, err
	}
	defer func() {
		if !opts.keep && !broken && err == nil {
			os.RemoveAll(opts.dir)
		}
	}()
	if opts.brokerd == "" {
		opts.brokerd = filepath.Join(opts.dir, "brokerd")
		if err := build(opts.brokerd, rig.Brokerd); err != nil {
			return false, err
		}
	}
	opts = withoutDisks(opts)
	say(opts.out, "seed %d, directory %s\n", opts.seed, opts.dir)
	all := newTable()
	for _, altered := range []bool{false, true} {
		part := opts
		part.events = slices.DeleteFunc(slices.Clone(opts.events), func(e event) bool { return e.altered != altered })
		if altered && len(part.events) > 0 {
			part.dir, part.brokerd = filepath.Join(opts.dir, "altered"), filepath.Join(opts.dir, "altered-brokerd")
			if err := errors.Join(os.MkdirAll(part.dir, 0o755), build(part.brokerd, alteredBroker)); err != nil {
				return false, err
			}
		}
		if len(part.events) > 0 {
			if err := faults(ctx, part, altered, all); err != nil {
				return false, err
			}
		}
	}
	if opts.rolling > 0 {
		if err := rollings(ctx, opts, all); err != nil {
			return false, err
		}
	}
	if opts.soak > 0 {
		if err := soaking(ctx, opts, all); err != nil {
			return false, err
		}
	}
	if opts.powerCuts > 0 {
		if err := powerCuts(ctx, opts, all); err != nil {
			return false, err
		}
	}
	for n := range opts.growths {
		if ctx.Err() != nil {
			break
		}
		if err := growth(opts, n, all); err != nil {
			return false, err
		}
	}
	return all.print(opts), nil
}

// build builds a program of this module.
func build(path, program string) error {
	return outside(func() error { return rig.Build(context.Background(), "", path, program) })
}

// newRun makes a run on three brokers with all of theirs in a directory, and starts none;
// stream is which of the seed's it draws from.
func (o options) newRun(dir string, stream uint64, l *ledger) (*run, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	c, err := newCluster(o.brokerd, dir, l)
	if err != nil {
		return nil, err
	}
	return &run{cluster: c, rng: rand.New(rand.NewPCG(o.seed, stream)), out: o.out, longest: o.longest}, nil
}

// newWatched makes the ledger of an idempotent producer and a plain one, whose histories are
// checked.
func newWatched() *ledger {
	l := newLedger(partitions, true, false)
	l.history = newHistory(l)
	return l
}

// faults runs three brokers, and as many events of each kind as are asked for. altered: they
// are of a main of the tests' own.
func faults(ctx context.Context, opts options, altered bool, all *table) error {
	l := newWatched()
	r, err := opts.newRun(opts.dir, 0, l)
	if err != nil {
		return err
	}
	defer r.stop()
	if slices.ContainsFunc(opts.events, ofDisks) {
		if err := r.addDisks(opts.dir); err != nil {
			return err
		}
	}
	if altered {
		if err := r.alter(opts.dir); err != nil {
			return err
		}
	}
	if err := r.begin(); err != nil {
		return err
	}
	if altered {
		if err := r.keep(); err != nil {
			return err
		}
	}
	none := l.mark()
	ld, err := startLoad(r.addrs(), l)
	if err != nil {
		return err
	}
	if err := eventually(servedMax, func() error { return l.passed(none) }); err != nil {
		l.violate(notServed, "the first records: %v", err)
	}
	var due []event
	for _, e := range opts.events {
		due = append(due, slices.Repeat([]event{e}, opts.count)...)
	}
	r.rng.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
	for i, e := range due {
		if ctx.Err() != nil || l.count(notServed) > 0 {
			break // what does not serve tells nothing more
		}
		all.add(e.name, r.one(i+1, e, (i+1)%opts.hurry == 0))
	}
	ld.finish()
	r.readBackFromEach()
	l.history.finish()
	all.restarted = append(all.restarted, r.restarted...)
	all.count(l)
	return nil
}

// table is what is printed at the end.
type table struct {
	kinds              []string
	pauses             map[string][]time.Duration
	restarted          []time.Duration
	sent, acknowledged int
	windows            int // of histories that were checked
	broken             map[violation]int
	told               []string
	began              time.Time
}

func newTable() *table {
	return &table{pauses: map[string][]time.Duration{}, broken: map[violation]int{}, began: time.Now()}
}

func (t *table) add(kind string, pause time.Duration) {
	if len(t.pauses[kind]) == 0 {
		t.kinds = append(t.kinds, kind)
	}
	t.pauses[kind] = append(t.pauses[kind], pause)
}

func (t *table) count(l *ledger) {
	sent, acknowledged := l.counts()
	t.sent += sent
	t.acknowledged += acknowledged
	t.windows += l.history.checked()
	broken, told := l.sum()
	for v, n := range broken {
		t.broken[v] += n
	}
	t.told = append(t.told, told...)
}

// print tells all, and whether a promise was broken.
func (t *table) print(opts options) (broken bool) {
	slices.Sort(t.kinds)
	say(opts.out, "\n%-16s %6s %12s %12s\n", "event", "count", "pause p50", "pause max")
	for _, kind := range t.kinds {
		p50, most := spread(t.pauses[kind])
		say(opts.out, "%-16s %6d %12s %12s\n", kind, len(t.pauses[kind]), p50, most)
	}
	if len(t.restarted) > 0 {
		p50, most := spread(t.restarted)
		say(opts.out, "all killed: each partition acknowledged p50 %s, max %s after the start\n", p50, most)
	}
	say(opts.out, "%d records sent, %d acknowledged, %d windows of histories checked", t.sent, t.acknowledged, t.windows)
	for _, v := range violations {
		say(opts.out, ", %d %s", t.broken[v], v)
		broken = broken || t.broken[v] > 0
	}
	say(opts.out, "\nseed %d, in %s, on %d processors (%s), load %s\n", opts.seed, time.Since(t.began).Round(time.Second), runtime.NumCPU(), runtime.GOARCH, machineLoad())
	for _, words := range t.told {
		say(opts.out, "%s\n", words)
	}
	if broken {
		say(opts.out, "what the brokers printed is in %s\n", opts.dir)
	}
	return broken
}

func spread(all []time.Duration) (p50, most time.Duration) {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2].Round(time.Millisecond), sorted[len(sorted)-1].Round(time.Millisecond)
}

// machineLoad is how many processes wanted to run lately.
func machineLoad() string {
	line, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(line))[:3], " ")
}

// readBackFromEach reads all with each broker stopped in turn, so that the others' copies are
// read.
func (c *cluster) readBackFromEach() {
	for _, b := range c.nodes {
		if err := b.end(syscall.SIGTERM); err != nil {
			c.ledger.violate(notServed, "stop broker %d to read from the others: %v", b.n, err)
		}
		how := fmt.Sprintf("read without broker %d", b.n)
		if err := readBack(c.addrs(), c.ledger, how, inSyncMax); err != nil {
			c.ledger.violate(clientErr, "%s: %v", how, err)
		}
		if err := b.start(); err != nil {
			c.ledger.violate(notServed, "start broker %d: %v", b.n, err)
		}
		if err := c.awaitInSync(); err != nil {
			c.ledger.violate(notServed, "after the reading without broker %d: %v", b.n, err)
		}
	}
}
