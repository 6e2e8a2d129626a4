package processes

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The roles that this test's own binary can have.
const (
	roleBroker = "be-a-broker"
	roleRun    = "run-brokers"
	// witnessEnv is where a process of a test says that it is there, for as long as it is.
	witnessEnv = "PROCESSES_TEST_WITNESS"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case roleBroker:
			beBroker(os.Args[2:])
		case roleRun:
			err := Run(context.Background(), config(os.Args[2], 2, os.Stdout))
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m)
}

// beBroker is a process that behaves as a broker does to whoever runs it.
func beBroker(args []string) {
	number := args[0]
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	if slices.Contains(args, "fail") {
		fmt.Fprint(os.Stderr, "there is no room") // without an end of line
		os.Exit(6)
	}
	conn, err := net.Dial("tcp", os.Getenv(witnessEnv))
	if err == nil {
		_, err = fmt.Fprintf(conn, "%s %d\n", number, os.Getpid())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stderr, "hello from %s\nits second line\n", number)
	fmt.Println(number, "says something else")
	if err := json.NewEncoder(os.Stdout).Encode(Told{Address: "127.0.0.1:" + number}); err != nil {
		os.Exit(1)
	}
	gone := make(chan struct{})
	go func() {
		_, _ = bufio.NewReader(conn).ReadString('\n') // the test ends it
		close(gone)
	}()
	select {
	case <-terminated:
		fmt.Fprintln(os.Stderr, "stopping", number)
		os.Exit(0)
	case <-gone:
		os.Exit(3)
	}
}

// config runs brokers of this test's binary.
func config(data string, brokers int, console io.Writer) Config {
	return Config{
		Data: data, Brokers: brokers, Console: console,
		Arguments: func(n int) []string { return []string{roleBroker, fmt.Sprint(n)} },
		OnFounded: func() error { return nil }, OnReady: func([]Status) {},
	}
}

// witness sees processes come and go.
type witness struct {
	net.Listener
	came chan *seen
}

// seen is one process, which lives for as long as its connection.
type seen struct {
	number string
	pid    int
	conn   net.Conn
	gone   chan struct{}
}

func newWitness(t *testing.T) *witness {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &witness{l, make(chan *seen, 16)}
	t.Setenv(witnessEnv, l.Addr().String())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { w.watch(conn) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	return w
}

func (w *witness) watch(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	s := &seen{conn: conn, gone: make(chan struct{})}
	if _, err := fmt.Fscanf(conn, "%s %d\n", &s.number, &s.pid); err != nil {
		return
	}
	w.came <- s
	_, _ = io.Copy(io.Discard, conn)
	close(s.gone)
}

func (w *witness) next(t *testing.T) *seen {
	t.Helper()
	select {
	case s := <-w.came:
		return s
	case <-time.After(30 * time.Second):
		t.Fatal("no process came")
		return nil
	}
}

func (s *seen) waitGone(t *testing.T) {
	t.Helper()
	select {
	case <-s.gone:
	case <-time.After(30 * time.Second):
		t.Fatalf("broker %s, process %d, is still there", s.number, s.pid)
	}
}

// output is a console that can be read meanwhile.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// running is a group under test.
type running struct {
	data    string
	console *output
	ready   chan []Status
	stop    func() error // once
}

func start(t *testing.T, cfg Config) *running {
	t.Helper()
	r := &running{data: cfg.Data, console: &output{}, ready: make(chan []Status, 1)}
	cfg.Console = r.console
	cfg.OnReady = func(s []Status) { r.ready <- s }
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg) }()
	r.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { _ = r.stop() })
	return r
}

func (r *running) waitReady(t *testing.T) []Status {
	t.Helper()
	select {
	case s := <-r.ready:
		return s
	case <-time.After(30 * time.Second):
		t.Fatalf("not ready\n%s", r.console)
		return nil
	}
}

func (r *running) ask(t *testing.T, do string, broker int) []Status {
	t.Helper()
	s, err := Ask(t.Context(), r.data, Request{do, broker})
	if err != nil {
		t.Fatalf("%s %d: %v\n%s", do, broker, err, r.console)
	}
	return s
}

func (r *running) refused(t *testing.T, do string, broker int, want string) {
	t.Helper()
	if _, err := Ask(t.Context(), r.data, Request{do, broker}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s %d: %v; want %q", do, broker, err, want)
	}
}

// The first broker is alone until the cluster is there, and all are started at once later.
func TestFirstStartAndOrderOfTheEnd(t *testing.T) {
	w := newWitness(t)
	cfg := config(t.TempDir(), 3, nil)
	founded := make(chan *seen, 1)
	cfg.OnFounded = func() error {
		founded <- w.next(t)
		select {
		case s := <-w.came:
			return fmt.Errorf("broker %s was started before the cluster was there", s.number)
		default:
			return nil
		}
	}
	r := start(t, cfg)
	if s := r.waitReady(t); len(s) != 3 || s[2].Address != "127.0.0.1:3" || s[2].State != "running" || s[2].PID == 0 {
		t.Errorf("ready: %+v", s)
	}
	all := []*seen{<-founded, w.next(t), w.next(t)}
	if all[0].number != "1" {
		t.Errorf("first of all came broker %s", all[0].number)
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	for _, s := range all {
		s.waitGone(t)
	}
	rest := r.console.String()
	for _, want := range []string{"broker-3 | stopping 3\n", "broker-2 | stopping 2\n", "broker-1 | stopping 1\n"} {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Fatalf("no %q, or too early, in\n%s", want, r.console)
		}
		rest = after
	}
	for _, want := range []string{"broker-2 | hello from 2", "broker-2 | its second line", "broker-2 | 2 says something else"} {
		if !slices.Contains(strings.Split(r.console.String(), "\n"), want) {
			t.Errorf("no line %q in\n%s", want, r.console)
		}
	}
	cfg.Founded = true
	cfg.OnFounded = func() error { return errors.New("the cluster was there") }
	r = start(t, cfg)
	r.waitReady(t)
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if _, err := Ask(t.Context(), r.data, Request{Do: Show}); !errors.Is(err, ErrNone) {
		t.Errorf("asked when nothing runs: %v", err)
	}
}

