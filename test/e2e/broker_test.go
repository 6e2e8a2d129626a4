package e2e

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
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// startTimeout is how long a broker may take to answer its first request.
	startTimeout = 30 * time.Second
	// stopTimeout is how long it may take to end after SIGTERM.
	stopTimeout = 20 * time.Second
	// outputShownBytes is how much of a broker's output a failure shows.
	outputShownBytes = 6000
)

// broker is a brokerd that is started as a user starts it, and may be stopped,
// killed and started again on the same data and port. It belongs to the test's
// goroutine.
type broker struct {
	t     *testing.T
	dir   string
	port  int
	args  []string
	env   []string // NAME=value: settings of this broker
	admin int      // port of the admin listener, of one that is watched
	// brokers is how many it is, with ports from port on; 0: one.
	brokers int
	// settings are those of a broker that is started as on a server, without dev.
	settings []string
	now      *process // nil while none runs
}

// process is one life of a broker.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it was reaped
	err  error         // how it ended, once done is closed
}

// startBroker starts a broker on an empty data directory and waits until it
// answers. It is stopped when the test ends.
func startBroker(t *testing.T, args ...string) *broker {
	t.Helper()
	return startBrokerOn(t, t.TempDir(), nil, args...)
}

// startBrokerOn starts a broker on the given data directory, with settings in
// its environment.
func startBrokerOn(t *testing.T, dir string, env []string, args ...string) *broker {
	t.Helper()
	b := newBroker(t, dir, args...)
	b.env = env
	b.start()
	return b
}

// newBroker makes a broker that is yet to be started. Whatever becomes of it, it
// is gone when the test ends.
func newBroker(t *testing.T, dir string, args ...string) *broker {
	t.Helper()
	b := &broker{t: t, dir: dir, port: freePort(t), args: args}
	t.Cleanup(b.stop)
	return b
}

// addr is the bootstrap address, or those of all brokers with commas between.
func (b *broker) addr() string {
	addr := "127.0.0.1:" + strconv.Itoa(b.port)
	for i := 1; i < b.brokers; i++ {
		addr += ",127.0.0.1:" + strconv.Itoa(b.port+i)
	}
	return addr
}

// start starts the process and waits until it answers.
func (b *broker) start() {
	b.t.Helper()
	b.launch()
	b.waitReady()
}

// launch starts the process and returns at once.
func (b *broker) launch() {
	b.t.Helper()
	path, err := executable()
	if err != nil {
		b.t.Fatal(err)
	}
	output, err := os.OpenFile(b.outputPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		b.t.Fatal(err)
	}
	defer output.Close() // the process has its own descriptor
	args := append([]string{"dev", "--data", b.dir, "--port", strconv.Itoa(b.port)}, b.args...)
	if b.settings != nil {
		args = nil
		for _, pair := range b.settings {
			args = append(args, "--set", pair)
		}
	}
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.Env = append(slices.Concat(os.Environ(), carriedEnv()), b.env...)
	if err := cmd.Start(); err != nil {
		b.t.Fatalf("start brokerd: %v", err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	b.now = p
}

// waitReady waits until the broker answers a client; a broker that ended is not
// waited for.
func (b *broker) waitReady() {
	b.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(b.addr(), ",")...), kgo.RetryTimeout(200*time.Millisecond),
		kgo.DialTimeout(time.Second), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		b.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithCancelCause(testContext(b.t, startTimeout))
	defer cancel(nil)
	p := b.now
	stopWatching := make(chan struct{})
	defer close(stopWatching)
	go func() {
		select {
		case <-p.done:
			cancel(fmt.Errorf("it ended: %w", errors.Join(p.err, context.Canceled)))
		case <-stopWatching:
		}
	}()
	if err := eventually(ctx, func() error { return client.Ping(ctx) }); err != nil {
		b.t.Fatalf("broker did not answer: %v\n%s", err, b.tail())
	}
}

// kill sends SIGKILL and reaps the process.
func (b *broker) kill() {
	p := b.now
	b.now = nil
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop sends SIGTERM, waits, and fails the test when the broker did not end
// well in time. A broker that does not run is stopped.
func (b *broker) stop() {
	b.t.Helper()
	p := b.now
	b.now = nil
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	late := time.NewTimer(stopTimeout)
	defer late.Stop()
	select {
	case <-p.done:
		if p.err != nil {
			b.t.Errorf("broker ended with %v after SIGTERM\n%s", p.err, b.tail())
		}
	case <-late.C:
		_ = p.cmd.Process.Kill()
		<-p.done
		b.t.Errorf("broker did not end within %s of SIGTERM\n%s", stopTimeout, b.tail())
	}
}

// pid is the broker's process.
func (b *broker) pid() int {
	b.t.Helper()
	if b.now == nil {
		b.t.Fatal("the broker does not run")
	}
	return b.now.cmd.Process.Pid
}

// plugins are the processes that the broker started.
func (b *broker) plugins() []int { return children(b.pid()) }

func (b *broker) outputPath() string { return filepath.Clean(b.dir) + ".log" }

// output is all that the broker printed, in all its lives.
func (b *broker) output() string {
	data, _ := os.ReadFile(b.outputPath())
	return string(data)
}

// tail is the end of what the broker printed.
func (b *broker) tail() string {
	out := b.output()
	if len(out) > outputShownBytes {
		out = "..." + out[len(out)-outputShownBytes:]
	}
	return out
}

// children reads the processes whose parent is pid, from /proc.
func children(pid int) []int {
	var found []int
	for _, n := range processes() {
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

// holders are processes, other than this one, that hold a file of the directory
// open.
func holders(dir string) []int {
	var found []int
	for _, n := range processes() {
		if n == os.Getpid() {
			continue
		}
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", n))
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, dir+"/") {
				found = append(found, n)
				break
			}
		}
	}
	return found
}

// processes are the numbers of all of them.
func processes() []int {
	var all []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// waitUnheld waits until nobody holds the data of a killed broker: its plugins
// must end by themselves. (FR-77)
func waitUnheld(t *testing.T, b *broker) {
	t.Helper()
	err := eventually(testContext(t, 5*time.Second), func() error {
		if left := holders(b.dir); len(left) > 0 {
			return fmt.Errorf("processes %v hold its data", left)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("plugins outlived their killed broker: %v", err)
	}
}
