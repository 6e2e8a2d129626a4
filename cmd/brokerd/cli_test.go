package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/brokerd/brokerd/core/broker"
	"github.com/brokerd/brokerd/core/config"
	"github.com/brokerd/brokerd/core/quorum"
)

// call runs one command line.
func call(t *testing.T, in string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	code = run(ctx, &console{in: strings.NewReader(in), out: &o, err: &e}, args)
	return code, o.String(), e.String()
}

func everyCommand(root *cobra.Command) []*cobra.Command {
	out := []*cobra.Command{root}
	for _, c := range root.Commands() {
		out = append(out, everyCommand(c)...)
	}
	return out
}

func TestEveryHelpHasAnExample(t *testing.T) {
	for _, c := range everyCommand(newRoot(&console{})) {
		path := c.CommandPath()
		if strings.HasPrefix(path, "brokerd help") || strings.HasPrefix(path, "brokerd completion") {
			continue // cobra's own
		}
		if !strings.Contains(c.Example, path) && path != "brokerd exit-codes" {
			t.Errorf("%s: its help has no example of it", path)
		}
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: %q is not one short phrase", path, c.Short)
		}
		for line := range strings.SplitSeq(c.Long, "\n") {
			if len(line) > 84 {
				t.Errorf("%s: a line of its help is too long: %s", path, line)
			}
		}
		code, out, _ := call(t, "", append(strings.Fields(path)[1:], "--help")...)
		if code != exitOK || !strings.Contains(out, "Examples:") {
			t.Errorf("%s --help: code %d, %s", path, code, out)
		}
	}
}

// Names that anybody may choose do not reach into the terminal of who lists them.
func TestTableIsPrintable(t *testing.T) {
	var out strings.Builder
	rows := [][]string{{"é\x1b[31m\tb\nc", "x"}, {strings.Repeat("l", longCell) + "\x07\xff", "y"}}
	if err := writeTable(&out, []string{"group", "state"}, rows); err != nil {
		t.Fatal(err)
	}
	want := []string{"GROUP  STATE", `é\x1b[31m\tb\nc  x`, strings.Repeat("l", longCell) + `\a\xff  y`}
	lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), "  ")
	}
	if !slices.Equal(lines, want) {
		t.Errorf("printed %q, want %q", lines, want)
	}
}

// A script's variable that is not set is no name.
func TestEmptyNames(t *testing.T) {
	for _, command := range []string{"group describe", "topic describe", "topic alter"} {
		if code, _, errs := call(t, "", append(strings.Fields(command), "")...); code != exitUsage || !strings.Contains(errs, "the name is empty") {
			t.Errorf("%s '': code %d, %q", command, code, errs)
		}
	}
}

