package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMain lets the broker under test start this binary as its plugin.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "plugin" {
		main()
	}
	os.Exit(m.Run())
}

// screen is what a command prints, readable while it runs.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
	// changed is told of each write, with room for one.
	changed chan struct{}
}

func newScreen() *screen { return &screen{changed: make(chan struct{}, 1)} }

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return s.b.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// waitFor returns the first match of a pattern on the screen.
func (s *screen) waitFor(t *testing.T, pattern string) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	late := time.After(30 * time.Second)
	for {
		if m := re.FindStringSubmatch(s.String()); m != nil {
			return m
		}
		select {
		case <-s.changed:
		case <-late:
			t.Fatalf("no %s in\n%s", pattern, s)
		}
	}
}

// dev runs `brokerd dev` until the test ends, and returns its address.
func dev(t *testing.T, dir string, args ...string) (address string, out *screen) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, errs := newScreen(), newScreen()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, &console{in: strings.NewReader(""), out: out, err: errs}, append([]string{"dev", "--data", dir, "--port", "0"}, args...))
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != exitOK {
			t.Errorf("brokerd dev: code %d\n%s", code, errs)
		}
	})
	return out.waitFor(t, `brokerd is ready at (\S+),`)[1], out
}

func TestNewcomer(t *testing.T) {
	dir := t.TempDir()
	address, screen := dev(t, dir)
	for _, want := range []string{"produce -t greetings -b " + address, "kcat -b " + address + " -C", "not replicated", "/v1/status"} {
		if !strings.Contains(screen.String(), want) {
			t.Errorf("the greeting lacks %q:\n%s", want, screen)
		}
	}
	call := func(in string, want int, args ...string) (string, string) {
		t.Helper()
		code, out, errs := call(t, in, append(args, "-b", address)...)
		if code != want {
			t.Fatalf("brokerd %s: code %d, want %d\n%s%s", strings.Join(args, " "), code, want, out, errs)
		}
		return out, errs
	}
	check := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
	_, errs := call("", exitOK, "topic", "list")
	check(errs, "there are no topics yet; `brokerd topic create NAME` makes one\n")
	_, errs = call("hello\n", exitOK, "produce", "-t", "greetings")
	check(errs, "1 record to greetings\n")
	out, _ := call("", exitOK, "consume", "-t", "greetings", "--from-beginning", "-e")
	check(out, "hello\n")

	out, _ = call("", exitOK, "topic", "create", "orders", "-p", "2", "-c", "retention.ms=3600000")
	check(out, "TOPIC   PARTITIONS  REPLICAS  RESULT\norders  2           1         created\n")
	out, _ = call("", exitOK, "topic", "list")
	check(out, "TOPIC      PARTITIONS  REPLICAS\ngreetings  1           1\norders     2           1\n")
	call("a:1\nb:2\na:3\n", exitOK, "produce", "-t", "orders", "-k", ":", "-p", "1", "-H", "from=test", "-z", "zstd")
	out, _ = call("", exitOK, "consume", "-t", "orders", "--offset", "-2", "-p", "1", "-e", "-f", `%p:%o %k=%v %h\n`)
	check(out, "1:1 b=2 from=test\n1:2 a=3 from=test\n")
	out, _ = call("", exitOK, "consume", "-t", "orders", "--from-time", "1h", "-n", "1", "-o", "json")
	if !strings.Contains(out, `"key":"a","value":"1","headers":[{"key":"from","value":"test"}]`) {
		t.Errorf("as JSON: %s", out)
	}
	out, _ = call("", exitOK, "consume", "-t", "orders", "-e")
	check(out, "")

	out, _ = call("", exitOK, "topic", "alter", "orders", "-p", "3", "-c", "segment.bytes=2097152", "--delete-config", "retention.ms")
	check(out, "altered orders\n")
	out, _ = call("", exitOK, "topic", "describe", "orders", "-o", "json")
	var topic describedTopic
	if err := json.Unmarshal([]byte(out), &topic); err != nil || len(topic.List) != 3 || topic.List[1].LogEnd != 3 ||
		len(topic.Settings) != 1 || topic.Settings["segment.bytes"] != "2097152" || len(topic.ID) != 22 {
		t.Errorf("described: %v, %s", err, out)
	}
	out, _ = call("", exitOK, "topic", "describe", "orders")
	if !strings.Contains(out, "setting   segment.bytes=2097152\n") || !strings.Contains(out, "not replicated") || !strings.Contains(out, "min isr   1 in effect\n") {
		t.Errorf("described: %s", out)
	}
	name := strings.Repeat("n", 249)
	call("", exitOK, "topic", "create", name)
	out, _ = call("", exitOK, "topic", "list")
	check(out, "TOPIC      PARTITIONS  REPLICAS\ngreetings  1           1\n"+name+"  1  1\norders     3           1\n")
	call("", exitOK, "topic", "create", "large", "-c", "max.message.bytes=4194304")
	call(strings.Repeat("x", 3<<20), exitOK, "produce", "-t", "large")
	out, _ = call("", exitOK, "topic", "delete", "orders", "--yes")
	check(out, "deleted orders\n")
}

