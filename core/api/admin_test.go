package api

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestCreateTopics(t *testing.T) {
	for _, c := range []struct {
		name   string
		topic  kmsg.CreateTopicsRequestTopic
		change func(*cluster)
		want   int16
	}{
		{name: "good", topic: kmsg.CreateTopicsRequestTopic{Topic: "new", NumPartitions: 3, ReplicationFactor: -1}},
		{name: "exists", topic: kmsg.CreateTopicsRequestTopic{Topic: "orders", NumPartitions: 1, ReplicationFactor: 1}, want: 36},
		{name: "null setting", topic: kmsg.CreateTopicsRequestTopic{Topic: "new", NumPartitions: 1, ReplicationFactor: 1,
			Configs: []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms"}}}, want: 40},
		{name: "unknown setting", topic: kmsg.CreateTopicsRequestTopic{Topic: "new", NumPartitions: 1, ReplicationFactor: 1,
			Configs: []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention", Value: ptr("1")}}}, want: 40},
		{name: "no codec", topic: kmsg.CreateTopicsRequestTopic{Topic: "new", NumPartitions: 1, ReplicationFactor: 1,
			Configs: []kmsg.CreateTopicsRequestTopicConfig{{Name: "compression.type", Value: ptr("none")}}}, want: 40},
		{name: "setting twice", topic: kmsg.CreateTopicsRequestTopic{Topic: "new", NumPartitions: 1, ReplicationFactor: 1,
			Configs: []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms", Value: ptr("1")}, {Name: "retention.ms", Value: ptr("2")}}}, want: 42},
		{name: "assignment beside numbers", topic: kmsg.CreateTopicsRequestTopic{Topic: "new", NumPartitions: 1, ReplicationFactor: -1,
			ReplicaAssignment: []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{1}}}}, want: 42},
		{name: "partition assigned twice", topic: kmsg.CreateTopicsRequestTopic{Topic: "new", NumPartitions: -1, ReplicationFactor: -1,
			ReplicaAssignment: []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{1}}, {Partition: 0, Replicas: []int32{2}}}}, want: 39},
		{name: "denied", topic: kmsg.CreateTopicsRequestTopic{Topic: "orders", NumPartitions: 1, ReplicationFactor: 1},
			change: func(c *cluster) { c.denyCluster(security.OpCreate); c.denyTopic("orders", security.OpCreate) }, want: 29},
		{name: "the topic alone", topic: kmsg.CreateTopicsRequestTopic{Topic: "new", NumPartitions: 1, ReplicationFactor: 1},
			change: func(c *cluster) { c.denyCluster(security.OpCreate) }},
		{name: "no controller", topic: kmsg.CreateTopicsRequestTopic{Topic: "new", NumPartitions: 1, ReplicationFactor: 1},
			change: func(c *cluster) { c.ctrlErr = model.ErrNotController }, want: 41},
	} {
		f := newCluster(t)
		f.topic("orders", self)
		if c.change != nil {
			c.change(f)
		}
		for _, only := range []bool{true, false} {
			req := kmsg.NewPtrCreateTopicsRequest()
			req.Topics, req.ValidateOnly = []kmsg.CreateTopicsRequestTopic{c.topic}, only
			got := ask[*kmsg.CreateTopicsResponse](t, newHandler(f), 7, req).Topics[0]
			if got.ErrorCode != c.want || (c.want != 0) != (got.ErrorMessage != nil) {
				t.Errorf("%s: code %d (%s), want %d", c.name, got.ErrorCode, str(got.ErrorMessage), c.want)
			}
			_, made := f.Image().TopicByName("new")
			if made != (c.want == 0 && !only) {
				t.Errorf("%s, validate only %v: made %v", c.name, only, made)
			}
		}
	}
}

func TestCreateTopicsTwice(t *testing.T) {
	c := newCluster(t)
	req := kmsg.NewPtrCreateTopicsRequest()
	for _, n := range []string{"new", "other", "new"} {
		req.Topics = append(req.Topics, kmsg.CreateTopicsRequestTopic{Topic: n, NumPartitions: 1, ReplicationFactor: 1})
	}
	got := ask[*kmsg.CreateTopicsResponse](t, newHandler(c), 7, req).Topics
	if got[0].ErrorCode != 42 || got[1].ErrorCode != 0 || got[2].ErrorCode != 42 {
		t.Fatalf("got %+v", got)
	}
	if c.Image().TopicCount() != 1 {
		t.Errorf("%d topics", c.Image().TopicCount())
	}
}

// A new topic's answer tells what it was made with, to who may see that.
func TestCreateTopicsTellsSettings(t *testing.T) {
	c := newCluster(t)
	c.denyTopic("hidden", security.OpDescribeConfigs)
	req := kmsg.NewPtrCreateTopicsRequest()
	for _, n := range []string{"shown", "hidden"} {
		req.Topics = append(req.Topics, kmsg.CreateTopicsRequestTopic{Topic: n, NumPartitions: 4, ReplicationFactor: -1,
			Configs: []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms", Value: ptr("77")}}})
	}
	got := ask[*kmsg.CreateTopicsResponse](t, newHandler(c), 7, req).Topics
	shown, hidden := got[0], got[1]
	i := slices.IndexFunc(shown.Configs, func(s kmsg.CreateTopicsResponseTopicConfig) bool { return s.Name == "retention.ms" })
	if i < 0 || str(shown.Configs[i].Value) != "77" || shown.Configs[i].Source != 1 || shown.NumPartitions != 4 || shown.ReplicationFactor != 3 {
		t.Errorf("shown: %+v", shown)
	}
	if hidden.ErrorCode != 0 || hidden.ConfigErrorCode != 29 || len(hidden.Configs) != 0 || hidden.NumPartitions != -1 || hidden.ReplicationFactor != -1 {
		t.Errorf("hidden: %+v", hidden)
	}
	if model.TopicID(hidden.TopicID) != topicID("hidden") {
		t.Errorf("topic ID %v", hidden.TopicID)
	}
}

func TestDeleteTopics(t *testing.T) {
	c := newCluster(t)
	for _, n := range []string{"a", "b", "c", "d", "e", "f"} {
		c.topic(n, self)
	}
	c.denyTopic("c", security.OpDelete)
	c.denyTopic("d", security.OpDescribe, security.OpDelete)
	byName := func(n string) kmsg.DeleteTopicsRequestTopic { return kmsg.DeleteTopicsRequestTopic{Topic: &n} }
	byID := func(n string) kmsg.DeleteTopicsRequestTopic {
		return kmsg.DeleteTopicsRequestTopic{TopicID: topicID(n)}
	}
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Topics = []kmsg.DeleteTopicsRequestTopic{
		byName("a"), byID("b"), byName("nope"), byID("nope"), byName("c"), byID("c"), byID("d"),
		{Topic: ptr("a"), TopicID: topicID("a")}, byName("e"), byID("e"), {},
	}
	var got []string
	for _, r := range ask[*kmsg.DeleteTopicsResponse](t, newHandler(c), 6, req).Topics {
		got = append(got, fmt.Sprintf("%s!%d", str(r.Topic), r.ErrorCode))
	}
	// d may not be seen: by its ID it looks like one that does not exist.
	want := "a!0 b!0 nope!3 null!100 c!29 c!29 null!100 a!42 e!42 e!42 null!42"
	if s := strings.Join(got, " "); s != want {
		t.Fatalf("got  %s\nwant %s", s, want)
	}
	if c.Image().TopicCount() != 4 {
		t.Errorf("%d topics are left", c.Image().TopicCount())
	}
	old := kmsg.NewPtrDeleteTopicsRequest()
	old.TopicNames = []string{"f", "nope"}
	if r := ask[*kmsg.DeleteTopicsResponse](t, newHandler(c), 1, old).Topics; r[0].ErrorCode != 0 || r[1].ErrorCode != 3 || str(r[1].Topic) != "nope" {
		t.Errorf("version 1: %+v", r)
	}
}

func TestCreatePartitions(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self, self)
	c.topic("audit", self)
	c.denyTopic("audit", security.OpAlter)
	c.denyTopic("hidden", security.OpAlter)
	req := kmsg.NewPtrCreatePartitionsRequest()
	for _, x := range []struct {
		topic string
		count int32
	}{{"orders", 2}, {"audit", 5}, {"nope", 5}, {"hidden", 5}, {"twice", 5}, {"twice", 6}} {
		req.Topics = append(req.Topics, kmsg.CreatePartitionsRequestTopic{Topic: x.topic, Count: x.count})
	}
	for i, want := range []int16{37, 29, 3, 29, 42, 42} {
		if got := ask[*kmsg.CreatePartitionsResponse](t, newHandler(c), 3, req).Topics[i]; got.ErrorCode != want {
			t.Errorf("%s: %d, want %d", got.Topic, got.ErrorCode, want)
		}
	}
	req.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "orders", Count: 4}}
	for _, only := range []bool{true, false} {
		req.ValidateOnly = only
		ask[*kmsg.CreatePartitionsResponse](t, newHandler(c), 3, req)
		if topic, _ := c.Image().TopicByName("orders"); (len(topic.Partitions) == 4) == only {
			t.Errorf("validate only %v: %d partitions", only, len(topic.Partitions))
		}
	}
}

func TestDeleteRecords(t *testing.T) {
	c := newCluster(t)
	id := c.topic("orders", self, 2, self)
	c.topic("compact", self)
	c.topic("both", self)
	c.topic("secret", self)
	c.denyTopic("secret", security.OpDelete)
	for topic, policy := range map[string]string{"compact": "compact", "both": "compact,delete"} {
		c.apply(&image.ConfigRecord{Resource: model.Resource{Type: model.ResourceTopic, Name: topic}, Key: "cleanup.policy", Value: policy})
	}
	c.fill(t, model.Partition{Topic: id}, model.Partition{Topic: id}, model.Partition{Topic: id, Index: 2})
	type part = kmsg.DeleteRecordsRequestTopicPartition
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Topics = []kmsg.DeleteRecordsRequestTopic{
		{Topic: "orders", Partitions: []part{{Partition: 0, Offset: 1}, {Partition: 1}, {Partition: 2, Offset: -1}, {Partition: 3}}},
		{Topic: "orders", Partitions: []part{{Partition: 5, Offset: -2}}},
		{Topic: "compact", Partitions: []part{{Partition: 0}}},
		{Topic: "both", Partitions: []part{{Partition: 0, Offset: 9}}},
		{Topic: "secret", Partitions: []part{{Partition: 0}}},
		{Topic: "nope", Partitions: []part{{Partition: 0}}},
	}
	var got []string
	for _, topic := range ask[*kmsg.DeleteRecordsResponse](t, newHandler(c), 2, req).Topics {
		for _, p := range topic.Partitions {
			got = append(got, fmt.Sprintf("%s-%d!%d@%d", topic.Topic, p.Partition, p.ErrorCode, p.LowWatermark))
		}
	}
	want := "orders-0!0@1 orders-1!6@-1 orders-2!0@1 orders-3!3@-1 orders-5!3@-1 compact-0!44@-1 both-0!1@-1 secret-0!29@-1 nope-0!3@-1"
	if s := strings.Join(got, " "); s != want {
		t.Fatalf("got  %s\nwant %s", s, want)
	}
	req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "orders", Partitions: []part{{Partition: 0, Offset: -2}}}}
	asked := len(c.trims)
	if p := ask[*kmsg.DeleteRecordsResponse](t, newHandler(c), 2, req).Topics[0].Partitions[0]; p.ErrorCode != 1 || len(c.trims) != asked {
		t.Errorf("offset -2: %+v", p)
	}
}

