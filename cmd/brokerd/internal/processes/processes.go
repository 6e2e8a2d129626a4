package processes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

const (
	// stopTimeout is how long a broker may take to stop; then it is killed. It is above what
	// brokers promise.
	stopTimeout = 70 * time.Second
	// outputWait is how long output is waited for after a process has ended.
	outputWait = time.Second
	// happeningsQueued bounds what waits for the loop; then who tells waits.
	happeningsQueued = 16
)

// Config says what is run.
type Config struct {
	Data    string // the brokers' directory, which is held meanwhile
	Brokers int
	// Arguments are what this program is started with to be a broker, numbered from 1.
	Arguments func(broker int) []string
	Env       []string // what is added to this process's environment
	// Founded says that the first broker has created the cluster, at an earlier start.
	// If not, it is started alone, and OnFounded is called when it is ready, before
	// the others are started.
	Founded   bool
	OnFounded func() error
	// OnReady is called once, when all brokers are ready for the first time.
	OnReady func([]Status)
	// Console is where each line that a broker writes goes, led by the broker's name.
	Console io.Writer
}

// Told is what a broker writes to its standard output when it is ready: one line of JSON.
type Told struct {
	Address string `json:"address"` // where clients dial it
	Admin   string `json:"admin,omitempty"`
}

// EndedError is a broker that ended before it was ready. It has told why, on the console.
type EndedError struct {
	Broker int
	Code   int // its exit code, or -1
}

func (e *EndedError) Error() string {
	return fmt.Sprintf("%s ended before it was ready, as it says above; nothing runs", name(e.Broker))
}

// name is what a broker's lines begin with.
func name(broker int) string { return fmt.Sprintf("broker-%d", broker) }

// group is the brokers. All of it belongs to the goroutine of Run.
type group struct {
	cfg     Config
	console *console
	members []*member
	// happenings are what processes do, from their own goroutines.
	happenings chan happening
	requests   chan request
	over       chan struct{} // closed when the loop has ended
	workers    sync.WaitGroup
	founded    bool
	ready      bool // all were, once
	failed     error
}

// happening is news of one process of a member.
type happening struct {
	member *member
	start  int // which of the member's processes
	kind   happeningKind
	told   Told
	err    error
}

type happeningKind int

const (
	isReady happeningKind = iota
	hasEnded
	isOverdue // its time to stop is over
)

// Run starts the brokers, serves those who ask (see Ask), and returns when ctx has ended and
// all brokers have stopped, the last one first. It returns early where a broker ends
// before all of them were ready.
func Run(ctx context.Context, cfg Config) error {
	g := &group{
		cfg: cfg, console: &console{out: cfg.Console}, founded: cfg.Founded,
		happenings: make(chan happening, happeningsQueued), requests: make(chan request), over: make(chan struct{}),
	}
	for i := range cfg.Brokers {
		g.members = append(g.members, &member{number: i + 1})
	}
	socket, err := listen(cfg.Data)
	if err != nil {
		return err
	}
	g.workers.Go(func() { g.serve(socket) })
	err = errors.Join(g.run(ctx), g.stop())
	close(g.over)
	err = errors.Join(err, socket.close())
	g.workers.Wait()
	return err
}

func (g *group) run(ctx context.Context) error {
	first := g.members
	if !g.founded {
		first = g.members[:1]
	}
	for _, m := range first {
		if err := g.start(m); err != nil {
			return err
		}
	}
	for g.failed == nil {
		select {
		case <-ctx.Done():
			return nil
		case h := <-g.happenings:
			g.happened(h)
		case r := <-g.requests:
			g.asked(r)
		}
	}
	return g.failed
}

// stop ends every process, the last broker first.
func (g *group) stop() error {
	var failed error
	for i := len(g.members) - 1; i >= 0; i-- {
		m := g.members[i]
		m.settle(errStopped)
		if m.cmd == nil {
			continue
		}
		m.again = false
		g.terminate(m)
		for m.cmd != nil {
			g.happened(<-g.happenings)
		}
		if m.failure != nil {
			failed = errors.Join(failed, fmt.Errorf("stop %s: %w", name(m.number), m.failure))
		}
	}
	if g.failed != nil {
		return nil // then it is no wonder
	}
	return failed
}

