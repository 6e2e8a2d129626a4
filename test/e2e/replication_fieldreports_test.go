package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What others met with replicas, with those in sync, and with elections, each with its
// right outcome. Where events have to come in an order that no process can be held to, the
// story is told in core/sim/cluster.

// acknowledgedByTwo are the settings of a topic whose records count when two replicas have
// them, and are never removed by age.
var acknowledgedByTwo = map[string]string{"min.insync.replicas": "2", "retention.ms": "-1"}

// writer produces to partition 0 of a topic, without an identity.
func writer(t *testing.T, b *broker, topic string, acks kgo.Acks) *kgo.Client {
	t.Helper()
	return newClient(t, b.addr(), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite())
}

// write sends records that must be taken, and returns the offset after them.
func write(t *testing.T, b *broker, c *kgo.Client, rs ...*kgo.Record) (next int64) {
	t.Helper()
	for _, r := range c.ProduceSync(testContext(t, startTimeout), rs...) {
		if r.Err != nil {
			t.Fatalf("produce: %v\n%s", r.Err, b.tail())
		}
		next = max(next, r.Record.Offset+1)
	}
	return next
}

// lead has a broker lead partition 0 of a topic, by making it the preferred one. It has to
// be in sync.
func (b *broker) lead(topic string, n int32) kmsg.MetadataResponseTopicPartition {
	b.t.Helper()
	admin, ctx := newAdmin(b.t, b.addr()), testContext(b.t, startTimeout)
	replicas := b.await(topic, 0, func(kmsg.MetadataResponseTopicPartition) error { return nil }).Replicas
	order := append([]int32{n}, slices.DeleteFunc(slices.Clone(replicas), func(r int32) bool { return r == n })...)
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(topic, 0, order)
	if resp, err := admin.AlterPartitionAssignments(ctx, req); err != nil || resp.Error() != nil {
		b.t.Fatalf("order %v: %v %v\n%s", order, err, resp.Error(), b.tail())
	}
	topics := kadm.TopicsSet{}
	topics.Add(topic, 0)
	resp, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, topics)
	if err == nil {
		err = resp[topic][0].Err
	}
	if err != nil && !errors.Is(err, kerr.ElectionNotNeeded) {
		b.t.Fatalf("elect %d: %v\n%s", n, err, b.tail())
	}
	return b.await(topic, 0, ledBy(n))
}

// FR-21: leaders come and go while nothing is written, so that they have led in epochs of
// which no log knows. The one that led in such an epoch before it died comes back: it is in
// sync again, and can lead. (KAFKA-10706)
func TestFR21ElectionsWithoutData(t *testing.T) {
	t.Parallel()
	const topic = "idle"
	b := startBrokers(t, 3)
	b.placeTopic(topic, acknowledgedByTwo, []int32{1, 2, 3})
	b.partition0(topic, 3)
	rs, c := numbered(10), writer(t, b, topic, kgo.AllISRAcks())
	write(t, b, c, rs...)
	first := b.lead(topic, 1)
	b.lead(topic, 2)
	b.lead(topic, 1)
	b.dev("kill", 1)
	b.partition0(topic, 2)
	b.lead(topic, 3)
	if last := b.lead(topic, 2); last.LeaderEpoch < first.LeaderEpoch+4 {
		t.Fatalf("epoch %d after %d: this is another story", last.LeaderEpoch, first.LeaderEpoch)
	}
	b.dev("restart", 1)
	b.partition0(topic, 3)
	b.lead(topic, 1)
	rs = append(rs, &kgo.Record{Key: []byte("k"), Value: []byte("later")})
	write(t, b, c, rs[len(rs)-1])
	b.partition0(topic, 3)
	check(t, franzConsume(t, b.addr(), topic, len(rs)), rs)
}