func TestUsageMistakes(t *testing.T) {
	for _, tc := range []struct {
		args string
		want string
	}{
		{"topc", `there is no command "topc"; did you mean "topic"? (brokerd --help tells more)`},
		{"topic lst", `there is no command "lst"; did you mean "list"?`},
		{"topic create", "name a topic (brokerd topic create --help tells more)"},
		{"topic describe a b", `"b" is not expected here: name a topic only`},
		{"topic list --foo", "unknown flag: --foo (brokerd topic list --help tells more)"},
		{"topic list -o xml", "-o xml is neither table nor json"},
		{"topic create a --config x", `--config "x" is not name=value`},
		{"topic alter a", "nothing is to change"},
		{"produce", "name a topic with -t"},
		{"produce -t a -z rar", "-z rar is not one of none, gzip"},
		{"produce -t a --acks 2", "--acks 2 is not one of all, 1, 0"},
		{"produce -t a -H x", `--header "x" is not name=value`},
		{"consume", "name a topic with -t"},
		{"consume -t a --offset 1 --from-beginning", "give one of"},
		{"consume -t a -n -1", "-n -1 is negative"},
		{"config check", "name a file"},
		{"config show --set x", "--set x has no ="},
		{"config show --set nod.id=1", `flag --set: unknown key "nod.id"; did you mean "node.id"?`},
		{"dev --flush never", `flag --flush: flush: "never" is not one of replicated, always, interval`},
		{"dev --port 99999", "a port is a number from 0 to 65535"},
		{"help bogus", `there is no command "bogus"`},
		{"help topic bogus", `there is no command "topic bogus"`},
		{"topic list -b nope:zz", `-b nope:zz: the port "zz" is not a number from 1 to 65535`},
		{"consume -t a --offset abc", "--offset abc is not a number, earliest or latest"},
		{"consume -t a --from-time soon", "--from-time soon is neither"},
		{"consume -t a -f %q", "has the unknown %q"},
		{"consume -t a -g b --offset 1", "--offset does not go with --group"},
		{"consume -t a -g b --from-time 1h", "--from-time does not go with --group"},
		{"consume -t a -g b -p 1", "-p does not go with --group"},
		{"consume -t a --group=", "--group names no group"},
		{"group list --state Stabel", "--state Stabel is none of Stable, "},
		{"group describe", "name a group"},
		{"group delete a", "there is nobody to ask, so add --yes"},
		{"group reset-offsets a -t b", "give one of --to-earliest, --to-latest"},
		{"group reset-offsets a -t b --to-earliest --to-offset 0", "give one of --to-earliest, --to-latest"},
		{"group reset-offsets a --to-earliest", "name topics with -t, or give --all-topics"},
		{"group reset-offsets a -t b --all-topics --to-earliest", "name topics with -t, or give --all-topics"},
		{"group reset-offsets a -t b --to-earliest --execute --dry-run", "give --execute or --dry-run, not both"},
		{"group reset-offsets a -t b --to-offset -1", "--to-offset -1 is negative"},
		{"group reset-offsets a -t b:x --to-latest", `"x" is not the number of a partition`},
		{"group reset-offsets a -t :0 --to-latest", `-t ":0" names no topic`},
		{"group reset-offsets a -t b -t b:1 --to-latest", "-t names b twice"},
		{"group reset-offsets a -t b --to-datetime 15m", "--to-datetime 15m is not a time like"},
		{"group reset-offsets a -t b --by-duration soon", "--by-duration soon is not a duration like"},
		{"dev extra", `there is no command "extra"`},
		{"dev --brokers 0", "--brokers 0: there can be 1 to 9"},
		{"dev --brokers 10", "--brokers 10: there can be 1 to 9"},
		{"dev --brokers 3 --port 65534", "--port 65534: a port is a number from 0 to 65535, and each broker needs one"},
		{"dev --brokers 3 --admin-port 65534", "--admin-port 65534: a port"},
		{"dev --brokers 2 --set node.id=3", "--set node.id: with several brokers, each has its own"},
		{"dev kill", "name a broker by its number"},
		{"dev pause two", `"two" is no broker's number`},
		{"dev status -o yaml", "-o yaml is neither table nor json"},
		{"consume -t a -n abc", `--count is "abc", which is not a whole number (brokerd`},
		{"consume -t a -n 99999999999999999999", "--count cannot be 99999999999999999999 (brokerd"},
		{"consume -t a -e=maybe", `--exit is "maybe", which is not true or false`},
	} {
		t.Run(tc.args, func(t *testing.T) {
			code, _, errs := call(t, "", strings.Fields(tc.args)...)
			if code != exitUsage || !strings.Contains(errs, tc.want) || !strings.HasPrefix(errs, "brokerd: ") {
				t.Errorf("code %d, %q; want %d, %q", code, errs, exitUsage, tc.want)
			}
		})
	}
}

