package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/brokerd/brokerd/test/ports"
)

const (
	wireBytes = 64 << 10
	// whoseTimeout is how long a new connection may belong to nobody: it is passed on from a
	// plugin to its broker.
	whoseTimeout = 2 * time.Second
	whoseEvery   = 5 * time.Millisecond
)

// wires are the wires between brokers: each broker is dialled at an address of this process,
// which carries bytes on, or keeps them where the direction is cut.
type wires struct {
	owner func(inode string) int // which broker's a socket is; 0: nobody's

	mu    sync.Mutex
	grew  *sync.Cond // a direction was mended, or a connection closed
	cut   map[[2]int]bool
	conns map[*wire]bool
	gates map[int]*gate
	ends  bool

	carrying sync.WaitGroup
}

// gate is where a broker is dialled. It is open while the broker's process is there, so that
// a connection is refused when it is not.
type gate struct {
	wires        *wires
	n            int
	addr, target string
	listener     net.Listener
}

// wire is one connection from a broker to another.
type wire struct {
	from, to   int
	near, far  net.Conn // of who dialled, and of who was dialled
	closedOnce sync.Once
}

func newWires(owner func(string) int) *wires {
	w := &wires{owner: owner, cut: map[[2]int]bool{}, conns: map[*wire]bool{}, gates: map[int]*gate{}}
	w.grew = sync.NewCond(&w.mu)
	return w
}

// host implements between.
func (w *wires) host(int) string { return "127.0.0.1" }

// reach implements between.
func (w *wires) reach(n int, transport string) (string, error) {
	g, err := w.gate(n, transport)
	if err != nil {
		return "", err
	}
	w.gates[n] = g
	return g.addr, nil
}

// start implements between.
func (w *wires) start(n int, cmd *exec.Cmd) error {
	if err := w.gates[n].open(); err != nil {
		return err
	}
	err := cmd.Start()
	if err != nil {
		w.gates[n].close()
	}
	return err
}

// ended implements between.
func (w *wires) ended(n int) { w.gates[n].close() }

// gate makes the address at which broker n is dialled, which listens at an address.
func (w *wires) gate(n int, target string) (*gate, error) {
	free, err := ports.Free(1)
	if err != nil {
		return nil, err
	}
	return &gate{wires: w, n: n, addr: "127.0.0.1:" + strconv.Itoa(free[0]), target: target}, nil
}

func (g *gate) open() error {
	l, err := net.Listen("tcp", g.addr)
	if err != nil {
		return fmt.Errorf("listen for broker %d: %w", g.n, err)
	}
	g.listener = l
	g.wires.carrying.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			g.wires.carrying.Go(func() { g.wires.carry(g.n, g.target, c) })
		}
	})
	return nil
}

func (g *gate) close() {
	if g.listener != nil {
		g.listener.Close()
	}
}

func (w *wires) carry(to int, target string, near net.Conn) {
	from := w.whose(near)
	if from == 0 {
		near.Close() // whoever dialled is gone
		return
	}
	if !w.wait(from, to, nil) {
		near.Close()
		return
	}
	far, err := net.Dial("tcp", target)
	if err != nil {
		near.Close()
		return
	}
	c := &wire{from: from, to: to, near: near, far: far}
	w.mu.Lock()
	w.conns[c] = true
	w.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { w.pump(c, from, to, near, far) })
	both.Go(func() { w.pump(c, to, from, far, near) })
	both.Wait()
	w.mu.Lock()
	delete(w.conns, c)
	w.mu.Unlock()
}

// pump carries the bytes of one direction.
func (w *wires) pump(c *wire, from, to int, src, dst net.Conn) {
	defer w.close(c)
	buf := make([]byte, wireBytes)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if !w.wait(from, to, c) {
				return
			}
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			// An end is not seen either where the direction is cut.
			w.wait(from, to, c)
			return
		}
	}
}

func (w *wires) close(c *wire) {
	c.closedOnce.Do(func() {
		c.near.Close()
		c.far.Close()
		w.mu.Lock()
		delete(w.conns, c)
		w.mu.Unlock()
		w.grew.Broadcast()
	})
}

// wait returns when the direction is not cut; false: the connection, where one is given, or
// all is closed.
func (w *wires) wait(from, to int, c *wire) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.cut[[2]int{from, to}] && !w.ends && (c == nil || w.conns[c]) {
		w.grew.Wait()
	}
	return !w.ends
}

// sever implements between.
func (w *wires) sever(from, to int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[[2]int{from, to}] = true
	return nil
}

// severPort implements between.
func (w *wires) severPort(int, int, int) error { return errNoPorts }

// errNoPorts is what lanes cannot be cut for.
var errNoPorts = errors.New("the proxy between brokers knows no ports: lanes are cut between network namespaces alone")

// mend implements between. reset breaks the connections that were cut, and so loses what they
// kept; otherwise it arrives late.
func (w *wires) mend(reset bool) (string, error) {
	w.mu.Lock()
	var broken []*wire
	for c := range w.conns {
		if reset && (w.cut[[2]int{c.from, c.to}] || w.cut[[2]int{c.to, c.from}]) {
			broken = append(broken, c)
		}
	}
	if reset {
		for _, c := range broken {
			delete(w.conns, c)
		}
	}
	clear(w.cut)
	w.mu.Unlock()
	for _, c := range broken {
		w.close(c)
	}
	w.grew.Broadcast()
	if reset {
		return "connections were lost", nil
	}
	return "what was kept came late", nil
}

// stop ends all, when all gates are closed.
func (w *wires) stop() {
	w.mu.Lock()
	w.ends = true
	var all []*wire
	for c := range w.conns {
		all = append(all, c)
	}
	w.mu.Unlock()
	w.grew.Broadcast()
	for _, c := range all {
		w.close(c)
	}
	w.carrying.Wait()
}

// whose finds the broker at the other end of a connection on this machine; 0: it is gone.
func (w *wires) whose(c net.Conn) int {
	local := c.RemoteAddr().(*net.TCPAddr) // as its owner sees it
	remote := c.LocalAddr().(*net.TCPAddr)
	tick := time.NewTicker(whoseEvery)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < whoseTimeout; <-tick.C {
		if inode := socketInode(local, remote); inode != "" {
			if n := w.owner(inode); n != 0 {
				return n
			}
		}
	}
	return 0
}

// socketInode finds the inode of a socket on this machine, or nothing.
func socketInode(local, remote *net.TCPAddr) string {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return ""
	}
	at := procAddress(local) + " " + procAddress(remote) + " "
	for line := range strings.Lines(string(table)) {
		if _, rest, found := strings.Cut(line, at); found {
			if fields := strings.Fields(rest); len(fields) > 6 && fields[6] != "0" {
				return fields[6]
			}
		}
	}
	return ""
}

// procAddress is an IPv4 address as /proc/net/tcp has it.
func procAddress(a *net.TCPAddr) string {
	ip := a.IP.To4()
	return fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], a.Port)
}

// holds reports whether a process has a socket open.
func holds(pid int, inode string) bool {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && to == "socket:["+inode+"]" {
			return true
		}
	}
	return false
}
