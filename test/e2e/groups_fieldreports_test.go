package e2e

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// What others met with groups and their coordinators, each with its right outcome.

// oldClient speaks as Kafka 2.1 did: requests name one group, and topics by name.
func oldClient(t *testing.T, addr string) *kgo.Client {
	t.Helper()
	return newClient(t, addr, kgo.MaxVersions(kversion.V2_1_0()))
}

// findCoordinator asks once.
func findCoordinator(t *testing.T, c *kgo.Client, group string) *kmsg.FindCoordinatorResponse {
	t.Helper()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey, req.CoordinatorKeys = group, []string{group}
	resp, err := c.SeedBrokers()[0].Request(testContext(t, startTimeout), req)
	if err != nil {
		t.Fatalf("find the coordinator of %s: %v", group, err)
	}
	return resp.(*kmsg.FindCoordinatorResponse)
}

// inState is nil once the group is in this state.
func inState(t *testing.T, c *kgo.Client, group, state string) error {
	t.Helper()
	got, err := kadm.NewClient(c).DescribeGroups(testContext(t, startTimeout), group)
	if err != nil {
		return err
	}
	if g := got[group]; g.State != state {
		return fmt.Errorf("group %s is %s (%w)", group, g.State, g.Err)
	}
	return nil
}

// commitFor commits for a group without members.
func commitFor(t *testing.T, addr, group, topic string, partition int32, at int64) {
	t.Helper()
	var offsets kadm.Offsets
	offsets.AddOffset(topic, partition, at, -1)
	if err := newAdmin(t, addr).CommitAllOffsets(testContext(t, startTimeout), group, offsets); err != nil {
		t.Fatalf("commit for %s: %v", group, err)
	}
}

// committedOf is what a group has committed of a partition; false: nothing.
func committedOf(t *testing.T, addr, group, topic string, partition int32) (int64, bool) {
	t.Helper()
	got, err := newAdmin(t, addr).FetchOffsets(testContext(t, startTimeout), group)
	if err != nil {
		t.Fatalf("offsets of %s: %v", group, err)
	}
	o, ok := got.Lookup(topic, partition)
	if !ok || o.Err != nil || o.At < 0 {
		return 0, false
	}
	return o.At, true
}

// FR-2: with Kafka's refusal asked for, the offsets topic is not made while its
// replicas cannot be had, and the client is told why.
func TestFR2StrictPolicyMakesNoOffsetsTopic(t *testing.T) {
	b := startBroker(t, "--set", "replication.policy=strict")
	resp := findCoordinator(t, newClient(t, b.addr()), "g").Coordinators[0]
	if !errors.Is(kerr.ErrorForCode(resp.ErrorCode), kerr.CoordinatorNotAvailable) {
		t.Errorf("answered %v", kerr.ErrorForCode(resp.ErrorCode))
	}
	if resp.ErrorMessage == nil || !strings.Contains(*resp.ErrorMessage, "there are to be 3 replicas, and 1 brokers are registered") {
		t.Errorf("the reason is %v", resp.ErrorMessage)
	}
	topics, err := newAdmin(t, b.addr()).ListTopicsWithInternal(testContext(t, startTimeout))
	if err != nil || topics.Has("__consumer_offsets") {
		t.Errorf("topics %v, %v", topics.Names(), err)
	}
}

// FR-3: one broker with the default configuration serves groups.
func TestFR3OneBrokerServesGroups(t *testing.T) {
	b := startBroker(t)
	createTopic(t, b.addr(), "first", 1)
	franzProduce(t, b.addr(), "first", "none", numbered(10))
	out := run(t, nil, tool(t, "kcat"), "-b", b.addr(), "-G", "group", "-q", "-X", "auto.offset.reset=earliest", "-c", "10", "first")
	if n := strings.Count(string(out), "\n"); n != 10 {
		t.Errorf("%d records:\n%s", n, out)
	}
	if !strings.Contains(b.output(), "not replicated") {
		t.Errorf("nothing on the console says that one broker is not replicated:\n%s", b.tail())
	}
}

