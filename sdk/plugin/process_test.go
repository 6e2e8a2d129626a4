package plugin_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/storage"
)

func TestAppendAndReadThroughAProcess(t *testing.T) { eachCarrier(t, testAppendAndReadThroughAProcess) }

func testAppendAndReadThroughAProcess(t *testing.T, by plugin.Carrier) {
	for _, bytes := range []int{100, 100 << 10, 24 << 20} {
		appendAndRead(t, by, bytes)
	}
}

func appendAndRead(t *testing.T, by plugin.Carrier, bytesOfBatch int) {
	t.Helper()
	_, s := storeBy(t, by)
	log := openLog(t, s, 0)
	req := appendOf(log.Handle, 0, bytesOfBatch)
	done := make(chan error, 1)
	s.Append(t.Context(), req, func(r storage.AppendResult, err error) {
		if err == nil && r.LEO != 1 {
			err = errors.New("LEO is not 1")
		}
		done <- err
	})
	if err := <-done; err != nil {
		t.Fatalf("append: %v", err)
	}
	got, err := s.Read(t.Context(), storage.ReadRequest{Handle: log.Handle, UpTo: 1, MaxBytes: 1 << 20, AtLeastOne: true})
	if err != nil || !bytes.Equal(got.Data, req.Data[0]) || got.Next != 1 {
		t.Fatalf("read %d bytes, next %d, %v; want the %d appended", len(got.Data), got.Next, err, len(req.Data))
	}
}

// FR-76: a plugin that dies under load.
func TestKillUnderLoadCompletesEveryAppendOnce(t *testing.T) {
	eachCarrier(t, testKillUnderLoadCompletesEveryAppendOnce)
}

func testKillUnderLoadCompletesEveryAppendOnce(t *testing.T, by plugin.Carrier) {
	p, s := storeBy(t, by)
	const logs, killAfter = 8, 500
	var mu sync.Mutex
	completions := map[[2]int]int{}
	last := make([]int, logs)
	for i := range last {
		last[i] = -1
	}
	var unknown, ok int
	enough := make(chan struct{})
	var out sync.WaitGroup
	appendOne := func(log, n int, h storage.Handle) {
		out.Add(1)
		s.Append(t.Context(), appendOf(h, int64(n), 1024), func(_ storage.AppendResult, err error) {
			defer out.Done()
			mu.Lock()
			defer mu.Unlock()
			completions[[2]int{log, n}]++
			if n != last[log]+1 {
				t.Errorf("log %d: append %d completed after %d", log, n, last[log])
			}
			last[log] = n
			switch {
			case err == nil:
				if ok++; ok == killAfter {
					close(enough)
				}
			case errors.Is(err, storage.ErrUnknown):
				unknown++
			case !errors.Is(err, storage.ErrGone):
				t.Errorf("log %d: append %d: %v", log, n, err)
			}
		})
	}
	var senders sync.WaitGroup
	sent := make([]int, logs)
	var handles [logs]storage.Handle
	for log := range logs {
		handles[log] = openLog(t, s, int32(log)).Handle
	}
	for log, h := range handles {
		senders.Go(func() {
			for n := 0; ; n++ {
				appendOne(log, n, h)
				sent[log] = n + 1
				select {
				case <-s.Lost():
					return
				default:
				}
			}
		})
	}
	<-enough
	p.Kill()
	senders.Wait()
	out.Wait()
	for log, n := range sent {
		for i := range n {
			if got := completions[[2]int{log, i}]; got != 1 {
				t.Errorf("log %d: append %d completed %d times", log, i, got)
			}
		}
	}
	if ok == 0 || unknown == 0 {
		t.Errorf("%d appends succeeded and %d were in flight at the kill; want both", ok, unknown)
	}
	if _, err := s.List(t.Context()); !errors.Is(err, storage.ErrGone) {
		t.Errorf("list of a dead plugin: %v, want gone", err)
	}
	if err := s.Shutdown(t.Context()); !errors.Is(err, storage.ErrGone) {
		t.Errorf("shutdown of a dead plugin: %v, want gone", err)
	}
}

func TestPausedPluginLeavesOutcomesUnknown(t *testing.T) {
	eachCarrier(t, testPausedPluginLeavesOutcomesUnknown)
}