// FR-22: a follower is away until what it has not seen is removed. It begins anew where its
// leader's log starts, and leads as soon as it is in sync: what is there can be read, and
// the log goes on. (KAFKA-9491)
func TestFR22FollowerBeginsAnewAndLeads(t *testing.T) {
	t.Parallel()
	const topic, seen, removed, all = "short", 100, 250, 300
	b := startBrokers(t, 3)
	b.placeTopic(topic, acknowledgedByTwo, []int32{1, 2, 3})
	b.partition0(topic, 3)
	rs, c := numbered(all+1), writer(t, b, topic, kgo.AllISRAcks())
	write(t, b, c, rs[:seen]...)
	b.dev("kill", 1)
	b.partition0(topic, 2)
	write(t, b, c, rs[seen:all]...)
	to := kadm.Offsets{}
	to.AddOffset(topic, 0, removed, -1)
	if resp, err := newAdmin(t, b.addr()).DeleteRecords(testContext(t, startTimeout), to); err != nil || resp.Error() != nil {
		t.Fatalf("remove records: %v %v\n%s", err, resp.Error(), b.tail())
	}
	b.dev("restart", 1)
	was := b.partition0(topic, 3)
	b.dev("kill", was)
	if was == 1 {
		t.Fatal("it leads before its leader has died: this is another story")
	}
	b.await(topic, 0, ledBy(1))
	starts, err := newAdmin(t, b.addr()).ListStartOffsets(testContext(t, startTimeout), topic)
	if at, _ := starts.Lookup(topic, 0); err != nil || at.Err != nil || at.Offset != removed {
		t.Errorf("the log starts at %d (%v %v), want %d", at.Offset, err, at.Err, removed)
	}
	if next := write(t, b, c, rs[all]); next != all+1 {
		t.Errorf("the next record is before %d, want %d", next, all+1)
	}
	for i, r := range poll(t, fromStart(t, b.addr(), topic), all+1-removed) {
		if want := rs[removed+i]; r.Offset != int64(removed+i) || string(r.Value) != string(want.Value) {
			t.Fatalf("offset %d has %q where %q is to be", r.Offset, r.Value, want.Value)
		}
	}
}

// FR-23: fewer replicas are in sync than must be, and a record is acknowledged by its leader
// alone. Nobody reads it until there are enough. (KAFKA-15583)
func TestFR23NothingIsVisibleBelowTheMinimum(t *testing.T) {
	t.Parallel()
	const topic = "two"
	b := startBrokers(t, 3)
	b.placeTopic(topic, acknowledgedByTwo, []int32{1, 2})
	b.partition0(topic, 2)
	write(t, b, writer(t, b, topic, kgo.AllISRAcks()), &kgo.Record{Value: []byte("by both")})
	b.dev("kill", 2)
	b.partition0(topic, 1)
	write(t, b, writer(t, b, topic, kgo.LeaderAck()), &kgo.Record{Value: []byte("by one")})
	refused := newClient(t, b.addr(), kgo.DefaultProduceTopic(topic), kgo.RecordRetries(0), kgo.DisableIdempotentWrite())
	err := refused.ProduceSync(testContext(t, startTimeout), &kgo.Record{Value: []byte("by none")}).FirstErr()
	if !errors.Is(err, kerr.NotEnoughReplicas) {
		t.Errorf("a record for all of those in sync: %v, want %v", err, kerr.NotEnoughReplicas)
	}
	c := fromStart(t, b.addr(), topic)
	look, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	seen := 0
	for look.Err() == nil {
		seen += c.PollFetches(look).NumRecords()
	}
	if end := endOffset(t, b.addr(), topic); seen != 1 || end != 1 {
		t.Errorf("with one of two in sync, %d records are read, the last offset is %d; want 1", seen, end)
	}
	b.dev("restart", 2)
	b.partition0(topic, 2)
	if rs := poll(t, c, 1); len(rs) != 1 || string(rs[0].Value) != "by one" {
		t.Errorf("with both in sync: %v", rs)
	}
}

