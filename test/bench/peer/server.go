package peer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	startTimeout = 2 * time.Minute
	stopTimeout  = 30 * time.Second
	pollEvery    = 2 * time.Millisecond
	// The ports of servers: below those that kernels give to outgoing connections.
	portMin, portMax = 10_000, 30_000
)

// Server is one broker, which may be killed and started again on its data. It belongs
// to one goroutine.
type Server struct {
	Name string
	Addr string   // of its listener
	Env  []string // name=value, over this process's own
	// Profiles is the folder that BuildProfiled was told, if the program is from there.
	Profiles string
	argv     []string
	dir      string
	cmd      *exec.Cmd
	done     chan struct{} // closed when it was reaped
	err      error         // how it ended, once done is closed
}

// Brokerd makes a broker of this tree with its data below dir; args come after those of
// `brokerd dev`. Nothing is started.
func Brokerd(ctx context.Context, dir string, args ...string) (*Server, error) {
	program := filepath.Join(dir, "brokerd")
	if err := Build(ctx, program, "./cmd/brokerd"); err != nil {
		return nil, err
	}
	return BrokerdFrom(program, dir, args...)
}

// BrokerdFrom makes a broker of a program that was built before, likewise.
func BrokerdFrom(program, dir string, args ...string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	argv := append([]string{program, "dev", "--data", filepath.Join(dir, "data"), "--port", strconv.Itoa(port)}, args...)
	return &Server{Name: "brokerd", Addr: loopback(port), argv: argv, dir: dir}, nil
}

// Build builds a program of this tree, which is the working directory.
func Build(ctx context.Context, program, pkg string) error { return build(ctx, program, pkg) }

func build(ctx context.Context, program string, args ...string) error {
	argv := append([]string{"build", "-o", program}, args...)
	if out, err := exec.CommandContext(ctx, "go", argv...).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s (run this from the top of the tree): %w\n%s", args[len(args)-1], err, out)
	}
	return nil
}

// Kafka makes one Apache Kafka broker, its own controller, with its data below dir and
// a heap of 1 GiB; settings come on top of Kafka's defaults. Nothing is started but the
// formatting of its directory.
func Kafka(ctx context.Context, dir string, settings ...string) (*Server, error) {
	classPath, err := exec.CommandContext(ctx, "bash", "scripts/tools", "kafka-broker").Output()
	if err != nil {
		return nil, fmt.Errorf("install Kafka (run this from the top of the tree): %w", err)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	controller, err := freePort()
	if err != nil {
		return nil, err
	}
	logging, properties := filepath.Join(dir, "log4j2.properties"), filepath.Join(dir, "server.properties")
	lines := append([]string{
		"process.roles=broker,controller", "node.id=1",
		"controller.quorum.voters=1@" + loopback(controller),
		"listeners=PLAINTEXT://" + loopback(port) + ",CONTROLLER://" + loopback(controller),
		"controller.listener.names=CONTROLLER", "log.dirs=" + filepath.Join(dir, "data"),
		"offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1",
	}, settings...)
	for path, text := range map[string]string{
		properties: strings.Join(lines, "\n") + "\n",
		logging: `status = error
appender.f.type = File
appender.f.name = F
appender.f.fileName = ` + filepath.Join(dir, "kafka.log") + `
appender.f.layout.type = PatternLayout
appender.f.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.f.ref = F
`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("configure Kafka: %w", err)
		}
	}
	java := []string{"java", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
		"-Djava.awt.headless=true", "-Dlog4j2.configurationFile=file:" + logging, "-cp", strings.TrimSpace(string(classPath))}
	format := slices.Concat(java[1:], []string{"kafka.tools.StorageTool", "format", "-t", clusterID, "-c", properties})
	if out, err := exec.CommandContext(ctx, "java", format...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("format Kafka's directory: %w\n%s", err, out)
	}
	return &Server{Name: "kafka", Addr: loopback(port), argv: append(java, "kafka.Kafka", properties), dir: dir}, nil
}

// clusterID is what Kafka's directory is formatted with: any UUID does.
const clusterID = "AAAAAAAAQACAAAAAAAAAAQ"

// Start starts the process and returns when something listens at its address.
func (s *Server) Start(ctx context.Context) error {
	output, err := os.OpenFile(s.outputPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.Name, err)
	}
	defer output.Close() // the process has its own descriptor
	cmd := exec.Command(s.argv[0], s.argv[1:]...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.Env = append(os.Environ(), s.Env...)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.Name, err)
	}
	done := make(chan struct{})
	s.cmd, s.done = cmd, done
	go func() {
		defer close(done)
		s.err = cmd.Wait()
	}()
	return s.waitListening(ctx)
}

func (s *Server) waitListening(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if c, err := net.Dial("tcp", s.Addr); err == nil {
			return c.Close()
		}
		select {
		case <-s.done:
			return fmt.Errorf("%s ended (%w); its output is in %s", s.Name, s.err, s.outputPath())
		case <-ctx.Done():
			return fmt.Errorf("%s does not listen at %s: %w", s.Name, s.Addr, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// Kill ends the process at once, and waits until it is gone.
func (s *Server) Kill() {
	if s.done != nil {
		_ = s.cmd.Process.Kill()
		<-s.done
		s.done = nil
	}
}

// Stop asks the process to end, and waits for it.
func (s *Server) Stop() error {
	if s.done == nil {
		return nil
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	late := time.NewTimer(stopTimeout)
	defer late.Stop()
	select {
	case <-s.done:
		s.done = nil
		return nil
	case <-late.C:
		s.Kill()
		return fmt.Errorf("%s did not end within %s of SIGTERM", s.Name, stopTimeout)
	}
}

// Running reports whether it was started and not ended by Kill or Stop.
func (s *Server) Running() bool { return s.done != nil }

// Data is the folder of what it keeps.
func (s *Server) Data() string { return filepath.Join(s.dir, "data") }

// Remove removes all that it has on disk; it must not run.
func (s *Server) Remove() error { return os.RemoveAll(s.dir) }

func (s *Server) outputPath() string { return filepath.Join(s.dir, s.Name+".out") }

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func freePort() (int, error) {
	for range 100 {
		port := portMin + rand.IntN(portMax-portMin)
		if l, err := net.Listen("tcp", loopback(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port from %d to %d", portMin, portMax)
}
