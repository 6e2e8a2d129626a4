package clients

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/brokerd/brokerd/test/ports"
	"github.com/brokerd/brokerd/test/rig"
)

// cluster is the brokers that cases run against: one, as `brokerd dev` starts it, or
// several. It belongs to one goroutine.
type cluster struct {
	brokers []*broker
}

// startCluster starts so many brokers below a directory and waits until each knows all.
// They advertise themselves at these addresses; nil: where they are.
func startCluster(dir string, ports []int, advertised []string) (*cluster, error) {
	program, err := suite.executable()
	if err != nil {
		return &cluster{}, err
	}
	c := &cluster{}
	n := len(ports) / portsEach
	for i := range n {
		data := filepath.Join(dir, fmt.Sprintf("broker-%d", i+1))
		b := &broker{Broker: rig.Broker{Program: program, Output: data + ".log"}, port: ports[i]}
		b.Args = []string{"dev", "--data", data, "--port", strconv.Itoa(b.port)}
		if n > 1 {
			b.Args = rig.Set(memberSettings(data, i, ports))
		}
		if advertised != nil {
			b.Args = append(b.Args, "--set", "advertised.listeners=PLAINTEXT://"+advertised[i])
		}
		c.brokers = append(c.brokers, b)
	}
	return c, c.start()
}

// memberSettings are those of one of several brokers.
func memberSettings(data string, i int, ports []int) []string {
	var seeds []string
	for _, port := range ports[len(ports)/portsEach:] {
		seeds = append(seeds, loopback(port))
	}
	member := rig.Member{
		Number: i + 1, Data: data, Clients: loopback(ports[i]), Peers: seeds[i], Seeds: seeds, Secret: "the brokers of these tests know it",
	}
	return member.Settings("group.initial.rebalance.delay.ms=0") // as with dev
}

// portsEach is how many ports a broker needs: for clients, and for the other brokers.
const portsEach = 2

func loopback(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// clusterPorts are free ports for as many brokers as the matrix has.
func clusterPorts() ([]int, error) { return ports.Free(suite.brokers * portsEach) }

// ownCluster is brokers for this case alone, which are stopped with it.
func (r *run) ownCluster() *cluster {
	r.Helper()
	ports, err := clusterPorts()
	if err != nil {
		r.Fatal(err)
	}
	return r.ownClusterAt(ports, nil)
}

func (r *run) ownClusterAt(ports []int, advertised []string) *cluster {
	r.Helper()
	if suite.bootstrap != "" {
		r.notRun("it needs brokers of its own")
	}
	c, err := startCluster(r.TempDir(), ports, advertised)
	r.Cleanup(func() {
		if err := c.stop(); err != nil {
			r.Errorf("%v", err)
		}
		if r.Failed() {
			r.Logf("%s", c.tail())
		}
	})
	if err != nil {
		r.Fatal(err)
	}
	return c
}

// start starts all brokers that do not run.
func (c *cluster) start() error {
	for _, b := range c.brokers {
		if err := b.Launch(); err != nil {
			return err
		}
	}
	for _, b := range c.brokers {
		if err := b.waitReady(len(c.brokers)); err != nil {
			return err
		}
	}
	return nil
}

// stop stops all that run, at once.
func (c *cluster) stop() error { return rig.StopAll(c.brokers) }

// killPlugins kills the plugins of every broker and waits until all have others.
func (c *cluster) killPlugins(ctx context.Context) error {
	for _, b := range c.brokers {
		if err := b.killPlugins(ctx); err != nil {
			return err
		}
	}
	return nil
}

// addr is the bootstrap addresses.
func (c *cluster) addr() string {
	var all []string
	for _, b := range c.brokers {
		all = append(all, b.addr())
	}
	return strings.Join(all, ",")
}

// living is the addresses of those that run.
func (c *cluster) living() string {
	var all []string
	for _, b := range c.brokers {
		if b.Running() {
			all = append(all, b.addr())
		}
	}
	return strings.Join(all, ",")
}

// tail is the end of what each broker printed.
func (c *cluster) tail() string {
	var all strings.Builder
	for i, b := range c.brokers {
		fmt.Fprintf(&all, "the log of broker %d:\n%s\n", i+1, b.Tail())
	}
	return all.String()
}
