package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// franz is franz-go: kgo, and kadm for administration.
func franz() library {
	return library{
		version: moduleVersion("github.com/twmb/franz-go"),
		produce: franzProduce, consume: franzConsume, member: franzMember, admin: franzAdmin,
	}
}

// franzPoll is how long a member waits for records before it looks at what it has yet
// to commit.
const franzPoll = 200 * time.Millisecond

func franzProduce(ctx context.Context, o options) error {
	codec, ok := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[o.codec]
	if !ok {
		return fmt.Errorf("no codec %q", o.codec)
	}
	opts := []kgo.Opt{kgo.SeedBrokers(o.brokers()...), kgo.DefaultProduceTopic(o.topic), kgo.ProducerBatchCompression(codec),
		kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(franzPartition))}
	if !o.idempotent {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	c, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer c.Close()
	var rs []*kgo.Record
	for _, r := range o.records() {
		rec := &kgo.Record{Key: r.key, Value: r.value, Timestamp: r.at, Partition: -1}
		if r.placed {
			rec.Partition = 0
		}
		for _, h := range r.headers {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h[0], Value: []byte(h[1])})
		}
		rs = append(rs, rec)
	}
	return c.ProduceSync(ctx, rs...).FirstErr()
}

// franzPartition leaves records where they were placed, and hashes the keys of
// others.
func franzPartition(topic string) func(r *kgo.Record, n int) int {
	hashed := kgo.StickyKeyPartitioner(nil).ForTopic(topic)
	return func(r *kgo.Record, n int) int {
		if r.Partition >= 0 {
			return int(r.Partition)
		}
		return hashed.Partition(r, n)
	}
}

func franzConsume(ctx context.Context, o options, out *output) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(o.brokers()...), kgo.ConsumeTopics(o.topic))
	if err != nil {
		return err
	}
	defer c.Close()
	for n := 0; n < o.count; {
		fetches := c.PollRecords(ctx, o.count-n)
		if err := fetches.Err(); err != nil {
			return err
		}
		n += fetches.NumRecords()
		fetches.EachRecord(func(r *kgo.Record) { franzPrint(r, out) })
	}
	return nil
}

func franzPrint(r *kgo.Record, out *output) {
	var headers [][2]string
	for _, h := range r.Headers {
		headers = append(headers, [2]string{h.Key, string(h.Value)})
	}
	out.record(r.Partition, r.Offset, r.Key, r.Value, headers, r.Timestamp.UnixMilli())
}

// franzAssignment prints what a member has when it changes, and keeps what it has yet
// to commit.
type franzAssignment struct {
	mu      sync.Mutex
	has     map[int32]bool
	pending map[int32]*kgo.Record // the last record of each partition
	out     *output
}

func (a *franzAssignment) change(topics map[string][]int32, has bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, partitions := range topics {
		for _, p := range partitions {
			if has {
				a.has[p] = true
			} else {
				delete(a.has, p)
				delete(a.pending, p)
			}
		}
	}
	a.out.assigned(a.has)
}

// worked prints records and keeps them for the next commit.
func (a *franzAssignment) worked(r *kgo.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	franzPrint(r, a.out)
	a.pending[r.Partition] = r
}

