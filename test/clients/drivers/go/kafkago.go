package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/segmentio/kafka-go"
)

// kafkaGo is segmentio/kafka-go: Writer, Reader, ConsumerGroup, and Client for
// administration.
func kafkaGo() library {
	return library{
		version: moduleVersion("github.com/segmentio/kafka-go"),
		produce: kafkaGoProduce, consume: kafkaGoConsume, member: kafkaGoMember, admin: kafkaGoAdmin,
	}
}

// kafkaGoWait is how long a fetch or a batch waits for more.
const kafkaGoWait = 200 * time.Millisecond

func kafkaGoProduce(ctx context.Context, o options) error {
	if o.idempotent {
		return errors.New("kafka-go has no idempotent producer")
	}
	w := &kafka.Writer{Addr: kafka.TCP(o.brokers()...), Topic: o.topic, RequiredAcks: kafka.RequireAll, BatchTimeout: kafkaGoWait}
	if o.codec != "none" {
		if err := w.Compression.UnmarshalText([]byte(o.codec)); err != nil {
			return err
		}
	}
	placed := make(map[string]bool)
	var all []kafka.Message
	for _, r := range o.records() {
		m := kafka.Message{Key: r.key, Value: r.value, Time: r.at}
		for _, h := range r.headers {
			m.Headers = append(m.Headers, kafka.Header{Key: h[0], Value: []byte(h[1])})
		}
		placed[string(r.key)] = r.placed
		all = append(all, m)
	}
	hashed := &kafka.Hash{Hasher: fnv.New32a()}
	w.Balancer = kafka.BalancerFunc(func(m kafka.Message, partitions ...int) int {
		if placed[string(m.Key)] {
			return 0
		}
		return hashed.Balance(m, partitions...)
	})
	if err := kafkaGoWriteError(w.WriteMessages(ctx, all...)); err != nil {
		return err
	}
	return w.Close()
}

// kafkaGoWriteError is the first error of those of each message.
func kafkaGoWriteError(err error) error {
	var each kafka.WriteErrors
	if !errors.As(err, &each) {
		return err
	}
	for i, e := range each {
		if e != nil {
			return fmt.Errorf("message %d and %d others: %w", i, each.Count()-1, e)
		}
	}
	return err
}

// kafkaGoReader reads one partition from an offset.
func kafkaGoReader(o options, partition int, offset int64) (*kafka.Reader, error) {
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: o.brokers(), Topic: o.topic, Partition: partition, MaxWait: kafkaGoWait,
		ErrorLogger: kafka.LoggerFunc(logf)})
	return r, r.SetOffset(offset)
}

func kafkaGoConsume(ctx context.Context, o options, out *output) error {
	partitions, err := kafka.LookupPartitions(ctx, "tcp", o.brokers()[0], o.topic)
	if err != nil {
		return err
	}
	messages := make(chan kafka.Message)
	for _, p := range partitions {
		r, err := kafkaGoReader(o, p.ID, kafka.FirstOffset)
		if err != nil {
			return err
		}
		go func() {
			for {
				m, err := r.ReadMessage(ctx)
				if err != nil {
					logf("read: %v", err)
					return
				}
				messages <- m
			}
		}()
	}
	for range o.count {
		kafkaGoPrint(<-messages, out)
	}
	return nil // the program ends, and its readers with it
}

func kafkaGoPrint(m kafka.Message, out *output) {
	var headers [][2]string
	for _, h := range m.Headers {
		headers = append(headers, [2]string{h.Key, string(h.Value)})
	}
	out.record(int32(m.Partition), m.Offset, m.Key, m.Value, headers, m.Time.UnixMilli())
}

func kafkaGoMember(ctx context.Context, o options, out *output) error {
	if o.instance != "" || o.cooperative {
		return errors.New("kafka-go has neither static members nor cooperative rebalancing")
	}
	g, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{ID: o.group, Brokers: o.brokers(), Topics: []string{o.topic},
		SessionTimeout: sessionTimeout, HeartbeatInterval: heartbeatInterval, RebalanceTimeout: rebalanceTimeout,
		JoinGroupBackoff: time.Second, StartOffset: kafka.FirstOffset,
		Logger: kafka.LoggerFunc(logf)})
	if err != nil {
		return err
	}
	for {
		gen, err := g.Next(ctx)
		if ctx.Err() != nil {
			return g.Close()
		}
		if err != nil {
			logf("next generation: %v", err)
			continue
		}
		has := make(map[int32]bool)
		for _, a := range gen.Assignments[o.topic] {
			has[int32(a.ID)] = true
		}
		out.assigned(has)
		for _, a := range gen.Assignments[o.topic] {
			gen.Start(func(ctx context.Context) {
				if err := kafkaGoPartition(ctx, o, gen, a, out); err != nil {
					logf("partition %d: %v", a.ID, err)
				}
			})
		}
	}
}

