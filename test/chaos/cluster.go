package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	brokers    = 3
	topicName  = "load"
	partitions = 3
	pollEvery  = 20 * time.Millisecond
	askTimeout = 2 * time.Second
)

// cluster is three brokers and who asks them.
type cluster struct {
	nodes []*node // broker n is at n-1
	between
	disks  *disks // or nil
	ledger *ledger
	asking *kgo.Client
}

func newCluster(executable, dir string, l *ledger) (*cluster, error) {
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("a secret of this run that is long enough to be one"), 0o600); err != nil {
		return nil, err
	}
	c := &cluster{ledger: l}
	var err error
	if c.between, err = newBetween(c.owner); err != nil {
		return nil, err
	}
	for n := 1; n <= brokers; n++ {
		b, err := newNode(n, executable, dir, secret, c.between)
		if err != nil {
			return nil, err
		}
		b.exits = func(n int, err error, tail string) {
			if b.disk == nil || !ofBrokenDisk(tail) {
				l.violate(exited, "broker %d: %v\n%s", n, err, tail)
			}
		}
		c.nodes = append(c.nodes, b)
	}
	c.asking, err = newClient(c.addrs(), kgo.RequestRetries(0))
	return c, err
}

func (c *cluster) owner(inode string) int {
	for _, b := range c.nodes {
		if b.owns(inode) {
			return b.n
		}
	}
	return 0
}

func (c *cluster) addrs() []string {
	var out []string
	for _, b := range c.nodes {
		out = append(out, b.clients)
	}
	return out
}

func (c *cluster) node(n int) *node { return c.nodes[n-1] }

// seedAll has each broker know of all.
func (c *cluster) seedAll() {
	for _, b := range c.nodes {
		for _, other := range c.nodes {
			b.seeds = append(b.seeds, other.reached)
		}
	}
}

func (c *cluster) startAll() error {
	for _, b := range c.nodes {
		if err := b.start(); err != nil {
			return err
		}
	}
	return nil
}

// stop ends all processes.
func (c *cluster) stop() {
	for _, b := range c.nodes {
		b.dismiss()
	}
	for _, b := range c.nodes {
		b.watched.Wait()
	}
	c.between.stop()
	c.asking.Close()
	if err := c.removeDisks(); err != nil {
		say(os.Stderr, "remove the disks: %v\n", err)
	}
}

// eventually waits until f returns nil; its error is f's last one.
func eventually(timeout time.Duration, f func() error) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		err := f()
		if err == nil {
			return nil
		}
		if time.Since(began) > timeout {
			return fmt.Errorf("not within %s: %w", timeout, err)
		}
	}
}

// every calls f again and again, the first time after a period, until ctx ends.
func every(ctx context.Context, period time.Duration, f func()) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f()
		}
	}
}

// ask sends a request to any broker that answers, or to the one named.
func ask[T kmsg.Response](c *cluster, n int, req kmsg.Request) (T, error) {
	var none T
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	var errs error
	for i, b := range c.asking.SeedBrokers() {
		if n != 0 && i != n-1 {
			continue
		}
		one, cancel := context.WithTimeout(ctx, askTimeout/4)
		resp, err := b.Request(one, req)
		cancel()
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		return resp.(T), nil
	}
	return none, fmt.Errorf("nobody answers: %w", errs)
}

// state is where the topic's partitions are.
type state struct {
	clusterID string
	leaders   []int
	isr       [][]int32
	replicas  [][]int32
	brokers   int
}

// state asks a broker, or any where n is 0. Where there is no topic, it still tells of the
// cluster.
func (c *cluster) state(n int) (state, error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	topic := topicName
	t.Topic = &topic
	req.Topics = append(req.Topics, t)
	resp, err := ask[*kmsg.MetadataResponse](c, n, req)
	if err != nil {
		return state{}, err
	}
	s := state{brokers: len(resp.Brokers)}
	if resp.ClusterID != nil {
		s.clusterID = *resp.ClusterID
	}
	if len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != 0 {
		return s, fmt.Errorf("there is no topic %s", topicName)
	}
	count := len(resp.Topics[0].Partitions)
	s.leaders, s.isr, s.replicas = make([]int, count), make([][]int32, count), make([][]int32, count)
	for _, p := range resp.Topics[0].Partitions {
		s.leaders[p.Partition], s.isr[p.Partition], s.replicas[p.Partition] = int(p.Leader), p.ISR, p.Replicas
	}
	return s, nil
}

// awaitInSync waits until each partition has a leader and a replica in sync on each broker, as
// every broker says that runs.
func (c *cluster) awaitInSync() error {
	return eventually(inSyncMax, func() error {
		for _, b := range c.nodes {
			if b.pid() == 0 {
				continue
			}
			s, err := c.state(b.n)
			if err != nil {
				return fmt.Errorf("broker %d: %w", b.n, err)
			}
			for p, isr := range s.isr {
				if len(isr) != brokers || s.leaders[p] < 0 {
					return fmt.Errorf("broker %d: partition %d has leader %d and %v in sync of %v", b.n, p, s.leaders[p], isr, s.replicas[p])
				}
			}
		}
		return nil
	})
}

// quorum is who leads it, and the directory of each broker that votes.
type quorum struct {
	leader int
	voters map[int][16]byte
}

// quorum asks for the quorum.
func (c *cluster) quorum() (quorum, error) {
	req := kmsg.NewPtrDescribeQuorumRequest()
	topic, partition := kmsg.NewDescribeQuorumRequestTopic(), kmsg.NewDescribeQuorumRequestTopicPartition()
	topic.Topic, topic.Partitions = "__cluster_metadata", append(topic.Partitions, partition)
	req.Topics = append(req.Topics, topic)
	resp, err := ask[*kmsg.DescribeQuorumResponse](c, 0, req)
	if err != nil {
		return quorum{}, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		return quorum{}, fmt.Errorf("nobody tells of the quorum: error %d", resp.ErrorCode)
	}
	p := resp.Topics[0].Partitions[0]
	q := quorum{leader: int(p.LeaderID), voters: map[int][16]byte{}}
	for _, v := range p.CurrentVoters {
		q.voters[int(v.ReplicaID)] = v.ReplicaDirectoryID
	}
	return q, nil
}

// awaitVoters waits until all brokers vote.
func (c *cluster) awaitVoters() error {
	return eventually(inSyncMax, func() error {
		q, err := c.quorum()
		if err == nil && len(q.voters) != brokers {
			err = fmt.Errorf("%d brokers vote", len(q.voters))
		}
		return err
	})
}

// createTopic makes a topic with as many replicas as asked for, of which two must be in sync
// where there are three.
func (c *cluster) createTopic(replicas int16) error {
	minISR, forever := "2", "-1"
	if replicas < brokers {
		minISR = "1"
	}
	admin := kadm.NewClient(c.asking)
	return eventually(servedMax, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		defer cancel()
		_, err := admin.CreateTopic(ctx, partitions, replicas, map[string]*string{"retention.ms": &forever, "min.insync.replicas": &minISR}, topicName)
		return err
	})
}

// outputs says where each broker's output is.
func (c *cluster) outputs() string {
	out := ""
	for _, b := range c.nodes {
		out += " " + b.output
	}
	return out
}
