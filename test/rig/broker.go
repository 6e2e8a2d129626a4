package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"
)

const (
	// StartTimeout is how long a broker may take to answer its first request.
	StartTimeout = 30 * time.Second
	// StopTimeout is how long it may take to end after SIGTERM.
	StopTimeout = 20 * time.Second
	// tailBytes is how much of what a broker printed a failure shows.
	tailBytes = 6000
)

// Broker is a broker that may be ended and started again on the same data, or one
// `brokerd dev`, with the brokers that it runs. It belongs to one goroutine.
type Broker struct {
	Program string
	Args    []string
	Env     []string // NAME=value, over the environment of this process
	Output  string   // the file of all that it prints, in all its lives
	// Prepare, unless nil, has its way with the command of each life.
	Prepare func(*exec.Cmd)

	life *Process // nil while none is to run
}

// Launch starts the process, unless it runs, and returns at once.
func (b *Broker) Launch() error {
	if b.life != nil {
		return nil
	}
	cmd := exec.Command(b.Program, b.Args...)
	cmd.Env = append(os.Environ(), b.Env...)
	if b.Prepare != nil {
		b.Prepare(cmd)
	}
	life, err := Start(cmd, b.Output)
	b.life = life
	return err
}

// Life is the process, or nil where none is to run.
func (b *Broker) Life() *Process { return b.life }

// Running reports whether it was started, and ended neither by Kill nor by Stop.
func (b *Broker) Running() bool { return b.life != nil }

// Pid is the process's number; 0 where it does not run.
func (b *Broker) Pid() int {
	if b.life == nil {
		return 0
	}
	return b.life.Pid()
}

// Ready waits until somebody at these addresses answers a client and knows so many brokers. A
// broker that has ended is not waited for.
func (b *Broker) Ready(ctx context.Context, addrs []string, brokers int) error {
	if b.life == nil {
		return errors.New("the broker does not run")
	}
	ctx, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()
	if err := b.life.Ready(ctx, addrs, brokers); err != nil {
		return fmt.Errorf("broker did not answer: %w\n%s", err, b.Tail())
	}
	return nil
}

// Kill sends SIGKILL and reaps the process.
func (b *Broker) Kill() {
	if b.life != nil {
		b.life.Kill()
		b.life = nil
	}
}

// Stop sends SIGTERM and waits; its error is a broker that did not end well, or in time. A
// broker that does not run is stopped.
func (b *Broker) Stop() error {
	if b.life == nil {
		return nil
	}
	err := b.life.Stop(StopTimeout)
	b.life = nil
	if err != nil {
		return fmt.Errorf("broker: %w\n%s", err, b.Tail())
	}
	return nil
}

// Printed is all that the broker has printed.
func (b *Broker) Printed() string {
	out, _ := os.ReadFile(b.Output)
	return string(out)
}

// Tail is the end of it.
func (b *Broker) Tail() string { return Tail(b.Output) }

// Tail is the end of a file to which a process has printed.
func Tail(path string) string {
	out, _ := os.ReadFile(path)
	if len(out) > tailBytes {
		out = slices.Concat([]byte("..."), out[len(out)-tailBytes:])
	}
	return string(out)
}

// StopAll stops brokers, at once, and says which did not end well.
func StopAll[B interface{ Stop() error }](all []B) error {
	errs := make([]error, len(all))
	var stops sync.WaitGroup
	for i, b := range all {
		stops.Go(func() { errs[i] = b.Stop() })
	}
	stops.Wait()
	return errors.Join(errs...)
}
