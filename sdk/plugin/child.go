package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-plugin/runner"
)

// outputGrace is how long the output of a dead process is still read: something
// that it started may hold the pipes open.
const outputGrace = 500 * time.Millisecond

// childRunner runs the process for go-plugin, in our way: an environment by
// allow-list, standard input as a pipe whose end tells the child that we are
// gone, output that is read by us, one owner of the process's handle.
type childRunner struct {
	image  *executable
	args   []string
	env    []string
	logger *slog.Logger
	// socketDir was made by go-plugin for the child's socket.
	socketDir string

	stdoutLog     *forwarder // what the plugin prints after the handshake
	stderrLog     *forwarder
	stderrSyncLog *forwarder // what it prints on the standard error that go-plugin gave it

	// socket is the plugin's end of the fast lane, nil if there is none; it is closed
	// here once the process runs.
	socket *os.File

	stdout *os.File // read end; go-plugin reads the handshake from it
	reaped chan struct{}
	output sync.WaitGroup

	mu     sync.Mutex
	cmd    *exec.Cmd // set once it runs
	killed bool      // by us
	stdin  *os.File  // write end
	state  string    // how it ended
}

var _ runner.Runner = (*childRunner)(nil)

func newChildRunner(image *executable, cfg LaunchConfig) *childRunner {
	return &childRunner{
		image:         image,
		args:          cfg.Args,
		env:           filterEnv(os.Environ(), append(DefaultEnv(), cfg.Env...)),
		logger:        cfg.Logger,
		stdoutLog:     &forwarder{logger: cfg.Logger, plain: slog.LevelInfo},
		stderrLog:     &forwarder{logger: cfg.Logger, plain: slog.LevelWarn},
		stderrSyncLog: &forwarder{logger: cfg.Logger, plain: slog.LevelWarn},
		reaped:        make(chan struct{}),
	}
}

// filterEnv keeps the variables whose names are allowed.
func filterEnv(environ, allowed []string) []string {
	var out []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		for _, a := range allowed {
			prefix, wild := strings.CutSuffix(a, "*")
			if name == a || wild && strings.HasPrefix(name, prefix) {
				out = append(out, kv)
				break
			}
		}
	}
	return out
}

// adopt takes the variables of the handshake, and the socket's directory.
func (r *childRunner) adopt(env []string, socketDir string) {
	r.socketDir = socketDir
	r.env = append(append(r.env, env...), stdinWatchKey+"=1")
	if r.socket != nil {
		r.env = append(r.env, socketKey+"="+strconv.Itoa(firstExtraFile))
	}
}

// firstExtraFile is the number that the first of a process's extra files has in it.
const firstExtraFile = 3

// Start implements runner.Runner. The process is started and awaited on a thread
// of its own: on Linux the kernel kills a child of ours when the thread that
// started it ends.
func (r *childRunner) Start(context.Context) error {
	var pipes [3]struct{ r, w *os.File }
	closeAll := func() {
		for _, p := range pipes {
			if p.r != nil {
				_ = p.r.Close()
				_ = p.w.Close()
			}
		}
	}
	for i := range pipes {
		var err error
		if pipes[i].r, pipes[i].w, err = os.Pipe(); err != nil {
			closeAll()
			return fmt.Errorf("make a pipe: %w", err)
		}
	}
	cmd := &exec.Cmd{
		Path:        r.image.path,
		Args:        append([]string{r.image.name}, r.args...),
		Env:         r.env,
		Stdin:       pipes[0].r,
		Stdout:      pipes[1].w,
		Stderr:      pipes[2].w,
		SysProcAttr: childAttributes(),
	}
	if r.socket != nil {
		cmd.ExtraFiles = []*os.File{r.socket}
	}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		r.began(cmd, pipes[0].w, pipes[1].r)
		started <- nil
		r.await(cmd, pipes[1].r, pipes[2].r)
	}()
	err := <-started
	r.closeSocket()
	if err != nil {
		closeAll()
		return err
	}
	_ = pipes[0].r.Close()
	_ = pipes[1].w.Close()
	_ = pipes[2].w.Close()
	r.output.Go(func() {
		_, _ = io.Copy(r.stderrLog, pipes[2].r)
		r.stderrLog.close()
		_ = pipes[2].r.Close()
	})
	return nil
}

// closeSocket closes our copy of the plugin's end of the fast lane, so that it ends
// with the process.
func (r *childRunner) closeSocket() {
	closeFile(r.socket)
	r.socket = nil
}

// began notes that the process runs; a kill that came before is done now.
func (r *childRunner) began(cmd *exec.Cmd, stdin, stdout *os.File) {
	r.mu.Lock()
	r.cmd, r.stdin, r.stdout = cmd, stdin, stdout
	killed := r.killed
	r.mu.Unlock()
	if killed {
		_ = cmd.Process.Kill()
	}
}

// await reaps the process.
func (r *childRunner) await(cmd *exec.Cmd, stdout, stderr *os.File) {
	err := cmd.Wait()
	state := "exit status 0"
	if err != nil {
		state = err.Error()
	}
	r.mu.Lock()
	r.state = state
	r.mu.Unlock()
	r.closeStdin()
	until := time.Now().Add(outputGrace)
	_ = stdout.SetReadDeadline(until)
	_ = stderr.SetReadDeadline(until)
	close(r.reaped)
}

// started says whether there ever was a process.
func (r *childRunner) started() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cmd != nil
}

// killNow kills the process through its handle, never by number.
func (r *childRunner) killNow() {
	r.mu.Lock()
	r.killed = r.killed || r.state == ""
	cmd := r.cmd
	r.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill() // it may have ended already
	}
}

// closeStdin tells the process that it is not needed any more.
func (r *childRunner) closeStdin() {
	r.mu.Lock()
	stdin := r.stdin
	r.stdin = nil
	r.mu.Unlock()
	if stdin != nil {
		_ = stdin.Close()
	}
}

// wait returns when all output was forwarded.
func (r *childRunner) wait() {
	r.output.Wait()
	r.stdoutLog.close()
	r.stderrSyncLog.close()
}

func (r *childRunner) pid() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		return 0
	}
	return r.cmd.Process.Pid
}

// exit says how the process ended, empty while it runs.
func (r *childRunner) exit() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// exitedByItself says how it ended, empty if it was killed by us.
func (r *childRunner) exitedByItself() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.killed {
		return ""
	}
	return r.state
}

// Wait implements runner.AttachedRunner.
func (r *childRunner) Wait(context.Context) error {
	<-r.reaped
	if state := r.exit(); state != "exit status 0" {
		return errors.New(state)
	}
	return nil
}

// Kill implements runner.AttachedRunner. It does nothing: go-plugin would kill a
// process that is about to say why it ends, and whoever launched it kills it
// anyway.
func (r *childRunner) Kill(context.Context) error { return nil }

// Stdout implements runner.Runner.
func (r *childRunner) Stdout() io.ReadCloser { return r.stdout }

// Stderr implements runner.Runner. We read it ourselves.
func (r *childRunner) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name implements runner.Runner.
func (r *childRunner) Name() string { return r.image.name }

// ID implements runner.AttachedRunner.
func (r *childRunner) ID() string {
	if pid := r.pid(); pid != 0 {
		return fmt.Sprint(pid)
	}
	return ""
}

// Diagnose implements runner.Runner.
func (r *childRunner) Diagnose(context.Context) string { return "" }

// PluginToHost implements runner.AddrTranslator.
func (r *childRunner) PluginToHost(network, addr string) (string, string, error) {
	return network, addr, nil
}

// HostToPlugin implements runner.AddrTranslator.
func (r *childRunner) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}