func testPausedPluginLeavesOutcomesUnknown(t *testing.T, by plugin.Carrier) {
	p, s := storeBy(t, by)
	log, other := openLog(t, s, 0), openLog(t, s, 1)
	if err := syscall.Kill(p.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	awaitStopped(t, p.Pid())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	results := make(chan error, 3)
	for n := range 2 {
		s.Append(ctx, appendOf(log.Handle, int64(n), 64<<10), func(_ storage.AppendResult, err error) { results <- err })
	}
	for range 2 {
		if err := <-results; !errors.Is(err, storage.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("append to a paused plugin: %v, want unknown by deadline", err)
		}
	}
	if _, err := s.List(ctx); !errors.Is(err, storage.ErrUnknown) {
		t.Errorf("list of a paused plugin: %v, want unknown", err)
	}
	if _, err := s.Read(ctx, storage.ReadRequest{Handle: other.Handle, MaxBytes: 1}); !errors.Is(err, storage.ErrUnknown) {
		t.Errorf("read from a paused plugin: %v, want unknown", err)
	}
	if err := syscall.Kill(p.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// Late answers are dropped; the handle takes no more until the log is opened,
	// which settles what the plugin has taken.
	s.Append(t.Context(), appendOf(log.Handle, 2, 100), func(_ storage.AppendResult, err error) { results <- err })
	if err := <-results; !errors.Is(err, storage.ErrGone) {
		t.Errorf("append after an unknown outcome: %v, want gone", err)
	}
	again := openLog(t, s, 0)
	s.Append(t.Context(), appendOf(again.Handle, again.LEO, 100), func(_ storage.AppendResult, err error) { results <- err })
	if err := <-results; err != nil {
		t.Errorf("append after opening again: %v", err)
	}
}

func TestDrainEndsTheProcess(t *testing.T) {
	p, s := storeOf(t)
	openLog(t, s, 0)
	begin := time.Now()
	if err := p.Drain(t.Context()); err != nil {
		t.Fatalf("drain: %v", err)
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("drain took %v", took)
	}
	select {
	case <-p.Done():
	default:
		t.Error("the process is there after Drain")
	}
	if p.Exit() != "exit status 0" {
		t.Errorf("it ended with %q", p.Exit())
	}
}

func TestSIGTERMShutsDownAndEnds(t *testing.T) {
	p, _ := storeOf(t)
	if err := syscall.Kill(p.Pid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Done():
	case <-time.After(5 * time.Second):
		t.Fatal("it did not end")
	}
	if p.Exit() != "exit status 0" {
		t.Errorf("it ended with %q", p.Exit())
	}
}

// FR-77: no orphan stays when the broker is killed.
func TestPluginEndsWithItsHost(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, paused := range []bool{false, true} {
		t.Run("paused="+strconv.FormatBool(paused), func(t *testing.T) {
			host := exec.Command(exe, roleLaunch)
			host.Stderr = os.Stderr
			stdout, err := host.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := host.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(stdout).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			if paused {
				_ = syscall.Kill(pid, syscall.SIGSTOP)
			}
			_ = host.Process.Kill()
			begin := time.Now()
			_, _ = io.Copy(io.Discard, stdout)
			_ = host.Wait()
			for alive(pid) {
				if time.Since(begin) > 200*time.Millisecond {
					t.Fatalf("process %d is there 200 ms after its host", pid)
				}
				<-time.After(time.Millisecond)
			}
		})
	}
}

// alive says whether a process runs; a zombie that nobody reaps does not.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return len(rest) > 0 && rest[0] != 'Z' && rest[0] != 'X'
}

func TestStartErrorsAreOneSentence(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("not a program"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho oh dear >&2\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(dir, "garbage")
	if err := os.WriteFile(garbage, []byte{0, 1, 2}, 0o700); err != nil {
		t.Fatal(err)
	}
	long := filepath.Join(dir, strings.Repeat("x", 100))
	sockets, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(sockets) }()
	for name, c := range map[string]struct {
		cfg  plugin.LaunchConfig
		want string
	}{
		"missing":        {plugin.LaunchConfig{Path: filepath.Join(dir, "no")}, "find plugin"},
		"not executable": {plugin.LaunchConfig{Path: plain}, "not an executable file"},
		"no program":     {plugin.LaunchConfig{Path: garbage}, "exec format"},
		"dies":           {plugin.LaunchConfig{Args: []string{roleFail}}, sayThis},
		"script":         {plugin.LaunchConfig{Path: script}, "exit status 3"},
		"long directory": {plugin.LaunchConfig{Args: []string{roleServe}, SocketDir: long}, "too long"},
		"checksum":       {plugin.LaunchConfig{Path: script, Checksum: make([]byte, 32)}, "checksum"},
		"not a plugin":   {plugin.LaunchConfig{Path: "/bin/cat", StartTimeout: 200 * time.Millisecond}, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.cfg.SocketDir == "" {
				c.cfg.SocketDir = sockets
			}
			p, err := plugin.Launch(t.Context(), c.cfg)
			if err == nil {
				p.Kill()
				t.Fatal("it started")
			}
			if entries, err := os.ReadDir(sockets); err != nil || len(entries) != 0 {
				t.Errorf("%d entries are left for sockets, %v", len(entries), err)
			}
			if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q; want one line with %q", err, c.want)
			}
		})
	}
}