// FR-25: a leader is killed, and is back with an empty disk at once. It does not lead before
// it has everything again, whoever asks for it. (KIP-858, KIP-966)
func TestFR25EmptyBrokerDoesNotLead(t *testing.T) {
	t.Parallel()
	const topic, records = "emptied", 20_000
	b := startBrokers(t, 3)
	b.placeTopic(topic, acknowledgedByTwo, []int32{1, 2, 3})
	b.partition0(topic, 3)
	rs := numbered(records)
	for _, r := range rs {
		r.Value = append(r.Value, make([]byte, 500)...)
	}
	write(t, b, writer(t, b, topic, kgo.AllISRAcks()), rs...)
	b.lead(topic, 1)
	b.dev("kill", 1)
	if err := os.RemoveAll(b.dirOf(1)); err != nil {
		t.Fatal(err)
	}
	back := make(chan error, 1)
	go func() {
		_, err := b.command("dev", "restart", "1", "--data", b.dir)
		back <- err
	}()
	b.await(topic, 0, ledBy(2, 3))
	others := newClient(t, b.addrOf(2))
	ctx := testContext(t, startTimeout)
	preferred := kadm.TopicsSet{}
	preferred.Add(topic, 0)
	if err := eventually(ctx, func() error {
		// Its turn comes when it is in sync, and not before.
		if _, err := kadm.NewClient(others).ElectLeaders(ctx, kadm.ElectPreferredReplica, preferred); err != nil {
			return err
		}
		m, err := b.metadata(ctx, others, topic)
		if err != nil {
			return err
		}
		p := m.Topics[0].Partitions[0]
		if p.Leader == 1 && !slices.Contains(p.ISR, 1) {
			t.Errorf("broker 1 leads, and is not in sync: %v", p.ISR)
		}
		return inSync(3)(p)
	}); err != nil {
		t.Errorf("%v\n%s", err, b.tail())
	}
	if err := <-back; err != nil {
		t.Errorf("%v\n%s", err, b.tail())
	}
	b.lead(topic, 1)
	check(t, franzConsume(t, b.addr(), topic, records), rs)
}

// FR-27: a leader is killed and is back at once. Its leader epoch is over even where it is
// the only one that can lead. (KAFKA-18106, KAFKA-15586)
func TestFR27AnotherLifeIsAnotherEpoch(t *testing.T) {
	t.Parallel()
	const alone, three = "alone", "three"
	b := startBrokers(t, 3)
	b.placeTopic(alone, map[string]string{"min.insync.replicas": "1"}, []int32{1})
	b.placeTopic(three, acknowledgedByTwo, []int32{1, 2, 3})
	b.partition0(three, 3)
	rs := numbered(10)
	for _, topic := range []string{alone, three} {
		write(t, b, writer(t, b, topic, kgo.AllISRAcks()), numbered(10)...)
	}
	before := map[string]int32{alone: b.await(alone, 0, ledBy(1)).LeaderEpoch, three: b.lead(three, 1).LeaderEpoch}
	b.dev("kill", 1)
	b.dev("restart", 1)
	b.partition0(three, 3)
	b.await(alone, 0, ledBy(1))
	for topic, epoch := range before {
		if now := b.await(topic, 0, ledBy(1, 2, 3)); now.LeaderEpoch <= epoch {
			t.Errorf("%s: broker %d leads in epoch %d, and broker 1 did in %d before it was killed", topic, now.Leader, now.LeaderEpoch, epoch)
		}
		check(t, franzConsume(t, b.addr(), topic, len(rs)), rs)
	}
}

