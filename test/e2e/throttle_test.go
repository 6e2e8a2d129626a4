package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestReassignmentIsThrottled: a partition's new replica is copied at the rate that its leader
// is given, while producers with acks=all wait for it no more than they do otherwise. At the
// rate of its broker it would take minutes, until that is taken away. (KIP-73, KIP-455)
func TestReassignmentIsThrottled(t *testing.T) {
	const topic, bytes, rate = "throttled", 6 << 20, 1 << 20
	b := startBrokers(t, 3)
	b.placeTopic(topic, map[string]string{"min.insync.replicas": "2"}, []int32{1, 2})
	b.await(topic, 0, inSync(2))
	pour(t, b, topic, bytes)
	admin := newAdmin(t, b.addr())
	throttle := func(which, replicas string, broker int32, rate int) {
		t.Helper()
		alterTopic(t, admin, topic, kadm.AlterConfig{Name: which + ".replication.throttled.replicas", Value: &replicas})
		alterBroker(t, admin.AlterBrokerConfigs, kadm.AlterConfig{Name: which + ".replication.throttled.rate", Value: new(fmt.Sprint(rate))}, broker)
	}

	usual := ackTimes(t, b, topic, func() { waitFor(t, time.Second/2) })
	throttle("leader", "0:1", 1, rate)
	began := time.Now()
	meanwhile := ackTimes(t, b, topic, func() {
		reassign(t, admin, topic, 1, 2, 3)
		b.await(topic, 0, inSync(3))
	})
	took := time.Since(began)
	if want := bytes / rate * time.Second; took < want*8/10 || took > want*12/10 {
		t.Errorf("%d bytes at %d a second took %s, want about %s", bytes, rate, took, want)
	}
	t.Logf("copied in %s; acknowledged: %s, without: %s", took, meanwhile, usual)
	if meanwhile.p50 > max(3*usual.p50, 50*time.Millisecond) {
		t.Errorf("acks=all took %s, and %s without a reassignment", meanwhile, usual)
	}

	reassign(t, admin, topic, 1, 2)
	b.await(topic, 0, inSync(2))
	throttle("follower", "0:3", 3, 32<<10)
	reassign(t, admin, topic, 1, 2, 3)
	ackTimes(t, b, topic, func() { waitFor(t, time.Second/2) })
	if p := b.await(topic, 0, func(kmsg.MetadataResponseTopicPartition) error { return nil }); len(p.ISR) != 2 {
		t.Errorf("%v are in sync, a moment later", p.ISR)
	}
	alterBroker(t, admin.AlterBrokerConfigs, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "leader.replication.throttled.rate"}, 1)
	alterBroker(t, admin.AlterBrokerConfigs, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "follower.replication.throttled.rate"}, 3)
	b.await(topic, 0, inSync(3))
}

// pour produces so many bytes that nobody can compress.
func pour(t *testing.T, b *broker, topic string, bytes int) {
	t.Helper()
	const one = 64 << 10
	c := newClient(t, b.addr(), kgo.ProducerBatchCompression(kgo.NoCompression()))
	rng := rand.NewChaCha8([32]byte{1})
	var all []*kgo.Record
	for range bytes / one {
		value := make([]byte, one)
		_, _ = rng.Read(value)
		all = append(all, &kgo.Record{Topic: topic, Value: value})
	}
	if err := c.ProduceSync(testContext(t, time.Minute), all...).FirstErr(); err != nil {
		t.Fatalf("produce: %v\n%s", err, b.tail())
	}
}

// waitFor waits by the clock, where it is the clock that is looked at.
func waitFor(t *testing.T, d time.Duration) {
	t.Helper()
	<-testContext(t, d).Done()
}

// ackTime is how long producers waited for acks=all.
type ackTime struct {
	n              int
	p50, p99, most time.Duration
}

func (a ackTime) String() string {
	return fmt.Sprintf("%d records, p50 %s, p99 %s, longest %s", a.n, a.p50, a.p99, a.most)
}

// ackTimes produces small records, one after the other, while something is done.
func ackTimes(t *testing.T, b *broker, topic string, do func()) ackTime {
	t.Helper()
	ctx, cancel := context.WithCancel(testContext(t, 2*time.Minute))
	defer cancel()
	c := newClient(t, b.addr(), kgo.ProducerLinger(0))
	var took []time.Duration
	ended := make(chan error, 1)
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			began := time.Now()
			if err := c.ProduceSync(context.WithoutCancel(ctx), &kgo.Record{Topic: topic, Value: []byte("meanwhile")}).FirstErr(); err != nil {
				ended <- err
				return
			}
			took = append(took, time.Since(began))
		}
		ended <- nil
	}()
	do()
	cancel()
	if err := <-ended; err != nil {
		t.Fatalf("produce: %v\n%s", err, b.tail())
	}
	slices.Sort(took)
	return ackTime{n: len(took), p50: took[len(took)/2], p99: took[len(took)*99/100], most: took[len(took)-1]}
}

// reassign gives a topic's first partition other replicas.
func reassign(t *testing.T, admin *kadm.Client, topic string, replicas ...int32) {
	t.Helper()
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(topic, 0, replicas)
	resp, err := admin.AlterPartitionAssignments(testContext(t, startTimeout), req)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		t.Fatalf("reassign %s to %v: %v", topic, replicas, err)
	}
}

func alterTopic(t *testing.T, admin *kadm.Client, topic string, changes ...kadm.AlterConfig) {
	t.Helper()
	answers, err := admin.AlterTopicConfigs(testContext(t, startTimeout), changes, topic)
	if err != nil || len(answers) != 1 || answers[0].Err != nil {
		t.Fatalf("change %s: %+v, %v", topic, answers, err)
	}
}