func TestClusterMistakes(t *testing.T) {
	address, _ := dev(t, t.TempDir())
	for _, tc := range []struct {
		args string
		in   string
		code int
		want string
	}{
		{"topic create t", "", exitOK, ""},
		{"topic create t", "", exitRefused, "create t: there is a topic of that name; choose another, or add --if-not-exists"},
		{"topic create t --if-not-exists", "", exitOK, ""},
		{"topic create a/b", "", exitRefused, `topic name "a/b"`},
		{"topic create u -r 2", "", exitRefused, "replication factor 2 is more than"},
		{"topic create u -c retenton.ms=1", "", exitRefused, "did you mean retention.ms?"},
		{"topic alter t -p 1", "", exitRefused, "raise partitions of t"},
		{"topic alter nosuch -p 2", "", exitNotFound, "there is no such topic"},
		{"topic describe nosuch", "", exitNotFound, "describe nosuch: there is no such topic; `brokerd topic list` shows"},
		{"topic delete orders", "", exitUsage, "add --yes"},
		{"topic delete nosuch --yes", "", exitNotFound, "there is no such topic"},
		{"consume -t nosuch", "", exitNotFound, "there is no such topic"},
		{"consume -t t -p 5", "", exitNotFound, "there is no partition 5"},
		{"consume -t t --offset 5", "", exitNotFound, "there is no offset 5"},
		{"consume -t t --from-time soon", "", exitUsage, "--from-time soon is neither a time"},
		{"consume -t t -e --from-beginning", "x", exitOK, ""}, // nothing to print
		{"produce -t t -k :", "k:v\nnovalue\nk:w\n", exitFailed, "1 record to t\nbrokerd: line 2: the line \"novalue\" has no \":\" between key and value; the lines before it were sent, it and those after it were not\n"},
		{"produce -t t -p 5", "x", exitNotFound, "there is no partition 5; the topic has those from 0 to 0"},
		{"produce -t never -p 5", "x", exitNotFound, "there is no such topic, and so no partition 5"},
		{"topic describe never", "", exitNotFound, "there is no such topic"}, // produce made none
		{"produce -t t -q", "x", exitOK, ""},
		{"produce -t t", strings.Repeat("x", 2<<20), exitRefused, "produce to t"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			code, out, errs := call(t, tc.in, append(strings.Fields(tc.args), "-b", address)...)
			if code != tc.code || !strings.Contains(errs, tc.want) || strings.Count(errs, "\n") > 2 {
				t.Errorf("code %d, want %d, %q\n%s%s", code, tc.code, tc.want, out, errs)
			}
		})
	}
}

func TestStartMistakes(t *testing.T) {
	dir := t.TempDir()
	address, _ := dev(t, dir)
	code, _, errs := call(t, "", "dev", "--data", dir, "--port", "0")
	if code != exitInUse || !strings.Contains(errs, "is held by the brokerd with process ID") {
		t.Errorf("the same directory: code %d, %s", code, errs)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	code, _, errs = call(t, "", "dev", "--data", t.TempDir(), "--port", port)
	if code != exitInUse || !strings.Contains(errs, address) || !strings.Contains(errs, "another program has that port") {
		t.Errorf("the same port: code %d, %s", code, errs)
	}
}

func TestPluginCommands(t *testing.T) {
	code, out, errs := call(t, "", "plugin", "list")
	if code != exitOK || !strings.Contains(out, "storage-file") || !strings.Contains(out, "built in") {
		t.Errorf("code %d, %s%s", code, out, errs)
	}
	code, out, errs = call(t, "", "plugin", "check", "storage-file", "--only", "append")
	if code != exitOK || !strings.Contains(out, "plugin    storage-file") || !strings.Contains(out, "sha256") || !strings.Contains(out, "\npath ") || !strings.Contains(out, " passed, 0 failed") {
		t.Errorf("code %d, %s%s", code, out, errs)
	}
	code, _, errs = call(t, "", "plugin", "check", "nosuch")
	if code != exitNotFound || !strings.Contains(errs, "storage-file") {
		t.Errorf("code %d, %s", code, errs)
	}
	code, _, errs = call(t, "", "plugin", "serve", "storage-file")
	if code != exitFailed || !strings.Contains(errs, "the broker starts it") {
		t.Errorf("code %d, %s", code, errs)
	}
}
