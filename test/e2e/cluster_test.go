package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestLeaderIsKilled kills the leader of a partition with three replicas, again and again,
// under idempotent acks=all load. Another one leads, and nothing acknowledged is lost, or
// there twice, and no client sees an error that it cannot retry.
func TestLeaderIsKilled(t *testing.T) {
	t.Parallel()
	const topic, brokers = "replicated", 3
	for client, load := range loaders() {
		t.Run(client, func(t *testing.T) {
			b := startBrokers(t, brokers)
			createTopic(t, b.addr(), topic, 1)
			b.partition0(topic, brokers)
			l := newLedger()
			stop := load(t, b.addr(), topic, l)
			ctx := testContext(t, time.Duration(kills())*30*time.Second+time.Minute)
			for range kills() {
				waitAcked(ctx, t, b, l, 50+rand.IntN(500))
				leader := b.partition0(topic, brokers)
				l.killing()
				b.dev("kill", leader)
				waitAcked(ctx, t, b, l, l.inFlight()+1)
				if b.partition0(topic, brokers-1) == leader {
					t.Errorf("broker %d is dead and leads", leader)
				}
				b.dev("restart", leader)
				b.partition0(topic, brokers)
			}
			stop()
			now := verify(t, b, topic, l)
			t.Logf("client=%s kills=%d sent=%d acknowledged=%d retried=%d recovered=%d of %d",
				client, kills(), now.sent, len(now.acked), now.retried, now.recovered(), len(now.caught))
		})
	}
}

// TestTwoOfThreeServe: with one broker dead, whichever it is, kcat produces and reads.
func TestTwoOfThreeServe(t *testing.T) {
	t.Parallel()
	b := startBrokers(t, 3)
	for n := int32(1); n <= 3; n++ {
		topic := fmt.Sprintf("without-%d", n)
		createTopic(t, b.addr(), topic, 1)
		b.partition0(topic, 3)
		b.dev("kill", n)
		rs := numbered(1000)
		kcatProduce(t, b.addr(), topic, "none", rs)
		check(t, kcatConsume(t, b.addr(), topic, len(rs)), rs)
		b.dev("restart", n)
		b.partition0(topic, 3)
	}
}

// TestRollingRestart restarts all brokers of a cluster by SIGTERM, one after the other, under
// load. No client sees an error that it cannot retry, and nothing is lost.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	const topic, brokers = "rolling", 3
	for client, load := range loaders() {
		t.Run(client, func(t *testing.T) {
			b := startBrokers(t, brokers)
			createTopic(t, b.addr(), topic, 1)
			b.partition0(topic, brokers)
			l := newLedger()
			stop := load(t, b.addr(), topic, l)
			ctx := testContext(t, 2*time.Minute)
			for n := int32(1); n <= brokers; n++ {
				waitAcked(ctx, t, b, l, 500)
				b.dev("restart", n)
				waitAcked(ctx, t, b, l, l.inFlight()+1)
				b.partition0(topic, brokers)
			}
			stop()
			verify(t, b, topic, l)
			if out := b.output(); strings.Contains(out, "before the controller has let it go") {
				t.Errorf("a broker was not let go\n%s", b.tail())
			}
		})
	}
}

// TestAllAreKilled kills all brokers of a cluster at once, under load, and starts them again.
// Nothing acknowledged is lost.
func TestAllAreKilled(t *testing.T) {
	t.Parallel()
	const topic, brokers = "together", 3
	b := startBrokers(t, brokers)
	createTopic(t, b.addr(), topic, 1)
	b.partition0(topic, brokers)
	l := newLedger()
	stop := franzLoad(t, b.addr(), topic, l)
	ctx := testContext(t, time.Duration(kills())*30*time.Second+time.Minute)
	for range kills() {
		waitAcked(ctx, t, b, l, 50+rand.IntN(500))
		l.killing()
		b.kill() // who runs them, and so all
		waitUnheld(t, b)
		began := time.Now()
		b.launch()
		waitAcked(ctx, t, b, l, l.inFlight()+1)
		t.Logf("acknowledges again after %s", time.Since(began).Round(time.Millisecond))
		b.partition0(topic, brokers)
	}
	stop()
	verify(t, b, topic, l)
}

// TestGroupMoves: a group goes on from what it has committed, whichever broker dies.
func TestGroupMoves(t *testing.T) {
	t.Parallel()
	const topic, brokers, each = "work", 3, 100
	b := startBrokers(t, brokers)
	createTopic(t, b.addr(), topic, 1)
	b.partition0(topic, brokers)
	ctx := testContext(t, 2*time.Minute)
	producer := newClient(t, b.addr(), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	member := func() *kgo.Client {
		return newClient(t, b.addr(), kgo.ConsumerGroup("workers"), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(64<<10))
	}
	c, next := member(), int64(0)
	for n := int32(1); n <= brokers; n++ {
		if err := producer.ProduceSync(ctx, numbered(each)...).FirstErr(); err != nil {
			t.Fatalf("produce: %v\n%s", err, b.tail())
		}
		b.partition0("__consumer_offsets", brokers)
		b.partition0(topic, brokers)
		b.dev("kill", n)
		for until := next + each; next < until; {
			fetches := c.PollFetches(ctx)
			var joins *kgo.ErrGroupSession // it dials the dead coordinator still, says so, and goes on
			if err := fetches.Err0(); err != nil && !errors.As(err, &joins) {
				t.Fatalf("without broker %d: %v\n%s", n, err, b.tail())
			}
			fetches.EachRecord(func(r *kgo.Record) {
				if r.Offset != next {
					t.Errorf("without broker %d, record %d comes where %d was next", n, r.Offset, next)
				}
				next = r.Offset + 1
			})
		}
		if err := eventually(ctx, func() error { return c.CommitUncommittedOffsets(ctx) }); err != nil {
			t.Fatalf("commit without broker %d: %v\n%s", n, err, b.tail())
		}
		c.Close()
		c = member() // another one goes on from there
		b.dev("restart", n)
	}
}
