package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"os"
	"slices"

	"github.com/IBM/sarama"
)

// saramaLibrary is sarama, at its newest protocol version.
func saramaLibrary() library {
	return library{
		version: moduleVersion("github.com/IBM/sarama"),
		produce: saramaProduce, consume: saramaConsume, member: saramaMember, admin: saramaAdmin,
	}
}

func saramaConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
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

func saramaProduce(_ context.Context, o options) error {
	c := saramaConfig()
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
	p, err := sarama.NewSyncProducer([]string{o.bootstrap}, c)
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

func saramaConsume(_ context.Context, o options, out *output) error {
	c, err := sarama.NewConsumer([]string{o.bootstrap}, saramaConfig())
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

// saramaHandler is a member's work. Sessions are told of in full: a session is one
// generation.
type saramaHandler struct {
	o     options
	out   *output
	admin sarama.ClusterAdmin
}

// Setup is sarama.ConsumerGroupHandler.
func (h saramaHandler) Setup(s sarama.ConsumerGroupSession) error {
	has := make(map[int32]bool)
	for _, p := range s.Claims()[h.o.topic] {
		has[p] = true
	}
	h.out.assigned(has)
	return nil
}

// Cleanup is sarama.ConsumerGroupHandler.
func (h saramaHandler) Cleanup(sarama.ConsumerGroupSession) error {
	h.out.assigned(nil)
	return nil
}

// ConsumeClaim is sarama.ConsumerGroupHandler.
func (h saramaHandler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		var last *sarama.ConsumerMessage
		select {
		case last = <-claim.Messages():
		case <-s.Context().Done():
			return nil
		}
		if last == nil {
			return nil // the claim is over
		}
		saramaPrint(last, h.out)
		for len(claim.Messages()) > 0 {
			m, ok := <-claim.Messages()
			if !ok {
				break
			}
			saramaPrint(m, h.out)
			last = m
		}
		s.MarkMessage(last, "")
		s.Commit()
		h.tellCommitted(last.Partition)
	}
}

// tellCommitted prints what is committed: Commit has no answer, so that it is asked
// for.
func (h saramaHandler) tellCommitted(partition int32) {
	got, err := h.admin.ListConsumerGroupOffsets(h.o.group, map[string][]int32{h.o.topic: {partition}})
	if err != nil {
		logf("list offsets of the group: %v", err)
		return
	}
	if b := got.GetBlock(h.o.topic, partition); b != nil && b.Err == sarama.ErrNoError && b.Offset >= 0 {
		h.out.committed(partition, b.Offset)
	}
}

func saramaMember(ctx context.Context, o options, out *output) error {
	sarama.Logger = log.New(os.Stderr, "", log.LstdFlags)
	c := saramaConfig()
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Return.Errors = true
	c.Consumer.Group.Session.Timeout = sessionTimeout
	c.Consumer.Group.Heartbeat.Interval = heartbeatInterval
	c.Consumer.Group.Rebalance.Timeout = rebalanceTimeout
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	c.Consumer.Group.InstanceId = o.instance
	client, err := sarama.NewClient([]string{o.bootstrap}, c)
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
	for ctx.Err() == nil {
		if err := g.Consume(ctx, []string{o.topic}, saramaHandler{o, out, admin}); err != nil {
			logf("consume: %v", err)
		}
	}
	return g.Close()
}

func saramaAdmin(ctx context.Context, o options, out *output) error {
	a, err := sarama.NewClusterAdmin([]string{o.bootstrap}, saramaConfig())
	if err != nil {
		return err
	}
	defer func() { _ = a.Close() }()
	client, err := sarama.NewClient([]string{o.bootstrap}, saramaConfig())
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
	return all.run(ctx, o, out, saramaProduce)
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
