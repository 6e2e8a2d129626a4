package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// confluent is confluent-kafka-go, and librdkafka in it.
func confluent() library {
	return library{
		version: confluentVersion,
		produce: confluentProduce, consume: confluentConsume, member: confluentMember, admin: confluentAdmin,
	}
}

const (
	confluentPollMillis  = 100
	confluentFlushMillis = 60_000
	// confluentBatchMax is how many records are worked on before their commit.
	confluentBatchMax = 100
	// confluentTimeout is how long metadata may take.
	confluentTimeout = 10_000
)

func confluentVersion() (string, error) {
	v, err := moduleVersion("github.com/confluentinc/confluent-kafka-go/v2")()
	_, librdkafka := kafka.LibraryVersion()
	return fmt.Sprintf("%s (librdkafka %s)", v, librdkafka), err
}

func confluentProduce(_ context.Context, o options) error {
	p, err := kafka.NewProducer(&kafka.ConfigMap{"bootstrap.servers": o.bootstrap, "acks": "all", "compression.type": o.codec,
		"enable.idempotence": o.idempotent, "linger.ms": 20})
	if err != nil {
		return err
	}
	defer p.Close()
	go func() {
		for e := range p.Events() { // a lost connection, say, which it mends; Flush waits until it has been heard
			logf("%v", e)
		}
	}()
	all := o.records()
	delivered := make(chan kafka.Event, len(all))
	for _, r := range all {
		m := &kafka.Message{TopicPartition: kafka.TopicPartition{Topic: &o.topic, Partition: kafka.PartitionAny}, Key: r.key, Value: r.value, Timestamp: r.at}
		if r.placed {
			m.TopicPartition.Partition = 0
		}
		for _, h := range r.headers {
			m.Headers = append(m.Headers, kafka.Header{Key: h[0], Value: []byte(h[1])})
		}
		if err := p.Produce(m, delivered); err != nil {
			return err
		}
	}
	if left := p.Flush(confluentFlushMillis); left > 0 {
		return fmt.Errorf("%d messages were not delivered in time", left)
	}
	for range all {
		m, ok := (<-delivered).(*kafka.Message)
		if !ok {
			return errors.New("no delivery report")
		}
		if m.TopicPartition.Error != nil {
			return m.TopicPartition.Error
		}
	}
	return nil
}

func confluentConsume(_ context.Context, o options, out *output) error {
	c, err := kafka.NewConsumer(&kafka.ConfigMap{"bootstrap.servers": o.bootstrap, "group.id": "unused", "enable.auto.commit": false})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	m, err := c.GetMetadata(&o.topic, false, confluentTimeout)
	if err != nil {
		return err
	}
	var all []kafka.TopicPartition
	for _, p := range m.Topics[o.topic].Partitions {
		all = append(all, kafka.TopicPartition{Topic: &o.topic, Partition: p.ID, Offset: kafka.OffsetBeginning})
	}
	if err := c.Assign(all); err != nil {
		return err
	}
	for range o.count {
		m, err := c.ReadMessage(-1)
		if err != nil {
			return err
		}
		confluentPrint(m, out)
	}
	return nil
}

func confluentPrint(m *kafka.Message, out *output) {
	var headers [][2]string
	for _, h := range m.Headers {
		headers = append(headers, [2]string{h.Key, string(h.Value)})
	}
	out.record(m.TopicPartition.Partition, int64(m.TopicPartition.Offset), m.Key, m.Value, headers, m.Timestamp.UnixMilli())
}

func confluentMember(ctx context.Context, o options, out *output) error {
	config := kafka.ConfigMap{"bootstrap.servers": o.bootstrap, "group.id": o.group, "enable.auto.commit": false,
		"auto.offset.reset": "earliest", "session.timeout.ms": int(sessionTimeout.Milliseconds()),
		"heartbeat.interval.ms": int(heartbeatInterval.Milliseconds()), "max.poll.interval.ms": int(rebalanceTimeout.Milliseconds()),
		"partition.assignment.strategy": "range"}
	if o.cooperative {
		config["partition.assignment.strategy"] = "cooperative-sticky"
	}
	if o.instance != "" {
		config["group.instance.id"] = o.instance
	}
	c, err := kafka.NewConsumer(&config)
	if err != nil {
		return err
	}
	has := make(map[int32]bool)
	pending := make(map[int32]kafka.TopicPartition)
	err = c.SubscribeTopics([]string{o.topic}, func(c *kafka.Consumer, e kafka.Event) error {
		switch e := e.(type) {
		case kafka.AssignedPartitions:
			confluentChange(has, e.Partitions, true)
		case kafka.RevokedPartitions:
			confluentChange(has, e.Partitions, false)
			for _, p := range e.Partitions {
				delete(pending, p.Partition)
			}
		}
		out.assigned(has)
		return nil // the client assigns by itself, as its protocol wants
	})
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		confluentBatch(c, pending, out)
	}
	return c.Close()
}

