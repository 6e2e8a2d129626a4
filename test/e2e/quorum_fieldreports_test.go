package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What others met with the quorum of their controllers, and with what it knows of topics,
// each with its right outcome.

// startQuorum starts brokers that all vote for the controller.
func startQuorum(t *testing.T, n int) *broker {
	t.Helper()
	b := startBrokers(t, n, "--set", fmt.Sprint("controller.quorum.target=", n))
	err := eventually(testContext(t, startTimeout), func() error {
		if voters := len(b.quorum().CurrentVoters); voters != n {
			return fmt.Errorf("%d voters, want %d", voters, n)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, b.tail())
	}
	return b
}

// running fails the test where a broker has ended, or was started again, by itself.
func (b *broker) running(starts ...int) {
	b.t.Helper()
	for i, m := range b.members() {
		if m.State != "running" || m.Starts != starts[i] {
			b.t.Errorf("broker %d is %s after %d starts, want %d: %s\n%s", m.Broker, m.State, m.Starts, starts[i], m.Error, b.tail())
		}
	}
}

// FR-34: of five brokers two die at a time, another two each time, again and again. Every
// broker that lives knows the topic all the while, and it keeps its records.
func TestFR34NoTopicIsForgotten(t *testing.T) {
	t.Parallel()
	const brokers, each, topic = 5, 20, "stream"
	rounds := 3
	if full() {
		rounds = 30
	}
	b := startQuorum(t, brokers)
	b.placeTopic(topic, nil, []int32{1, 2, 3}, []int32{3, 4, 5}, []int32{5, 1, 2})
	for n := int32(1); n <= brokers; n++ {
		awaitTopic(t, b.addrOf(n), topic)
	}
	id := topicID(t, b.addr(), topic)
	ctx := testContext(t, 10*time.Minute)
	producer := newClient(t, b.addr(), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var want []string
	for round := range rounds {
		var records []*kgo.Record
		for i := range each {
			v := fmt.Sprintf("%d of round %d", i, round)
			records, want = append(records, &kgo.Record{Partition: int32(i % 3), Value: []byte(v)}), append(want, v)
		}
		if err := producer.ProduceSync(ctx, records...).FirstErr(); err != nil {
			t.Fatalf("round %d: %v\n%s", round, err, b.tail())
		}
		down := []int32{int32(round%brokers) + 1, int32((round+1)%brokers) + 1}
		for _, n := range down {
			b.dev("kill", n)
		}
		for n := int32(1); n <= brokers; n++ {
			if !slices.Contains(down, n) && topicID(t, b.addrOf(n), topic) != id {
				t.Fatalf("with %v dead, broker %d has another topic", down, n)
			}
		}
		for _, n := range down {
			b.dev("restart", n)
		}
		for p := range int32(3) {
			b.await(topic, p, inSync(3))
		}
		for n := int32(1); n <= brokers; n++ {
			if topicID(t, b.addrOf(n), topic) != id {
				t.Fatalf("after the deaths of %v, broker %d has another topic", down, n)
			}
		}
	}
	var got []string
	c := newClient(t, b.addr(), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for _, r := range poll(t, c, len(want)) {
		got = append(got, string(r.Value))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d records, want these %d: %v", len(got), len(want), got)
	}
}

// awaitTopic waits until these brokers know a topic that was just made: each hears of it by itself.
func awaitTopic(t *testing.T, addr, topic string) {
	t.Helper()
	err := eventually(testContext(t, startTimeout), func() error {
		_, known, err := askTopic(t, addr, topic)
		if err == nil && !known {
			err = fmt.Errorf("topic %s is not known yet", topic)
		}
		return err
	})
	if err != nil {
		t.Fatalf("topics of %s: %v", addr, err)
	}
}

// topicID asks these brokers for a topic until they name it: no error but one that the
// client may retry is taken for an answer.
func topicID(t *testing.T, addr, topic string) (id [16]byte) {
	t.Helper()
	err := eventually(testContext(t, startTimeout), func() (err error) {
		var known bool
		if id, known, err = askTopic(t, addr, topic); err == nil && !known {
			t.Fatalf("%s knows no topic %s", addr, topic)
		}
		return err
	})
	if err != nil {
		t.Fatalf("topics of %s: %v", addr, err)
	}
	return id
}

// askTopic asks one of these brokers once.
func askTopic(t *testing.T, addr, topic string) (id [16]byte, known bool, err error) {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest() // of all topics
	resp, err := req.RequestWith(testContext(t, 5*time.Second), newClient(t, addr))
	if err != nil {
		return id, false, err
	}
	for _, is := range resp.Topics {
		if *is.Topic == topic {
			return is.TopicID, true, nil
		}
	}
	return id, false, nil
}

// changeVoter asks for AddRaftVoter or RemoveRaftVoter.
func (b *broker) changeVoter(req kmsg.Request) error {
	b.t.Helper()
	resp, err := newClient(b.t, b.addr()).Request(testContext(b.t, startTimeout), req)
	if err != nil {
		b.t.Fatalf("%v\n%s", err, b.tail())
	}
	switch resp := resp.(type) {
	case *kmsg.AddRaftVoterResponse:
		return kerr.ErrorForCode(resp.ErrorCode)
	case *kmsg.RemoveRaftVoterResponse:
		return kerr.ErrorForCode(resp.ErrorCode)
	}
	b.t.Fatalf("answered by %T", resp)
	return nil
}

// quorumOf is a quorum in a line.
func quorumOf(p kmsg.DescribeQuorumResponseTopicPartition) string {
	ids := func(of []kmsg.DescribeQuorumResponseTopicPartitionReplicaState) (out []int32) {
		for _, r := range of {
			out = append(out, r.ReplicaID)
		}
		return out
	}
	return fmt.Sprintf("leader %d in epoch %d, voters %v, observers %v", p.LeaderID, p.LeaderEpoch, ids(p.CurrentVoters), ids(p.Observers))
}

// FR-35: the active controller is removed from those that vote. Another one is active at
// once, the one that was removed goes on as a broker that follows, and may vote again.
func TestFR35TheActiveControllerIsRemoved(t *testing.T) {
	t.Parallel()
	const brokers, topic = 3, "orders"
	b := startQuorum(t, brokers)
	b.placeTopic(topic, nil, []int32{1, 2, 3})
	before := b.quorum()
	i := slices.IndexFunc(before.CurrentVoters, func(v kmsg.DescribeQuorumResponseTopicPartitionReplicaState) bool {
		return v.ReplicaID == before.LeaderID
	})
	dir := before.CurrentVoters[i].ReplicaDirectoryID
	remove := kmsg.NewPtrRemoveRaftVoterRequest()
	remove.VoterID, remove.VoterDirectoryID = before.LeaderID, dir
	if err := b.changeVoter(remove); err != nil {
		t.Fatalf("remove voter %d, which leads: %v\n%s", before.LeaderID, err, b.tail())
	}
	after := b.quorum()
	follows := slices.ContainsFunc(after.Observers, func(o kmsg.DescribeQuorumResponseTopicPartitionReplicaState) bool {
		return o.ReplicaID == before.LeaderID && o.ReplicaDirectoryID == dir
	})
	if after.LeaderID == before.LeaderID || len(after.CurrentVoters) != brokers-1 || !follows {
		t.Errorf("of %s it became %s", quorumOf(before), quorumOf(after))
	}
	if err := b.changeVoter(remove); !errors.Is(err, kerr.VoterNotFound) {
		t.Errorf("removed again: %v", err)
	}
	createTopic(t, b.addrOf(before.LeaderID), "later", 3)
	franzProduce(t, b.addr(), "later", "none", numbered(10))
	franzProduce(t, b.addr(), topic, "none", numbered(10))
	b.partition0(topic, brokers)
	add := kmsg.NewPtrAddRaftVoterRequest()
	add.VoterID, add.VoterDirectoryID, add.TimeoutMillis = before.LeaderID, dir, 10_000
	if err := b.changeVoter(add); err != nil {
		t.Errorf("add it again: %v\n%s", err, b.tail())
	}
	if now := b.quorum(); len(now.CurrentVoters) != brokers || len(now.Observers) != 0 {
		t.Errorf("in the end %s", quorumOf(now))
	}
	b.running(1, 1, 1)
}

// FR-37: beside a cluster of one broker two are started at once, with empty directories,
// and all three as seeds, while the one is down. They have a majority of three, and must
// not become a cluster of their own: they wait, and join the one when it is there.
func TestFR37NewBrokersFormNoSecondCluster(t *testing.T) {
	t.Parallel()
	const waits = "no cluster is created before every seed has said that it has none"
	all := newServers(t, 3)
	first := all[0]
	seeds := first.settings
	first.settings = slices.Clone(seeds)
	for i, pair := range first.settings {
		if strings.HasPrefix(pair, "cluster.seeds=") {
			first.settings[i] = "cluster.seeds="
		}
	}
	first.start()
	createTopic(t, first.addr(), "kept", 1)
	franzProduce(t, first.addr(), "kept", "none", numbered(10))
	cluster := clusterID(t, first.addr())
	first.settings = seeds
	first.stop()

	for _, b := range all[1:] {
		b.launch()
	}
	// The second has heard from the third that it has none, and waits for the first alone;
	// the third waits for both, since the second would create one.
	for b, want := range map[*broker]string{
		all[1]: fmt.Sprintf("waiting_for=%s\n", first.transport()),
		all[2]: fmt.Sprintf("waiting_for=\"%s, %s\"\n", first.transport(), all[1].transport()),
	} {
		if err := eventually(testContext(t, startTimeout), func() error {
			if out := b.output(); !strings.Contains(out, waits) || !strings.Contains(out, want) {
				return fmt.Errorf("it does not say %q and %q", waits, want)
			}
			return nil
		}); err != nil {
			t.Fatalf("%v\n%s", err, b.tail())
		}
	}
	// Several rounds of questions later, nothing has changed.
	pause(testContext(t, startTimeout), 2*time.Second)
	for _, b := range all[1:] {
		if _, err := os.Stat(filepath.Join(b.dir, "quorum", "quorum.db")); !errors.Is(err, os.ErrNotExist) || strings.Contains(b.output(), "created a cluster") {
			t.Fatalf("a broker keeps metadata (%v) though there is no cluster\n%s", err, b.tail())
		}
	}
	first.start()
	for _, b := range all[1:] {
		b.waitReady()
		if got := clusterID(t, b.addr()); got != cluster {
			t.Errorf("a broker is of cluster %s, and the first one of %s", got, cluster)
		}
		check(t, franzConsume(t, b.addr(), "kept", 10), numbered(10))
	}
	if err := eventually(testContext(t, startTimeout), func() error {
		if q := first.quorum(); len(q.CurrentVoters) != 3 {
			return errors.New(quorumOf(q))
		}
		return nil
	}); err != nil {
		t.Errorf("%v\n%s", err, first.tail())
	}
}

// transport is where a broker that runs as on a server listens to others.
func (b *broker) transport() string {
	const key = `transport.config={"listen":"`
	for _, pair := range b.settings {
		if rest, ok := strings.CutPrefix(pair, key); ok {
			addr, _, _ := strings.Cut(rest, `"`)
			return addr
		}
	}
	return ""
}

func clusterID(t *testing.T, addr string) string {
	t.Helper()
	m, err := newAdmin(t, addr).BrokerMetadata(testContext(t, startTimeout))
	if err != nil {
		t.Fatalf("metadata of %s: %v", addr, err)
	}
	return m.Cluster
}

// FR-38: the active controller of five is told to end. When it has ended, another one is
// active already, in the next epoch: no time-out was waited for, and no vote was lost.
func TestFR38TheActiveControllerHandsOver(t *testing.T) {
	t.Parallel()
	const brokers = 5
	b := startQuorum(t, brokers)
	starts := []int{1, 1, 1, 1, 1}
	for range 2 {
		before := b.quorum()
		pid := b.members()[before.LeaderID-1].PID
		var others []string
		for n := int32(1); n <= brokers; n++ {
			if n != before.LeaderID {
				others = append(others, b.addrOf(n))
			}
		}
		clients := make([]*kgo.Client, len(others))
		for i, addr := range others {
			clients[i] = newClient(t, addr)
			if _, err := askQuorum(t.Context(), clients[i]); err != nil {
				t.Fatal(err)
			}
		}
		ctx := testContext(t, startTimeout)
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := eventually(ctx, func() error {
			if m := b.members()[before.LeaderID-1]; m.State != "ended" {
				return fmt.Errorf("it is %s", m.State)
			}
			return nil
		}); err != nil {
			t.Fatalf("broker %d does not end: %v\n%s", before.LeaderID, err, b.tail())
		}
		for i, c := range clients {
			after, err := askQuorum(ctx, c)
			if err != nil || after.LeaderID == before.LeaderID || after.LeaderEpoch != before.LeaderEpoch+1 {
				t.Errorf("%s: controller %d in epoch %d, after %d in epoch %d (%v)\n%s",
					others[i], after.LeaderID, after.LeaderEpoch, before.LeaderID, before.LeaderEpoch, err, b.tail())
			}
		}
		b.dev("restart", before.LeaderID)
		starts[before.LeaderID-1]++
		b.waitBrokers(brokers)
	}
	b.running(starts...)
}

// FR-84: partitions are added, and all brokers are asked at once, and go on being asked.
// What one broker says of a topic never shrinks, and a record for a new partition is taken
// or may be sent again.
func TestFR84NoBrokerTakesNewPartitionsBack(t *testing.T) {
	t.Parallel()
	const brokers, most, topic = 3, 30, "grows"
	b := startBrokers(t, brokers)
	createTopic(t, b.addr(), topic, 1)
	b.partition0(topic, brokers)
	b.known(topic)
	ctx, stop := context.WithCancelCause(testContext(t, time.Minute))
	defer stop(nil)
	done := make(chan int, brokers)
	for n := int32(1); n <= brokers; n++ {
		c := newClient(t, b.addrOf(n))
		go func() {
			asked, err := watchGrowth(ctx, c, topic, most)
			if err != nil {
				stop(fmt.Errorf("broker %d: %w", n, err))
			}
			done <- asked
		}()
	}
	admin, again := newAdmin(t, b.addr()), 0
	for n := 2; n <= most; n++ {
		if resp, err := admin.UpdatePartitions(ctx, n, topic); err != nil || resp.Error() != nil {
			t.Fatalf("to %d partitions: %v %v", n, err, resp.Error())
		}
		for at := int32(1); at <= brokers; at++ {
			err := b.produceOnce(b.addrOf(at), topic, int32(n-1))
			if err != nil && !kerr.IsRetriable(err) {
				t.Errorf("broker %d, partition %d: %v", at, n-1, err)
			}
			if err != nil {
				again++
			}
		}
	}
	asked := 0
	for range brokers {
		asked += <-done
	}
	if err := context.Cause(ctx); err != nil {
		t.Error(err)
	}
	if asked < brokers*most {
		t.Errorf("asked %d times: nothing was seen", asked)
	}
	t.Logf("asked %d times, %d records were to be sent again", asked, again)
}

// watchEvery is how often a broker is asked what it says of a topic that changes.
const watchEvery = 2 * time.Millisecond

// watchGrowth asks one broker for a topic until it has so many partitions; it is an error
// if they become fewer.
func watchGrowth(ctx context.Context, c *kgo.Client, topic string, most int) (asked int, err error) {
	req := kmsg.NewPtrMetadataRequest()
	of := kmsg.NewMetadataRequestTopic()
	of.Topic = &topic
	req.Topics = append(req.Topics, of)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for had := 0; had < most; asked++ {
		<-tick.C
		resp, err := c.SeedBrokers()[0].Request(ctx, req)
		if err != nil {
			return asked, err
		}
		is := resp.(*kmsg.MetadataResponse).Topics[0]
		if err := kerr.ErrorForCode(is.ErrorCode); err != nil {
			return asked, err
		}
		if len(is.Partitions) < had {
			return asked, fmt.Errorf("%d partitions after %d", len(is.Partitions), had)
		}
		had = len(is.Partitions)
	}
	return asked, nil
}

// produceOnce sends a record to one broker, whether it leads or not, and returns what it
// said.
func (b *broker) produceOnce(addr, topic string, partition int32) error {
	b.t.Helper()
	part := kmsg.NewProduceRequestTopicPartition()
	part.Partition, part.Records = partition, rawBatch("x", -1, -1, -1)
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID, rt.Partitions = topic, topicID(b.t, addr, topic), []kmsg.ProduceRequestTopicPartition{part}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis, req.Topics = -1, 5000, []kmsg.ProduceRequestTopic{rt}
	resp, err := newClient(b.t, addr).SeedBrokers()[0].Request(testContext(b.t, startTimeout), req)
	if err != nil {
		b.t.Fatalf("produce: %v", err)
	}
	return kerr.ErrorForCode(resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
}