func TestListOffsets(t *testing.T) {
	c := newCluster(t)
	id := c.topic("orders", self, 2)
	c.topic("secret", self)
	c.denyTopic("secret", security.OpDescribe)
	c.fill(t, model.Partition{Topic: id}, model.Partition{Topic: id})
	c.logs[model.Partition{Topic: id}].start = 1
	for _, x := range []struct {
		name      string
		version   int16
		topic     string
		partition int32
		timestamp int64
		want      string // code, offset, timestamp
	}{
		{"latest", 1, "orders", 0, -1, "0 2 -1"},
		{"earliest", 1, "orders", 0, -2, "0 1 -1"},
		{"by time", 1, "orders", 0, 55, "0 1 55"},
		{"greatest timestamp", 7, "orders", 0, -3, "0 1 -3"},
		{"greatest timestamp too early", 6, "orders", 0, -3, "35 -1 -1"},
		{"earliest local", 8, "orders", 0, -4, "0 1 -1"},
		{"earliest local too early", 7, "orders", 0, -4, "35 -1 -1"},
		{"latest tiered", 9, "orders", 0, -5, "0 -1 -1"},
		{"latest tiered too early", 8, "orders", 0, -5, "35 -1 -1"},
		{"latest tiered of a partition led elsewhere", 9, "orders", 1, -5, "6 -1 -1"},
		{"pending upload", 11, "orders", 0, -6, "0 -1 -1"},
		{"pending upload too early", 10, "orders", 0, -6, "35 -1 -1"},
		{"unknown special", 11, "orders", 0, -9, "35 -1 -1"},
		{"not leader", 5, "orders", 1, -1, "6 -1 -1"},
		{"unknown partition", 5, "orders", 2, -1, "3 -1 -1"},
		{"unknown topic", 5, "nope", 0, -1, "3 -1 -1"},
		{"denied", 5, "secret", 0, -1, "29 -1 -1"},
		{"not available yet", 5, "orders", 0, 404, "78 -1 -1"},
		{"not available yet, old client", 4, "orders", 0, 404, "5 -1 -1"},
	} {
		req := kmsg.NewPtrListOffsetsRequest()
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = x.partition, x.timestamp
		req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: x.topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
		got := ask[*kmsg.ListOffsetsResponse](t, newHandler(c), x.version, req).Topics[0].Partitions[0]
		if s := fmt.Sprint(got.ErrorCode, got.Offset, got.Timestamp); s != x.want {
			t.Errorf("%s: got %s, want %s", x.name, s, x.want)
		}
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
		if strings.HasPrefix(x.want, "29") {
			continue
		}
		for _, p := range ask[*kmsg.ListOffsetsResponse](t, newHandler(c), x.version, req).Topics[0].Partitions {
			if p.ErrorCode != 42 {
				t.Errorf("%s, named twice: %d", x.name, p.ErrorCode)
			}
		}
	}
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	c := newCluster(t)
	id := c.topic("orders", self, 2)
	c.fill(t, model.Partition{Topic: id})
	for _, x := range []struct {
		partition, current, epoch int32
		want                      string
	}{
		{0, -1, 7, "0 7 1"},
		{0, 7, 5, "0 5 1"},
		{0, 6, 5, "74 -1 -1"},
		{1, -1, 5, "6 -1 -1"},
		{9, -1, 5, "3 -1 -1"},
	} {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "orders", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{
			{Partition: x.partition, CurrentLeaderEpoch: x.current, LeaderEpoch: x.epoch}}}}
		got := ask[*kmsg.OffsetForLeaderEpochResponse](t, newHandler(c), 4, req).Topics[0].Partitions[0]
		if s := fmt.Sprint(got.ErrorCode, got.LeaderEpoch, got.EndOffset); s != x.want {
			t.Errorf("%+v: got %s", x, s)
		}
	}
}

