package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// started serves a cluster of one broker to real clients, and returns it with
// the options that connect to it.
func started(t *testing.T) (*cluster, []kgo.Opt) {
	t.Helper()
	c := newCluster(t)
	h := newHandler(c, func(_ *Config, d *Deps) { d.Now = time.Now })
	addr := serve(t, h)
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	c.apply(
		&image.BrokerRecord{ID: self, Epoch: 2, Directories: []model.DirectoryID{{1}}, Listeners: map[string]image.Endpoint{listener: {Host: host, Port: int32(n)}}},
		&image.BrokerRemovalRecord{ID: 2, Epoch: 1}, &image.BrokerRemovalRecord{ID: 3, Epoch: 1},
	)
	return c, []kgo.Opt{kgo.SeedBrokers(addr), kgo.RetryTimeout(5 * time.Second), kgo.FetchMaxWait(100 * time.Millisecond)}
}

func client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestFranzProducesAndConsumes(t *testing.T) {
	for _, acks := range []kgo.Acks{kgo.AllISRAcks(), kgo.LeaderAck(), kgo.NoAck()} {
		c, opts := started(t)
		c.topic("orders", self, self)
		ctx := within(t)
		produce := append(slices.Clone(opts), kgo.RequiredAcks(acks), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.ProducerBatchCompression(kgo.ZstdCompression()))
		if acks != kgo.AllISRAcks() {
			produce = append(produce, kgo.DisableIdempotentWrite())
		}
		p := client(t, produce...)
		const count = 100
		for i := range count {
			p.Produce(ctx, &kgo.Record{Topic: "orders", Value: []byte(strings.Repeat(strconv.Itoa(i)+" ", 200))}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("produce: %v", err)
				}
			})
		}
		if err := p.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		seen := make(map[string]bool)
		consumer := client(t, append(opts, kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
		for len(seen) < count {
			fetches := consumer.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				t.Fatalf("after %d records: %v", len(seen), err)
			}
			fetches.EachRecord(func(r *kgo.Record) { seen[string(r.Value)] = true })
		}
		for _, a := range c.appends {
			if a.Batch.Attributes&recordbatch.CodecMask == 0 {
				t.Fatal("a batch came without the compression that the client was told to use")
			}
			if acks == kgo.AllISRAcks() && (a.Acks != model.AcksAll || a.Batch.ProducerID < 0) {
				t.Errorf("append %+v", a.Batch)
			}
		}
	}
}

