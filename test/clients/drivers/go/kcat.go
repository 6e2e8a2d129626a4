package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// kcat drives the program of that name, which must be installed.
func kcat() library {
	return library{version: kcatVersion, produce: kcatProduce, consume: kcatConsume, member: kcatMember, admin: kcatAdmin}
}

// kcatVersions finds its own version and librdkafka's.
var kcatVersions = regexp.MustCompile(`Version (\S+) .*librdkafka (\S+)`)

func kcatVersion() (string, error) {
	out, err := exec.Command("kcat", "-V").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kcat -V: %w", err)
	}
	v := kcatVersions.FindSubmatch(out)
	if v == nil {
		return "", fmt.Errorf("kcat -V says %q", out)
	}
	return fmt.Sprintf("%s (librdkafka %s)", v[1], v[2]), nil
}

// kcatRun runs kcat to its end and returns what it printed.
func kcatRun(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "kcat", args...)
	var errs bytes.Buffer
	cmd.Stdin, cmd.Stderr = stdin, &errs
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("kcat %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return out, nil
}

// kcatProduce sends what is placed and what is not in two runs. Headers and times of
// single records are none of kcat's.
func kcatProduce(ctx context.Context, o options) error {
	var placed, others bytes.Buffer
	for _, r := range o.records() {
		to := &others
		if r.placed {
			to = &placed
		}
		fmt.Fprintf(to, "%s\t%s\n", r.key, r.value)
	}
	args := []string{"-b", o.bootstrap, "-P", "-t", o.topic, "-K", "\t", "-z", o.codec, "-X", "acks=all", "-X", "linger.ms=20",
		"-X", "enable.idempotence=" + strconv.FormatBool(o.idempotent)}
	_, err1 := kcatRun(ctx, &placed, append(args, "-p", "0")...)
	_, err2 := kcatRun(ctx, &others, args...)
	return errors.Join(err1, err2)
}

func kcatConsume(ctx context.Context, o options, out *output) error {
	got, err := kcatRun(ctx, nil, "-b", o.bootstrap, "-C", "-q", "-t", o.topic, "-o", "beginning", "-c", strconv.Itoa(o.count), "-J")
	if err != nil {
		return err
	}
	for line := range bytes.Lines(got) {
		if err := kcatPrint(line, out); err != nil {
			return err
		}
	}
	return nil
}

// kcatPrint prints a record that kcat told with -J.
func kcatPrint(line []byte, out *output) error {
	var r struct {
		Partition int32    `json:"partition"`
		Offset    int64    `json:"offset"`
		Timestamp int64    `json:"ts"`
		Headers   []string `json:"headers"`
		Key       string   `json:"key"`
		Payload   string   `json:"payload"`
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return fmt.Errorf("kcat's line %q: %w", line, err)
	}
	var headers [][2]string
	for h := range slices.Chunk(r.Headers, 2) {
		headers = append(headers, [2]string{h[0], h[1]})
	}
	out.record(r.Partition, r.Offset, []byte(r.Key), []byte(r.Payload), headers, r.Timestamp)
	return nil
}

// kcatRebalanced finds what kcat says of its assignment: "(memberid ...): assigned: t
// [0], t [1]", or "incremental revoke of 1 partition(s) (memberid ...): t [1]".
var kcatRebalanced = regexp.MustCompile(`^% Group \S+ rebalanced.*\b(assign|revoke)(?:ed|d|ment)?\b.*$`)

// kcatPartition finds a partition in it.
var kcatPartition = regexp.MustCompile(`\[(\d+)\]`)

// kcatMember runs kcat as a member of a group. It commits by itself, and tells nobody.
func kcatMember(ctx context.Context, o options, out *output) error {
	strategy := "range"
	if o.cooperative {
		strategy = "cooperative-sticky"
	}
	args := []string{"-b", o.bootstrap, "-J", "-u",
		"-X", fmt.Sprintf("session.timeout.ms=%d", sessionTimeout.Milliseconds()),
		"-X", fmt.Sprintf("heartbeat.interval.ms=%d", heartbeatInterval.Milliseconds()),
		"-X", fmt.Sprintf("max.poll.interval.ms=%d", rebalanceTimeout.Milliseconds()),
		"-X", "auto.commit.interval.ms=200", "-X", "auto.offset.reset=earliest", "-X", "partition.assignment.strategy=" + strategy}
	if o.instance != "" {
		args = append(args, "-X", "group.instance.id="+o.instance)
	}
	cmd := exec.Command("kcat", append(args, "-G", o.group, o.topic)...)
	stdout, err1 := cmd.StdoutPipe()
	stderr, err2 := cmd.StderrPipe()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		kcatAssignments(stderr, out)
	}()
	go func() {
		<-ctx.Done()
		_ = cmd.Process.Signal(syscall.SIGTERM) // it leaves
	}()
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if err := kcatPrint(lines.Bytes(), out); err != nil {
			return err
		}
	}
	<-told
	return errors.Join(lines.Err(), cmd.Wait())
}

// kcatAssignments tells the assignments among what kcat says on stderr.
func kcatAssignments(stderr io.Reader, out *output) {
	has := make(map[int32]bool)
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "% Reached end") {
			fmt.Fprintln(os.Stderr, lines.Text())
		}
		m := kcatRebalanced.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		for _, p := range kcatPartition.FindAllStringSubmatch(m[0], -1) {
			n, err := strconv.ParseInt(p[1], 10, 32)
			if err != nil {
				continue
			}
			if m[1] == "assign" {
				has[int32(n)] = true
			} else {
				delete(has, int32(n))
			}
		}
		out.assigned(maps.Clone(has))
	}
}

// kcatAdmin is metadata and offsets, all that kcat has: the topic is made by sending
// to it.
func kcatAdmin(ctx context.Context, o options, out *output) error {
	o.count = 1
	if err := out.did("auto_create_topic", kcatProduce(ctx, o)); err != nil {
		return err
	}
	if err := out.did("describe_cluster", kcatMetadata(ctx, o)); err != nil {
		return err
	}
	got, err := kcatRun(ctx, nil, "-b", o.bootstrap, "-Q", "-t", o.topic+":0:-1")
	return out.did("list_offsets", same("the end", strings.TrimSpace(string(got)), o.topic+" [0] offset 1", err))
}

func kcatMetadata(ctx context.Context, o options) error {
	got, err := kcatRun(ctx, nil, "-b", o.bootstrap, "-L", "-J")
	if err != nil {
		return err
	}
	var m struct {
		Brokers []struct{ Name string }
		Topics  []struct {
			Topic      string
			Partitions []struct{ Leader int }
		}
	}
	if err := json.Unmarshal(got, &m); err != nil {
		return err
	}
	for _, t := range m.Topics {
		if t.Topic == o.topic && len(t.Partitions) > 0 && len(m.Brokers) > 0 {
			return nil
		}
	}
	return fmt.Errorf("the topic is not among %+v", m)
}
