package rig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Process is one life of a program. Several goroutines may use it.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it was reaped
	err  error         // how it ended, once done is closed
}

// Start starts a command. What it prints, on stdout and stderr, is added to a file.
func Start(cmd *exec.Cmd, output string) (*Process, error) { return StartBy(cmd, output, cmd.Start) }

// StartBy does the same with a start that is not simply the command's: in another namespace,
// say.
func StartBy(cmd *exec.Cmd, output string, start func() error) (*Process, error) {
	file, err := os.OpenFile(output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer file.Close() // the process has its own descriptor
	cmd.Stdout, cmd.Stderr = file, file
	if err := start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// Pid is the process's number, which is somebody else's some time after it has ended.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports whether it has.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Err waits for the process's end, and is how it ended: nil where it exited with 0.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Signal sends a signal; one that has ended does not mind.
func (p *Process) Signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// Kill sends SIGKILL, and returns when the process was reaped.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails where it has ended
	<-p.done
}

// ErrLate is what Stop tells of a process that had to be killed.
var ErrLate = errors.New("it did not end in time")

// Stop sends SIGTERM, and SIGKILL to a process that does not end within a time. It returns
// when the process was reaped; its error is how that ended, if not by exit code 0.
func (p *Process) Stop(within time.Duration) error {
	p.Signal(syscall.SIGTERM)
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-p.done:
		if p.err != nil {
			return fmt.Errorf("ended with %w after SIGTERM", p.err)
		}
		return nil
	case <-late.C:
		p.Kill()
		return fmt.Errorf("%w: within %s of SIGTERM", ErrLate, within)
	}
}