func TestChecksumPinsTheExecutable(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	for _, path := range []string{"", exe} {
		launch(t, plugin.LaunchConfig{Path: path, Args: []string{roleServe}, Checksum: sum[:]})
		sum[0]++
		if _, err := plugin.Launch(t.Context(), plugin.LaunchConfig{Path: path, Args: []string{roleServe}, Checksum: sum[:]}); !errors.Is(err, plugin.ErrChecksum) {
			t.Errorf("path %q: %v, want a checksum error", path, err)
		}
		sum[0]--
	}
}

// records is a handler that keeps what is logged.
type records struct {
	mu    sync.Mutex
	lines []string
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }
func (r *records) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *records) WithGroup(string) slog.Handler            { return r }
func (r *records) Handle(_ context.Context, rec slog.Record) error {
	var b strings.Builder
	b.WriteString(rec.Level.String() + " " + rec.Message)
	rec.Attrs(func(a slog.Attr) bool { b.WriteString(" " + a.String()); return true })
	r.mu.Lock()
	r.lines = append(r.lines, b.String())
	r.mu.Unlock()
	return nil
}

func (r *records) all() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

func TestLogAndEnvironment(t *testing.T) {
	t.Setenv(askedForEnv, "x")
	t.Setenv("BROKERD_TEST_SECRET", "hidden")
	var r records
	p := launch(t, plugin.LaunchConfig{Args: []string{roleTalk}, Logger: slog.New(&r), Env: []string{"BROKERD_TEST_SEE*"}})
	p.Kill() // all output is forwarded when it returns
	got := r.all()
	if want := "WARN talking partition=3 topic=orders"; !strings.Contains(got, want) {
		t.Errorf("the log lacks %q:\n%s", want, got)
	}
	if !strings.Contains(got, askedForEnv) || !strings.Contains(got, "PATH") {
		t.Errorf("the plugin does not see what it may:\n%s", got)
	}
	if strings.Contains(got, "BROKERD_TEST_SECRET") {
		t.Errorf("the plugin sees what it may not:\n%s", got)
	}
}

// Nothing is left in the directory while the plugin runs, so that nothing stays
// behind when the host is killed.
func TestSocketDirectoryIsPrivateAndRemoved(t *testing.T) {
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var r records
	p := launch(t, plugin.LaunchConfig{Args: []string{roleTalk}, SocketDir: dir, Logger: slog.New(&r)})
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("%d entries while the plugin runs, %v", len(entries), err)
	}
	if _, err := p.Info(t.Context()); err != nil {
		t.Errorf("without the socket's file: %v", err)
	}
	p.Kill()
	if want := "socket directory mode=drwx------"; !strings.Contains(r.all(), want) {
		t.Errorf("the log lacks %q:\n%s", want, r.all())
	}
}

func TestServedByHandItSaysWhatItIs(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(exe, roleServe).CombinedOutput()
	if err == nil || !strings.Contains(string(out), plugin.ErrNotLaunched.Error()) {
		t.Errorf("%v, output %q", err, out)
	}
}

func TestConfigureTwiceAndRefusals(t *testing.T) {
	p, s := storeOf(t)
	if _, _, err := p.Store(t.Context(), config()); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("configured twice: %v, want invalid", err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	bad := config()
	bad.Settings = []byte(`{"no-such-key":1}`)
	if _, _, err := p.Store(t.Context(), bad); !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), "no-such-key") {
		t.Errorf("unknown key: %v, want an invalid that names it", err)
	}
	other := config()
	other.Identity.NodeID = 2
	if _, _, err := p.Store(t.Context(), other); !errors.Is(err, storage.ErrFenced) {
		t.Errorf("another node's store: %v, want fenced", err)
	}
	again, _, err := p.Store(t.Context(), config())
	if err != nil {
		t.Fatalf("after a shutdown: %v", err)
	}
	again.Abandon()
}

func TestInfoAndHealth(t *testing.T) {
	p, _ := storeOf(t)
	info, err := p.Info(t.Context())
	if err != nil || info.Name == "" {
		t.Errorf("info %+v, %v", info, err)
	}
	if _, err := p.Health(t.Context()); err != nil {
		t.Error(err)
	}
}
