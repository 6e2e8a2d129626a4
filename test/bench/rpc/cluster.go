package rpc

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"
)

// Cluster is a connection to each broker of a cluster, for one goroutine.
type Cluster struct {
	// Replicas are of each topic that is made, and InSync its min.insync.replicas.
	Replicas, InSync int
	conns            []*Conn
	at               map[string]*Conn // by address
}

// DialCluster connects to all brokers, and waits until the first one tells clients of all.
func DialCluster(ctx context.Context, addrs []string, replicas, inSync int) (*Cluster, error) {
	c := &Cluster{Replicas: replicas, InSync: inSync, at: make(map[string]*Conn)}
	for _, addr := range addrs {
		conn, err := Dial(ctx, addr)
		if err != nil {
			c.Close()
			return nil, err
		}
		c.conns, c.at[addr] = append(c.conns, conn), conn
	}
	err := c.conns[0].Retry(ctx, func() error {
		m, err := c.metadata(nil)
		if err == nil && len(m.Brokers) < len(addrs) {
			err = fmt.Errorf("%d brokers of %d are there: %w", len(m.Brokers), len(addrs), kerr.BrokerNotAvailable)
		}
		return err
	})
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close closes all connections.
func (c *Cluster) Close() {
	for _, conn := range c.conns {
		conn.Close()
	}
}

// metadata asks the first broker about a topic, or about none.
func (c *Cluster) metadata(topic *string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.Topics = 12, []kmsg.MetadataRequestTopic{}
	if topic != nil {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = topic
		req.Topics = append(req.Topics, rt)
	}
	return Ask[*kmsg.MetadataResponse](c.conns[0], req, Patience)
}

// CreateTopic makes a topic, as Conn does, and waits until all its partitions are served
// by their leaders.
func (c *Cluster) CreateTopic(ctx context.Context, name string, partitions int, settings ...string) (Topic, error) {
	settings = append(slices.Clone(settings), "min.insync.replicas", strconv.Itoa(c.InSync))
	t, err := c.conns[0].create(ctx, name, partitions, c.Replicas, settings)
	if err != nil {
		return t, err
	}
	return t, c.conns[0].Retry(ctx, func() error {
		if t.Leaders == nil {
			if t.Leaders, err = c.leaders(t); err != nil {
				return err
			}
		}
		if _, err = c.EndOffsets(t); err != nil {
			t.Leaders = nil
		}
		return err
	})
}

// leaders are the addresses of those of each partition.
func (c *Cluster) leaders(t Topic) ([]string, error) {
	m, err := c.metadata(&t.Name)
	if err != nil {
		return nil, err
	}
	addrs := make(map[int32]string)
	for _, b := range m.Brokers {
		addrs[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	if err := kerr.ErrorForCode(m.Topics[0].ErrorCode); err != nil {
		return nil, fmt.Errorf("leaders of %s: %w", t.Name, err)
	}
	leaders := make([]string, t.Partitions)
	for _, p := range m.Topics[0].Partitions {
		if p.ErrorCode == 0 && int(p.Partition) < len(leaders) {
			leaders[p.Partition] = addrs[p.Leader]
		}
	}
	for p, addr := range leaders {
		if c.at[addr] == nil {
			return nil, fmt.Errorf("leader of %s-%d, at %q: %w", t.Name, p, addr, kerr.LeaderNotAvailable)
		}
	}
	return leaders, nil
}

// DeleteTopic deletes it. What its files take may be given back later.
func (c *Cluster) DeleteTopic(t Topic) error { return c.conns[0].DeleteTopic(t) }

// EndOffsets says where each partition ends.
func (c *Cluster) EndOffsets(t Topic) ([]int64, error) {
	ends := make([]int64, t.Partitions)
	return ends, c.each(t, func(conn *Conn, led []int32) error { return conn.endOffsets(t, led, ends) })
}

// ProduceAll has the batch acknowledged in every partition, by all leaders at once.
func (c *Cluster) ProduceAll(ctx context.Context, t Topic, batch []byte) error {
	return c.each(t, func(conn *Conn, led []int32) error { return conn.produce(ctx, t, led, batch) })
}

// each asks all leaders at once, each for what it leads.
func (c *Cluster) each(t Topic, ask func(conn *Conn, led []int32) error) error {
	led := make(map[string][]int32)
	for p, addr := range t.Leaders {
		led[addr] = append(led[addr], int32(p))
	}
	var g errgroup.Group
	for addr, partitions := range led {
		g.Go(func() error { return ask(c.at[addr], partitions) })
	}
	return g.Wait()
}