// FR-7: the offsets topic has all of its partitions from the start, whoever it is made
// by, and is compacted.
func TestFR7OffsetsTopicHasAllItsPartitions(t *testing.T) {
	for name, makeIt := range map[string]func(t *testing.T, addr string){
		"by a group": func(t *testing.T, addr string) { findCoordinator(t, newClient(t, addr), "g") },
		"by hand": func(t *testing.T, addr string) {
			if _, err := newAdmin(t, addr).CreateTopic(testContext(t, startTimeout), -1, -1, nil, "__consumer_offsets"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBroker(t)
			makeIt(t, b.addr())
			admin, ctx := newAdmin(t, b.addr()), testContext(t, startTimeout)
			var topic kadm.TopicDetail
			if err := eventually(ctx, func() error {
				topics, err := admin.ListTopicsWithInternal(ctx, "__consumer_offsets")
				if err != nil {
					return err
				}
				topic = topics["__consumer_offsets"]
				return topic.Err
			}); err != nil {
				t.Fatal(err)
			}
			if len(topic.Partitions) != 50 || !topic.IsInternal {
				t.Errorf("%d partitions, internal %v", len(topic.Partitions), topic.IsInternal)
			}
			configs, err := admin.DescribeTopicConfigs(ctx, "__consumer_offsets")
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"cleanup.policy": "compact", "segment.bytes": "104857600", "compression.type": "producer"}
			for _, c := range configs[0].Configs {
				if w, ok := want[c.Key]; ok && c.MaybeValue() != w {
					t.Errorf("%s is %s", c.Key, c.MaybeValue())
				}
			}
		})
	}
}

// The retention under which expiry is tested, and how long is waited for it.
const (
	shortRetention = 2 * time.Second
	expiryWait     = 3 * shortRetention
)

func expiring() []string {
	return []string{"--set", "offsets.retention.minutes=" + shortRetention.String(), "--set", "offsets.retention.check.interval.ms=100"}
}

