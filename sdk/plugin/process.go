package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
)

// DefaultStartTimeout bounds the time from launching a process to its handshake.
const DefaultStartTimeout = 10 * time.Second

// endGrace is how long a process whose start failed may take to end by itself.
const endGrace = 100 * time.Millisecond

// socketNameBytesMax is what go-plugin puts after SocketDir in a socket's path,
// and socketPathBytesMax what every Unix lets a path have.
const (
	socketNameBytesMax = 48
	socketPathBytesMax = 103
)

// LaunchConfig says which process to launch, and how.
type LaunchConfig struct {
	// Path is the executable. Empty means the executable of this very process,
	// also when the file has been replaced since.
	Path string
	Args []string
	// Env names the variables that the process may see of this one's
	// environment, beside DefaultEnv. A name that ends in * is a prefix.
	Env []string
	// SocketDir is where a directory of mode 0700 for the socket is made, for as
	// long as it takes to connect. It must exist. Empty means the system's directory for
	// temporary files.
	SocketDir string
	// Checksum is the SHA-256 that the executable must have. Empty: not checked.
	Checksum []byte
	// Logger gets the lines that the process writes. Nil drops them.
	Logger *slog.Logger
	// StartTimeout and CallTimeout have defaults.
	StartTimeout time.Duration
	CallTimeout  time.Duration
	// Carrier is the most that is used of what the plugin offers: all, if it is not
	// said.
	Carrier Carrier
	// Counters count what the process's store moves, if they are not nil.
	Counters *Counters
}

// DefaultEnv is what every plugin may see of the environment.
func DefaultEnv() []string {
	return []string{"PATH", "HOME", "TMPDIR", "TZ", "LANG", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR",
		"GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GODEBUG", "GOTRACEBACK", "GORACE", "GOCOVERDIR"}
}

// Process is a plugin that runs. Whoever launched it calls Kill in the end, also
// when it has died by itself: it returns only
// when the process is reaped and nothing of it is left in this one.
type Process struct {
	*Client
	client *goplugin.Client
	run    *childRunner
	kill   sync.Once
}

// Launch starts a plugin and agrees with it on the version of the contract. The
// error is one sentence for an operator. When ctx ends first, the process is
// killed.
func Launch(ctx context.Context, cfg LaunchConfig) (*Process, error) {
	if cfg.StartTimeout <= 0 {
		cfg.StartTimeout = DefaultStartTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.SocketDir == "" {
		cfg.SocketDir = os.TempDir()
	}
	if n := len(cfg.SocketDir) + socketNameBytesMax; n > socketPathBytesMax {
		return nil, fmt.Errorf("the directory for plugin sockets %q is too long: at most %d bytes fit into the path of a socket",
			cfg.SocketDir, socketPathBytesMax-socketNameBytesMax)
	}
	image, err := openExecutable(cfg.Path, cfg.Checksum)
	if err != nil {
		return nil, err
	}
	defer image.close()

	run := newChildRunner(image, cfg)
	defer run.closeSocket() // of a start that failed
	var socket *net.UnixConn
	if cfg.Carrier != CarrierGRPC {
		if socket, run.socket, err = socketPair(); err != nil {
			return nil, fmt.Errorf("start plugin %s: %w", filepath.Base(image.name), err)
		}
	}
	p := &Process{run: run}
	p.client = goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  handshake(),
		VersionedPlugins: map[int]goplugin.PluginSet{ProtocolVersion: {kindAny: &contract{}}},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		StartTimeout:     cfg.StartTimeout,
		Logger:           hclog.NewNullLogger(),
		GRPCDialOptions:  DialOptions(),
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: cfg.SocketDir},
		SyncStdout:       run.stdoutLog,
		SyncStderr:       run.stderrSyncLog,
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, dir string) (runner.Runner, error) {
			run.adopt(cmd.Env, dir)
			return run, nil
		},
	})
	// A process that stops in the middle of the handshake would hold go-plugin
	// for longer than ctx allows.
	unwatch := context.AfterFunc(ctx, run.killNow)
	err = p.connect(ctx, cfg, socket)
	if !unwatch() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		select { // its own end explains more than our kill
		case <-run.reaped:
		case <-ctx.Done():
		case <-time.After(endGrace):
		}
		p.Kill()
		return nil, p.startError(ctx, image.name, err)
	}
	return p, nil
}

// connect starts the process and connects to it. The one connection is all that
// there will be: the socket is removed once it stands, so that nobody else comes
// and nothing is left behind when we are killed.
func (p *Process) connect(ctx context.Context, cfg LaunchConfig, socket *net.UnixConn) error {
	p.Client = NewClient(nil, cfg.CallTimeout)
	if cfg.Counters != nil {
		p.CountWith(cfg.Counters)
	}
	if socket != nil {
		p.AddSocket(socket, cfg.Carrier)
	}
	protocol, err := p.client.Client()
	if err != nil {
		return err
	}
	c, ok := protocol.(*goplugin.GRPCClient)
	if !ok {
		return errors.New("it does not speak gRPC")
	}
	p.connected(c.Conn)
	if _, err := p.Health(ctx); err != nil {
		return err
	}
	return os.RemoveAll(p.run.socketDir)
}

// startError says in one sentence why a start failed.
func (p *Process) startError(ctx context.Context, name string, err error) error {
	name = filepath.Base(name)
	last := ""
	if line := p.run.stderrLog.lastLine(); line != "" {
		last = fmt.Sprintf("; the last that it said: %q", line)
	}
	switch exit := p.run.exitedByItself(); {
	case ctx.Err() != nil:
		return fmt.Errorf("start plugin %s: %w%s", name, ctx.Err(), last)
	case exit != "":
		return fmt.Errorf("start plugin %s: it ended before it was ready (%s)%s", name, exit, last)
	default:
		return fmt.Errorf("start plugin %s: %w%s", name, firstLine(err), last)
	}
}

// Pid returns the process's ID, for people. It is never used to send signals.
func (p *Process) Pid() int { return p.run.pid() }

// Done is closed when the process has ended and was reaped.
func (p *Process) Done() <-chan struct{} { return p.run.reaped }

// Exit says how the process ended, once Done is closed: "exit status 1".
func (p *Process) Exit() string { return p.run.exit() }

// Drain shuts the plugin's store down, waits for the process to end, and kills
// it when ctx ends first. Kill is still to be called.
func (p *Process) Drain(ctx context.Context) error {
	err := p.Client.Drain(ctx)
	if err == nil {
		p.run.closeStdin()
		select {
		case <-p.Done():
			return nil
		case <-ctx.Done():
			err = fmt.Errorf("wait for the plugin to end: %w", ctx.Err())
		}
	}
	p.run.killNow()
	<-p.Done()
	return err
}

// Kill ends the process at once and returns when it is reaped. It may be called more
// than once. What the process lent is used until its Store is abandoned.
func (p *Process) Kill() {
	p.kill.Do(func() {
		p.run.killNow()
		// The process is dead before go-plugin is told, so that none of its
		// waiting for a graceful end applies.
		if p.run.started() {
			<-p.run.reaped
		}
		p.client.Kill()
		p.closeSocket()
		p.run.wait()
		if dir := p.run.socketDir; dir != "" { // of a start that failed
			_ = os.RemoveAll(dir)
		}
	})
}

// firstLine cuts an error's text to its first line.
func firstLine(err error) error {
	text := err.Error()
	for i, r := range text {
		if r == '\n' {
			return errors.New(text[:i])
		}
	}
	return err
}