// A partition that is named twice is answered each time.
func TestOffsetForLeaderEpochTwice(t *testing.T) {
	c := newCluster(t)
	c.fill(t, model.Partition{Topic: c.topic("orders", self)})
	ask1 := kmsg.OffsetForLeaderEpochRequestTopicPartition{CurrentLeaderEpoch: -1, LeaderEpoch: 7}
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "orders", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{ask1, ask1}}}
	for i, got := range ask[*kmsg.OffsetForLeaderEpochResponse](t, newHandler(c), 4, req).Topics[0].Partitions {
		if got.ErrorCode != 0 || got.EndOffset != 1 {
			t.Errorf("answer %d: %+v", i, got)
		}
	}
}

// Kafka's own topics are internal whoever makes them, and kept from producers.
func TestClientsTopicsOfKafkasOwn(t *testing.T) {
	for _, name := range []string{"__consumer_offsets", "__transaction_state"} {
		c := newCluster(t)
		req := kmsg.NewPtrCreateTopicsRequest()
		req.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: name, NumPartitions: 1, ReplicationFactor: 1}}
		h := newHandler(c)
		if got := ask[*kmsg.CreateTopicsResponse](t, h, 7, req).Topics[0]; got.ErrorCode != 0 {
			t.Fatalf("create %s: %d", name, got.ErrorCode)
		}
		c.apply(&image.TopicRemovalRecord{ID: topicID(name), Name: name})
		c.apply(&image.TopicRecord{ID: model.TopicID{7}, Name: name}, &image.PartitionRecord{Partition: model.Partition{Topic: model.TopicID{7}},
			Registration: image.Partition{Replicas: []model.NodeID{1}, Directories: []model.DirectoryID{{1}}, ISR: []model.NodeID{1}, Leader: 1}})
		metadata := kmsg.NewPtrMetadataRequest()
		metadata.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
		if got := ask[*kmsg.MetadataResponse](t, h, 9, metadata).Topics[0]; !got.IsInternal {
			t.Errorf("metadata of %s: not internal", name)
		}
		describe := kmsg.NewPtrDescribeTopicPartitionsRequest()
		describe.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: name}}
		if got := ask[*kmsg.DescribeTopicPartitionsResponse](t, h, 0, describe).Topics[0]; !got.IsInternal {
			t.Errorf("description of %s: not internal", name)
		}
		got := codes(ask[*kmsg.ProduceResponse](t, h, 9, toProduce(map[string][]byte{name + "-0": records(t, batch.Options{}, "v")})))
		if got[name+"-0"] != 17 {
			t.Errorf("produce to %s: %v", name, got)
		}
	}
}

