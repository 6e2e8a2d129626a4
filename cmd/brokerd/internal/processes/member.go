package processes

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// member is one broker, and the process that is it.
type member struct {
	number int
	cmd    *exec.Cmd // nil: there is no process
	starts int
	told   Told // once it is ready
	paused bool
	ending ending
	again  bool // it is to be started when it has been terminated
	// failure is how the last process ended, unless it was killed, or all was well.
	failure error
	late    *time.Timer // of an end that was asked for
	// answer is who waits for the end of what is under way; nil: nobody.
	answer func(error)
}

// ending is why a process is about to end.
type ending int

const (
	byItself   ending = iota // it is not
	terminated               // by SIGTERM
	killed
)

// settle answers who waits.
func (m *member) settle(err error) {
	if m.answer != nil {
		m.answer(err)
		m.answer = nil
	}
}

func (m *member) stopLate() {
	if m.late != nil {
		m.late.Stop()
		m.late = nil
	}
}

// resume lets the process go on. It may have ended just now, of which is told elsewhere.
func (m *member) resume() {
	if m.paused {
		_ = m.cmd.Process.Signal(syscall.SIGCONT)
		m.paused = false
	}
}

// Status is how one broker is.
type Status struct {
	Broker  int    `json:"broker"`
	State   string `json:"state"`         // running, paused, starting, stopping or ended
	PID     int    `json:"pid,omitempty"` // 0: there is no process
	Starts  int    `json:"starts"`
	Address string `json:"address,omitempty"` // once it was ready
	Admin   string `json:"admin,omitempty"`
	Error   string `json:"error,omitempty"` // how it ended
}

func (g *group) statuses() []Status {
	out := make([]Status, 0, len(g.members))
	for _, m := range g.members {
		s := Status{Broker: m.number, State: "ended", Starts: m.starts, Address: m.told.Address, Admin: m.told.Admin}
		if m.failure != nil {
			s.Error = m.failure.Error()
		}
		if m.cmd != nil {
			s.PID = m.cmd.Process.Pid
		}
		switch {
		case m.cmd == nil:
		case m.ending != byItself:
			s.State = "stopping"
		case m.paused:
			s.State = "paused"
		case m.told.Address == "":
			s.State = "starting"
		default:
			s.State = "running"
		}
		out = append(out, s)
	}
	return out
}

// asked does what somebody asks for.
func (g *group) asked(r request) {
	if r.Do == Show {
		r.answer(g.statuses(), nil)
		return
	}
	if r.Broker < 1 || r.Broker > len(g.members) {
		r.answer(nil, fmt.Errorf("there is no broker %d; there are 1 to %d", r.Broker, len(g.members)))
		return
	}
	m := g.members[r.Broker-1]
	answer := func(err error) { r.answer(g.statuses(), err) }
	if !g.founded && m.starts == 0 {
		answer(fmt.Errorf("%s is started when the first broker has created the cluster", name(m.number)))
		return
	}
	switch r.Do {
	case Kill:
		g.kill(m, answer)
	case Pause:
		answer(m.signal("paused", false, syscall.SIGSTOP))
	case Resume:
		answer(m.signal("running", true, syscall.SIGCONT))
	case Restart:
		g.restart(m, answer)
	default:
		answer(fmt.Errorf("%q is nothing that can be asked for", r.Do))
	}
}

// signal pauses a process, or lets it go on.
func (m *member) signal(state string, paused bool, s syscall.Signal) error {
	switch {
	case m.cmd == nil || m.ending != byItself:
		return errNoProcess(m)
	case m.paused != paused:
		return fmt.Errorf("%s is %s already", name(m.number), state)
	}
	if err := m.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("signal %s: %w", name(m.number), err)
	}
	m.paused = !paused
	return nil
}

func errNoProcess(m *member) error {
	return fmt.Errorf("%s does not run; `brokerd dev restart %d` starts it", name(m.number), m.number)
}

// kill ends a process by SIGKILL, whatever else is under way with it.
func (g *group) kill(m *member, answer func(error)) {
	if m.cmd == nil {
		answer(errNoProcess(m))
		return
	}
	m.settle(fmt.Errorf("%s was killed meanwhile", name(m.number)))
	if err := m.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		answer(fmt.Errorf("kill %s: %w", name(m.number), err))
		return
	}
	m.ending, m.again, m.answer = killed, false, answer
}

// restart stops a process as SIGTERM does, and starts another one.
func (g *group) restart(m *member, answer func(error)) {
	switch {
	case m.answer != nil || m.ending != byItself:
		answer(fmt.Errorf("%s is being stopped or started", name(m.number)))
	case m.cmd != nil:
		m.again, m.answer = true, answer
		g.terminate(m)
	default:
		if err := g.start(m); err != nil {
			answer(err)
			return
		}
		m.answer = answer
	}
}

var errStopped = errors.New("the brokers stop")
