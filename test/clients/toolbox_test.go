package clients

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// commandTimeout bounds one command of Kafka's tools.
const commandTimeout = 60 * time.Second

// toolbox runs Kafka's command-line tools, one after another, in one JVM
// (drivers/java/Tools.java). It belongs to one goroutine.
type toolbox struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	answers *bufio.Reader
	stderr  lockedBuffer
	broken  error // once set, there are no more answers
}

// command is what a tool is started with.
type command struct {
	Class string   `json:"class"`
	Args  []string `json:"args"`
	Stdin string   `json:"stdin"`
}

// answer is what it printed, and its exit code.
type answer struct {
	Exit   int    `json:"exit"`
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
}

func openToolbox() (*toolbox, error) {
	p, err := javaProgram("Tools")()
	if err != nil {
		return nil, err
	}
	k := &toolbox{cmd: exec.Command(p.argv[0], p.argv[1:]...)}
	k.cmd.Stderr = &k.stderr
	if k.stdin, err = k.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := k.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	k.answers = bufio.NewReader(stdout)
	if err := k.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start Kafka's tools: %w", err)
	}
	return k, nil
}

// close ends the JVM.
func (k *toolbox) close() error {
	k.stdin.Close()
	late := time.AfterFunc(commandTimeout, func() { _ = k.cmd.Process.Kill() })
	defer late.Stop()
	return k.cmd.Wait()
}

// ask runs a command to its end. One that does not end in time costs the JVM, and so
// all commands after it.
func (k *toolbox) ask(ctx context.Context, c command) (answer, error) {
	if k.broken != nil {
		return answer{}, k.broken
	}
	line, err := json.Marshal(c)
	if err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			_ = k.cmd.Process.Kill()
		}
	})()
	var a answer
	_, err = k.stdin.Write(append(line, '\n'))
	if err == nil {
		line, err = k.answers.ReadBytes('\n')
	}
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	if err != nil {
		k.broken = fmt.Errorf("%s %s: %w\n%s", c.Class, strings.Join(c.Args, " "), err, k.stderr.String())
	}
	return a, k.broken
}

// toolRun is a case of a tool.
type toolRun struct {
	*run
	box *toolbox
}

// ask runs a tool against the shared broker, "--bootstrap-server" added, and returns
// what it printed, whatever its exit code.
func (r *toolRun) ask(class, stdin string, args ...string) answer {
	r.Helper()
	server := []string{"--bootstrap-server", r.addr}
	if class == "ClusterTool" {
		args = append(args, server...) // its word comes first
	} else {
		args = append(server, args...)
	}
	a, err := r.box.ask(r.Context(), command{Class: class, Args: args, Stdin: stdin})
	if err != nil {
		r.Fatal(err)
	}
	r.Logf("%s %s: exit %d\n%s%s", class, strings.Join(args, " "), a.Exit, a.Stdout, a.Stderr)
	return a
}

// ok runs a tool that is to do well, and returns its standard output.
func (r *toolRun) ok(class string, args ...string) string {
	r.Helper()
	return r.okInput(class, "", args...)
}

func (r *toolRun) okInput(class, stdin string, args ...string) string {
	r.Helper()
	a := r.ask(class, stdin, args...)
	// Some tools tell of an error and exit with 0.
	if a.Exit != 0 || strings.Contains(a.Stdout, "Error:") || strings.Contains(a.Stderr, "Exception") {
		r.Fatalf("%s %s: exit %d: %s", class, strings.Join(args, " "), a.Exit, strings.TrimSpace(a.Stdout+a.Stderr))
	}
	return a.Stdout
}

// refused runs a tool that is to tell of an error.
func (r *toolRun) refused(why, class string, args ...string) {
	r.Helper()
	if a := r.ask(class, "", args...); !strings.Contains(a.Stdout+a.Stderr, why) {
		r.Errorf("%s %s: exit %d without telling of %q: %s", class, strings.Join(args, " "), a.Exit, why, strings.TrimSpace(a.Stdout+a.Stderr))
	}
}

// soon runs a check until it passes: what was changed may be seen a moment later.
func (r *toolRun) soon(check func() error) {
	r.Helper()
	if err := eventually(r.within(driverTimeout), check); err != nil {
		r.Fatal(err)
	}
}

// wantLine is an error unless one of the lines has exactly these fields, however
// they are spaced.
func wantLine(out string, fields ...string) error {
	for line := range strings.Lines(out) {
		if strings.Join(strings.Fields(line), " ") == strings.Join(fields, " ") {
			return nil
		}
	}
	return fmt.Errorf("no line %q in what it printed:\n%s", strings.Join(fields, " "), out)
}

// has fails the case unless one of the lines has exactly these fields.
func (r *toolRun) has(out string, fields ...string) {
	r.Helper()
	if err := wantLine(out, fields...); err != nil {
		r.Errorf("%v", err)
	}
}

// contains fails the case unless the text is in what was printed.
func (r *toolRun) contains(out, text string) {
	r.Helper()
	if !strings.Contains(out, text) {
		r.Errorf("no %q in what it printed:\n%s", text, out)
	}
}

// hasNot fails the case if the text is in what was printed.
func (r *toolRun) hasNot(out, text string) {
	r.Helper()
	if strings.Contains(out, text) {
		r.Errorf("there is %q in what it printed:\n%s", text, out)
	}
}