// start makes a process of a broker.
func (g *group) start(m *member) error {
	path, err := executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(path, g.cfg.Arguments(m.number)...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), g.cfg.Env...)
	cmd.SysProcAttr = childAttributes()
	cmd.WaitDelay = outputWait
	// It is to end with this process: the kernel sees to that, or the end of its input.
	if _, err := cmd.StdinPipe(); err != nil {
		return fmt.Errorf("start %s: %w", name(m.number), err)
	}
	m.starts++
	start := m.starts
	errs := &lines{each: func(line []byte) { g.console.line(name(m.number), line) }}
	out := &lines{each: func(line []byte) {
		var told Told
		if err := json.Unmarshal(line, &told); err != nil || told.Address == "" {
			g.console.line(name(m.number), line)
			return
		}
		g.tell(happening{member: m, start: start, kind: isReady, told: told})
	}}
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name(m.number), err)
	}
	m.cmd, m.failure = cmd, nil
	g.workers.Go(func() {
		err := cmd.Wait()
		out.flush()
		errs.flush()
		g.tell(happening{member: m, start: start, kind: hasEnded, err: err})
	})
	return nil
}

// tell passes news to the loop, unless there is none any more.
func (g *group) tell(h happening) {
	select {
	case g.happenings <- h:
	case <-g.over:
	}
}

func (g *group) happened(h happening) {
	m := h.member
	if h.start != m.starts || m.cmd == nil {
		return // of a process that is gone
	}
	switch h.kind {
	case isReady:
		m.told = h.told
		m.settle(nil)
		g.advance(m)
	case hasEnded:
		g.ended(m, h.err)
	case isOverdue:
		g.console.line(name(m.number), fmt.Appendf(nil, "did not stop within %s, and is killed", stopTimeout))
		_ = m.cmd.Process.Kill() // it may have ended just now
	}
}

// advance goes on with the first start: when the cluster is there, the others follow.
func (g *group) advance(m *member) {
	if !g.founded && m.number == 1 {
		g.founded = true
		if g.failed = g.cfg.OnFounded(); g.failed != nil {
			return
		}
		for _, other := range g.members[1:] {
			if g.failed = g.start(other); g.failed != nil {
				return
			}
		}
	}
	if g.ready {
		return
	}
	for _, m := range g.members {
		if m.told.Address == "" {
			return
		}
	}
	g.ready = true
	g.cfg.OnReady(g.statuses())
}

// ended notes the end of a process, and starts another one where that was asked for.
func (g *group) ended(m *member, err error) {
	how, wasReady := m.ending, m.told.Address != ""
	m.stopLate()
	m.cmd, m.told, m.paused, m.ending, m.failure = nil, Told{}, false, byItself, err
	switch {
	case how == killed:
		m.failure = nil
		m.settle(nil)
	case how == byItself && !g.ready && !wasReady:
		g.failed = &EndedError{Broker: m.number, Code: exitCode(err)}
	case how == byItself:
		g.console.line(name(m.number), fmt.Appendf(nil, "has ended by itself: %s; `brokerd dev restart %d` starts it again", cause(err), m.number))
	case m.again:
		m.again = false
		if err := g.start(m); err != nil {
			m.settle(err)
		}
		return
	}
	m.settle(fmt.Errorf("%s has ended: %s", name(m.number), cause(err)))
}

// terminate asks a process to stop, and sees to it that it does.
func (g *group) terminate(m *member) {
	m.ending = terminated
	m.resume()
	if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return // it has ended
	}
	start := m.starts
	late := time.AfterFunc(stopTimeout, func() { g.tell(happening{member: m, start: start, kind: isOverdue}) })
	m.late = late
}

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

// cause is what there is to say of a process's end.
func cause(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}