func TestInitProducerID(t *testing.T) {
	c := newCluster(t)
	h := newHandler(c)
	for i := range int64(8) { // across blocks of three
		if got := ask[*kmsg.InitProducerIDResponse](t, h, 4, kmsg.NewPtrInitProducerIDRequest()); got.ErrorCode != 0 || got.ProducerID != i || got.ProducerEpoch != 0 {
			t.Fatalf("request %d: %+v", i, got)
		}
	}
	ask[*kmsg.InitProducerIDResponse](t, h, 4, kmsg.NewPtrInitProducerIDRequest()) // the block's last
	c.ctrlErr = model.ErrNotController
	if got := ask[*kmsg.InitProducerIDResponse](t, h, 4, kmsg.NewPtrInitProducerIDRequest()); got.ErrorCode != 14 || got.ProducerID != -1 || got.ProducerEpoch != -1 {
		t.Errorf("without a controller: %+v", got)
	}
	c.ctrlErr = nil
	for id, want := range map[string]int16{"": 42, "t": 35, "secret": 53} {
		c.deny[security.Action{Operation: security.OpWrite, Resource: security.TransactionalID, Name: "secret"}] = true
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID = &id
		if got := ask[*kmsg.InitProducerIDResponse](t, h, 4, req); got.ErrorCode != want || got.ProducerID != -1 {
			t.Errorf("transactional ID %q: %+v", id, got)
		}
	}
}