func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want int
	}{
		{nil, exitOK},
		{errors.New("x"), exitFailed},
		{fmt.Errorf("w: %w", &usageError{"x"}), exitUsage},
		{&configError{errors.New("x")}, exitUsage},
		{&configError{fmt.Errorf("read: %w", os.ErrNotExist)}, exitNotFound},
		{answerError("describe", "t", kerr.UnknownTopicOrPartition, ""), exitNotFound},
		{&notFoundError{"x"}, exitNotFound},
		{&unreachableError{"h:1", errors.New("x")}, exitUnreachable},
		{answerError("produce to", "t", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, ""), exitUnreachable},
		{&net.OpError{Op: "listen", Err: syscall.EADDRINUSE}, exitInUse},
		{answerError("create", "t", kerr.TopicAlreadyExists, ""), exitRefused},
		{answerError("create", "t", kerr.InvalidConfig, "because"), exitRefused},
		{fmt.Errorf("w: %w", broker.ErrLocked), exitInUse},
		{fmt.Errorf("w: %w", quorum.ErrForeign), exitUsage},
		{context.Canceled, exitInterrupted},
	} {
		if got := exitCode(tc.err); got != tc.want {
			t.Errorf("%v: code %d, want %d", tc.err, got, tc.want)
		}
	}
	for _, code := range []int{exitOK, exitFailed, exitUsage, exitNotFound, exitUnreachable, exitRefused, exitInUse, exitInterrupted} {
		if !strings.Contains(exitCodesText, fmt.Sprintf("\n  %d ", code)) {
			t.Errorf("exit code %d is not documented", code)
		}
	}
	if _, out, _ := call(t, "", "help", "exit-codes"); !strings.Contains(out, "no broker could be reached") {
		t.Errorf("brokerd help exit-codes: %s", out)
	}
}

// A printer that has no room says so once.
func TestPrintingFails(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here")
	}
	defer func() { _ = full.Close() }()
	address, _ := dev(t, t.TempDir())
	if code, _, errs := call(t, "hello", "produce", "-t", "t", "-b", address); code != exitOK {
		t.Fatal(errs)
	}
	var errs bytes.Buffer
	code := run(t.Context(), &console{in: strings.NewReader(""), out: full, err: &errs}, []string{"consume", "-t", "t", "--from-beginning", "-e", "-b", address})
	if code != exitFailed || strings.Count(errs.String(), "no space left") != 1 {
		t.Errorf("code %d, %s", code, &errs)
	}
}

func TestUnreachable(t *testing.T) {
	code, _, errs := call(t, "", "topic", "list", "-b", "127.0.0.1:1")
	if code != exitUnreachable || !strings.Contains(errs, "no broker answers at 127.0.0.1:1 (connection refused): start one with `brokerd dev`") {
		t.Errorf("code %d, %s", code, errs)
	}
}