func confluentChange(has map[int32]bool, partitions []kafka.TopicPartition, to bool) {
	for _, p := range partitions {
		if to {
			has[p.Partition] = true
		} else {
			delete(has, p.Partition)
		}
	}
}

// confluentBatch works on the records that are there, and commits what is pending: the
// next offset of each partition. What is refused during a rebalance stays pending: the
// member may keep the partition, and its position in it.
func confluentBatch(c *kafka.Consumer, pending map[int32]kafka.TopicPartition, out *output) {
	for n, wait := 0, confluentPollMillis; n < confluentBatchMax; n++ {
		m, ok := c.Poll(wait).(*kafka.Message)
		if !ok {
			break
		}
		wait = 0
		confluentPrint(m, out)
		at := m.TopicPartition
		at.Offset++
		pending[at.Partition] = at
	}
	if len(pending) == 0 {
		return
	}
	done, err := c.CommitOffsets(slices.Collect(maps.Values(pending)))
	if err != nil {
		logf("commit: %v", err)
		return
	}
	for _, at := range done {
		if at.Error == nil {
			out.committed(at.Partition, int64(at.Offset))
			delete(pending, at.Partition)
		}
	}
}

func confluentAdmin(ctx context.Context, o options, out *output) error {
	a, err := kafka.NewAdminClient(&kafka.ConfigMap{"bootstrap.servers": o.bootstrap})
	if err != nil {
		return err
	}
	defer a.Close()
	all := administrator{
		cluster: func(ctx context.Context) (int, error) {
			got, err := a.DescribeCluster(ctx)
			if err == nil && (got.ClusterID == nil || got.Controller == nil) {
				err = errors.New("no cluster ID or no controller")
			}
			return len(got.Nodes), err
		},
		deleteRecords: func(ctx context.Context, topic string, partition int32, before int64) error {
			got, err := a.DeleteRecords(ctx, []kafka.TopicPartition{{Topic: &topic, Partition: partition, Offset: kafka.Offset(before)}})
			if err != nil {
				return err
			}
			return got.DeleteRecordsResults[0].TopicPartition.Error
		},
		more: confluentMore(a),
	}
	confluentTopics(a, &all)
	confluentGroups(a, &all)
	return all.run(ctx, o, out, confluentProduce)
}

// confluentResult is the error of the only topic that was asked for.
func confluentResult(got []kafka.TopicResult, err error) error {
	if err == nil && got[0].Error.Code() != kafka.ErrNoError {
		return got[0].Error
	}
	return err
}

func confluentTopics(a *kafka.AdminClient, all *administrator) {
	all.createTopic = func(ctx context.Context, topic string, partitions int, configs map[string]string) error {
		return confluentResult(a.CreateTopics(ctx, []kafka.TopicSpecification{{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1, Config: configs}}))
	}
	all.topics = func(context.Context) ([]string, error) {
		m, err := a.GetMetadata(nil, true, confluentTimeout)
		if err != nil {
			return nil, err
		}
		var names []string
		for name := range m.Topics {
			names = append(names, name)
		}
		return names, nil
	}
	all.partitions = func(ctx context.Context, topic string) (int, error) {
		got, err := a.DescribeTopics(ctx, kafka.NewTopicCollectionOfTopicNames([]string{topic}))
		if err != nil {
			return 0, err
		}
		t := got.TopicDescriptions[0]
		if t.Error.Code() != kafka.ErrNoError {
			return 0, t.Error
		}
		return len(t.Partitions), nil
	}
	all.config = func(ctx context.Context, topic, name string) (string, error) {
		got, err := a.DescribeConfigs(ctx, []kafka.ConfigResource{{Type: kafka.ResourceTopic, Name: topic}})
		if err != nil {
			return "", err
		}
		if got[0].Error.Code() != kafka.ErrNoError {
			return "", got[0].Error
		}
		return got[0].Config[name].Value, nil
	}
	all.alterConfig = func(ctx context.Context, topic, name, value string) error {
		got, err := a.IncrementalAlterConfigs(ctx, []kafka.ConfigResource{{Type: kafka.ResourceTopic, Name: topic,
			Config: []kafka.ConfigEntry{{Name: name, Value: value, IncrementalOperation: kafka.AlterConfigOpTypeSet}}}})
		if err == nil && got[0].Error.Code() != kafka.ErrNoError {
			return got[0].Error
		}
		return err
	}
	all.grow = func(ctx context.Context, topic string, partitions int) error {
		return confluentResult(a.CreatePartitions(ctx, []kafka.PartitionsSpecification{{Topic: topic, IncreaseTo: partitions}}))
	}
	all.offsets = func(ctx context.Context, topic string, partition int32) (int64, int64, error) {
		at := func(spec kafka.OffsetSpec) (int64, error) {
			got, err := a.ListOffsets(ctx, map[kafka.TopicPartition]kafka.OffsetSpec{{Topic: &topic, Partition: partition}: spec})
			for _, r := range got.ResultInfos {
				if r.Error.Code() != kafka.ErrNoError {
					return 0, r.Error
				}
				return int64(r.Offset), err
			}
			return 0, errors.Join(err, errors.New("no answer for the partition"))
		}
		start, err1 := at(kafka.EarliestOffsetSpec)
		end, err2 := at(kafka.LatestOffsetSpec)
		return start, end, errors.Join(err1, err2)
	}
	all.deleteTopic = func(ctx context.Context, topic string) error {
		return confluentResult(a.DeleteTopics(ctx, []string{topic}))
	}
}

