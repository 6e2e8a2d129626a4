package peer

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/brokerd/brokerd/test/ports"
	"github.com/brokerd/brokerd/test/rig"
)

const (
	startTimeout = 4 * time.Minute
	stopTimeout  = 30 * time.Second
	pollEvery    = 2 * time.Millisecond
)

// Server is one broker, or a cluster of them, which may be killed and started again on its
// data. It belongs to one goroutine.
type Server struct {
	Name  string
	Addr  string   // of the first broker's listener
	Addrs []string // of all
	Env   []string // name=value, over this process's own
	// Profiles is the folder that BuildProfiled was told, if the program is from there.
	Profiles string
	starter  bool       // what is started is no broker, and starts them
	argvs    [][]string // of the processes that are started; what they start belongs to it
	dir      string
	running  []*rig.Process
}

func newServer(name, dir string, ports []int) *Server {
	s := &Server{Name: name, dir: dir}
	for _, p := range ports {
		s.Addrs = append(s.Addrs, loopback(p))
	}
	s.Addr = s.Addrs[0]
	return s
}

// Brokerd makes a broker of this tree with its data below dir; args come after those of
// `brokerd dev`. Nothing is started.
func Brokerd(ctx context.Context, dir string, args ...string) (*Server, error) {
	program := filepath.Join(dir, "brokerd")
	if err := rig.Build(ctx, "", program, rig.Brokerd); err != nil {
		return nil, err
	}
	return BrokerdFrom(program, dir, args...)
}

// BrokerdFrom makes a broker of a program that was built before, likewise.
func BrokerdFrom(program, dir string, args ...string) (*Server, error) {
	return BrokerdCluster(program, dir, 1, args...)
}

// BrokerdCluster makes so many brokers of one cluster, which one `brokerd dev` runs.
func BrokerdCluster(program, dir string, brokers int, args ...string) (*Server, error) {
	row, err := ports.InRow(brokers)
	if err != nil {
		return nil, err
	}
	s := newServer("brokerd", dir, row)
	argv := []string{program, "dev", "--data", s.Data(), "--port", strconv.Itoa(row[0])}
	if brokers > 1 {
		argv, s.starter = append(argv, "--brokers", strconv.Itoa(brokers)), true
	}
	s.argvs = [][]string{append(argv, args...)}
	return s, nil
}

// Start starts the processes and returns when something listens at each address.
func (s *Server) Start(ctx context.Context) error {
	for _, argv := range s.argvs {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), s.Env...)
		p, err := rig.Start(cmd, s.outputPath())
		if err != nil {
			s.Kill()
			return fmt.Errorf("start %s: %w", s.Name, err)
		}
		s.running = append(s.running, p)
	}
	return s.waitListening(ctx)
}

func (s *Server) waitListening(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for _, addr := range s.Addrs {
		for {
			if c, err := net.Dial("tcp", addr); err == nil {
				_ = c.Close()
				break
			}
			if p := s.ended(); p != nil {
				return fmt.Errorf("%s ended (%w); its output is in %s", s.Name, p.Err(), s.outputPath())
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s does not listen at %s: %w", s.Name, addr, context.Cause(ctx))
			case <-tick.C:
			}
		}
	}
	return nil
}

// ended is a process that has ended by itself, or nil.
func (s *Server) ended() *rig.Process {
	for _, p := range s.running {
		if p.Ended() {
			return p
		}
	}
	return nil
}

// Kill ends the processes at once, with all that they started, and waits until they are
// gone.
func (s *Server) Kill() {
	pids, _ := s.Pids() // without them, what they started ends by itself
	for _, p := range s.running {
		p.Signal(syscall.SIGKILL)
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, p := range s.running {
		<-p.Done()
	}
	for begun := time.Now(); anyLives(pids) && time.Since(begun) < stopTimeout; {
		time.Sleep(pollEvery)
	}
	s.running = nil
}

// anyLives reports whether one of the processes is there, and not only its number.
func anyLives(pids []int) bool {
	all, err := processes()
	return err == nil && slices.ContainsFunc(pids, func(pid int) bool { return all[pid].RSS > 0 })
}

// Stop asks the processes to end, and waits for them.
func (s *Server) Stop() error {
	for _, p := range s.running {
		p.Signal(syscall.SIGTERM)
	}
	late := time.NewTimer(stopTimeout)
	defer late.Stop()
	for _, p := range s.running {
		select {
		case <-p.Done():
		case <-late.C:
			s.Kill()
			return fmt.Errorf("%s did not end within %s of SIGTERM", s.Name, stopTimeout)
		}
	}
	s.running = nil
	return nil
}

// Running reports whether it was started and not ended by Kill or Stop.
func (s *Server) Running() bool { return len(s.running) > 0 }

// Data is the folder of what it keeps.
func (s *Server) Data() string { return filepath.Join(s.dir, "data") }

// Remove removes all that it has on disk; it must not run.
func (s *Server) Remove() error { return os.RemoveAll(s.dir) }

func (s *Server) outputPath() string { return filepath.Join(s.dir, s.Name+".out") }

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