// FR-28: the only replica's broker dies. Nobody leads then, and clients are told so, by both
// of the others. (KAFKA-3096)
func TestFR28NobodyLeadsWhatIsNowhere(t *testing.T) {
	t.Parallel()
	const topic = "alone"
	b := startBrokers(t, 3)
	b.placeTopic(topic, map[string]string{"min.insync.replicas": "1"}, []int32{2})
	rs := numbered(10)
	write(t, b, writer(t, b, topic, kgo.AllISRAcks()), rs...)
	b.dev("kill", 2)
	for _, n := range []int32{1, 3} {
		c, ctx := newClient(t, b.addrOf(n)), testContext(t, startTimeout)
		if err := eventually(ctx, func() error {
			m, err := b.metadata(ctx, c, topic)
			if err != nil {
				return err
			}
			p := m.Topics[0].Partitions[0]
			if p.Leader != -1 || !errors.Is(kerr.ErrorForCode(p.ErrorCode), kerr.LeaderNotAvailable) || !slices.Equal(p.OfflineReplicas, []int32{2}) {
				return fmt.Errorf("leader %d, error %d, offline %v; want -1, %d, [2]", p.Leader, p.ErrorCode, p.OfflineReplicas, kerr.LeaderNotAvailable.Code)
			}
			return nil
		}); err != nil {
			t.Errorf("broker %d: %v\n%s", n, err, b.tail())
		}
	}
	b.dev("restart", 2)
	b.await(topic, 0, ledBy(2))
	check(t, franzConsume(t, b.addr(), topic, len(rs)), rs)
}

// shutdownMax bounds how long a broker may take, that is told to end and leads what nobody else
// can, until it is there again.
const shutdownMax = 15 * time.Second

// FR-30: a broker is told to end that has the only replica of some partitions. It ends all the
// same, once, and says what nobody leads now. (kubernetes-retired/contrib 2779)
func TestFR30OnlyReplicaIsToldToEnd(t *testing.T) {
	t.Parallel()
	const alone, three = "alone", "three"
	b := startBrokers(t, 3)
	b.placeTopic(alone, map[string]string{"min.insync.replicas": "1"}, []int32{1}, []int32{1})
	b.placeTopic(three, acknowledgedByTwo, []int32{1, 2, 3})
	b.partition0(three, 3)
	rs := numbered(10)
	write(t, b, writer(t, b, alone, kgo.AllISRAcks()), rs...)
	began, before := time.Now(), len(b.output())
	b.dev("restart", 1)
	if took := time.Since(began); took > shutdownMax {
		t.Errorf("it took %s to end and to be there again", took)
	}
	said := b.output()[before:]
	if strings.Contains(said, "before the controller has let it go") || !strings.Contains(said, "nobody leads") {
		t.Errorf("it did not say what it left behind\n%s", said)
	}
	if m := b.members()[0]; m.State != "running" || m.Starts != 2 {
		t.Errorf("broker 1 is %s after %d starts, want 2", m.State, m.Starts)
	}
	b.await(alone, 0, ledBy(1))
	check(t, franzConsume(t, b.addr(), alone, len(rs)), rs)
}

// FR-31: the disk of a leader's store fails, and its process lives. Others lead, with all
// that was acknowledged; the leader does not make itself the only one in sync.
// (KAFKA-7837)
func TestFR31LeaderWithAFailedDisk(t *testing.T) {
	t.Parallel()
	const topic = "failing"
	dir := t.TempDir()
	fail := breakableDisk(t, filepath.Join(brokerDir(dir, 1), "main"))
	b := startBrokersOn(t, dir, 3)
	b.placeTopic(topic, acknowledgedByTwo, []int32{1, 2, 3})
	b.partition0(topic, 3)
	l := newLedger()
	stop := franzLoad(t, b.addr(), topic, l)
	ctx := testContext(t, time.Minute)
	waitAcked(ctx, t, b, l, 500)
	b.lead(topic, 1)
	fail()
	b.await(topic, 0, func(p kmsg.MetadataResponseTopicPartition) error {
		if p.Leader == 1 && len(p.ISR) == 1 {
			t.Errorf("the leader with the failed disk is alone in sync")
		}
		return ledBy(2, 3)(p)
	})
	waitAcked(ctx, t, b, l, l.inFlight()+1)
	is := b.await(topic, 0, inSync(2))
	if slices.Contains(is.ISR, 1) {
		t.Errorf("in sync are %v, and the disk of broker 1 has failed", is.ISR)
	}
	if m := b.members()[0]; m.State != "running" || m.Starts != 1 {
		t.Errorf("broker 1 is %s after %d starts: %s", m.State, m.Starts, m.Error)
	}
	stop()
	verify(t, b, topic, l)
}
