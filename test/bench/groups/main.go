package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/brokerd/brokerd/test/bench/peer"
)

// size is what the run is made of.
type size struct {
	groups, members, partitions int
	rounds, workers             int
	round                       time.Duration
	large                       int // members of the one large group
}

func main() {
	var n size
	flag.IntVar(&n.groups, "groups", 1000, "groups")
	flag.IntVar(&n.members, "members", 3, "members of each group")
	flag.IntVar(&n.partitions, "partitions", 100, "partitions that each group has committed offsets of")
	flag.IntVar(&n.rounds, "rounds", 5, "alternations of the commit load, after one that is not counted")
	flag.IntVar(&n.workers, "workers", 32, "connections that commit at once")
	flag.DurationVar(&n.round, "round", 5*time.Second, "length of a round of commits")
	flag.IntVar(&n.large, "large", 500, "members of the large group")
	kafka := flag.Bool("kafka", true, "measure Apache Kafka too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, n, *kafka)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "groups:", err)
		os.Exit(1)
	}
}

// delay is the same for all: members that start together get into one generation.
const delay = "group.initial.rebalance.delay.ms=1000"

func run(ctx context.Context, n size, withKafka bool) error {
	dir, err := os.MkdirTemp("", "brokerd-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var targets []*target
	add := func(name string, newServer func(dir string) (*peer.Server, error)) error {
		own := filepath.Join(dir, fmt.Sprint(len(targets)))
		if err := os.Mkdir(own, 0o755); err != nil {
			return err
		}
		s, err := newServer(own)
		if err != nil {
			return err
		}
		s.Name = name
		targets = append(targets, newTarget(s, n))
		return nil
	}
	brokerd := func(args ...string) func(string) (*peer.Server, error) {
		return func(dir string) (*peer.Server, error) {
			return peer.Brokerd(ctx, dir, append(args, "--set", delay)...)
		}
	}
	err = add("brokerd", brokerd("--flush", "interval"))
	if err == nil {
		err = add("brokerd, fsync before ack", brokerd())
	}
	if err == nil && withKafka {
		err = add("Kafka 4.4.0", func(dir string) (*peer.Server, error) { return peer.Kafka(ctx, dir, 1, delay) })
	}
	if err != nil {
		return err
	}
	for _, t := range targets {
		defer t.end()
	}
	for _, phase := range []func(context.Context, []*target) error{n.settle, n.commit, n.rate, n.rebalance, n.restart} {
		if err := phase(ctx, targets); err != nil {
			return err
		}
	}
	n.print(targets)
	return nil
}

// settle starts every server and its groups.
func (n size) settle(ctx context.Context, targets []*target) error {
	for _, t := range targets {
		fmt.Fprintf(os.Stderr, "%s: start, %d groups of %d members\n", t.server.Name, n.groups, n.members)
		if err := t.server.Start(ctx); err != nil {
			return err
		}
		if err := t.prepare(ctx); err != nil {
			return fmt.Errorf("%s: %w", t.server.Name, err)
		}
		begun := time.Now()
		t.startMembers(ctx)
		if err := t.wait(ctx, "its groups to be stable", func() bool { return t.board.agree(n.groups * n.members) }); err != nil {
			return err
		}
		t.joined = time.Since(begun)
	}
	return nil
}

// commit stores the offsets that a restart has to bring back.
func (n size) commit(ctx context.Context, targets []*target) error {
	for _, t := range targets {
		begun := time.Now()
		if err := t.commitAll(ctx); err != nil {
			return fmt.Errorf("%s: commit: %w", t.server.Name, err)
		}
		t.committed = time.Since(begun)
	}
	return nil
}

// rate commits as fast as the server goes, in turn.
func (n size) rate(ctx context.Context, targets []*target) error {
	for round := range n.rounds + 1 {
		for _, t := range targets {
			before, err := t.server.Usage()
			if err != nil {
				return err
			}
			perSecond, commits, err := t.load(ctx)
			if err != nil {
				return fmt.Errorf("%s: commit: %w", t.server.Name, err)
			}
			after, err := t.server.Usage()
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "%s: round %d, %.0f commits/s\n", t.server.Name, round, perSecond)
			if round > 0 {
				t.rates = append(t.rates, perSecond)
				t.cpu = append(t.cpu, float64((after.CPU-before.CPU).Microseconds())/float64(commits))
			}
		}
	}
	return nil
}

// rebalance times one large group: all at once, and one more.
func (n size) rebalance(ctx context.Context, targets []*target) error {
	for _, t := range targets {
		fmt.Fprintf(os.Stderr, "%s: a group of %d members\n", t.server.Name, n.large)
		if err := t.largeGroup(ctx); err != nil {
			return err
		}
	}
	return nil
}

// restart kills every server, and times its way back.
func (n size) restart(ctx context.Context, targets []*target) error {
	for _, t := range targets {
		use, err := t.server.Usage()
		if err != nil {
			return err
		}
		t.rss = use.RSS
		fmt.Fprintf(os.Stderr, "%s: kill and start again\n", t.server.Name)
		if err := t.comeBack(ctx); err != nil {
			return fmt.Errorf("%s: after its restart: %w", t.server.Name, err)
		}
	}
	return nil
}

func (n size) print(targets []*target) {
	fmt.Printf("Consumer groups at scale: %d groups of %d members, %d committed offsets; %d processors, %s/%s, %s\n",
		n.groups, n.members, n.groups*n.partitions, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	fmt.Printf("Repeat: go run ./test/bench/groups %s\n\n", strings.Join(os.Args[1:], " "))
	row := func(name string, value func(*target) string) {
		fmt.Printf("| %s |", name)
		for _, t := range targets {
			fmt.Printf(" %s |", value(t))
		}
		fmt.Println()
	}
	seconds := func(d func(*target) time.Duration) func(*target) string {
		return func(t *target) string { return fmt.Sprintf("%.2f s", d(t).Seconds()) }
	}
	row("", func(t *target) string { return t.server.Name })
	row("---", func(*target) string { return "---" })
	row("all groups stable, from nothing", seconds(func(t *target) time.Duration { return t.joined }))
	row(fmt.Sprintf("%d commits of %d offsets", n.groups, n.partitions), seconds(func(t *target) time.Duration { return t.committed }))
	row(fmt.Sprintf("commits/s, %d connections, median (least to most)", n.workers), func(t *target) string { return spread(t.rates, "%.0f") })
	row("against the last column, median (least to most)", func(t *target) string { return ratio(t.rates, targets[len(targets)-1].rates) })
	row("server's processor time a commit, µs", func(t *target) string { return spread(t.cpu, "%.0f") })
	row(fmt.Sprintf("group of %d: all joined", n.large), seconds(func(t *target) time.Duration { return t.largeJoined }))
	row("one more joins: all in the new generation", seconds(func(t *target) time.Duration { return t.largeRebalanced }))
	row("RSS under this load, MiB", func(t *target) string { return fmt.Sprint(t.rss >> 20) })
	row("kill -9, start: it listens", seconds(func(t *target) time.Duration { return t.listening }))
	row("the offsets of all groups are served", seconds(func(t *target) time.Duration { return t.served }))
	row("answers before that, without error and without the offsets", func(t *target) string { return fmt.Sprint(t.missing) })
	row("all members heartbeat again (members that had to join anew)", func(t *target) string {
		return fmt.Sprintf("%.2f s (%d)", t.heard.Seconds(), t.rejoined)
	})
	row("RSS after it, MiB", func(t *target) string { return fmt.Sprint(t.rssAfter >> 20) })
}