// commit commits what is pending. What is refused during a rebalance stays pending:
// the member may keep the partition, and its position in it.
func (a *franzAssignment) commit(ctx context.Context, c *kgo.Client) {
	a.mu.Lock()
	last := slices.Collect(maps.Values(a.pending))
	a.mu.Unlock()
	if len(last) == 0 {
		return
	}
	if err := c.CommitRecords(ctx, last...); err != nil {
		logf("commit: %v", err)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range last {
		a.out.committed(r.Partition, r.Offset+1)
		delete(a.pending, r.Partition)
	}
}

func franzMember(ctx context.Context, o options, out *output) error {
	a := &franzAssignment{has: make(map[int32]bool), pending: make(map[int32]*kgo.Record), out: out}
	added := func(_ context.Context, _ *kgo.Client, topics map[string][]int32) { a.change(topics, true) }
	lost := func(_ context.Context, _ *kgo.Client, topics map[string][]int32) { a.change(topics, false) }
	balancer := kgo.RangeBalancer()
	if o.cooperative {
		balancer = kgo.CooperativeStickyBalancer()
	}
	opts := []kgo.Opt{kgo.SeedBrokers(o.brokers()...), kgo.ConsumerGroup(o.group), kgo.ConsumeTopics(o.topic), kgo.Balancers(balancer),
		kgo.SessionTimeout(sessionTimeout), kgo.HeartbeatInterval(heartbeatInterval), kgo.RebalanceTimeout(rebalanceTimeout),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(added), kgo.OnPartitionsRevoked(lost), kgo.OnPartitionsLost(lost)}
	if o.instance != "" {
		opts = append(opts, kgo.InstanceID(o.instance))
	}
	c, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer c.CloseAllowingRebalance()
	for {
		soon, cancel := context.WithTimeout(ctx, franzPoll)
		fetches := c.PollFetches(soon)
		fetches.EachError(func(_ string, p int32, err error) {
			if soon.Err() == nil {
				logf("fetch of partition %d: %v", p, err)
			}
		})
		cancel()
		fetches.EachRecord(a.worked)
		a.commit(context.WithoutCancel(ctx), c)
		c.AllowRebalance()
		if ctx.Err() != nil {
			return nil
		}
	}
}

func franzAdmin(ctx context.Context, o options, out *output) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(o.brokers()...))
	if err != nil {
		return err
	}
	defer c.Close()
	a := kadm.NewClient(c)
	all := administrator{
		cluster: func(ctx context.Context) (int, error) {
			m, err := a.BrokerMetadata(ctx)
			if err == nil && (m.Cluster == "" || m.Controller < 0) {
				err = fmt.Errorf("cluster %q, controller %d", m.Cluster, m.Controller)
			}
			return len(m.Brokers), err
		},
		deleteRecords: func(ctx context.Context, topic string, partition int32, before int64) error {
			var to kadm.Offsets
			to.AddOffset(topic, partition, before, -1)
			got, err := a.DeleteRecords(ctx, to)
			return errors.Join(err, got.Error())
		},
		more: franzMore(a),
	}
	franzTopics(a, &all)
	franzGroups(a, &all)
	return all.run(ctx, o, out, franzProduce)
}

func franzTopics(a *kadm.Client, all *administrator) {
	all.createTopic = func(ctx context.Context, topic string, partitions int, configs map[string]string) error {
		values := make(map[string]*string)
		for k, v := range configs {
			values[k] = &v
		}
		_, err := a.CreateTopic(ctx, int32(partitions), -1, values, topic)
		return err
	}
	all.topics = func(ctx context.Context) ([]string, error) {
		got, err := a.ListTopics(ctx)
		return got.Names(), errors.Join(err, got.Error())
	}
	all.partitions = func(ctx context.Context, topic string) (int, error) {
		got, err := a.ListTopics(ctx, topic)
		return len(got[topic].Partitions), errors.Join(err, got.Error())
	}
	all.config = func(ctx context.Context, topic, name string) (string, error) {
		got, err := a.DescribeTopicConfigs(ctx, topic)
		if err != nil {
			return "", err
		}
		on, err := got.On(topic, nil)
		for _, c := range on.Configs {
			if c.Key == name {
				return c.MaybeValue(), errors.Join(err, on.Err)
			}
		}
		return "", errors.Join(err, on.Err)
	}
	all.alterConfig = func(ctx context.Context, topic, name, value string) error {
		got, err := a.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, topic)
		for _, g := range got {
			err = errors.Join(err, g.Err)
		}
		return err
	}
	all.grow = func(ctx context.Context, topic string, partitions int) error {
		got, err := a.UpdatePartitions(ctx, partitions, topic)
		return errors.Join(err, got.Error())
	}
	all.offsets = func(ctx context.Context, topic string, partition int32) (int64, int64, error) {
		start, err1 := a.ListStartOffsets(ctx, topic)
		end, err2 := a.ListEndOffsets(ctx, topic)
		s, _ := start.Lookup(topic, partition)
		e, _ := end.Lookup(topic, partition)
		return s.Offset, e.Offset, errors.Join(err1, err2, start.Error(), end.Error())
	}
	all.deleteTopic = func(ctx context.Context, topic string) error {
		_, err := a.DeleteTopic(ctx, topic)
		return err
	}
}

