package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/brokerd/brokerd/test/rig"
)

const (
	// pausesMax is how long another client may take to tell its pauses.
	pausesMax = 30 * time.Second
	// endMax is how long one may take to read all that it has sent.
	endMax = 4 * time.Minute
	// firstMax is how long one may take to begin.
	firstMax = time.Minute
	// warmFor is for how long one must not be silent before it counts as at work.
	warmFor = time.Second
)

// foreign is a client in a process of its own (clients/load.py says what it prints).
type foreign struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	pauses chan [2]time.Duration
	ended  chan error
	errs   *os.File

	mu     sync.Mutex
	broken []string
	result string
}

// tool asks scripts/tools for one of its tools.
func tool(name string) (path string, err error) {
	err = outside(func() (err error) {
		path, err = rig.Tool(context.Background(), name)
		return err
	})
	return path, err
}

// foreigners are the commands of the clients beside franz-go, by name.
func foreigners() (map[string][]string, error) {
	python, err := tool("python")
	if err != nil {
		return nil, err
	}
	jars, err := tool("kafka")
	if err != nil {
		return nil, err
	}
	top, err := rig.Top()
	if err != nil {
		return nil, fmt.Errorf("find the clients: %w", err)
	}
	at := filepath.Join(top, "test", "chaos", "clients")
	logging := "-Dlog4j2.configurationFile=file:" + filepath.Join(filepath.Dir(jars), "log4j2.properties")
	return map[string][]string{
		"librdkafka": {python, filepath.Join(at, "load.py")},
		"java":       {"java", "-Xmx256m", "-XX:+UseSerialGC", logging, "-cp", jars, filepath.Join(at, "Load.java")},
	}, nil
}

// startForeign starts a client on a topic of its own.
func startForeign(name string, command []string, dir string, addrs []string) (*foreign, error) {
	f := &foreign{name: name, pauses: make(chan [2]time.Duration, 1), ended: make(chan error, 1)}
	args := slices.Concat(command[1:], []string{strings.Join(addrs, ","), topicOf(name), strconv.Itoa(partitions)})
	f.cmd = exec.Command(command[0], args...)
	var err error
	if f.errs, err = os.Create(filepath.Join(dir, name+".log")); err != nil {
		return nil, err
	}
	f.cmd.Stderr = f.errs
	endWithParent(f.cmd)
	if f.stdin, err = f.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := f.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := f.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the client %s: %w", name, err)
	}
	go func() {
		f.hear(stdout)
		f.ended <- f.cmd.Wait()
	}()
	return f, nil
}

func topicOf(client string) string { return "load-" + client }

// hear takes the lines of a client.
func (f *foreign) hear(from io.Reader) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		kind, rest, _ := strings.Cut(lines.Text(), " ")
		switch kind {
		case "P":
			var acks, reads int
			if _, err := fmt.Sscan(rest, &acks, &reads); err == nil {
				f.pauses <- [2]time.Duration{time.Duration(acks) * time.Millisecond, time.Duration(reads) * time.Millisecond}
			}
		case "R":
			f.mu.Lock()
			f.result = rest
			f.mu.Unlock()
		default:
			f.mu.Lock()
			f.broken = append(f.broken, rest)
			f.mu.Unlock()
		}
	}
}

// ask has a client tell its longest pauses since it was asked last.
func (f *foreign) ask() (acks, reads time.Duration, err error) {
	if _, err := io.WriteString(f.stdin, "\n"); err != nil {
		return 0, 0, fmt.Errorf("%s is gone: %w", f.name, err)
	}
	select {
	case p := <-f.pauses:
		return p[0], p[1], nil
	case <-time.After(pausesMax):
		return 0, 0, fmt.Errorf("%s does not tell its pauses within %s", f.name, pausesMax)
	}
}

// finish ends a client, and notes what was wrong with it.
func (f *foreign) finish(l *ledger) {
	f.stdin.Close()
	select {
	case err := <-f.ended:
		if err != nil {
			l.violate(clientErr, "%s: %v; see %s", f.name, err, f.errs.Name())
		}
	case <-time.After(endMax):
		_ = f.cmd.Process.Kill()
		l.violate(clientErr, "%s did not end within %s: %v", f.name, endMax, <-f.ended)
	}
	f.errs.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, words := range f.broken {
		l.violate(clientErr, "%s: %s", f.name, words)
	}
	var acknowledged, read int
	if _, err := fmt.Sscan(f.result, &acknowledged, &read); err != nil || acknowledged == 0 || read != acknowledged {
		l.violate(clientErr, "%s: %q were acknowledged and read", f.name, f.result)
	}
}