// outlast waits until an empty group's offsets, committed now, have expired: those
// that are to go at the same time have gone by then.
func outlast(t *testing.T, addr, topic string) {
	t.Helper()
	commitFor(t, addr, "empty", topic, 0, 1)
	begun := time.Now()
	err := eventually(testContext(t, time.Minute), func() error {
		if _, there := committedOf(t, addr, "empty", topic, 0); there {
			return errors.New("the offsets of an empty group are there")
		}
		if time.Since(begun) < expiryWait {
			return errors.New("too soon")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// FR-9: the offsets of a group that rebalances do not expire, however long that takes.
func TestFR9OffsetsOfARebalancingGroupStay(t *testing.T) {
	t.Parallel()
	b := startBroker(t, expiring()...)
	createTopic(t, b.addr(), "orders", 2)
	franzProduce(t, b.addr(), "orders", "none", numbered(10))
	slow := newClient(t, b.addr(), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("orders"), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.Balancers(kgo.RangeBalancer()), kgo.RebalanceTimeout(5*time.Minute))
	defer slow.CloseAllowingRebalance()
	ctx := testContext(t, startTimeout)
	got := slow.PollFetches(ctx) // and it does not let go
	if err := slow.CommitRecords(ctx, got.Records()...); err != nil || got.NumRecords() == 0 {
		t.Fatalf("%d records, %v", got.NumRecords(), err)
	}
	second := newClient(t, b.addr(), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("orders"), kgo.Balancers(kgo.RangeBalancer()))
	if err := eventually(ctx, func() error { return inState(t, second, "g", "PreparingRebalance") }); err != nil {
		t.Fatal(err)
	}
	outlast(t, b.addr(), "orders")
	if err := inState(t, second, "g", "PreparingRebalance"); err != nil {
		t.Fatal(err)
	}
	if at, there := committedOf(t, b.addr(), "g", "orders", 0); !there || at != 10 {
		t.Errorf("committed %d, there: %v", at, there)
	}
}

// FR-10: of a living group the offsets of topics go that it has given up, and no
// others.
func TestFR10OnlyOffsetsOfTopicsGivenUpExpire(t *testing.T) {
	t.Parallel()
	b := startBroker(t, expiring()...)
	for _, topic := range []string{"kept", "dropped"} {
		createTopic(t, b.addr(), topic, 1)
		franzProduce(t, b.addr(), topic, "none", numbered(5))
	}
	c := newClient(t, b.addr(), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("kept", "dropped"), kgo.DisableAutoCommit())
	ctx := testContext(t, startTimeout)
	for n := 0; n < 10; {
		got := c.PollFetches(ctx)
		if err := c.CommitRecords(ctx, got.Records()...); err != nil {
			t.Fatal(err)
		}
		n += got.NumRecords()
	}
	outlast(t, b.addr(), "kept")
	for _, topic := range []string{"kept", "dropped"} {
		if at, there := committedOf(t, b.addr(), "g", topic, 0); !there || at != 5 {
			t.Errorf("while the group reads it: %s %d, there: %v", topic, at, there)
		}
	}
	c.PurgeTopicsFromConsuming("dropped")
	c.PollFetches(testContext(t, 500*time.Millisecond))
	err := eventually(testContext(t, time.Minute), func() error {
		if at, there := committedOf(t, b.addr(), "g", "dropped", 0); there {
			return fmt.Errorf("the topic that was given up still has %d", at)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	outlast(t, b.addr(), "kept")
	if at, there := committedOf(t, b.addr(), "g", "kept", 0); !there || at != 5 {
		t.Errorf("the topic that is read: %d, there: %v", at, there)
	}
}

// FR-14: a broker that comes back says where a group was, or that it does not know
// yet; never that there is nothing.
func TestFR14OffsetsAreThereAfterARestart(t *testing.T) {
	const partitions, commits = 100, 300
	b := startBroker(t)
	createTopic(t, b.addr(), "orders", partitions)
	var last int64
	for n := range commits { // so that there is something to load
		var offsets kadm.Offsets
		for p := range int32(partitions) {
			offsets.AddOffset("orders", p, int64(n+1), -1)
		}
		if err := newAdmin(t, b.addr()).CommitAllOffsets(testContext(t, startTimeout), "g", offsets); err != nil {
			t.Fatal(err)
		}
		last = int64(n + 1)
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = "g"
	topic := kmsg.NewOffsetFetchRequestTopic()
	topic.Topic, topic.Partitions = "orders", []int32{0, partitions - 1}
	req.Topics = append(req.Topics, topic)
	for _, crash := range []bool{true, false, true} {
		if crash {
			b.kill()
		} else {
			b.stop()
		}
		b.launch()
		loading := 0
		c := oldClient(t, b.addr())
		ctx := testContext(t, startTimeout)
		err := eventually(ctx, func() error {
			for ctx.Err() == nil {
				resp, err := c.SeedBrokers()[0].Request(ctx, req)
				if err != nil {
					return err
				}
				got := resp.(*kmsg.OffsetFetchResponse)
				if got.ErrorCode != 0 {
					loading++
					if e := kerr.ErrorForCode(got.ErrorCode); !kerr.IsRetriable(e) {
						return e
					}
					continue // at once: it is to be caught while it loads
				}
				for _, p := range got.Topics[0].Partitions {
					if p.Offset != last {
						t.Errorf("partition %d: %d (%v), want %d", p.Partition, p.Offset, kerr.ErrorForCode(p.ErrorCode), last)
					}
				}
				return nil
			}
			return ctx.Err()
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("crash=%v: asked %d times while it was loaded", crash, loading)
	}
}

// FR-15: members of a cooperative group come and go while it commits; no offset goes
// back, and a commit of an earlier generation is refused.
func TestFR15NoOffsetGoesBackInRebalances(t *testing.T) {
	t.Parallel()
	const partitions = 6
	b := startBroker(t)
	createTopic(t, b.addr(), "orders", partitions)
	j := newJournal("cooperative", "orders")
	stopProducing := j.produce(t, b.addr(), partitions, 5*time.Millisecond)
	eager := kgo.Balancers(kgo.CooperativeStickyBalancer())
	first := j.join(t, b.addr(), eager)
	j.waitCommits(t, b, 20)
	stopWatching := j.watch(t, b.addr())
	id, old := first.c.GroupMetadata()
	rounds := 4
	if full() {
		rounds = 40
	}
	for range rounds {
		others := []*member{j.join(t, b.addr(), eager), j.join(t, b.addr(), eager)}
		j.waitCommits(t, b, 60)
		others[rand.IntN(2)].stop()
		j.waitCommits(t, b, 30)
		for _, m := range others {
			m.stop()
		}
		j.waitCommits(t, b, 30)
	}
	_, now := first.c.GroupMetadata()
	if now < old+int32(rounds) {
		t.Errorf("the generation went from %d to %d in %d rounds", old, now, rounds)
	}
	before := j.told(0)
	if code := staleCommit(t, b.addr(), j, id, old); !errors.Is(code, kerr.IllegalGeneration) {
		t.Errorf("a commit of generation %d: %v", old, code)
	}
	stopProducing()
	j.finish(t, b)
	if at, there := committedOf(t, b.addr(), j.group, "orders", 0); !there || at < before {
		t.Errorf("committed %d (there: %v) after %d", at, there, before)
	}
	t.Logf("%d generations, %d commits, looked at %d times", now-old, j.commits, stopWatching())
}

// staleCommit commits 0 for partition 0 as a member of this generation.
func staleCommit(t *testing.T, addr string, j *journal, id string, generation int32) error {
	t.Helper()
	part := kmsg.NewOffsetCommitRequestTopicPartition()
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.Partitions = j.topic, []kmsg.OffsetCommitRequestTopicPartition{part}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation, req.Topics = j.group, id, generation, []kmsg.OffsetCommitRequestTopic{topic}
	resp, err := oldClient(t, addr).SeedBrokers()[0].Request(testContext(t, startTimeout), req)
	if err != nil {
		t.Fatal(err)
	}
	return kerr.ErrorForCode(resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode)
}

// FR-16: more members than partitions, of which some stop: nothing is rolled back, and
// idle members take over.
func TestFR16IdleMembersRollNothingBack(t *testing.T) {
	t.Parallel()
	const partitions, members, stopped = 9, 14, 5
	b := startBroker(t)
	createTopic(t, b.addr(), "orders", partitions)
	j := newJournal("crowd", "orders")
	stopProducing := j.produce(t, b.addr(), partitions, 10*time.Millisecond)
	var all []*member
	for range members {
		all = append(all, j.join(t, b.addr(), kgo.Balancers(kgo.RangeBalancer())))
	}
	j.waitCommits(t, b, 100)
	stopWatching := j.watch(t, b.addr())
	for range 2 {
		rand.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
		for _, m := range all[:stopped] {
			m.stop()
		}
		all = all[stopped:]
		j.waitCommits(t, b, 100)
		for range stopped {
			all = append(all, j.join(t, b.addr(), kgo.Balancers(kgo.RangeBalancer())))
		}
		j.waitCommits(t, b, 100)
	}
	stopProducing()
	j.finish(t, b)
	t.Logf("%d commits, looked at %d times", j.commits, stopWatching())
}

// FR-17: with no fault at all, but rebalances, for a while: no offset that was not
// committed, least of all 0, nothing acknowledged that is not delivered, nobody stuck.
func TestFR17HealthyClusterUnderRebalances(t *testing.T) {
	t.Parallel()
	const partitions = 8
	length := 15 * time.Second
	if full() {
		length = 5 * time.Minute
	}
	b := startBroker(t)
	createTopic(t, b.addr(), "orders", partitions)
	j := newJournal("changing", "orders")
	stopProducing := j.produce(t, b.addr(), partitions, 2*time.Millisecond)
	all := []*member{j.join(t, b.addr())}
	j.waitCommits(t, b, 1)
	stopWatching := j.watch(t, b.addr())
	rebalances := 0
	for end := time.Now().Add(length); time.Now().Before(end); rebalances++ {
		if len(all) < 2 || len(all) < 6 && rand.IntN(2) == 0 {
			all = append(all, j.join(t, b.addr()))
		} else {
			i := rand.IntN(len(all))
			all[i].stop()
			all = append(all[:i], all[i+1:]...)
		}
		j.waitCommits(t, b, 10+rand.IntN(100))
	}
	stopProducing()
	j.finish(t, b)
	t.Logf("%d members came or went, %d commits, looked at %d times", rebalances, j.commits, stopWatching())
}

// FR-18: where the offsets topic cannot be made, the reason is in the answer, in the
// log and in a metric; it never is just that this is not the coordinator.
func TestFR18WhyThereIsNoCoordinatorCanBeFound(t *testing.T) {
	admin := freePort(t)
	b := startBroker(t, "--set", "replication.policy=strict", "--admin-port", strconv.Itoa(admin))
	c := newClient(t, b.addr())
	for range 5 {
		findCoordinator(t, c, "g")
	}
	if out := b.output(); !strings.Contains(out, "clients are not told their groups' coordinator") || !strings.Contains(out, "reason=creation") ||
		!strings.Contains(out, "there are to be 3 replicas") {
		t.Errorf("the log does not say it:\n%s", b.tail())
	}
	metrics := httpGet(t, fmt.Sprintf("http://127.0.0.1:%d/metrics", admin))
	if want := `brokerd_coordinator_not_available_total{reason="creation"} 5`; !strings.Contains(metrics, want) {
		t.Errorf("no metric %s", want)
	}
}

func httpGet(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(testContext(t, startTimeout), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
