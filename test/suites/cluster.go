package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/brokerd/brokerd/test/ports"
	"github.com/brokerd/brokerd/test/rig"
)

// warmTimeout is how long the topic of committed offsets may take to be there.
const warmTimeout = time.Minute

// cluster is the brokers that run for one suite. Its brokers may be stopped and started
// by several goroutines.
type cluster struct {
	mu      sync.Mutex
	brokers []*broker
}

// startCluster starts a broker at each place, all at once, and waits until every one
// knows all. When one ends by itself, died is called.
func startCluster(ctx context.Context, executable, dir string, places []place, settings []string, died func(error)) (*cluster, error) {
	c := &cluster{}
	for n := 1; n <= len(places); n++ {
		c.brokers = append(c.brokers, newBroker(executable, dir, n, places, settings, died))
	}
	err := c.startAll(ctx)
	if err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *cluster) startAll(ctx context.Context) error {
	for _, b := range c.brokers {
		if err := b.Launch(); err != nil {
			return err
		}
	}
	for _, b := range c.brokers {
		if err := b.ready(ctx, len(c.brokers)); err != nil {
			return err
		}
	}
	return nil
}

// warm asks for a group, which makes the topic of committed offsets, and waits until it
// is there: some tests have no patience with a cluster that nobody has used.
func (c *cluster) warm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.brokers[0].bind.String()))
	if err != nil {
		return err
	}
	defer client.Close()
	admin, tick := kadm.NewClient(client), time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		_, err := admin.FetchOffsets(ctx, "warm-up")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no group can be asked for: %w", err)
		case <-tick.C:
		}
	}
}

// stopBroker stops a broker as its operator would.
func (c *cluster) stopBroker(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, err := c.broker(n)
	if err != nil {
		return err
	}
	return b.Stop()
}

// startBroker starts a broker again, unless it runs, and waits until it answers.
func (c *cluster) startBroker(ctx context.Context, n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, err := c.broker(n)
	if err != nil || b.Running() {
		return err
	}
	return errors.Join(b.Launch(), b.ready(ctx, 1))
}

func (c *cluster) broker(n int) (*broker, error) {
	if n < 1 || n > len(c.brokers) {
		return nil, fmt.Errorf("there is no broker %d", n)
	}
	return c.brokers[n-1], nil
}

// stop ends all brokers, at once, and says which did not end well.
func (c *cluster) stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return rig.StopAll(c.brokers)
}

// shout gives the lines that brokers logged as errors.
func (c *cluster) shout() []string {
	var found []string
	for i, b := range c.brokers {
		for _, line := range b.shout() {
			found = append(found, fmt.Sprintf("broker %d: %s", i+1, line))
		}
	}
	return found
}

// places finds places on loopback for so many brokers, which are advertised by the given
// name. With relayed, what is advertised is a port of its own, where a relay is to be.
func places(host string, brokers int, relayed bool) ([]place, error) {
	each := 2
	if relayed {
		each = 3
	}
	found, err := ports.Free(brokers * each)
	if err != nil {
		return nil, err
	}
	all := make([]place, brokers)
	for i := range all {
		bind := address{"127.0.0.1", found[i]}
		all[i] = place{
			bind: bind, advertised: address{host, bind.port},
			peers: fmt.Sprintf("127.0.0.1:%d", found[brokers+i]),
		}
		if relayed {
			all[i].advertised.port = found[2*brokers+i]
		}
	}
	return all, nil
}
