package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// saramaLibrary is sarama, which speaks the protocol as of a version that it is told.
func saramaLibrary(version sarama.KafkaVersion) library {
	at := saramaAt{version}
	return library{
		version: moduleVersion("github.com/IBM/sarama"),
		produce: at.produce, consume: at.consume, member: at.member, admin: at.administer,
	}
}

// saramaAt is sarama at a version of the protocol.
type saramaAt struct{ version sarama.KafkaVersion }

func (at saramaAt) config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = at.version
	c.ClientID = "brokerd-test"
	return c
}

// saramaPartitioner leaves records where they were placed, and hashes the keys of
// others.
type saramaPartitioner struct{ hashed sarama.Partitioner }

func newSaramaPartitioner(topic string) sarama.Partitioner {
	return saramaPartitioner{sarama.NewHashPartitioner(topic)}
}

// Partition is sarama.Partitioner.
func (p saramaPartitioner) Partition(m *sarama.ProducerMessage, n int32) (int32, error) {
	if placed, _ := m.Metadata.(bool); placed {
		return 0, nil
	}
	return p.hashed.Partition(m, n)
}

// RequiresConsistency is sarama.Partitioner.
func (saramaPartitioner) RequiresConsistency() bool { return true }

func (at saramaAt) produce(_ context.Context, o options) error {
	c := at.config()
	if err := c.Producer.Compression.UnmarshalText([]byte(o.codec)); err != nil {
		return err
	}
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = newSaramaPartitioner
	if o.idempotent {
		c.Producer.Idempotent = true
		c.Net.MaxOpenRequests = 1
	}
	p, err := sarama.NewSyncProducer(o.brokers(), c)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	var all []*sarama.ProducerMessage
	for _, r := range o.records() {
		m := &sarama.ProducerMessage{Topic: o.topic, Key: sarama.ByteEncoder(r.key), Value: sarama.ByteEncoder(r.value),
			Timestamp: r.at, Metadata: r.placed}
		for _, h := range r.headers {
			m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h[0]), Value: []byte(h[1])})
		}
		all = append(all, m)
	}
	return p.SendMessages(all)
}

func (at saramaAt) consume(_ context.Context, o options, out *output) error {
	c, err := sarama.NewConsumer(o.brokers(), at.config())
	if err != nil {
		return err
	}
	partitions, err := c.Partitions(o.topic)
	if err != nil {
		return err
	}
	messages := make(chan *sarama.ConsumerMessage)
	for _, p := range partitions {
		pc, err := c.ConsumePartition(o.topic, p, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		go func() {
			for m := range pc.Messages() {
				messages <- m
			}
		}()
	}
	for range o.count {
		saramaPrint(<-messages, out)
	}
	return nil // the program ends, and its consumers with it
}

func saramaPrint(m *sarama.ConsumerMessage, out *output) {
	var headers [][2]string
	for _, h := range m.Headers {
		headers = append(headers, [2]string{string(h.Key), string(h.Value)})
	}
	out.record(m.Partition, m.Offset, m.Key, m.Value, headers, m.Timestamp.UnixMilli())
}

// saramaHandler is a member's work. A claim is a partition that the member has: a
// session is one generation, or all of them when rebalances are cooperative.
type saramaHandler struct {
	o     options
	out   *output
	admin sarama.ClusterAdmin

	mu  sync.Mutex
	has map[int32]bool
}

// saramaRetry is how soon a commit that was refused is tried again.
const saramaRetry = 200 * time.Millisecond

// change tells what the member has, now that it has or has lost a partition.
func (h *saramaHandler) change(partition int32, has bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if has {
		h.has[partition] = true
	} else {
		delete(h.has, partition)
	}
	h.out.assigned(h.has)
}

// Setup is sarama.ConsumerGroupHandler.
func (h *saramaHandler) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup is sarama.ConsumerGroupHandler.
func (h *saramaHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim is sarama.ConsumerGroupHandler.
func (h *saramaHandler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	h.change(claim.Partition(), true)
	defer h.change(claim.Partition(), false)
	retry := time.NewTicker(saramaRetry)
	defer retry.Stop()
	next := int64(-1) // to be committed
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				return nil // the claim is over
			}
			next = h.work(s, claim, m)
		case <-retry.C:
		case <-s.Context().Done():
			return nil
		}
		// A rebalance may have refused it.
		if next >= 0 {
			s.Commit()
			if h.tellCommitted(claim.Partition()) >= next {
				next = -1
			}
		}
	}
}