func confluentGroups(a *kafka.AdminClient, all *administrator) {
	all.commit = func(ctx context.Context, group, topic string, partition int32, offset int64) error {
		got, err := a.AlterConsumerGroupOffsets(ctx, []kafka.ConsumerGroupTopicPartitions{{Group: group,
			Partitions: []kafka.TopicPartition{{Topic: &topic, Partition: partition, Offset: kafka.Offset(offset)}}}})
		if err != nil {
			return err
		}
		return got.ConsumerGroupsTopicPartitions[0].Partitions[0].Error
	}
	all.committed = func(ctx context.Context, group, topic string, partition int32) (int64, error) {
		got, err := a.ListConsumerGroupOffsets(ctx, []kafka.ConsumerGroupTopicPartitions{{Group: group,
			Partitions: []kafka.TopicPartition{{Topic: &topic, Partition: partition}}}})
		if err != nil {
			return 0, err
		}
		at := got.ConsumerGroupsTopicPartitions[0].Partitions[0]
		if at.Offset == kafka.OffsetInvalid {
			return -1, at.Error
		}
		return int64(at.Offset), at.Error
	}
	all.groups = func(ctx context.Context) ([]string, error) {
		got, err := a.ListConsumerGroups(ctx)
		var names []string
		for _, g := range got.Valid {
			names = append(names, g.GroupID)
		}
		return names, errors.Join(append(got.Errors, err)...)
	}
	all.groupState = func(ctx context.Context, group string) (string, error) {
		got, err := a.DescribeConsumerGroups(ctx, []string{group})
		if err != nil {
			return "", err
		}
		g := got.ConsumerGroupDescriptions[0]
		if g.Error.Code() != kafka.ErrNoError {
			return "", g.Error
		}
		return g.State.String(), nil
	}
	all.deleteGroup = func(ctx context.Context, group string) error {
		got, err := a.DeleteConsumerGroups(ctx, []string{group})
		if err == nil && got.ConsumerGroupResults[0].Error.Code() != kafka.ErrNoError {
			return got.ConsumerGroupResults[0].Error
		}
		return err
	}
}

// confluentMore are calls whose answers on a plain broker are known.
func confluentMore(a *kafka.AdminClient) map[string]func(context.Context, string) error {
	return map[string]func(context.Context, string) error{
		"describe_user_scrams": func(ctx context.Context, _ string) error {
			got, err := a.DescribeUserScramCredentials(ctx, nil)
			return same("users", len(got.Descriptions), 0, err)
		},
		"elect_leaders": func(ctx context.Context, topic string) error {
			got, err := a.ElectLeaders(ctx, kafka.NewElectLeadersRequest(kafka.ElectionTypePreferred, []kafka.TopicPartition{{Topic: &topic, Partition: 0}}))
			if err != nil {
				return err
			}
			return confluentIs(got.TopicPartitions[0].Error, kafka.ErrElectionNotNeeded)
		},
		"describe_acls": func(ctx context.Context, _ string) error {
			got, err := a.DescribeACLs(ctx, kafka.ACLBindingFilter{Type: kafka.ResourceAny, ResourcePatternType: kafka.ResourcePatternTypeAny,
				Operation: kafka.ACLOperationAny, PermissionType: kafka.ACLPermissionTypeAny})
			if err != nil {
				return err
			}
			// Without an authorizer the answer is an error, which librdkafka drops.
			return same("ACLs", len(got.ACLBindings), 0, nil)
		},
		"cluster_id": func(ctx context.Context, _ string) error {
			ctx, cancel := context.WithTimeout(ctx, confluentTimeout*time.Millisecond)
			defer cancel()
			id, err := a.ClusterID(ctx)
			return same("there is a cluster ID", id != "", true, err)
		},
	}
}

// confluentIs says whether an error is the one that is to be.
func confluentIs(err error, want kafka.ErrorCode) error {
	var e kafka.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("the answer is %w, want %s", err, want)
	}
	return same("the answer", e.Code(), want, nil)
}
