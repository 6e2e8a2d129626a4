package rig

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// patience is for what is to happen soon, on a busy machine too.
const patience = time.Minute

// patient is a context that ends after it.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// shell is a broker that is none.
func shell(t *testing.T, script string) *Broker {
	t.Helper()
	b := &Broker{Program: "/bin/sh", Args: []string{"-c", script}, Output: filepath.Join(t.TempDir(), "log")}
	t.Cleanup(b.Kill)
	return b
}

// printed waits until a broker has printed a text.
func printed(t *testing.T, b *Broker, text string) {
	t.Helper()
	if err := Eventually(patient(t), func() error {
		if !strings.Contains(b.Printed(), text) {
			return errors.New(b.Tail())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// A process is reaped, says how it ended, and adds to its file.
func TestProcess(t *testing.T) {
	output := filepath.Join(t.TempDir(), "log")
	for range 2 {
		p, err := Start(exec.Command("/bin/sh", "-c", "echo out; echo err >&2; exit 3"), output)
		if err != nil {
			t.Fatal(err)
		}
		var exit *exec.ExitError
		if err := p.Err(); !errors.As(err, &exit) || exit.ExitCode() != 3 || !p.Ended() {
			t.Errorf("it ended with %v", err)
		}
		p.Signal(syscall.SIGTERM)
		p.Kill()
		if err := syscall.Kill(p.Pid(), 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("it is there still: %v", err)
		}
	}
	if got := Tail(output); got != "out\nerr\nout\nerr\n" {
		t.Errorf("it printed %q", got)
	}
	if _, err := Start(exec.Command("/nowhere"), output); err == nil {
		t.Error("what is not there was started")
	}
}

// A broker stops by SIGTERM, lives again, is killed, and is killed where it does not stop.
func TestBroker(t *testing.T) {
	b := shell(t, `trap 'exit 0' TERM; echo "lives as $NAME"; while :; do sleep 60 & wait; done`)
	b.Env = []string{"NAME=it"}
	children := func() []int {
		t.Helper()
		var all []int
		if err := Eventually(patient(t), func() error {
			if all = Children(b.Pid()); len(all) != 1 {
				return errors.New("it has not started its own")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return all
	}
	for life, end := range []func() error{b.Stop, func() error { b.Kill(); return nil }} {
		if err := b.Launch(); err != nil {
			t.Fatal(err)
		}
		pid := b.Pid()
		if err := b.Launch(); err != nil || b.Pid() != pid || !b.Running() {
			t.Errorf("it was started twice: %v", err)
		}
		printed(t, b, strings.Repeat("lives as it\n", life+1))
		sleeps := children()
		if err := end(); err != nil || b.Running() || b.Pid() != 0 {
			t.Errorf("after its end: %v, runs %v", err, b.Running())
		}
		for _, sleep := range sleeps {
			_ = syscall.Kill(sleep, syscall.SIGKILL)
		}
		if err := errors.Join(b.Stop(), b.Stop()); err != nil {
			t.Errorf("stop what does not run: %v", err)
		}
	}
	deaf := shell(t, `trap '' TERM; echo deaf; exec sleep 60`)
	if err := deaf.Launch(); err != nil {
		t.Fatal(err)
	}
	printed(t, deaf, "deaf")
	if err := deaf.Life().Stop(time.Millisecond); !errors.Is(err, ErrLate) || !deaf.Life().Ended() {
		t.Errorf("one that does not hear was stopped: %v", err)
	}
	bad := shell(t, `trap 'echo sorry; exit 5' TERM; echo waits; sleep 60 & wait`)
	if err := bad.Launch(); err != nil {
		t.Fatal(err)
	}
	printed(t, bad, "waits")
	var sleeps []int
	if err := Eventually(patient(t), func() error {
		if sleeps = Children(bad.Pid()); len(sleeps) == 0 {
			return errors.New("it has started nothing")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := StopAll([]*Broker{b, bad}); err == nil || !strings.Contains(err.Error(), "sorry") {
		t.Errorf("one that ended badly: %v", err)
	}
	for _, sleep := range sleeps {
		_ = syscall.Kill(sleep, syscall.SIGKILL)
	}
}

// A broker is ready once it answers and knows all; one that ended is not waited for, and one
// that nobody can reach only for its time.
func TestReady(t *testing.T) {
	b := shell(t, "exec sleep 60")
	if err := b.Ready(t.Context(), []string{"127.0.0.1:1"}, 1); err == nil {
		t.Error("ready before it was started")
	}
	if err := b.Launch(); err != nil {
		t.Fatal(err)
	}
	addrs := []string{"127.0.0.1:1", answering(t, 2)}
	if err := b.Ready(t.Context(), addrs, 2); err != nil {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*PollEvery)
	defer cancel()
	if err := b.Ready(short, addrs, 3); err == nil || !strings.Contains(err.Error(), "2 of 3 brokers") {
		t.Errorf("ready without the third: %v", err)
	}
	ends := shell(t, "echo its last word; exit 4")
	if err := ends.Launch(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err := ends.Ready(t.Context(), addrs[:1], 1)
	if err == nil || !strings.Contains(err.Error(), "exit status 4") || !strings.Contains(err.Error(), "its last word") {
		t.Errorf("one that ended: %v", err)
	}
	if took := time.Since(began); took > StartTimeout {
		t.Errorf("it was waited for %s", took)
	}
}

// answering listens as a broker that knows so many.
func answering(t *testing.T, brokers int) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for answer(c, brokers) == nil {
				}
			}()
		}
	}()
	return l.Addr().String()
}

// answer reads a request for versions or metadata, of versions without tagged headers.
func answer(c net.Conn, brokers int) error {
	var head [12]byte // size, key, version, correlation
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(head[:]))-8); err != nil {
		return err
	}
	key, version := binary.BigEndian.Uint16(head[4:]), binary.BigEndian.Uint16(head[6:])
	var resp kmsg.Response
	switch key {
	case 18:
		versions := kmsg.NewPtrApiVersionsResponse()
		for key, version := range map[int16]int16{3: 1, 18: 3} {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MaxVersion = key, version
			versions.ApiKeys = append(versions.ApiKeys, k)
		}
		resp = versions
	case 3:
		metadata := kmsg.NewPtrMetadataResponse()
		metadata.Brokers = make([]kmsg.MetadataResponseBroker, brokers)
		resp = metadata
	default:
		return errors.New("it asks for something else")
	}
	resp.SetVersion(int16(version))
	body := resp.AppendTo(head[8:12:12])
	_, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

// This process is its parent's child, and holds what it holds.
func TestTree(t *testing.T) {
	if !slices.Contains(Children(os.Getppid()), os.Getpid()) {
		t.Error("this process is not a child of its parent")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "held"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b := shell(t, "exec 3<"+filepath.Join(dir, "held")+"; echo holds; exec sleep 60")
	if err := b.Launch(); err != nil {
		t.Fatal(err)
	}
	printed(t, b, "holds")
	if got := Holders(dir); !slices.Equal(got, []int{b.Pid()}) {
		t.Errorf("held by %v, not by %d", got, b.Pid())
	}
	b.Kill()
	if got := Holders(dir); got != nil {
		t.Errorf("held by %v", got)
	}
}

func TestSettings(t *testing.T) {
	alone := Member{Number: 1, Data: "/a", Clients: "127.0.0.1:1"}
	if got, want := alone.Settings(), []string{"node.id=1", "data=/a", "listeners=PLAINTEXT://127.0.0.1:1"}; !slices.Equal(got, want) {
		t.Errorf("alone: %q, not %q", got, want)
	}
	member := Member{
		Number: 2, Data: "/b", Clients: "127.0.0.1:1", Advertised: "host:2", Peers: "127.0.0.1:3", Reached: "127.0.0.1:4",
		Seeds: []string{"127.0.0.1:4", "127.0.0.1:5"}, SecretFile: `/a "secret"`,
	}
	want := []string{
		"--set", "node.id=2", "--set", "data=/b", "--set", "listeners=PLAINTEXT://127.0.0.1:1", "--set", "advertised.listeners=PLAINTEXT://host:2",
		"--set", "cluster.seeds=127.0.0.1:4,127.0.0.1:5", "--set", "transport.plugin=transport-tcp",
		"--set", `transport.config={"listen":"127.0.0.1:3","advertise":"127.0.0.1:4","secret_file":"/a \"secret\""}`, "--set", "a=b",
	}
	if got := Set(member.Settings("a=b")); !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

// The top of the tree is found from here, and a tool that there is not is an error.
func TestTools(t *testing.T) {
	top, err := Top()
	if here, _ := os.Getwd(); err != nil || here != filepath.Join(top, "test", "rig") {
		t.Errorf("%q, %v", top, err)
	}
	if _, err := Tool(t.Context(), "no-such-tool"); err == nil {
		t.Error("a tool was found that there is not")
	}
	if err := Build(t.Context(), "", filepath.Join(t.TempDir(), "none"), Brokerd+"/none"); err == nil {
		t.Error("a program was built that there is not")
	}
	t.Chdir("/")
	if _, err := Top(); err == nil {
		t.Error("the top was found from outside of the tree")
	}
}
