package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	startTimeout = 30 * time.Second // of the broker, to its first answer
	stopTimeout  = 20 * time.Second // from SIGTERM to its end
	pingEvery    = 50 * time.Millisecond
)

// address is where a broker is and what it calls itself.
type address struct {
	host string
	port int
}

func (a address) String() string { return net.JoinHostPort(a.host, strconv.Itoa(a.port)) }

// parseAddress reads HOST:PORT.
func parseAddress(s string) (address, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return address{}, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return address{}, fmt.Errorf("port of %s: %w", s, err)
	}
	return address{host, int(n)}, nil
}

// parseAddresses reads a list of HOST:PORT, separated by commas.
func parseAddresses(list string) ([]address, error) {
	var all []address
	for s := range strings.SplitSeq(list, ",") {
		a, err := parseAddress(s)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// place is where one broker is.
type place struct {
	bind       address // of its clients
	advertised address // what they are told to dial
	peers      string  // of the other brokers: host:port
}

// broker is a brokerd that runs for one suite, and may be stopped and started again. It
// belongs to one goroutine.
type broker struct {
	executable string
	args       []string
	bind       address
	output     string // the path of what it prints, in all its lives
	died       func(error)

	cmd      *exec.Cmd
	ended    chan error   // how it ended; holds one
	stopping *atomic.Bool // this life: it is no wonder that it ends
}

// newBroker is broker n of those at these places, with data and output in a directory.
// Nothing runs yet. When it ends by itself, died is called.
func newBroker(executable, dir string, n int, places []place, settings []string, died func(error)) *broker {
	number, at := strconv.Itoa(n), places[n-1]
	args := []string{
		"--set", "node.id=" + number,
		"--set", "data=" + filepath.Join(dir, "data-"+number),
		"--set", "listeners=PLAINTEXT://" + at.bind.String(),
		"--set", "advertised.listeners=PLAINTEXT://" + at.advertised.String(),
	}
	if len(places) > 1 {
		var seeds []string
		for _, p := range places {
			seeds = append(seeds, p.peers)
		}
		args = append(args, "--set", "cluster.seeds="+strings.Join(seeds, ","),
			"--set", fmt.Sprintf(`transport.config={"listen": %q, "secret": %q}`, at.peers, peerSecret))
	}
	for _, s := range settings {
		args = append(args, "--set", strings.ReplaceAll(s, "{n}", number))
	}
	return &broker{executable: executable, args: args, bind: at.bind, died: died, output: filepath.Join(dir, "brokerd-"+number+".log")}
}

// peerSecret is what brokers on loopback know each other by.
const peerSecret = "the suites' brokers know each other"

// launch starts the process.
func (b *broker) launch() error {
	output, err := os.OpenFile(b.output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer output.Close() // the process has its own descriptor
	cmd := exec.Command(b.executable, b.args...)
	cmd.Stdout, cmd.Stderr = output, output
	// Not the group of the terminal: it is stopped when its suite has ended.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start brokerd: %w", err)
	}
	ended, stopping := make(chan error, 1), new(atomic.Bool)
	b.cmd, b.ended, b.stopping = cmd, ended, stopping
	go func() {
		err := cmd.Wait()
		ended <- err
		if !stopping.Load() {
			b.died(fmt.Errorf("brokerd ended by itself (%w); see %s", errors.Join(err, context.Canceled), b.output))
		}
	}()
	return nil
}

// waitReady asks until the broker answers, and knows so many brokers.
func (b *broker) waitReady(ctx context.Context, brokers int) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.bind.String()), kgo.DialTimeout(time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		resp, err := client.SeedBrokers()[0].Request(ctx, kmsg.NewPtrMetadataRequest())
		if err == nil {
			known := len(resp.(*kmsg.MetadataResponse).Brokers)
			if known >= brokers {
				return nil
			}
			err = fmt.Errorf("it knows %d of %d brokers", known, brokers)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("brokerd is not ready: %w; see %s", errors.Join(err, context.Cause(ctx)), b.output)
		case <-tick.C:
		}
	}
}

// stop ends the broker, if it runs, and says how it ended if that was not well.
func (b *broker) stop() error {
	if b.cmd == nil {
		return nil
	}
	defer func() { b.cmd = nil }()
	b.stopping.Store(true)
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	late := time.NewTimer(stopTimeout)
	defer late.Stop()
	select {
	case err := <-b.ended:
		if err != nil {
			return fmt.Errorf("brokerd ended with %w; see %s", err, b.output)
		}
		return nil
	case <-late.C:
		_ = b.cmd.Process.Kill()
		return fmt.Errorf("brokerd did not end within %s of SIGTERM (%w); see %s", stopTimeout, <-b.ended, b.output)
	}
}

// buildBroker compiles brokerd of this checkout.
func buildBroker(ctx context.Context, root, into string) (string, error) {
	path := filepath.Join(into, "brokerd")
	if _, err := command(ctx, root, nil, "go", "build", "-o", path, "./cmd/brokerd"); err != nil {
		return "", fmt.Errorf("build brokerd: %w", err)
	}
	return path, nil
}

// shout gives the lines that a broker logged as errors: someone should look at them,
// whatever the tests say.
func (b *broker) shout() []string {
	data, _ := os.ReadFile(b.output)
	var found []string
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, "level=ERROR") || strings.HasPrefix(line, "panic: ") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}
