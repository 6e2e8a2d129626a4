package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/brokerd/brokerd/test/rig"
)

// kept are Kafka's results and the lists of excused tests.
//
//go:embed baselines excused
var kept embed.FS

// runner runs a suite against the session's brokers. Its error is that the suite could
// not be run; what tests said is in the results.
type runner interface {
	run(ctx context.Context, s *session) (results, error)
}

// session is one run of one suite.
type session struct {
	dir       string    // of this run, emptied before it
	addresses []address // of the brokers, as they advertise themselves
	places    []place   // of the run's own brokers, in the order of their numbers
	cluster   *cluster  // nil: they are somebody else's
	only      string    // a regular expression of the tests to run; empty: the suite's own
	excused   map[string]excuse
}

// options are the command's.
type options struct {
	only       string
	against    string
	executable string
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "docker" {
		if err := dockerCall(context.Background(), os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.StringVar(&o.only, "run", "", "run only tests that match this regular expression")
	flag.StringVar(&o.against, "against", "", "run against the brokers at these HOST:PORT, separated by commas, and start none")
	flag.StringVar(&o.executable, "brokerd", "", "the brokerd to start; empty: built from this checkout")
	flag.Usage = func() {
		fmt.Fprintf(os.Stderr, "usage: suites [flags] all|%s\n", strings.Join(names(), "|"))
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	ok, err := runAll(ctx, flag.Arg(0), o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// runAll runs the suites that the word names, and reports whether all passed.
func runAll(ctx context.Context, word string, o options) (bool, error) {
	ok, known := true, false
	for _, su := range suites() {
		if word != "all" && word != su.name {
			continue
		}
		known = true
		passed, err := runSuite(ctx, su, o)
		if err != nil {
			return false, fmt.Errorf("%s: %w", su.name, err)
		}
		ok = ok && passed
	}
	if !known {
		return false, fmt.Errorf("no suite is called %s; there are: %s", word, strings.Join(names(), ", "))
	}
	return ok, nil
}

func names() []string {
	var all []string
	for _, su := range suites() {
		all = append(all, su.name)
	}
	return all
}

// runSuite runs one suite against brokers of its own and tells the verdict.
func runSuite(ctx context.Context, su suite, o options) (bool, error) {
	kafka, excused, err := measures(su.name)
	if err != nil {
		return false, err
	}
	s, unlock, err := newSession(su, o)
	if err != nil {
		return false, err
	}
	defer unlock()
	s.excused = excused
	began := time.Now()
	here, shouts, err := s.measure(ctx, su, o)
	if err != nil {
		return false, err
	}
	if err := s.keep(here); err != nil {
		return false, err
	}
	v := compare(kafka, here, excused, o.only != "")
	fmt.Print(v.text(su.name, kafka, here, excused))
	for _, line := range shouts {
		fmt.Println("  brokerd logged:", line)
	}
	fmt.Printf("%s: %s in %s; all of it is in %s\n", su.name, word(v.ok()), time.Since(began).Round(time.Second), s.dir)
	return v.ok(), nil
}

func word(ok bool) string {
	if ok {
		return "passed"
	}
	return "FAILED"
}

// measures are Kafka's results of a suite and what is excused in it.
func measures(name string) (results, map[string]excuse, error) {
	base, err := kept.ReadFile("baselines/" + name)
	if err != nil {
		return nil, nil, err
	}
	kafka, err := readResults(bytes.NewReader(base))
	if err != nil {
		return nil, nil, fmt.Errorf("baselines/%s: %w", name, err)
	}
	list, err := kept.ReadFile("excused/" + name)
	if err != nil {
		return nil, nil, err
	}
	excused, err := readExcused(bytes.NewReader(list))
	if err != nil {
		return nil, nil, fmt.Errorf("excused/%s: %w", name, err)
	}
	return kafka, excused, nil
}

// newSession makes the run's directory, which is one's alone until unlock is called.
func newSession(su suite, o options) (s *session, unlock func(), err error) {
	cache := os.Getenv("BROKERD_CACHE")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, nil, err
		}
		cache = filepath.Join(home, ".cache", "brokerd")
	}
	runs := filepath.Join(cache, "suites")
	s = &session{dir: filepath.Join(runs, su.name), only: o.only}
	if err := os.MkdirAll(runs, 0o755); err != nil {
		return nil, nil, err
	}
	lock, err := os.OpenFile(s.dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, nil, fmt.Errorf("another run of this suite is using %s: %w", s.dir, err)
	}
	if err := errors.Join(os.RemoveAll(s.dir), os.MkdirAll(s.dir, 0o755)); err != nil {
		lock.Close()
		return nil, nil, err
	}
	return s, func() { lock.Close() }, nil
}

// bootstrap is all addresses, as clients are given them.
func (s *session) bootstrap() string {
	var all []string
	for _, a := range s.addresses {
		all = append(all, a.String())
	}
	return strings.Join(all, ",")
}

// measure runs the suite, with brokers of its own unless it was given some. It also
// returns the errors that the brokers logged.
func (s *session) measure(ctx context.Context, su suite, o options) (here results, shouts []string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if o.against != "" {
		if su.relayed {
			return nil, nil, errors.New("-against: this suite stops brokers and starts them, and so needs its own")
		}
		if s.addresses, err = parseAddresses(o.against); err != nil {
			return nil, nil, fmt.Errorf("-against: %w", err)
		}
	} else {
		if err := s.start(ctx, su, o.executable, cancel); err != nil {
			return nil, nil, err
		}
		defer func() {
			shouts = s.cluster.shout()
			err = errors.Join(err, s.cluster.stop())
		}()
	}
	limited, done := context.WithTimeout(ctx, su.total)
	defer done()
	here, err = su.runner.run(limited, s)
	// A suite that ran out of time has results; one with a broker that died, or that was
	// interrupted, has none that count.
	if ctx.Err() != nil {
		err = errors.Join(err, context.Cause(ctx))
	}
	return here, nil, err
}

// start starts the brokers that the suite expects.
func (s *session) start(ctx context.Context, su suite, executable string, died func(error)) (err error) {
	if executable == "" {
		executable = filepath.Join(s.dir, "brokerd")
		if err := rig.Build(ctx, "", executable, rig.Brokerd); err != nil {
			return err
		}
	}
	if s.places, err = places(su.host, su.brokers, su.relayed); err != nil {
		return err
	}
	for _, p := range s.places {
		s.addresses = append(s.addresses, p.advertised)
	}
	if s.cluster, err = startCluster(ctx, executable, s.dir, s.places, su.settings, died); err != nil || su.relayed {
		return err // without its relays it cannot be reached yet
	}
	if err := s.cluster.warm(ctx); err != nil {
		return errors.Join(err, s.cluster.stop())
	}
	return nil
}

// keep writes the results beside the logs.
func (s *session) keep(here results) error {
	f, err := os.Create(filepath.Join(s.dir, "results"))
	if err != nil {
		return err
	}
	return errors.Join(here.write(f), f.Close())
}

// tool has scripts/tools install something.
func (s *session) tool(name string) error {
	_, err := s.toolPath(name)
	return err
}

// toolPath has scripts/tools install something, and returns where it is.
func (s *session) toolPath(name string) (string, error) {
	return rig.Tool(context.Background(), name)
}