func TestInitProducerIDAuthorization(t *testing.T) {
	c := newCluster(t)
	c.denyCluster(security.OpIdempotentWrite)
	req := kmsg.NewPtrInitProducerIDRequest()
	if got := ask[*kmsg.InitProducerIDResponse](t, newHandler(c), 4, req); got.ErrorCode != 31 {
		t.Errorf("no topic at all: %d", got.ErrorCode)
	}
	c.topic("orders", self)
	if got := ask[*kmsg.InitProducerIDResponse](t, newHandler(c), 4, req); got.ErrorCode != 0 {
		t.Errorf("may write to a topic: %d", got.ErrorCode)
	}
	c.denyTopic("orders", security.OpWrite)
	if got := ask[*kmsg.InitProducerIDResponse](t, newHandler(c), 4, req); got.ErrorCode != 31 {
		t.Errorf("may write to none: %d", got.ErrorCode)
	}
}

// slowIDs answers when told.
type slowIDs struct {
	Controller
	asked  int
	answer chan model.ProducerIDBlock
}

func (s *slowIDs) AllocateProducerIDs(ctx context.Context) (model.ProducerIDBlock, error) {
	s.asked++
	select {
	case b := <-s.answer:
		return b, nil
	case <-ctx.Done():
		return model.ProducerIDBlock{}, ctx.Err()
	}
}

// A crowd of producers asks for one block, and each gets another ID; when no
// block comes, none waits for ever.
func TestProducerIDsInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowIDs{answer: make(chan model.ProducerIDBlock)}
		ids := newProducerIDs(slow)
		got := make(chan int64, 5)
		for range cap(got) {
			go func() {
				id, err := ids.next(t.Context())
				if err != nil {
					t.Error(err)
				}
				got <- id
			}()
		}
		synctest.Wait()
		slow.answer <- model.ProducerIDBlock{First: 100, Count: 5}
		seen := make(map[int64]bool)
		for range cap(got) {
			seen[<-got] = true
		}
		if len(seen) != 5 || slow.asked != 1 {
			t.Errorf("ids %v after %d commands", seen, slow.asked)
		}
		ctx, cancel := context.WithTimeout(t.Context(), producerIDWait)
		defer cancel()
		if _, err := ids.next(ctx); err == nil {
			t.Error("an ID without a block")
		}
	})
}

