package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/test/rig"
)

// startTimeout is how long a broker may take to answer its first request.
const startTimeout = rig.StartTimeout

// broker is a brokerd that is started as a user starts it, and may be stopped,
// killed and started again on the same data and port. It belongs to the test's
// goroutine.
type broker struct {
	t     *testing.T
	dir   string
	port  int
	args  []string
	env   []string // NAME=value: settings of this broker
	admin int      // port of the admin listener, of one that is watched
	// brokers is how many it is, with ports from port on; 0: one.
	brokers int
	// settings are those of a broker that is started as on a server, without dev.
	settings []string
	life     rig.Broker
}

// startBroker starts a broker on an empty data directory and waits until it
// answers. It is stopped when the test ends.
func startBroker(t *testing.T, args ...string) *broker {
	t.Helper()
	return startBrokerOn(t, t.TempDir(), nil, args...)
}

// startBrokerOn starts a broker on the given data directory, with settings in
// its environment.
func startBrokerOn(t *testing.T, dir string, env []string, args ...string) *broker {
	t.Helper()
	b := newBroker(t, dir, args...)
	b.env = env
	b.start()
	return b
}

// newBroker makes a broker that is yet to be started. Whatever becomes of it, it
// is gone when the test ends.
func newBroker(t *testing.T, dir string, args ...string) *broker {
	t.Helper()
	b := &broker{t: t, dir: dir, port: freePort(t), args: args}
	b.life.Output = filepath.Clean(dir) + ".log"
	t.Cleanup(b.stop)
	return b
}

// addr is the bootstrap address, or those of all brokers with commas between.
func (b *broker) addr() string {
	addr := "127.0.0.1:" + strconv.Itoa(b.port)
	for i := 1; i < b.brokers; i++ {
		addr += ",127.0.0.1:" + strconv.Itoa(b.port+i)
	}
	return addr
}

// start starts the process and waits until it answers.
func (b *broker) start() {
	b.t.Helper()
	b.launch()
	b.waitReady()
}

// launch starts the process and returns at once.
func (b *broker) launch() {
	b.t.Helper()
	path, err := executable()
	if err != nil {
		b.t.Fatal(err)
	}
	args := append([]string{"dev", "--data", b.dir, "--port", strconv.Itoa(b.port)}, b.args...)
	if b.settings != nil {
		args = rig.Set(b.settings)
	}
	b.life.Program, b.life.Args, b.life.Env = path, args, slices.Concat(carriedEnv(), b.env)
	if err := b.life.Launch(); err != nil {
		b.t.Fatal(err)
	}
}

// waitReady waits until the broker answers a client; a broker that ended is not
// waited for.
func (b *broker) waitReady() {
	b.t.Helper()
	if err := b.life.Ready(b.t.Context(), strings.Split(b.addr(), ","), 1); err != nil {
		b.t.Fatal(err)
	}
}

// kill sends SIGKILL and reaps the process.
func (b *broker) kill() { b.life.Kill() }

// stop sends SIGTERM, waits, and fails the test when the broker did not end
// well in time. A broker that does not run is stopped.
func (b *broker) stop() {
	b.t.Helper()
	if err := b.life.Stop(); err != nil {
		b.t.Error(err)
	}
}

// pid is the broker's process.
func (b *broker) pid() int {
	b.t.Helper()
	if !b.life.Running() {
		b.t.Fatal("the broker does not run")
	}
	return b.life.Pid()
}

// plugins are the processes that the broker started.
func (b *broker) plugins() []int { return rig.Children(b.pid()) }

// output is all that the broker printed, in all its lives.
func (b *broker) output() string { return b.life.Printed() }

// tail is the end of what the broker printed.
func (b *broker) tail() string { return b.life.Tail() }

// waitUnheld waits until nobody holds the data of a killed broker: its plugins
// must end by themselves. (FR-77)
func waitUnheld(t *testing.T, b *broker) {
	t.Helper()
	err := eventually(testContext(t, 5*time.Second), func() error {
		if left := rig.Holders(b.dir); len(left) > 0 {
			return fmt.Errorf("processes %v hold its data", left)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("plugins outlived their killed broker: %v", err)
	}
}