// kafkaGoPartition reads and commits one partition until its generation ends.
func kafkaGoPartition(ctx context.Context, o options, gen *kafka.Generation, a kafka.PartitionAssignment, out *output) error {
	r, err := kafkaGoReader(o, a.ID, a.Offset)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	for {
		m, err := r.ReadMessage(ctx)
		if errors.Is(err, kafka.ErrGenerationEnded) || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		kafkaGoPrint(m, out)
		if r.Stats().QueueLength > 0 {
			continue // more of the batch
		}
		if err := gen.CommitOffsets(map[string]map[int]int64{o.topic: {a.ID: m.Offset + 1}}); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
		out.committed(int32(a.ID), m.Offset+1)
	}
}

func kafkaGoAdmin(ctx context.Context, o options, out *output) error {
	c := &kafka.Client{Addr: kafka.TCP(o.brokers()...)}
	all := administrator{
		cluster: func(ctx context.Context) (int, error) {
			m, err := c.Metadata(ctx, &kafka.MetadataRequest{})
			if err != nil {
				return 0, err
			}
			if m.ClusterID == "" || m.Controller.Host == "" {
				return 0, fmt.Errorf("cluster %q, controller %+v", m.ClusterID, m.Controller)
			}
			return len(m.Brokers), nil
		},
		more: kafkaGoMore(c),
	}
	kafkaGoTopics(c, &all)
	kafkaGoGroups(c, &all)
	return all.run(ctx, o, out, kafkaGoProduce)
}

func kafkaGoTopics(c *kafka.Client, all *administrator) {
	all.createTopic = func(ctx context.Context, topic string, partitions int, configs map[string]string) error {
		t := kafka.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}
		for k, v := range configs {
			t.ConfigEntries = append(t.ConfigEntries, kafka.ConfigEntry{ConfigName: k, ConfigValue: v})
		}
		got, err := c.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{t}})
		if err != nil {
			return err
		}
		return got.Errors[topic]
	}
	all.topics = func(ctx context.Context) ([]string, error) {
		m, err := c.Metadata(ctx, &kafka.MetadataRequest{})
		if err != nil {
			return nil, err
		}
		var names []string
		for _, t := range m.Topics {
			names = append(names, t.Name)
		}
		return names, nil
	}
	all.partitions = func(ctx context.Context, topic string) (int, error) {
		m, err := c.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
		if err != nil {
			return 0, err
		}
		return len(m.Topics[0].Partitions), m.Topics[0].Error
	}
	all.config = func(ctx context.Context, topic, name string) (string, error) {
		got, err := c.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{
			{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{name}}}})
		if err != nil {
			return "", err
		}
		r := got.Resources[0]
		if r.Error != nil || len(r.ConfigEntries) != 1 {
			return "", fmt.Errorf("%d entries: %w", len(r.ConfigEntries), r.Error)
		}
		return r.ConfigEntries[0].ConfigValue, nil
	}
	all.alterConfig = func(ctx context.Context, topic, name, value string) error {
		got, err := c.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: name, Value: value, ConfigOperation: kafka.ConfigOperationSet}}}}})
		if err != nil {
			return err
		}
		return got.Resources[0].Error
	}
	all.grow = func(ctx context.Context, topic string, partitions int) error {
		got, err := c.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: int32(partitions)}}})
		if err != nil {
			return err
		}
		return got.Errors[topic]
	}
	all.offsets = func(ctx context.Context, topic string, partition int32) (int64, int64, error) {
		p := int(partition)
		got, err := c.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{
			topic: {kafka.FirstOffsetOf(p), kafka.LastOffsetOf(p)}}})
		if err != nil {
			return 0, 0, err
		}
		at := got.Topics[topic][0]
		return at.FirstOffset, at.LastOffset, at.Error
	}
	all.deleteTopic = func(ctx context.Context, topic string) error {
		got, err := c.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
		if err != nil {
			return err
		}
		return got.Errors[topic]
	}
}

