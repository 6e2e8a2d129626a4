package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// startTimeout is how long a broker may take to answer its first request.
	startTimeout = 30 * time.Second
	// stopTimeout is how long it may take to end after SIGTERM.
	stopTimeout = 20 * time.Second
	// outputShownBytes is how much of a broker's output a failure shows.
	outputShownBytes = 4000
)

// broker is a brokerd that is started as a user starts it, and may be killed and
// started again on the same data and port. It belongs to one goroutine.
type broker struct {
	dir  string
	port int
	args []string
	cmd  *exec.Cmd
	done chan struct{} // closed when it was reaped
	err  error         // how it ended, once done is closed
}

// addr is where clients reach it.
func (b *broker) addr() string { return loopback(b.port) }

// start starts the process, unless it runs, and waits until it answers.
func (b *broker) start() error {
	if err := b.launch(); err != nil {
		return err
	}
	return b.waitReady(1)
}

// launch starts the process, unless it runs.
func (b *broker) launch() error {
	if b.done != nil {
		return nil
	}
	path, err := suite.executable()
	if err != nil {
		return err
	}
	output, err := os.OpenFile(b.outputPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer output.Close() // the process has its own descriptor
	b.cmd = exec.Command(path, b.args...)
	b.cmd.Stdout, b.cmd.Stderr = output, output
	if err := b.cmd.Start(); err != nil {
		return fmt.Errorf("start brokerd: %w", err)
	}
	cmd, done := b.cmd, make(chan struct{})
	b.done = done
	go func() {
		defer close(done)
		b.err = cmd.Wait()
	}()
	return nil
}

// waitReady waits until the broker answers a client and knows so many brokers; a broker
// that ended is not waited for.
func (b *broker) waitReady(brokers int) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(b.addr()), kgo.RetryTimeout(200*time.Millisecond),
		kgo.DialTimeout(time.Second), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err = eventually(ctx, func() error {
		select {
		case <-b.done:
			cancel()
			return fmt.Errorf("it ended: %w", b.err)
		default:
		}
		resp, err := c.SeedBrokers()[0].Request(ctx, kmsg.NewPtrMetadataRequest())
		if err != nil {
			return err
		}
		if known := len(resp.(*kmsg.MetadataResponse).Brokers); known < brokers {
			return fmt.Errorf("it knows %d of %d brokers", known, brokers)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("broker did not answer: %w\n%s", err, b.tail())
	}
	return nil
}

// kill sends SIGKILL and reaps the process.
func (b *broker) kill() {
	if b.done != nil {
		_ = b.cmd.Process.Kill()
		<-b.done
		b.done = nil
	}
}

// stop sends SIGTERM and waits; its error is a broker that did not end well in time.
// A broker that does not run is stopped.
func (b *broker) stop() error {
	if b.done == nil {
		return nil
	}
	defer func() { b.done = nil }()
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	late := time.NewTimer(stopTimeout)
	defer late.Stop()
	select {
	case <-b.done:
		if b.err != nil {
			return fmt.Errorf("broker ended with %w", b.err)
		}
		return nil
	case <-late.C:
		b.kill()
		return fmt.Errorf("broker did not end within %s of SIGTERM", stopTimeout)
	}
}

// killPlugins kills the broker's plugins with SIGKILL and waits until it has others.
func (b *broker) killPlugins(ctx context.Context) error {
	old := children(b.cmd.Process.Pid)
	if len(old) == 0 {
		return errors.New("the broker has no plugin processes")
	}
	for _, pid := range old {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return eventually(ctx, func() error {
		now := children(b.cmd.Process.Pid)
		if len(now) < len(old) || slices.ContainsFunc(now, func(pid int) bool { return slices.Contains(old, pid) }) {
			return fmt.Errorf("its plugins are %v, after %v were killed", now, old)
		}
		return nil
	})
}

func (b *broker) outputPath() string { return filepath.Clean(b.dir) + ".log" }

// tail is the end of what the broker printed, in all its lives.
func (b *broker) tail() string {
	out, _ := os.ReadFile(b.outputPath())
	if len(out) > outputShownBytes {
		out = append([]byte("..."), out[len(out)-outputShownBytes:]...)
	}
	return string(out)
}

// children reads the processes whose parent is pid, from /proc.
func children(pid int) []int {
	var found []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n))
		if err != nil {
			continue // it ended
		}
		// pid (name) state ppid ...: the name may hold spaces.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(pid) {
			found = append(found, n)
		}
	}
	return found
}