// rollings restarts all brokers in turn, as often as asked for, under load by franz-go,
// librdkafka and Kafka's own client.
func rollings(ctx context.Context, opts options, all *table) error {
	commands, err := foreigners()
	if err != nil {
		return err
	}
	dir := filepath.Join(opts.dir, "rolling")
	l := newWatched()
	r, err := opts.newRun(dir, 0, l)
	if err != nil {
		return err
	}
	defer r.stop()
	if err := r.begin(); err != nil {
		return err
	}
	clients, err := r.startForeigners(commands, dir)
	if err != nil {
		return err
	}
	ld, err := startLoad(r.addrs(), l)
	if err != nil {
		return err
	}
	err = r.warm(clients)
	for n := range opts.rolling {
		if err != nil || ctx.Err() != nil {
			break
		}
		err = r.roll(n+1, clients, all)
	}
	ld.finish()
	for _, f := range clients {
		f.finish(l)
	}
	r.readBackFromEach()
	l.history.finish()
	all.count(l)
	return err
}

// begin starts three brokers, and makes the load's topic.
func (r *run) begin() error {
	r.seedAll()
	if err := r.startAll(); err != nil {
		return err
	}
	if err := r.awaitVoters(); err != nil {
		return fmt.Errorf("start three brokers: %w; see%s", err, r.outputs())
	}
	err := r.createTopic(brokers)
	if err == nil {
		err = r.awaitInSync()
	}
	if err != nil {
		return fmt.Errorf("create the topic: %w; see%s", err, r.outputs())
	}
	return nil
}

// startForeigners makes each client's topic, and starts it.
func (r *run) startForeigners(commands map[string][]string, dir string) ([]*foreign, error) {
	ctx, cancel := context.WithTimeout(context.Background(), servedMax)
	defer cancel()
	two := "2"
	var out []*foreign
	for _, name := range []string{"librdkafka", "java"} {
		if _, err := kadm.NewClient(r.asking).CreateTopic(ctx, partitions, brokers, map[string]*string{"min.insync.replicas": &two}, topicOf(name)); err != nil {
			return nil, fmt.Errorf("create the topic of %s: %w", name, err)
		}
		f, err := startForeign(name, commands[name], dir, r.addrs())
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// warm waits until all clients are at work, whose runtimes take their time.
func (r *run) warm(clients []*foreign) error {
	mark := r.ledger.mark()
	if err := eventually(servedMax, func() error { return r.ledger.passed(mark) }); err != nil {
		return err
	}
	for _, f := range clients {
		err := eventually(firstMax, func() error {
			if _, _, err := f.ask(); err != nil {
				return err
			}
			wait(warmFor)
			acks, reads, err := f.ask()
			if err == nil && max(acks, reads) >= warmFor {
				err = fmt.Errorf("%s acknowledged nothing for %s, and read nothing for %s", f.name, acks, reads)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// roll restarts each broker once, and tells each client's longest pause.
func (r *run) roll(round int, clients []*foreign, all *table) error {
	for _, f := range clients {
		if _, _, err := f.ask(); err != nil {
			return err
		}
	}
	r.ledger.watchPauses()
	what, err := r.rolling()
	if err != nil {
		return fmt.Errorf("round %d, %s: %w", round, what, err)
	}
	pause := r.ledger.pause()
	all.add("acks franz-go", pause)
	words := fmt.Sprintf("franz-go %s", pause.Round(time.Millisecond))
	for _, f := range clients {
		acks, reads, askErr := f.ask()
		err = errors.Join(err, askErr)
		all.add("acks "+f.name, acks)
		all.add("reads "+f.name, reads)
		words += fmt.Sprintf(", %s %s (read nothing for %s)", f.name, acks, reads)
	}
	say(r.out, "%s round %d: %slongest pauses of acknowledgements: %s\n", time.Now().Format("15:04:05.000"), round, what, words)
	return err
}