func kafkaGoGroups(c *kafka.Client, all *administrator) {
	all.commit = func(ctx context.Context, group, topic string, partition int32, offset int64) error {
		got, err := c.OffsetCommit(ctx, &kafka.OffsetCommitRequest{GroupID: group, GenerationID: -1,
			Topics: map[string][]kafka.OffsetCommit{topic: {{Partition: int(partition), Offset: offset}}}})
		if err != nil {
			return err
		}
		return got.Topics[topic][0].Error
	}
	all.committed = func(ctx context.Context, group, topic string, partition int32) (int64, error) {
		got, err := c.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: {int(partition)}}})
		if err != nil {
			return 0, err
		}
		at := got.Topics[topic][0]
		return at.CommittedOffset, errors.Join(got.Error, at.Error)
	}
	all.deleteOffset = func(ctx context.Context, group, topic string, partition int32) error {
		got, err := c.OffsetDelete(ctx, &kafka.OffsetDeleteRequest{GroupID: group, Topics: map[string][]int{topic: {int(partition)}}})
		if err != nil {
			return err
		}
		return errors.Join(got.Error, got.Topics[topic][0].Error)
	}
	all.groups = func(ctx context.Context) ([]string, error) {
		got, err := c.ListGroups(ctx, &kafka.ListGroupsRequest{})
		if err != nil {
			return nil, err
		}
		var names []string
		for _, g := range got.Groups {
			names = append(names, g.GroupID)
		}
		return names, got.Error
	}
	all.groupState = func(ctx context.Context, group string) (string, error) {
		got, err := c.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
		if err != nil {
			return "", err
		}
		return got.Groups[0].GroupState, got.Groups[0].Error
	}
	all.deleteGroup = func(ctx context.Context, group string) error {
		got, err := c.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}})
		if err != nil {
			return err
		}
		return got.Errors[group]
	}
}

// kafkaGoMore are calls whose answers on a plain broker are known.
func kafkaGoMore(c *kafka.Client) map[string]func(context.Context, string) error {
	return map[string]func(context.Context, string) error{
		"list_partition_reassignments": func(ctx context.Context, topic string) error {
			got, err := c.ListPartitionReassignments(ctx, &kafka.ListPartitionReassignmentsRequest{
				Topics: map[string]kafka.ListPartitionReassignmentsRequestTopic{topic: {PartitionIndexes: []int{0}}}})
			if err != nil {
				return err
			}
			return same("reassignments", len(got.Topics), 0, got.Error)
		},
		"describe_client_quotas": func(ctx context.Context, _ string) error {
			got, err := c.DescribeClientQuotas(ctx, &kafka.DescribeClientQuotasRequest{
				Components: []kafka.DescribeClientQuotasRequestComponent{{EntityType: "user", MatchType: 2}}})
			if err != nil {
				return err
			}
			return same("quotas", len(got.Entries), 0, got.Error)
		},
		"describe_user_scrams": func(ctx context.Context, _ string) error {
			got, err := c.DescribeUserScramCredentials(ctx, &kafka.DescribeUserScramCredentialsRequest{})
			if err != nil {
				return err
			}
			return same("users", len(got.Results), 0, got.Error)
		},
		"describe_acls": func(ctx context.Context, _ string) error {
			got, err := c.DescribeACLs(ctx, &kafka.DescribeACLsRequest{Filter: kafka.ACLFilter{ResourceTypeFilter: kafka.ResourceTypeAny,
				ResourcePatternTypeFilter: kafka.PatternTypeAny, Operation: kafka.ACLOperationTypeAny, PermissionType: kafka.ACLPermissionTypeAny}})
			if err != nil {
				return err
			}
			return answered(got.Error, kafka.SecurityDisabled)
		},
		"elect_leaders": func(ctx context.Context, topic string) error {
			got, err := c.ElectLeaders(ctx, &kafka.ElectLeadersRequest{Topic: topic, Partitions: []int{0}, Timeout: 10 * time.Second})
			if err != nil {
				return err
			}
			return errors.Join(got.Error, answered(got.PartitionResults[0].Error, kafka.ElectionNotNeeded))
		},
	}
}
