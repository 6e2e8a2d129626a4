package clients

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// driverTimeout bounds a driver that runs to its end.
	driverTimeout = 90 * time.Second
	// leaveTimeout bounds a member's leaving.
	leaveTimeout = 30 * time.Second
	// lineBytesMax bounds a line of a driver.
	lineBytesMax = 1 << 20
)

// event is a line of a driver.
type event struct {
	Event      string      `json:"event"`
	Version    string      `json:"version"`
	Call       string      `json:"call"`
	Count      int         `json:"count"`
	Partitions []int32     `json:"partitions"`
	Partition  int32       `json:"partition"`
	Offset     int64       `json:"offset"`
	Key        string      `json:"key"`
	Value      string      `json:"value"`
	Headers    [][2]string `json:"headers"`
	Timestamp  int64       `json:"timestamp"`
}

// driver is a driver at work. Its methods may be called by several goroutines.
type driver struct {
	what   string
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr lockedBuffer
	done   chan struct{} // closed when it was reaped
	err    error         // how it ended, once done is closed
}

// lockedBuffer is written by a process while others read what there is.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// startDriver starts a driver in a process group of its own and calls on for each
// of its events, in order, from one goroutine.
func startDriver(p program, on func(event), args ...string) (*driver, error) {
	d := &driver{what: strings.Join(args, " "), done: make(chan struct{})}
	d.cmd = exec.Command(p.argv[0], append(p.argv[1:len(p.argv):len(p.argv)], args...)...)
	d.cmd.Env = append(os.Environ(), p.env...)
	d.cmd.Stderr = &d.stderr
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// What the driver left running may hold its output open.
	d.cmd.WaitDelay = 5 * time.Second
	stdin, err := d.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	d.stdin = stdin
	stdout, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start driver: %w", err)
	}
	go func() {
		defer close(d.done)
		bad := readEvents(stdout, on)
		d.err = errors.Join(bad, d.cmd.Wait())
	}()
	return d, nil
}

// readEvents calls on for each line until there are no more.
func readEvents(from io.Reader, on func(event)) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, lineBytesMax)
	var bad error
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			bad = errors.Join(bad, fmt.Errorf("its line %q: %w", lines.Text(), err))
			continue
		}
		on(e)
	}
	return errors.Join(bad, lines.Err())
}

// kill ends the driver and all that it started with SIGKILL, and reaps it.
func (d *driver) kill() {
	_ = syscall.Kill(-d.cmd.Process.Pid, syscall.SIGKILL)
	<-d.done
}

// leave closes the driver's stdin and waits for its end.
func (d *driver) leave(ctx context.Context) error {
	d.stdin.Close()
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	return d.wait(ctx)
}

// wait waits for the driver's end, and kills it when the context ends first.
func (d *driver) wait(ctx context.Context) error {
	select {
	case <-d.done:
	case <-ctx.Done():
		d.kill()
		return fmt.Errorf("driver %s: killed: %w\n%s", d.what, ctx.Err(), d.stderr.String())
	}
	if d.err != nil {
		return fmt.Errorf("driver %s: %s (%w)\n%s", d.what, lastLine(d.stderr.String()), d.err, d.stderr.String())
	}
	return nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// drive runs a driver to its end and returns its events.
func (p program) drive(ctx context.Context, args ...string) ([]event, error) {
	var events []event
	d, err := startDriver(p, func(e event) { events = append(events, e) }, args...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, driverTimeout)
	defer cancel()
	err = d.wait(ctx)
	return events, err
}

// askVersion asks a driver for its client's version.
func askVersion(ctx context.Context, p program) (string, error) {
	events, err := p.drive(ctx, "version")
	if err != nil {
		return "", err
	}
	if len(events) != 1 || events[0].Event != "version" || events[0].Version == "" {
		return "", fmt.Errorf("no version: %+v", events)
	}
	return events[0].Version, nil
}
