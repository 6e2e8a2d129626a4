package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/brokerd/brokerd/core/sim/cluster"
)

const (
	// stuckAfter is how long a seed may take: many times what it needs.
	stuckAfter = 30 * time.Minute
	// gcPercent: a simulation makes much garbage, and keeps little.
	gcPercent = 400
)

// work runs the seeds that are named on in, a line each, and answers each on out. Raft draws
// from the process's randomness: a process runs one seed at a time.
func work(in io.Reader, out io.Writer, length time.Duration) error {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(gcPercent)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		seed, err := strconv.ParseUint(lines.Text(), 10, 64)
		if err != nil {
			return fmt.Errorf("read a seed: %w", err)
		}
		line, err := json.Marshal(runSeed(seed, length))
		if err != nil {
			return err
		}
		if _, err := out.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// runSeed runs one seed.
func runSeed(seed uint64, length time.Duration) result {
	before := processorTime()
	report, err := cluster.Run(seed, cluster.LongOptionsOf(seed, length))
	r := result{CPU: processorTime() - before, Report: report, Wrong: report.Wrong()}
	if err != nil {
		r.Wrong = err.Error()
	}
	if r.Wrong == "" {
		r.Idle = report.Idle()
	}
	return r
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// runPool runs seeds in as many processes as are asked for, until there is none to run or ctx
// ends: then those under way are waited for.
func runPool(ctx context.Context, opts options, t *tally) error {
	var wg sync.WaitGroup
	errs := make([]error, opts.processes)
	for i := range errs {
		wg.Go(func() { errs[i] = serveProcess(ctx, opts, t) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// serveProcess gives seeds to one process after another: each lives until it fails.
func serveProcess(ctx context.Context, opts options, t *tally) error {
	var p *process
	defer func() {
		if p != nil {
			p.end()
		}
	}()
	for ctx.Err() == nil {
		seed, ok := t.next()
		if !ok {
			return nil
		}
		if p == nil {
			var err error
			if p, err = startProcess(opts); err != nil {
				return err
			}
		}
		r, err := p.run(seed)
		if err != nil {
			p.end()
			r = result{Report: cluster.Report{Seed: seed}, Wrong: fmt.Sprintf("the process failed: %v\n%s", err, tail(p.told.Bytes()))}
			p = nil
		}
		if err := t.came(r); err != nil {
			return err
		}
	}
	return nil
}

// toldMax is as much as is shown of what a process printed.
const toldMax = 4000

func tail(b []byte) []byte { return b[max(0, len(b)-toldMax):] }

// process runs seeds.
type process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	told bytes.Buffer
}

func startProcess(opts options) (*process, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(path, "-worker", "-minutes", strconv.FormatFloat(opts.minutes, 'g', -1, 64))}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt is for us alone
	p.cmd.Stderr = &p.told
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewScanner(out)
	p.out.Buffer(nil, lineMax)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a process: %w", err)
	}
	return p, nil
}

// run has the process run a seed.
func (p *process) run(seed uint64) (result, error) {
	defer time.AfterFunc(stuckAfter, func() { _ = p.cmd.Process.Signal(syscall.SIGQUIT) }).Stop()
	if _, err := fmt.Fprintln(p.in, seed); err != nil {
		return result{}, err
	}
	if !p.out.Scan() {
		return result{}, errors.Join(p.out.Err(), io.ErrUnexpectedEOF)
	}
	var r result
	return r, json.Unmarshal(p.out.Bytes(), &r)
}

// end lets the process end.
func (p *process) end() {
	_ = p.in.Close()
	_ = p.cmd.Wait()
}
