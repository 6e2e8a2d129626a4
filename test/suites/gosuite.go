package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// endGrace is how long a process may take to print its stacks before it is killed.
	endGrace = 10 * time.Second
	// excusedStall is how long excused tests may do nothing.
	excusedStall = 45 * time.Second
	// lookEvery is how often a silent process is looked at.
	lookEvery = time.Second
	// linesMax is how many lines may wait to be read: a full queue makes the suite wait.
	linesMax = 1024
)

// goSuite is how the tests of a Go module are run.
type goSuite struct {
	module, version string
	packages        []string // as go list takes them
	tags            string   // of the build
	tests           string   // a regular expression of the tests that run; empty: all
	without         []string // tests that another suite runs
	split           []string // tests whose subtests are counted one by one
	stall           time.Duration
	// readdress writes the brokers' addresses into a copy of the sources, where they
	// have some written in. May be nil.
	readdress func(dir string, s *session) error
	// prepare makes the environment, and the directory that the tests run in if it is
	// not the package's own.
	prepare func(src string, s *session) (env []string, cwd string, err error)
}

// run gets the suite, compiles it and runs it.
func (g goSuite) run(ctx context.Context, s *session) (results, error) {
	src, err := g.sources(ctx, s)
	if err != nil {
		return nil, err
	}
	env, cwd, err := g.prepare(src, s)
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", g.module, err)
	}
	log, err := os.Create(filepath.Join(s.dir, "log.json"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	packages, err := g.list(ctx, src)
	if err != nil {
		return nil, err
	}
	all := results{}
	for _, p := range packages {
		if cwd != "" {
			p.cwd = cwd
		}
		r := packageRun{goSuite: g, session: s, pkg: p, env: env, log: log}
		if r.run == "" {
			r.run = g.tests
		}
		if s.only != "" {
			r.run = s.only
		}
		known, err := r.all(ctx)
		if err != nil {
			return nil, err
		}
		for name, one := range known {
			all[p.prefix+name] = one
		}
	}
	return all, nil
}

// sources is a copy of the module's own sources that may be written: the one that is
// kept, or one of this run where addresses are written into it.
func (g goSuite) sources(ctx context.Context, s *session) (string, error) {
	out, err := command(ctx, s.dir, nil, "go", "mod", "download", "-json", g.module+"@"+g.version)
	if err != nil {
		return "", fmt.Errorf("get %s: %w", g.module, err)
	}
	var got struct{ Dir string }
	if err := json.Unmarshal(out, &got); err != nil || got.Dir == "" {
		return "", fmt.Errorf("get %s: no directory in %q: %w", g.module, out, err)
	}
	src := filepath.Join(s.dir, "src")
	// Without the modes: in the module cache nothing may be written.
	if _, err := command(ctx, s.dir, nil, "cp", "-r", "--no-preserve=mode", got.Dir, src); err != nil {
		return "", fmt.Errorf("copy %s: %w", g.module, err)
	}
	if g.readdress != nil {
		if err := g.readdress(src, s); err != nil {
			return "", fmt.Errorf("write addresses into %s: %w", g.module, err)
		}
	}
	return src, nil
}

// goPackage is a package with tests.
type goPackage struct {
	path, dir string
	cwd       string
	prefix    string // before its tests' names: where it lies in the module
	binary    string
}

// list finds the packages that have tests.
func (g goSuite) list(ctx context.Context, src string) ([]goPackage, error) {
	format := "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}"
	out, err := command(ctx, src, nil, "go", append([]string{"list", "-mod=mod", "-tags", g.tags, "-f", format}, g.packages...)...)
	if err != nil {
		return nil, fmt.Errorf("list the packages of %s: %w", g.module, err)
	}
	var all []goPackage
	for line := range strings.Lines(string(out)) {
		path, dir, found := strings.Cut(strings.TrimSpace(line), " ")
		if !found {
			continue
		}
		p := goPackage{path: path, dir: dir, cwd: dir}
		rel, err := filepath.Rel(src, dir)
		if err != nil {
			return nil, fmt.Errorf("place of %s: %w", path, err)
		}
		if rel != "." {
			p.prefix = rel + "."
		}
		p.binary = filepath.Join(filepath.Dir(src), "test-"+strings.ReplaceAll(rel, "/", "-"))
		all = append(all, p)
	}
	return all, nil
}

// packageRun runs the tests of one package, in as many processes as it takes.
type packageRun struct {
	goSuite
	*session
	pkg goPackage
	run string
	env []string
	log io.Writer
}

func (r packageRun) all(ctx context.Context) (results, error) {
	if out, err := command(ctx, r.pkg.dir, r.env, "go", "test", "-mod=mod", "-tags", r.tags, "-c", "-o", r.pkg.binary, "."); err != nil {
		return nil, fmt.Errorf("compile %s: %w\n%s", r.pkg.path, err, out)
	}
	names, err := r.names(ctx)
	if err != nil {
		return nil, err
	}
	st := &standing{known: results{}, split: r.split}
	wanted, excused := r.divide(names)
	processes, err := r.each(ctx, st, wanted, slices.Concat(excused, r.without), r.stall)
	if err != nil {
		return nil, err
	}
	more, err := r.each(ctx, st, excused, r.without, min(r.stall, excusedStall))
	if err != nil {
		return nil, err
	}
	if processes > 1 || more > 1 {
		fmt.Fprintf(os.Stderr, "%s: %d processes, and %d for what is excused: tests took theirs down, or hung\n", r.pkg.path, processes, more)
	}
	st.finish(names)
	return st.known, nil
}

// divide sets the tests that are excused apart, so that one that hangs, as is to be
// expected of them, is in nobody's way and is not waited for as long.
func (r packageRun) divide(names []string) (wanted, excused []string) {
	for _, name := range names {
		if _, listed := r.excused[r.pkg.prefix+name]; listed {
			excused = append(excused, name)
		} else {
			wanted = append(wanted, name)
		}
	}
	return wanted, excused
}

// each runs the tests of the list, without those of another one, in as many processes
// as it takes, and says how many it took.
func (r packageRun) each(ctx context.Context, st *standing, names, without []string, stall time.Duration) (int, error) {
	processes := 0
	for st.left(names) && ctx.Err() == nil {
		t, killed, err := r.once(ctx, st.skip(without), stall)
		if err != nil {
			return processes, err
		}
		processes++
		if !st.settle(t, t.running(time.Now()), killed) {
			break
		}
	}
	return processes, nil
}

// names are the tests that are to run.
func (r packageRun) names(ctx context.Context) ([]string, error) {
	pattern := r.run
	if pattern == "" {
		pattern = "."
	}
	out, err := command(ctx, r.pkg.cwd, r.env, r.pkg.binary, "-test.list", pattern)
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", r.pkg.path, err)
	}
	isTest := regexp.MustCompile(`^(Test|Example|Fuzz)\S*$`)
	var names []string
	for line := range strings.Lines(string(out)) {
		if name := strings.TrimSpace(line); isTest.MatchString(name) && !slices.Contains(r.without, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// once runs one process to its end, or ends it when nothing has happened for long.
// What it printed is in the log as events, and what became of it is in the tally.
func (r packageRun) once(ctx context.Context, skip string, stall time.Duration) (t *tally, killed bool, err error) {
	args := []string{"-test.v=test2json", "-test.timeout=0", "-test.count=1"}
	if r.run != "" {
		args = append(args, "-test.run="+r.run)
	}
	if skip != "" {
		args = append(args, "-test.skip="+skip)
	}
	suite := exec.Command(r.pkg.binary, args...)
	suite.Dir, suite.Env = r.pkg.cwd, append(os.Environ(), r.env...)
	suite.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	events := exec.Command("go", "tool", "test2json", "-t", "-p", r.pkg.path)
	events.SysProcAttr = suite.SysProcAttr // it outlives a signal to ours, to tell the end
	pipe, err := suite.StdoutPipe()
	if err != nil {
		return nil, false, err
	}
	suite.Stderr = suite.Stdout
	events.Stdin = pipe
	out, err := events.StdoutPipe()
	if err != nil {
		return nil, false, err
	}
	if err := errors.Join(suite.Start(), events.Start()); err != nil {
		return nil, false, fmt.Errorf("start %s: %w", r.pkg.path, err)
	}
	t, killed = r.watch(ctx, suite.Process, out, stall)
	// Nobody reads it any more. How they ended is told by the events.
	_ = syscall.Kill(-suite.Process.Pid, syscall.SIGKILL)
	_ = events.Wait()
	_ = suite.Wait()
	return t, killed, nil
}

// watch reads the events until they end.
func (r packageRun) watch(ctx context.Context, suite *os.Process, out io.Reader, stall time.Duration) (*tally, bool) {
	lines := make(chan []byte, linesMax)
	go func() {
		defer close(lines)
		in := bufio.NewReader(out)
		for {
			line, err := in.ReadBytes('\n')
			if len(line) > 0 {
				lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	t, killed := newTally(time.Now()), false
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	var killAt time.Time
	for {
		select {
		case line, more := <-lines:
			if !more {
				return t, killed
			}
			_, _ = r.log.Write(line) // a log that cannot be written costs no test
			t.take(time.Now(), line)
		case now := <-look.C:
			switch hangs := now.Sub(t.last) > stall || ctx.Err() != nil; {
			case hangs && !killed:
				killed, killAt = true, now.Add(endGrace)
				_ = syscall.Kill(-suite.Pid, syscall.SIGQUIT) // Go prints its stacks
			case killed && now.After(killAt):
				_ = syscall.Kill(-suite.Pid, syscall.SIGKILL)
			}
		}
	}
}

// command runs a program to its end and returns what it printed on standard output;
// an error has what it printed beside.
func command(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "GOWORK=off", "GOFLAGS="), env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, errs.String())
	}
	return out, nil
}
