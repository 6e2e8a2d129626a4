package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	startTimeout = 30 * time.Second // of the broker, to its first answer
	stopTimeout  = 20 * time.Second // from SIGTERM to its end
	pingEvery    = 50 * time.Millisecond
	// The port is below those that kernels give to outgoing connections: a client
	// that dials it between two of its owner's lives could be connected to itself.
	portMin, portMax = 10_000, 30_000
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

// broker is a brokerd that runs for one suite.
type broker struct {
	cmd    *exec.Cmd
	output string     // the path of what it prints
	ended  chan error // how it ended; holds one
}

// startBroker starts brokerd on a directory that is yet to be made, and waits until it
// answers. When it ends by itself, died is called.
func startBroker(ctx context.Context, executable, dir string, at address, settings []string, died func(error)) (*broker, error) {
	args := []string{
		"--set", "data=" + filepath.Join(dir, "data"),
		"--set", fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d", at.port),
		"--set", "advertised.listeners=PLAINTEXT://" + at.String(),
	}
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	b := &broker{cmd: exec.Command(executable, args...), output: filepath.Join(dir, "brokerd.log"), ended: make(chan error, 1)}
	output, err := os.Create(b.output)
	if err != nil {
		return nil, err
	}
	defer output.Close() // the process has its own descriptor
	b.cmd.Stdout, b.cmd.Stderr = output, output
	// Not the group of the terminal: it is stopped when its suite has ended.
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := b.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start brokerd: %w", err)
	}
	go func() {
		err := b.cmd.Wait()
		b.ended <- err
		died(fmt.Errorf("brokerd ended by itself (%w)", errors.Join(err, context.Canceled)))
	}()
	if err := b.waitReady(ctx, at); err != nil {
		return nil, errors.Join(fmt.Errorf("%w; see %s", err, b.output), b.stop())
	}
	return b, nil
}

// waitReady asks until the broker answers.
func (b *broker) waitReady(ctx context.Context, at address) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(at.String()), kgo.DialTimeout(time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		err := client.Ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("brokerd did not answer: %w", errors.Join(err, context.Cause(ctx)))
		case <-tick.C:
		}
	}
}

// stop ends the broker and says how it ended if that was not well.
func (b *broker) stop() error {
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

// freePort finds a port on loopback that nobody listens on.
func freePort() (int, error) {
	for range 100 {
		port := portMin + rand.IntN(portMax-portMin)
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port from %d to %d", portMin, portMax)
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