func TestFranzAutoCreates(t *testing.T) {
	c, opts := started(t)
	p := client(t, append(opts, kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic("fresh"))...)
	if err := p.ProduceSync(within(t), kgo.StringRecord("v")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Image().TopicByName("fresh"); !ok {
		t.Error("the topic was not made")
	}
}

func TestFranzAdmin(t *testing.T) {
	c, opts := started(t)
	adm := kadm.NewClient(client(t, opts...))
	ctx := within(t)
	one := "77000"
	made, err := adm.CreateTopic(ctx, 3, -1, map[string]*string{"retention.ms": &one}, "orders")
	if err != nil || made.ID == (kadm.TopicID{}) {
		t.Fatalf("create: %+v, %v", made, err)
	}
	if _, err := adm.CreateTopic(ctx, 3, -1, nil, "orders"); !errors.Is(err, kerr.TopicAlreadyExists) {
		t.Errorf("create again: %v", err)
	}
	topics, err := adm.ListTopics(ctx)
	if err != nil || len(topics["orders"].Partitions) != 3 || topics["orders"].ID != made.ID {
		t.Errorf("list: %+v, %v", topics, err)
	}
	if _, err := adm.CreatePartitions(ctx, 2, "orders"); err != nil {
		t.Errorf("create partitions: %v", err)
	}
	configs, err := adm.DescribeTopicConfigs(ctx, "orders")
	if err != nil || configs[0].Err != nil || len(configs[0].Configs) < 20 {
		t.Errorf("configs: %+v, %v", configs, err)
	}
	two := "78000"
	if altered, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &two}}, "orders"); err != nil || altered[0].Err != nil {
		t.Errorf("alter: %+v, %v", altered, err)
	}
	if got := c.Image().Config(model.Resource{Type: model.ResourceTopic, Name: "orders"}); got["retention.ms"] != "78000" {
		t.Errorf("settings %v", got)
	}
	if _, err := adm.DescribeBrokerConfigs(ctx, 1); err != nil {
		t.Errorf("broker configs: %v", err)
	}
	p := client(t, append(opts, kgo.DefaultProduceTopic("orders"), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	for range 4 {
		if err := p.ProduceSync(ctx, &kgo.Record{Partition: 2, Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	ends, err := adm.ListEndOffsets(ctx, "orders")
	if o, ok := ends.Lookup("orders", 2); err != nil || !ok || o.Offset != 4 {
		t.Errorf("end offsets: %+v, %v", ends, err)
	}
	trimmed, err := adm.DeleteRecords(ctx, kadm.Offsets{"orders": {2: {Topic: "orders", Partition: 2, At: 3}}})
	if r, ok := trimmed.Lookup("orders", 2); err != nil || !ok || r.LowWatermark != 3 {
		t.Errorf("delete records: %+v, %v", trimmed, err)
	}
	starts, err := adm.ListStartOffsets(ctx, "orders")
	if o, ok := starts.Lookup("orders", 2); err != nil || !ok || o.Offset != 3 {
		t.Errorf("start offsets: %+v, %v", starts, err)
	}
	if dirs, err := adm.DescribeAllLogDirs(ctx, nil); err != nil || len(dirs[1]) != 2 {
		t.Errorf("log dirs: %+v, %v", dirs, err)
	}
	if brokers, err := adm.BrokerMetadata(ctx); err != nil || len(brokers.Brokers) != 1 || brokers.Cluster != "cluster-one" {
		t.Errorf("brokers: %+v, %v", brokers, err)
	}
	if gone, err := adm.DeleteTopics(ctx, "orders"); err != nil || gone["orders"].Err != nil {
		t.Errorf("delete: %+v, %v", gone, err)
	}
	if c.Image().TopicCount() != 0 {
		t.Error("the topic is still there")
	}
}

// A client that fetches by session sees every record once while partitions come
// and go.
func TestFranzSessions(t *testing.T) {
	c, opts := started(t)
	const topics = 5
	for i := range topics {
		c.topic(fmt.Sprintf("t%d", i), self, self)
	}
	ctx := within(t)
	p := client(t, opts...)
	consumer := client(t, append(opts, kgo.ConsumeRegex(), kgo.ConsumeTopics("t.*"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	for round := range 5 {
		for i := range topics {
			if err := p.ProduceSync(ctx, &kgo.Record{Topic: fmt.Sprintf("t%d", i), Value: []byte(strconv.Itoa(round))}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		for n := 0; n < topics; {
			fetches := consumer.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			fetches.EachRecord(func(r *kgo.Record) {
				n++
				if string(r.Value) != strconv.Itoa(round) {
					t.Errorf("round %d brought %s again", round, r.Value)
				}
			})
		}
	}
}

// A consumer that is the only one of its group joins, reads, commits, leaves, and goes
// on where it was.
func TestFranzConsumesInGroup(t *testing.T) {
	c, opts := started(t)
	c.topic("orders", self, self)
	ctx := within(t)
	p := client(t, opts...)
	for round := range 2 {
		for i := range 10 {
			if err := p.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte(fmt.Sprint(round, i))}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		consumer := client(t, append(opts, kgo.ConsumerGroup("crew"), kgo.ConsumeTopics("orders"), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
		for n := 0; n < 10; {
			fetches := consumer.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			fetches.EachRecord(func(r *kgo.Record) {
				n++
				if !strings.HasPrefix(string(r.Value), fmt.Sprint(round)) {
					t.Errorf("round %d brought %s again", round, r.Value)
				}
			})
		}
		if err := consumer.CommitUncommittedOffsets(ctx); err != nil {
			t.Fatal(err)
		}
		consumer.Close()
		c.groups.mu.Lock()
		if g := c.groups.groups["crew"]; len(g.Members) != 0 {
			t.Errorf("round %d: the member did not leave: %+v", round, g.Members)
		}
		c.groups.mu.Unlock()
	}
}

func TestFranzGroupAdmin(t *testing.T) {
	c, opts := started(t)
	c.topic("orders", self, self)
	c.groups.stable("crew")
	c.groups.offset("idle", "orders", 1, 3)
	adm := kadm.NewClient(client(t, opts...))
	ctx := within(t)
	listed, err := adm.ListGroups(ctx)
	if err != nil || listed["crew"].State != "Stable" || listed["idle"].State != "Empty" {
		t.Errorf("list: %+v, %v", listed, err)
	}
	described, err := adm.DescribeGroups(ctx, "crew", "nobody")
	if err != nil || described["crew"].State != "Stable" || len(described["crew"].Members) != 1 || !errors.Is(described["nobody"].Err, kerr.GroupIDNotFound) {
		t.Errorf("describe: %+v, %v", described, err)
	}
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: "orders", Partition: 0, At: 42, LeaderEpoch: -1, Metadata: "here"})
	if err := adm.CommitAllOffsets(ctx, "idle", offsets); err != nil {
		t.Errorf("commit: %v", err)
	}
	fetched, err := adm.FetchOffsets(ctx, "idle")
	if o, ok := fetched.Lookup("orders", 0); err != nil || !ok || o.At != 42 || o.Metadata != "here" || len(fetched["orders"]) != 2 {
		t.Errorf("fetch: %+v, %v", fetched, err)
	}
	many := adm.FetchManyOffsets(ctx, "idle", "crew")
	if o, ok := many["crew"].Fetched.Lookup("orders", 0); !ok || o.At != 7 || many.Error() != nil {
		t.Errorf("fetch of many: %+v", many)
	}
	if lags, err := adm.Lag(ctx, "idle"); err != nil || lags.Error() != nil || len(lags["idle"].Lag["orders"]) != 2 {
		t.Errorf("lag: %+v, %v", lags, err)
	}
	gone, err := adm.DeleteOffsets(ctx, "idle", kadm.TopicsSet{"orders": {1: {}}})
	if err != nil || gone.Error() != nil || len(c.groups.groups["idle"].offsets) != 1 {
		t.Errorf("delete offsets: %+v, %v", gone, err)
	}
	deleted, err := adm.DeleteGroups(ctx, "idle", "crew")
	if err != nil || deleted["idle"].Err != nil || !errors.Is(deleted["crew"].Err, kerr.NonEmptyGroup) {
		t.Errorf("delete: %+v, %v", deleted, err)
	}
}
