package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// outsideVariable names the descriptor of the network namespace that this program was started
// in, once it is in one of its own.
const outsideVariable = "BROKERD_CHAOS_OUTSIDE"

// threadNamespace is the network namespace of the thread that opens it.
const threadNamespace = "/proc/thread-self/ns/net"

// enterHub runs this program again, in a network namespace of its own, which is the hub of
// those of brokers: all that it does there ends with it. It returns where the program is there,
// or where that is not possible.
func enterHub() error {
	if inHub() {
		return ip("link set lo up")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return fmt.Errorf("there is no ip, of iproute2: %w", err)
	}
	outside, err := unix.Open("/proc/self/ns/net", unix.O_RDONLY, 0) // not closed by what follows
	if err != nil {
		return fmt.Errorf("open the network namespace: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // what it enters is this thread's, and so the program's that it becomes
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("make a network namespace (it needs root, or CAP_SYS_ADMIN): %w", err)
	}
	return fmt.Errorf("run %s in a network namespace: %w", self,
		unix.Exec(self, os.Args, append(os.Environ(), outsideVariable+"="+strconv.Itoa(outside))))
}

// inHub reports whether the program is in a namespace of its own.
func inHub() bool { return os.Getenv(outsideVariable) != "" }

// outside does something in the network that this program was started in, as builds that load
// modules: processes that are started in it stay there.
func outside(do func() error) error {
	fd, err := strconv.Atoi(os.Getenv(outsideVariable))
	if err != nil {
		return do()
	}
	return within(fd, do)
}

// within does something on a thread that is in a network namespace meanwhile.
func within(fd int, do func() error) error {
	return elsewhere(func() error { return unix.Setns(fd, unix.CLONE_NEWNET) }, do)
}

// withinNew does it in a namespace that is made for it.
func withinNew(do func() error) error {
	return elsewhere(func() error { return unix.Unshare(unix.CLONE_NEWNET) }, do)
}

// elsewhere does something on a thread that enter takes into another namespace, and takes the
// thread back.
func elsewhere(enter, do func() error) error {
	runtime.LockOSThread()
	own, err := os.Open(threadNamespace)
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer own.Close()
	if err := enter(); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter a network namespace: %w", err)
	}
	done := do()
	if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); err != nil {
		panic(fmt.Sprintf("leave a network namespace: %v", err)) // nothing on this thread would be right
	}
	runtime.UnlockOSThread()
	return done
}

// ip runs `ip` with a line of words.
func ip(format string, args ...any) error {
	line := fmt.Sprintf(format, args...)
	if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", line, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// namespaces are the network of the brokers: each has a namespace, whose only wire ends in the
// hub, where this program and all clients are, and which routes between them. A cut is a rule
// of the hub that drops what comes by a broker's wire for another one: neither end is told, and
// the kernels send again what was lost.
type namespaces struct {
	mu    sync.Mutex
	hosts map[int]*os.File // by broker
	rules []string         // that are there
}

// newNamespaces makes a network for so many brokers.
func newNamespaces(count int) (between, error) {
	s := &namespaces{hosts: map[int]*os.File{}}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return nil, fmt.Errorf("set up the hub: %w", err)
	}
	for n := 1; n <= count; n++ {
		if err := s.connect(n); err != nil {
			s.stop()
			return nil, fmt.Errorf("connect broker %d: %w", n, err)
		}
	}
	return s, nil
}

// connect makes a broker's namespace, and its wire.
func (s *namespaces) connect(n int) error {
	err := withinNew(func() error {
		f, err := os.Open(threadNamespace)
		if err == nil {
			s.hosts[n] = f
		}
		return err
	})
	if err != nil {
		return err
	}
	host := s.hosts[n]
	if err := errors.Join(
		ip("link add %s type veth peer name e0 netns %s", wireOf(n), filepath.Join("/proc", strconv.Itoa(os.Getpid()), "fd", strconv.Itoa(int(host.Fd())))),
		ip("addr add %s/24 dev %s", gatewayOf(n), wireOf(n)),
		ip("link set %s up", wireOf(n)),
	); err != nil {
		return err
	}
	return within(int(host.Fd()), func() error {
		return errors.Join(ip("link set lo up"), ip("addr add %s/24 dev e0", addressOf(n)), ip("link set e0 up"), ip("route add default via %s", gatewayOf(n)))
	})
}

func wireOf(n int) string    { return fmt.Sprintf("broker%d", n) }
func gatewayOf(n int) string { return fmt.Sprintf("10.77.%d.1", n) }
func addressOf(n int) string { return fmt.Sprintf("10.77.%d.2", n) }

// host implements between.
func (s *namespaces) host(n int) string { return addressOf(n) }

// reach implements between.
func (s *namespaces) reach(_ int, transport string) (string, error) { return transport, nil }

// start implements between.
func (s *namespaces) start(n int, cmd *exec.Cmd) error { return s.on(n, cmd.Start) }

// on does something where a broker's network is.
func (s *namespaces) on(n int, do func() error) error { return within(int(s.hosts[n].Fd()), do) }

// ended implements between.
func (s *namespaces) ended(int) {}

// sever implements between.
func (s *namespaces) sever(from, to int) error { return s.drop(from, to, "") }

// severPort implements between.
func (s *namespaces) severPort(from, to, port int) error {
	return errors.Join(s.drop(from, to, fmt.Sprintf("ipproto tcp dport %d", port)), s.drop(to, from, fmt.Sprintf("ipproto tcp sport %d", port)))
}

func (s *namespaces) drop(from, to int, what string) error {
	rule := strings.TrimSpace(fmt.Sprintf("iif %s to %s %s", wireOf(from), addressOf(to), what)) + " blackhole"
	if err := ip("rule add %s", rule); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, rule)
	return nil
}

// mend implements between. Connections go on where their ends have not given them up.
func (s *namespaces) mend(bool) (string, error) {
	s.mu.Lock()
	rules := s.rules
	s.rules = nil
	s.mu.Unlock()
	var err error
	for _, rule := range rules {
		err = errors.Join(err, ip("rule del %s", rule))
	}
	return "what was dropped was sent again", err
}

// stop implements between.
func (s *namespaces) stop() {
	_, _ = s.mend(false) // all of it goes with the hub
	for n, host := range s.hosts {
		_ = ip("link del %s", wireOf(n)) // it goes with the namespace, a moment later
		host.Close()
	}
}
