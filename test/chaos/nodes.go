package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/brokerd/brokerd/test/ports"
	"github.com/brokerd/brokerd/test/rig"
)

const (
	// supervisedAfter is when a broker that ended by itself is started again.
	supervisedAfter = 200 * time.Millisecond
	stopTimeout     = 30 * time.Second
)

// Names of plugins, as they are in the command line of their processes.
const (
	storagePlugin   = "storage-file"
	transportPlugin = "transport-tcp"
)

// node is one broker, in all its lives.
type node struct {
	n          int
	executable string
	dir        string // its data
	output     string // the file of all that it printed
	clients    string // where clients dial it
	transport  string // where it listens for others
	reached    string // where others dial it
	admin      string // where it tells of itself
	between    between
	secret     string
	seeds      []string
	settings   []string // further ones, as name=value
	clock      string   // the file by which its wall clock is set, where it is altered
	alone      bool     // it may create a cluster by itself
	disk       *disk    // or nil: its data is on the machine's
	exits      func(n int, err error, tail string)

	mu      sync.Mutex
	now     *life
	wanted  bool // it is to run: one that ends is started again
	watched sync.WaitGroup
}

// life is one process of a broker.
type life struct {
	*rig.Process
	gone chan struct{} // closed when it was reaped, and its network knows
}

// newNode makes a broker that is yet to be started. Others dial it by a network.
func newNode(n int, executable, dir, secret string, w between) (*node, error) {
	free, err := ports.Free(3)
	if err != nil {
		return nil, err
	}
	var at [3]string
	for i, port := range free {
		at[i] = net.JoinHostPort(w.host(n), strconv.Itoa(port))
	}
	b := &node{
		n: n, executable: executable, secret: secret,
		dir: filepath.Join(dir, fmt.Sprintf("broker-%d", n)), output: filepath.Join(dir, fmt.Sprintf("broker-%d.log", n)),
		clients: at[0], transport: at[1], admin: at[2], between: w,
	}
	b.reached, err = w.reach(n, b.transport)
	return b, err
}

func (b *node) arguments() []string {
	member := rig.Member{
		Number: b.n, Data: b.dir, Clients: b.clients, Peers: b.transport, Reached: b.reached, Seeds: b.seeds, SecretFile: b.secret,
	}
	args := rig.Set(append(member.Settings("admin.listen="+b.admin, "group.initial.rebalance.delay.ms=0",
		"cluster.bootstrap="+strconv.FormatBool(b.alone || len(b.seeds) > 0)), b.settings...))
	if b.clock != "" {
		args = append([]string{"--clock", b.clock}, args...)
	}
	return args
}

// start starts a process, and another one when it ends by itself.
func (b *node) start() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wanted = true
	return b.launch()
}

func (b *node) launch() error {
	begins := fmt.Sprintf("%s --- broker %d starts\n", time.Now().Format("15:04:05.000"), b.n)
	if err := addTo(b.output, begins); err != nil {
		return err
	}
	cmd := exec.Command(b.executable, b.arguments()...)
	endWithParent(cmd)
	start := func() error { return b.between.start(b.n, cmd) }
	if b.disk != nil {
		inNetwork := start
		start = func() error { return b.disk.of.ns.Do(inNetwork) }
	}
	process, err := rig.StartBy(cmd, b.output, start)
	if err != nil {
		return fmt.Errorf("start broker %d: %w", b.n, err)
	}
	l := &life{Process: process, gone: make(chan struct{})}
	b.now = l
	b.watched.Go(func() { b.watch(l) })
	return nil
}

// addTo adds a line to a file.
func addTo(path, line string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}

// watch waits for the end of a process, and starts another one where it was not to end.
func (b *node) watch(l *life) {
	err := l.Err()
	b.between.ended(b.n)
	close(l.gone)
	b.mu.Lock()
	unasked := b.wanted && b.now == l
	b.mu.Unlock()
	if !unasked {
		return
	}
	b.exits(b.n, err, b.tail())
	<-time.After(supervisedAfter)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wanted && b.now == l {
		_ = b.launch() // the next answer that is missing tells
	}
}

// end lets the process go by a signal, and returns when it is gone. A broker that does not run is gone.
func (b *node) end(sig syscall.Signal) error {
	b.mu.Lock()
	l := b.now
	b.wanted, b.now = false, nil
	b.mu.Unlock()
	if l == nil {
		return nil
	}
	l.Signal(sig)
	late := time.NewTimer(stopTimeout)
	defer late.Stop()
	select {
	case <-l.gone:
	case <-late.C:
		l.Kill()
		<-l.gone
		return fmt.Errorf("broker %d did not end within %s", b.n, stopTimeout)
	}
	if err := l.Err(); sig == syscall.SIGTERM && err != nil {
		return fmt.Errorf("broker %d ended with %w", b.n, err)
	}
	return nil
}

// dismiss sends SIGKILL, and returns at once.
func (b *node) dismiss() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wanted = false
	if b.now != nil {
		b.now.Signal(syscall.SIGKILL)
	}
}

// signal sends a signal to the process.
func (b *node) signal(sig syscall.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now != nil {
		b.now.Signal(sig)
	}
}

// pid is the process, or 0.
func (b *node) pid() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now == nil {
		return 0
	}
	return b.now.Pid()
}

// plugin finds a plugin's process.
func (b *node) plugin(name string) (pid int, err error) {
	for _, child := range rig.Children(b.pid()) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
		if bytes.Contains(line, []byte(name)) {
			return child, nil
		}
	}
	return 0, fmt.Errorf("broker %d has no process of %s", b.n, name)
}

// owns reports whether a socket is the broker's, or a plugin's of it.
func (b *node) owns(inode string) bool {
	pid := b.pid()
	if pid == 0 {
		return false
	}
	if holds(pid, inode) {
		return true
	}
	for _, child := range rig.Children(pid) {
		if holds(child, inode) {
			return true
		}
	}
	return false
}

// tail is the end of what it printed.
func (b *node) tail() string { return rig.Tail(b.output) }

// wipe loses its disk.
func (b *node) wipe() error {
	if b.pid() != 0 {
		return errors.New("wipe the disk of a broker that runs")
	}
	if b.disk != nil {
		return b.disk.wipe()
	}
	return os.RemoveAll(b.dir)
}
