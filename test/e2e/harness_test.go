package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// startTimeout is how long a broker may take to answer its first request.
const startTimeout = 30 * time.Second

// builtBinary builds brokerd once for all tests.
var builtBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "brokerd-e2e-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "brokerd")
	out, err := exec.Command("go", "build", "-o", path, "github.com/brokerd/brokerd/cmd/brokerd").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build brokerd: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := builtBinary(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// full reports whether the whole matrix was asked for.
func full() bool { return os.Getenv("BROKERD_E2E_FULL") != "" }

// tool asks scripts/tools for something to be installed, and returns what it
// prints.
func tool(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.Command("bash", "../../scripts/tools", name)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("scripts/tools %s: %v\n%s", name, err, errs.String())
	}
	return strings.TrimSpace(out.String())
}

// broker is a brokerd process started as a user starts it.
type broker struct {
	t    *testing.T
	dir  string
	port int
	args []string
	env  []string // NAME=value: settings of this broker

	mu  sync.Mutex
	cmd *exec.Cmd
	log *os.File
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
	b := &broker{t: t, dir: dir, port: freePort(t), args: args, env: env}
	b.start()
	t.Cleanup(b.stop)
	return b
}

// addr is the bootstrap address.
func (b *broker) addr() string { return "127.0.0.1:" + strconv.Itoa(b.port) }

// start starts the process and waits until it answers.
func (b *broker) start() {
	b.t.Helper()
	if err := b.launch(); err != nil {
		b.t.Fatal(err)
	}
	if err := b.waitReady(); err != nil {
		b.t.Fatalf("broker did not answer: %v\n%s", err, b.tail())
	}
}

// launch starts the process and returns at once.
func (b *broker) launch() error {
	path, err := builtBinary()
	if err != nil {
		return err
	}
	logPath := filepath.Join(filepath.Dir(b.dir), filepath.Base(b.dir)+".log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	args := append([]string{"dev", "--data", b.dir, "--port", strconv.Itoa(b.port)}, b.args...)
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), b.env...)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start brokerd: %w", err)
	}
	b.mu.Lock()
	b.cmd, b.log = cmd, log
	b.mu.Unlock()
	return nil
}

// waitReady asks the broker for its metadata until it answers.
func (b *broker) waitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return waitServing(ctx, b.addr())
}

func waitServing(ctx context.Context, addr string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RetryTimeout(200*time.Millisecond),
		kgo.DialTimeout(time.Second), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if err = client.Ping(ctx); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: last answer: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// kill sends SIGKILL and reaps the process.
func (b *broker) kill() {
	b.mu.Lock()
	cmd, log := b.cmd, b.log
	b.cmd = nil
	b.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	log.Close()
}

// stop sends SIGTERM, waits, and fails the test when the broker did not end
// well in time.
func (b *broker) stop() {
	b.mu.Lock()
	cmd, log := b.cmd, b.log
	b.cmd = nil
	b.mu.Unlock()
	if cmd == nil {
		return
	}
	done := make(chan error, 1)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			b.t.Errorf("broker ended with %v after SIGTERM\n%s", err, b.tail())
		}
	case <-time.After(20 * time.Second):
		_ = cmd.Process.Kill()
		<-done
		b.t.Errorf("broker did not end within 20 s of SIGTERM\n%s", b.tail())
	}
	log.Close()
}

// pid is the broker's process, or 0.
func (b *broker) pid() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd == nil {
		return 0
	}
	return b.cmd.Process.Pid
}

// plugins are the pids of the broker's children.
func (b *broker) plugins() []int { return children(b.pid()) }

// children reads the processes whose parent is pid, from /proc.
func children(pid int) []int {
	if pid == 0 {
		return nil
	}
	var found []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		// pid (name) state ppid ...: the name may hold spaces.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(pid) {
			found = append(found, n)
		}
	}
	return found
}

// output is all that the broker printed.
func (b *broker) output() string {
	data, _ := os.ReadFile(filepath.Join(filepath.Dir(b.dir), filepath.Base(b.dir)+".log"))
	return string(data)
}

// tail is the end of what the broker printed.
func (b *broker) tail() string {
	out := b.output()
	if len(out) > 6000 {
		out = "..." + out[len(out)-6000:]
	}
	return out
}

// freePort finds a port on loopback that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// testContext ends with the test or after the given time.
func testContext(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// newClient is a franz-go client that is closed when the test ends.
func newClient(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	opts = append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)
	c, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// createTopic makes a topic whose records are never removed by age.
func createTopic(t *testing.T, addr, name string, partitions int32, configs map[string]string) {
	t.Helper()
	forever := "-1"
	cfg := map[string]*string{"retention.ms": &forever}
	for k, v := range configs {
		cfg[k] = &v
	}
	admin := kadm.NewClient(newClient(t, addr))
	if _, err := admin.CreateTopic(testContext(t, startTimeout), partitions, -1, cfg, name); err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
}

// lines runs f for each line of r.
func lines(r *bufio.Reader, f func(line string)) error {
	for {
		line, err := r.ReadString('\n')
		if line != "" {
			f(strings.TrimRight(line, "\n"))
		}
		if err != nil {
			return err
		}
	}
}

// orphans are processes, other than this one, that hold a file of the data
// directory open.
func orphans(dir string) []int {
	var found []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil || n == os.Getpid() {
			continue
		}
		fds, _ := os.ReadDir(filepath.Join("/proc", e.Name(), "fd"))
		for _, fd := range fds {
			if to, err := os.Readlink(filepath.Join("/proc", e.Name(), "fd", fd.Name())); err == nil && strings.HasPrefix(to, dir+"/") {
				found = append(found, n)
				break
			}
		}
	}
	return found
}