func TestWhatCanBeAskedFor(t *testing.T) {
	w := newWitness(t)
	// A path too long for a socket's.
	data := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	cfg := config(data, 2, nil)
	r := start(t, cfg)
	r.waitReady(t)
	first, second := w.next(t), w.next(t)

	r.refused(t, Kill, 3, "there is no broker 3; there are 1 to 2")
	r.refused(t, Resume, 2, "broker-2 is running already")
	r.refused(t, "dance", 2, "nothing that can be asked for")
	if s := r.ask(t, Pause, 2); s[1].State != "paused" {
		t.Errorf("paused: %+v", s)
	}
	waitState(t, second.pid, 'T')
	r.refused(t, Pause, 2, "broker-2 is paused already")
	if s := r.ask(t, Resume, 2); s[1].State != "running" || s[1].PID != second.pid {
		t.Errorf("resumed: %+v", s)
	}
	r.ask(t, Pause, 2)
	if s := r.ask(t, Kill, 2); s[1].State != "ended" || s[1].PID != 0 || s[1].Error != "" || s[0].State != "running" {
		t.Errorf("killed: %+v", s)
	}
	second.waitGone(t)
	for _, do := range []string{Kill, Pause, Resume} {
		r.refused(t, do, 2, "broker-2 does not run; `brokerd dev restart 2` starts it")
	}
	if s := r.ask(t, Restart, 2); s[1].State != "running" || s[1].PID == second.pid || s[1].Starts != 2 || s[1].Address == "" {
		t.Errorf("started: %+v", s)
	}
	second = w.next(t)
	r.ask(t, Pause, 2)
	if s := r.ask(t, Restart, 2); s[1].State != "running" || s[1].Starts != 3 {
		t.Errorf("restarted while paused: %+v", s)
	}
	second.waitGone(t)
	if !strings.Contains(r.console.String(), "broker-2 | stopping 2\n") {
		t.Errorf("it was not asked to stop:\n%s", r.console)
	}
	// One that ends by itself is told of, and does not take the others along.
	_ = first.conn.Close()
	first.waitGone(t)
	for r.ask(t, Show, 0)[0].State != "ended" {
	}
	if s := r.ask(t, Show, 0); s[0].Error != "exit status 3" || s[1].State != "running" {
		t.Errorf("one has ended: %+v", s)
	}
	if !strings.Contains(r.console.String(), "broker-1 | has ended by itself: exit status 3; `brokerd dev restart 1`") {
		t.Errorf("no word of it in\n%s", r.console)
	}
	r.ask(t, Restart, 1)
	if err := r.stop(); err != nil {
		t.Error(err)
	}
}

// waitState waits until the kernel has a process in a state.
func waitState(t *testing.T, pid int, state byte) {
	t.Helper()
	for range 10_000 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Skip("no /proc here")
		}
		if _, rest, _ := bytes.Cut(stat, []byte(") ")); len(rest) > 0 && rest[0] == state {
			return
		}
	}
	t.Fatalf("process %d is not in state %c", pid, state)
}

// One that cannot start stops all, and its exit code is told.
func TestOneThatDoesNotStart(t *testing.T) {
	w := newWitness(t)
	cfg := config(t.TempDir(), 3, nil)
	cfg.Arguments = func(n int) []string {
		if n == 2 {
			return []string{roleBroker, "2", "fail"}
		}
		return []string{roleBroker, fmt.Sprint(n)}
	}
	console := &output{}
	cfg.Console = console
	err := Run(t.Context(), cfg)
	var ended *EndedError
	if !errors.As(err, &ended) || ended.Broker != 2 || ended.Code != 6 {
		t.Errorf("ended with %v", err)
	}
	if !strings.Contains(console.String(), "broker-2 | there is no room\n") {
		t.Errorf("it does not say why:\n%s", console)
	}
	w.next(t).waitGone(t)
}

// When whoever runs the brokers is killed, they are gone too, also a paused one.
func TestNoneOutlivesItsParent(t *testing.T) {
	w := newWitness(t)
	data := t.TempDir()
	cmd := exec.Command(os.Args[0], roleRun, data)
	cmd.Stdout, cmd.Stderr = io.Discard, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	all := []*seen{w.next(t), w.next(t)}
	for {
		s, err := Ask(t.Context(), data, Request{Do: Show})
		if err != nil {
			t.Fatal(err)
		}
		if s[1].State == "running" {
			break
		}
	}
	if _, err := Ask(t.Context(), data, Request{Pause, 2}); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for _, s := range all {
		s.waitGone(t)
	}
	// What the killed one left behind is in nobody's way.
	if _, err := Ask(t.Context(), data, Request{Do: Show}); !errors.Is(err, ErrNone) {
		t.Errorf("asked when nothing runs: %v", err)
	}
	r := start(t, config(data, 2, nil))
	r.waitReady(t)
	if err := r.stop(); err != nil {
		t.Error(err)
	}
}