// work prints a message and those that are there behind it, and marks the last. It
// returns what is then to be committed.
func (h *saramaHandler) work(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) int64 {
	saramaPrint(m, h.out)
	for len(claim.Messages()) > 0 {
		another, ok := <-claim.Messages()
		if !ok {
			break
		}
		m = another
		saramaPrint(m, h.out)
	}
	s.MarkMessage(m, "")
	return m.Offset + 1
}

// tellCommitted prints what is committed: Commit has no answer, so that it is asked
// for. It returns that, or -1.
func (h *saramaHandler) tellCommitted(partition int32) int64 {
	got, err := h.admin.ListConsumerGroupOffsets(h.o.group, map[string][]int32{h.o.topic: {partition}})
	if err != nil {
		logf("list offsets of the group: %v", err)
		return -1
	}
	b := got.GetBlock(h.o.topic, partition)
	if b == nil || b.Err != sarama.ErrNoError || b.Offset < 0 {
		return -1
	}
	h.out.committed(partition, b.Offset)
	return b.Offset
}

func (at saramaAt) member(ctx context.Context, o options, out *output) error {
	sarama.Logger = log.New(os.Stderr, "", log.LstdFlags)
	c := at.config()
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Return.Errors = true
	c.Consumer.Group.Session.Timeout = sessionTimeout
	c.Consumer.Group.Heartbeat.Interval = heartbeatInterval
	c.Consumer.Group.Rebalance.Timeout = rebalanceTimeout
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	if o.cooperative {
		c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
	}
	c.Consumer.Group.InstanceId = o.instance
	client, err := sarama.NewClient(o.brokers(), c)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return err
	}
	g, err := sarama.NewConsumerGroupFromClient(o.group, client)
	if err != nil {
		return err
	}
	go func() {
		for err := range g.Errors() {
			logf("group: %v", err)
		}
	}()
	h := &saramaHandler{o: o, out: out, admin: admin, has: make(map[int32]bool)}
	for ctx.Err() == nil {
		if err := g.Consume(ctx, []string{o.topic}, h); err != nil {
			logf("consume: %v", err)
		}
	}
	return g.Close()
}

func (at saramaAt) administer(ctx context.Context, o options, out *output) error {
	a, err := sarama.NewClusterAdmin(o.brokers(), at.config())
	if err != nil {
		return err
	}
	defer func() { _ = a.Close() }()
	client, err := sarama.NewClient(o.brokers(), at.config())
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	all := administrator{
		cluster: func(context.Context) (int, error) {
			brokers, controller, err := a.DescribeCluster()
			if err == nil && controller < 0 {
				err = errors.New("no controller")
			}
			return len(brokers), err
		},
		offsets: func(_ context.Context, topic string, partition int32) (int64, int64, error) {
			start, err1 := client.GetOffset(topic, partition, sarama.OffsetOldest)
			end, err2 := client.GetOffset(topic, partition, sarama.OffsetNewest)
			return start, end, errors.Join(err1, err2)
		},
		deleteRecords: func(_ context.Context, topic string, partition int32, before int64) error {
			return a.DeleteRecords(topic, map[int32]int64{partition: before})
		},
		more: saramaMore(a),
	}
	saramaTopics(a, &all)
	saramaGroups(a, &all)
	return all.run(ctx, o, out, at.produce)
}

func saramaTopics(a sarama.ClusterAdmin, all *administrator) {
	all.createTopic = func(_ context.Context, topic string, partitions int, configs map[string]string) error {
		values := make(map[string]*string)
		for k, v := range configs {
			values[k] = &v
		}
		return a.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: -1, ConfigEntries: values}, false)
	}
	all.topics = func(context.Context) ([]string, error) {
		got, err := a.ListTopics()
		return slices.Collect(maps.Keys(got)), err
	}
	all.partitions = func(_ context.Context, topic string) (int, error) {
		got, err := a.DescribeTopics([]string{topic})
		if err != nil {
			return 0, err
		}
		if len(got) != 1 || got[0].Err != sarama.ErrNoError {
			return 0, fmt.Errorf("the answer is %+v", got)
		}
		return len(got[0].Partitions), nil
	}
	all.config = func(_ context.Context, topic, name string) (string, error) {
		got, err := a.DescribeConfigs([]*sarama.ConfigResource{{Type: sarama.TopicResource, Name: topic}}, sarama.DescribeConfigsOptions{})
		if err != nil {
			return "", err
		}
		if len(got) != 1 || got[0].ErrorCode != sarama.ErrNoError {
			return "", fmt.Errorf("the answer is %+v", got)
		}
		for _, c := range got[0].Configs {
			if c.Name == name {
				return c.Value, nil
			}
		}
		return "", nil
	}
	all.alterConfig = func(_ context.Context, topic, name, value string) error {
		return a.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{
			name: {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}}, false)
	}
	all.grow = func(_ context.Context, topic string, partitions int) error {
		return a.CreatePartitions(topic, int32(partitions), nil, false)
	}
	all.deleteTopic = func(_ context.Context, topic string) error { return a.DeleteTopic(topic) }
}

