package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/brokerd/brokerd/test/rig"
)

const (
	startTimeout = rig.StartTimeout
	stopTimeout  = rig.StopTimeout
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
	rig.Broker
	bind     address
	died     func(error)
	stopping *atomic.Bool // this life: it is no wonder that it ends
}

// peerSecret is what brokers on loopback know each other by.
const peerSecret = "the suites' brokers know each other"

// newBroker is broker n of those at these places, with data and output in a directory.
// Nothing runs yet. When it ends by itself, died is called.
func newBroker(executable, dir string, n int, places []place, settings []string, died func(error)) *broker {
	number, at := strconv.Itoa(n), places[n-1]
	member := rig.Member{
		Number: n, Data: filepath.Join(dir, "data-"+number), Clients: at.bind.String(), Advertised: at.advertised.String(),
	}
	if len(places) > 1 {
		member.Peers, member.Secret = at.peers, peerSecret
		for _, p := range places {
			member.Seeds = append(member.Seeds, p.peers)
		}
	}
	pairs := member.Settings()
	for _, s := range settings {
		pairs = append(pairs, strings.ReplaceAll(s, "{n}", number))
	}
	return &broker{bind: at.bind, died: died, Broker: rig.Broker{
		Program: executable, Args: rig.Set(pairs), Output: filepath.Join(dir, "brokerd-"+number+".log"),
		// Not the group of the terminal: it is stopped when its suite has ended.
		Prepare: func(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} },
	}}
}

// Launch starts the process.
func (b *broker) Launch() error {
	if err := b.Broker.Launch(); err != nil {
		return err
	}
	life, stopping := b.Life(), new(atomic.Bool)
	b.stopping = stopping
	go func() {
		if err := life.Err(); !stopping.Load() {
			b.died(fmt.Errorf("brokerd ended by itself (%w); see %s", errors.Join(err, context.Canceled), b.Output))
		}
	}()
	return nil
}

// Stop ends the broker, if it runs, and says how it ended if that was not well.
func (b *broker) Stop() error {
	if b.Running() {
		b.stopping.Store(true)
	}
	return b.Broker.Stop()
}

// ready waits until the broker answers, and knows so many brokers.
func (b *broker) ready(ctx context.Context, brokers int) error {
	return b.Ready(ctx, []string{b.bind.String()}, brokers)
}

// shout gives the lines that a broker logged as errors: someone should look at them,
// whatever the tests say.
func (b *broker) shout() []string {
	var found []string
	for line := range strings.Lines(b.Printed()) {
		if strings.Contains(line, "level=ERROR") || strings.HasPrefix(line, "panic: ") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}