func TestDescribeCluster(t *testing.T) {
	c := newCluster(t)
	h := newHandler(c)
	req := kmsg.NewPtrDescribeClusterRequest()
	got := ask[*kmsg.DescribeClusterResponse](t, h, 2, req)
	if got.ClusterID != "cluster-one" || got.ControllerID != 1 || len(got.Brokers) != 2 || got.ClusterAuthorizedOperations != notAsked {
		t.Errorf("got %+v", got)
	}
	req.IncludeFencedBrokers, req.IncludeClusterAuthorizedOperations = true, true
	got = ask[*kmsg.DescribeClusterResponse](t, h, 2, req)
	if len(got.Brokers) != 3 || !got.Brokers[2].IsFenced || got.Brokers[0].IsFenced || got.ClusterAuthorizedOperations == notAsked {
		t.Errorf("got %+v", got)
	}
	c.apply(&image.BrokerFenceRecord{ID: 2, Epoch: 1, ShuttingDown: true})
	for i, b := range ask[*kmsg.DescribeClusterResponse](t, h, 2, req).Brokers { // of each its epoch, and whether it is shutting down
		tags := map[uint32]string{}
		b.UnknownTags.Each(func(tag uint32, value []byte) { tags[tag] = string(value) })
		want := map[uint32]string{tagBrokerEpoch: "\x00\x00\x00\x00\x00\x00\x00\x01"}
		if i == 1 {
			want[tagShuttingDown] = "\x01"
		}
		if !maps.Equal(tags, want) {
			t.Errorf("broker %d: tags %v, want %v", b.NodeID, tags, want)
		}
	}
	if b := ask[*kmsg.DescribeClusterResponse](t, h, 1, req).Brokers[0]; b.UnknownTags.Len() != 0 {
		t.Errorf("version 1 has tags: %+v", b)
	}
	for kind, want := range map[int8]int16{2: 114, 7: 115} {
		req.EndpointType = kind
		if got := ask[*kmsg.DescribeClusterResponse](t, h, 1, req); got.ErrorCode != want || len(got.Brokers) != 0 {
			t.Errorf("endpoint type %d: %+v", kind, got)
		}
	}
}

func TestDescribeLogDirs(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self, self)
	req := kmsg.NewPtrDescribeLogDirsRequest()
	show := func(resp *kmsg.DescribeLogDirsResponse) string {
		out := []string{fmt.Sprint(resp.ErrorCode)}
		for _, d := range resp.Dirs {
			out = append(out, fmt.Sprintf("%s!%d %d/%d", d.Dir, d.ErrorCode, d.UsableBytes, d.TotalBytes))
			for _, topic := range d.Topics {
				for _, p := range topic.Partitions {
					out = append(out, fmt.Sprintf("%s-%d %d lag %d", topic.Topic, p.Partition, p.Size, p.OffsetLag))
				}
			}
		}
		return strings.Join(out, ", ")
	}
	want := "0, default!0 400/1000, orders-0 10 lag 0, orders-1 20 lag 2, broken!56 -1/-1"
	if got := show(ask[*kmsg.DescribeLogDirsResponse](t, newHandler(c), 4, req)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	req.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: "orders", Partitions: []int32{1}}}
	want = "0, default!0 400/1000, orders-1 20 lag 2, broken!56 -1/-1"
	if got := show(ask[*kmsg.DescribeLogDirsResponse](t, newHandler(c), 4, req)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	c.denyCluster(security.OpDescribe)
	if got := show(ask[*kmsg.DescribeLogDirsResponse](t, newHandler(c), 4, req)); got != "31" {
		t.Errorf("denied: %s", got)
	}
}