func franzGroups(a *kadm.Client, all *administrator) {
	all.commit = func(ctx context.Context, group, topic string, partition int32, offset int64) error {
		var to kadm.Offsets
		to.AddOffset(topic, partition, offset, -1)
		return a.CommitAllOffsets(ctx, group, to)
	}
	all.committed = func(ctx context.Context, group, topic string, partition int32) (int64, error) {
		got, err := a.FetchOffsetsForTopics(ctx, group, topic)
		at, ok := got.Lookup(topic, partition)
		if !ok {
			return -1, err
		}
		return at.At, errors.Join(err, at.Err)
	}
	all.deleteOffset = func(ctx context.Context, group, topic string, partition int32) error {
		var set kadm.TopicsSet
		set.Add(topic, partition)
		got, err := a.DeleteOffsets(ctx, group, set)
		return errors.Join(err, got.Error())
	}
	all.groups = func(ctx context.Context) ([]string, error) {
		got, err := a.ListGroups(ctx)
		return got.Groups(), err
	}
	all.groupState = func(ctx context.Context, group string) (string, error) {
		got, err := a.DescribeGroups(ctx, group)
		return got[group].State, errors.Join(err, got.Error())
	}
	all.deleteGroup = func(ctx context.Context, group string) error {
		_, err := a.DeleteGroup(ctx, group)
		return err
	}
}

// franzMore are calls whose answers on a plain broker are known, most of them
// empty.
func franzMore(a *kadm.Client) map[string]func(context.Context, string) error {
	type call = func(ctx context.Context, topic string) error
	return map[string]call{
		"describe_log_dirs": func(ctx context.Context, topic string) error {
			got, err := a.DescribeAllLogDirs(ctx, nil)
			found := false
			for _, broker := range got {
				err = errors.Join(err, broker.Error())
				p, ok := broker.LookupPartition(topic, 0)
				found = found || ok && p.Size > 0
			}
			return same("the topic's log has a size", found, true, err)
		},
		"describe_client_quotas": func(ctx context.Context, _ string) error {
			got, err := a.DescribeClientQuotas(ctx, false, []kadm.DescribeClientQuotaComponent{{Type: "user", MatchType: kmsg.QuotasMatchTypeAny}})
			return same("quotas", len(got), 0, err)
		},
		"describe_user_scrams": func(ctx context.Context, _ string) error {
			got, err := a.DescribeUserSCRAMs(ctx)
			return same("users", len(got), 0, err)
		},
		"list_partition_reassignments": func(ctx context.Context, _ string) error {
			got, err := a.ListPartitionReassignments(ctx, nil)
			return same("reassignments", len(got), 0, err)
		},
		"elect_leaders": func(ctx context.Context, topic string) error {
			var set kadm.TopicsSet
			set.Add(topic, 0)
			got, err := a.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
			if err != nil {
				return err
			}
			return answered(got[topic][0].Err, kerr.ElectionNotNeeded)
		},
		"describe_producers": func(ctx context.Context, topic string) error {
			var set kadm.TopicsSet
			set.Add(topic, 0)
			got, err := a.DescribeProducers(ctx, set)
			if err != nil {
				return err
			}
			return got[topic].Partitions[0].Err
		},
		"list_config_resources": func(ctx context.Context, topic string) error {
			got, err := a.ListConfigResources(ctx, kadm.ConfigResourceTopic)
			return same("the topic is listed", slices.Contains(got.Names(), topic), true, errors.Join(err, got.Err))
		},
		"describe_acls": func(ctx context.Context, _ string) error {
			got, err := a.DescribeACLs(ctx, kadm.NewACLs().AnyResource().Allow().AllowHosts().Operations(kadm.OpAny).ResourcePatternType(kadm.ACLPatternAny))
			for _, g := range got {
				err = errors.Join(err, g.Err)
			}
			return answered(err, kerr.SecurityDisabled)
		},
	}
}