func saramaGroups(a sarama.ClusterAdmin, all *administrator) {
	all.commit = func(_ context.Context, group, topic string, partition int32, offset int64) error {
		got, err := a.AlterConsumerGroupOffsets(group, map[string]map[int32]sarama.OffsetAndMetadata{
			topic: {partition: {Offset: offset, LeaderEpoch: -1}}}, nil)
		if err != nil {
			return err
		}
		if e := got.Errors[topic][partition]; e != sarama.ErrNoError {
			return e
		}
		return nil
	}
	all.committed = func(_ context.Context, group, topic string, partition int32) (int64, error) {
		got, err := a.ListConsumerGroupOffsets(group, map[string][]int32{topic: {partition}})
		if err != nil {
			return 0, err
		}
		b := got.GetBlock(topic, partition)
		if b == nil || b.Err != sarama.ErrNoError {
			return 0, fmt.Errorf("the answer is %+v", b)
		}
		return b.Offset, nil
	}
	all.deleteOffset = func(_ context.Context, group, topic string, partition int32) error {
		return a.DeleteConsumerGroupOffset(group, topic, partition)
	}
	all.groups = func(context.Context) ([]string, error) {
		got, err := a.ListConsumerGroups()
		return slices.Collect(maps.Keys(got)), err
	}
	all.groupState = func(_ context.Context, group string) (string, error) {
		got, err := a.DescribeConsumerGroups([]string{group})
		if err != nil {
			return "", err
		}
		if len(got) != 1 || got[0].Err != sarama.ErrNoError {
			return "", fmt.Errorf("the answer is %+v", got)
		}
		return got[0].State, nil
	}
	all.deleteGroup = func(_ context.Context, group string) error { return a.DeleteConsumerGroup(group) }
}

// saramaMore are calls whose answers on a plain broker are known.
func saramaMore(a sarama.ClusterAdmin) map[string]func(context.Context, string) error {
	return map[string]func(context.Context, string) error{
		"describe_log_dirs": func(_ context.Context, topic string) error {
			_, controller, err := a.DescribeCluster()
			if err != nil {
				return err
			}
			got, err := a.DescribeLogDirs([]int32{controller})
			found := false
			for _, d := range got[controller] {
				for _, t := range d.Topics {
					found = found || t.Topic == topic
				}
			}
			return same("the topic has a log", found, true, err)
		},
		"list_partition_reassignments": func(_ context.Context, topic string) error {
			got, err := a.ListPartitionReassignments(topic, []int32{0})
			return same("reassignments", len(got[topic]), 0, err)
		},
		"describe_client_quotas": func(context.Context, string) error {
			got, err := a.DescribeClientQuotas([]sarama.QuotaFilterComponent{{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchAny}}, false)
			return same("quotas", len(got), 0, err)
		},
		"describe_user_scrams": func(context.Context, string) error {
			got, err := a.DescribeUserScramCredentials(nil)
			return same("users", len(got), 0, err)
		},
		"elect_leaders": func(_ context.Context, topic string) error {
			got, err := a.ElectLeaders(sarama.PreferredElection, map[string][]int32{topic: {0}})
			if err != nil {
				return err
			}
			r := got[topic][0]
			if r == nil {
				return errors.New("no answer for the partition")
			}
			return same("error", r.ErrorCode, sarama.ErrElectionNotNeeded, nil)
		},
		"list_acls": func(context.Context, string) error {
			_, err := a.ListAcls(sarama.AclFilter{ResourceType: sarama.AclResourceAny, ResourcePatternTypeFilter: sarama.AclPatternAny,
				PermissionType: sarama.AclPermissionAny, Operation: sarama.AclOperationAny})
			return answered(err, sarama.ErrSecurityDisabled)
		},
	}
}