func TestDescribeTopicPartitions(t *testing.T) {
	c := newCluster(t)
	c.topic("a", self, self)
	c.topic("b", self, self, self)
	c.topic("c", self)
	c.topic("secret", self)
	c.denyTopic("secret", security.OpDescribe)
	type cursor = kmsg.DescribeTopicPartitionsRequestCursor
	show := func(limit int32, at *cursor, names ...string) string {
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.ResponsePartitionLimit, req.Cursor = limit, at
		for _, n := range names {
			req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: n})
		}
		resp := ask[*kmsg.DescribeTopicPartitionsResponse](t, newHandler(c), 0, req)
		var out []string
		for _, topic := range resp.Topics {
			s := str(topic.Topic)
			if topic.ErrorCode != 0 {
				s += fmt.Sprintf("!%d", topic.ErrorCode)
				if topic.TopicID != [16]byte{} {
					s += " leaks its ID"
				}
			}
			for _, p := range topic.Partitions {
				s += fmt.Sprintf(" %d", p.Partition)
				if fmt.Sprint(p.EligibleLeaderReplicas) != "[3]" || p.LeaderID != 1 {
					s += fmt.Sprintf("%+v", p)
				}
			}
			out = append(out, s)
		}
		if n := resp.NextCursor; n != nil {
			out = append(out, fmt.Sprintf("next %s %d", n.Topic, n.Partition))
		}
		return strings.Join(out, ", ")
	}
	for _, x := range []struct{ name, got, want string }{
		{"all", show(2000, nil), "a 0 1, b 0 1 2, c 0"},
		{"a limit", show(3, nil), "a 0 1, b 0, next b 1"},
		{"a limit that is reached between topics", show(2, nil), "a 0 1, next b 0"},
		{"from a cursor", show(2, &cursor{Topic: "b", Partition: 1}), "b 1 2, next c 0"},
		{"to the end", show(2, &cursor{Topic: "c"}), "c 0"},
		{"no limit is one", show(0, nil), "a 0, next a 1"},
		{"a cursor whose topic is gone", show(10, &cursor{Topic: "aa", Partition: 3}), "b 0 1 2, c 0"},
		{"a cursor beyond the topic", show(10, &cursor{Topic: "b", Partition: 30}), "b, c 0"},
		{"named, sorted, once", show(10, nil, "c", "a", "c"), "a 0 1, c 0"},
		{"named and not there", show(10, nil, "nope", "n/o"), "n/o!17, nope!3"},
		{"named and secret", show(10, nil, "secret"), "secret!29"},
		{"a cursor that was not asked for", show(10, &cursor{Topic: "b"}, "a"), "a!42"},
		{"a negative cursor", show(10, &cursor{Topic: "a", Partition: -1}), "a!42"},
	} {
		if x.got != x.want {
			t.Errorf("%s: got %q, want %q", x.name, x.got, x.want)
		}
	}
}

// Who asks with our tag is told what leaders go by, and where records may be missing; nobody
// else is.
func TestDescribeTopicPartitionsTellsMore(t *testing.T) {
	c := newCluster(t)
	id := c.topic("orders", self)
	c.apply(&image.PartitionRecord{Partition: model.Partition{Topic: id, Index: 1}, Registration: image.Partition{
		Replicas: []model.NodeID{1, 2}, Directories: []model.DirectoryID{{1}, {2}}, ISR: []model.NodeID{1}, Leader: 1,
		Loss: &image.Loss{Epoch: 5, From: 258, Unclean: true, At: 3}}})
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit = 10
	show := func() (out []string) {
		topic := ask[*kmsg.DescribeTopicPartitionsResponse](t, newHandler(c), 0, req).Topics[0]
		topic.UnknownTags.Each(func(tag uint32, b []byte) { out = append(out, fmt.Sprintf("%d=%x", tag, b)) })
		for _, p := range topic.Partitions {
			p.UnknownTags.Each(func(tag uint32, b []byte) { out = append(out, fmt.Sprintf("%d %d=%x", p.Partition, tag, b)) })
		}
		return out
	}
	if got := show(); len(got) != 0 {
		t.Errorf("who does not ask is told %q", got)
	}
	req.UnknownTags.Set(10000, nil)
	// Three replicas are wanted; of three two have to be in sync, and of two that are to be three one.
	want := []string{"10000=00000003", "0 10000=00000002", "1 10000=00000001", "1 10001=00000005" + "0000000000000102" + "0000000000000003" + "01", "1 10002=00000001"}
	if got := show(); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}

// A fault of the broker's own tells a client nothing of its inside.
func TestAdminHidesFaults(t *testing.T) {
	c := newCluster(t)
	c.ctrlErr = fmt.Errorf("open /var/lib/secret")
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "new", NumPartitions: 1, ReplicationFactor: 1}}
	if got := ask[*kmsg.CreateTopicsResponse](t, newHandler(c), 7, req).Topics[0]; got.ErrorCode != -1 || strings.Contains(str(got.ErrorMessage), "secret") || got.ErrorMessage == nil {
		t.Fatalf("got %d %s", got.ErrorCode, str(got.ErrorMessage))
	}
}