func TestConfigCommands(t *testing.T) {
	file := filepath.Join(t.TempDir(), "b.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("node.id: 7\nnum.io.threads: 3\n")
	code, out, errs := call(t, "", "config", "check", file)
	if code != exitOK || out != file+" is valid\n" || !strings.Contains(errs, "warning: "+file+":2: num.io.threads has no effect") {
		t.Errorf("code %d, %q, %q", code, out, errs)
	}
	code, out, _ = call(t, "", "config", "show", "--config", file, "--changed", "-o", "json")
	var values []config.Value
	if err := json.Unmarshal([]byte(out), &values); err != nil || code != exitOK {
		t.Fatalf("code %d, %v, %s", code, err, out)
	}
	if len(values) != 1 || values[0].Name != "node.id" || values[0].Value != "7" || values[0].Origin != file+":1" {
		t.Errorf("got %+v", values)
	}
	code, out, _ = call(t, "", "config", "show", "--config", file)
	if code != exitOK || !strings.Contains(out, "SETTING") || !strings.Contains(out, file+":1") {
		t.Errorf("code %d, %s", code, out)
	}
	write("node.id: 7\nlissteners: x\n")
	code, _, errs = call(t, "", "config", "check", file)
	if want := "brokerd: " + file + `:2: unknown key "lissteners"; did you mean "listeners"?` + "\n"; code != exitUsage || errs != want {
		t.Errorf("code %d, %q, want %q", code, errs, want)
	}
	code, _, errs = call(t, "", "--config", file+"x")
	if code != exitNotFound || !strings.Contains(errs, file+"x") {
		t.Errorf("code %d, %q", code, errs)
	}
	_, out, _ = call(t, "", "config", "example")
	write(out)
	if code, _, errs = call(t, "", "config", "check", file); code != exitOK {
		t.Errorf("the example is not valid: %s", errs)
	}
}

// What a file names is looked for, without starting anything.
func TestConfigCheckLooksAround(t *testing.T) {
	plugins := t.TempDir()
	if err := os.WriteFile(filepath.Join(plugins, "mine"), []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	executables := t.TempDir()
	if err := os.WriteFile(filepath.Join(executables, "mine"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "b.yaml")
	for _, tc := range []struct {
		yaml string
		code int
		want string
	}{
		{"storage.stores.main.plugin: nosuch", exitUsage, "b.yaml:1: storage.stores: store main: there is no plugin nosuch; those built in are storage-file"},
		{"storage.stores.main: {plugin: storage-file, config: {path: /p, pth: x}}", exitUsage, `plugin storage-file has no setting "pth"; it has path`},
		{"storage.stores.main: {plugin: storage-file, config: {path: \"${env:BROKERD_TEST_UNSET}\"}}", exitOK, "warning: " + file + ":1: storage.stores: store main: path: ${env:BROKERD_TEST_UNSET}: the environment has no"},
		{"plugins.dir: /nowhere/plugins", exitUsage, "plugins.dir: there is no directory /nowhere/plugins"},
		{"plugins.dir: " + plugins + "\nstorage.stores.main.plugin: mine", exitUsage, "mine is there, but may not be executed; chmod +x it"},
		{"data: /proc/zz/deep", exitUsage, "b.yaml:1: data: /proc/zz/deep cannot be made or used: /proc is the kernel's"},
		{"data: " + file + "/d", exitUsage, "b.yaml:1: data: " + file + "/d cannot be made or used: "},
		{"data: " + plugins + "/none/deep", exitOK, ""},
		{"storage.stores.main: {plugin: storage-file, config: {path: /proc/zz}}", exitUsage, "store main: /proc/zz cannot be made or used"},
		{"storage.stores.main: {plugin: storage-file, config: {path: " + plugins + "/none/s}}", exitUsage, "there is no directory " + plugins + "/none to make s in"},
		{"storage.stores.main: {plugin: storage-file, config: {path: " + plugins + "/s}}", exitOK, ""},
		{"transport.config: {listen: \"h:1\", sekret: x}", exitUsage, `b.yaml:1: transport.config: plugin transport-tcp has no setting "sekret"; it has listen, advertise, `},
		{"transport.plugin: storage-file", exitUsage, "transport.config: there is no plugin storage-file; those built in are transport-tcp"},
		{"transport.config: {listen: \"h:1\", secret: \"${env:BROKERD_TEST_UNSET}\"}", exitOK, "transport.config: secret: ${env:BROKERD_TEST_UNSET}: the environment has no"},
		{"transport: {plugin: mine, config: {any: 1}}\nplugins.dir: " + executables, exitOK, ""},
		{"memory: 900TiB", exitUsage, "b.yaml:1: memory: 900TiB is more than this machine has"},
	} {
		if err := os.WriteFile(file, []byte(tc.yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, _, errs := call(t, "", "config", "check", file); code != tc.code || !strings.Contains(errs, tc.want) {
			t.Errorf("%s: code %d, %s\nwant %d, %s", tc.yaml, code, errs, tc.code, tc.want)
		}
	}
	if left, err := os.ReadDir(plugins); err != nil || len(left) != 1 {
		t.Errorf("the check made %v, %v", left, err)
	}
}

func TestDevListeners(t *testing.T) {
	for env, want := range map[string]string{
		"":                                       "PLAINTEXT://127.0.0.1:7",
		"PLAINTEXT://0.0.0.0:1":                  "PLAINTEXT://0.0.0.0:7",
		"PLAINTEXT://[::1]:1,OTHER://10.0.0.1:2": "PLAINTEXT://[::1]:7,OTHER://10.0.0.1:2",
	} {
		if got := devListeners(env, 7); got != want {
			t.Errorf("%q: %s, want %s", env, got, want)
		}
	}
}

func TestSeeds(t *testing.T) {
	c := cluster{bootstrap: "a, b:1,::1,[::2]:3,"}
	if diff := cmp.Diff([]string{"a:9092", "b:1", "[::1]:9092", "[::2]:3"}, c.seeds()); diff != "" {
		t.Error(diff)
	}
}

func TestRecordOfLine(t *testing.T) {
	p := producing{separator: ":", headers: []string{"a=b=c"}, partition: 3}
	r, err := p.record([]byte("k:v:w"))
	if err != nil || string(r.Key) != "k" || string(r.Value) != "v:w" || r.Partition != 3 || r.Headers[0].Key != "a" || string(r.Headers[0].Value) != "b=c" {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := p.record([]byte("novalue")); err == nil || !strings.Contains(err.Error(), `the line "novalue" has no ":"`) {
		t.Errorf("error %v", err)
	}
	p = producing{}
	if r, err := p.record(nil); err != nil || r.Value == nil || r.Key != nil {
		t.Errorf("an empty line: %+v, %v: want an empty value, not none", r, err)
	}
}

func TestFormat(t *testing.T) {
	r := &kgo.Record{Topic: "t", Partition: 1, Offset: 2, Timestamp: time.UnixMilli(3), Key: []byte("k"), Value: []byte("v%v\xff"),
		Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "b"}}}
	for format, want := range map[string]string{
		`%t %p %o %T %k %v %h\n`: "t 1 2 3 k v%v\xff a=1,b=\n",
		`100%%\t\\`:              "100%\t\\",
		``:                       "",
		`ü`:                      "ü",
	} {
		parts, err := parseFormat(format)
		if err != nil {
			t.Errorf("%q: %v", format, err)
		}
		var got []byte
		for _, p := range parts {
			got = p.append(got, r)
		}
		if string(got) != want {
			t.Errorf("%q: %q, want %q", format, got, want)
		}
	}
	for _, bad := range []string{"%", `\`, "%x", `a\q`} {
		if _, err := parseFormat(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	b, err := json.Marshal(newShownRecord(r))
	if want := `{"topic":"t","partition":1,"offset":2,"timestamp":3,"key":"k","value":null,"value_base64":"diV2/w==","headers":[{"key":"a","value":"1"},{"key":"b","value":null}]}`; err != nil || string(b) != want {
		t.Errorf("as JSON %s, %v; want %s", b, err, want)
	}
}

func FuzzFormat(f *testing.F) {
	f.Add("%t\\n%%")
	f.Fuzz(func(t *testing.T, format string) {
		parts, err := parseFormat(format)
		if err != nil {
			return
		}
		var out []byte
		for _, p := range parts {
			out = p.append(out, &kgo.Record{Timestamp: time.UnixMilli(0)})
		}
		if len(out) > 2*len(format) {
			t.Errorf("%q made %d bytes of an empty record", format, len(out))
		}
	})
}

func TestStartOffsets(t *testing.T) {
	for _, tc := range []struct {
		s    consuming
		want int64
		ok   bool
	}{
		{consuming{}, 10, true},
		{consuming{beginning: true}, 3, true},
		{consuming{offset: "earliest"}, 3, true},
		{consuming{offset: "latest"}, 10, true},
		{consuming{offset: "5"}, 5, true},
		{consuming{offset: "10"}, 10, true},
		{consuming{offset: "-2"}, 8, true},
		{consuming{offset: "-100"}, 3, true},
		{consuming{offset: "2"}, 0, false},
		{consuming{offset: "11"}, 0, false},
		{consuming{offset: "x"}, 0, false},
	} {
		got, err := tc.s.from(3, 10)
		if (err == nil) != tc.ok || got != tc.want {
			t.Errorf("%+v: %d, %v; want %d", tc.s, got, err, tc.want)
		}
	}
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"15m":                  now.Add(-15 * time.Minute),
		"2026-01-31T12:00:00Z": time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC),
		"2026-01-31":           time.Date(2026, 1, 31, 0, 0, 0, 0, time.Local),
	} {
		if got, err := parseTime(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	if _, err := parseTime("soon", now); err == nil {
		t.Error("soon is accepted")
	}
}
