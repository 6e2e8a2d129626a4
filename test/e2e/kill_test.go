package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kills is how often each process is killed under each client and policy.
func kills() int {
	if n, err := strconv.Atoi(os.Getenv("BROKERD_E2E_KILLS")); err == nil {
		return n
	}
	if full() {
		return 50
	}
	return 3
}

// TestKill kills the broker, or its storage plugin, with SIGKILL under
// idempotent acks=all load, again and again. Nothing acknowledged may be lost,
// nothing may be there twice, and no client may see an error that it cannot
// retry. (FR-57, FR-60, FR-76)
func TestKill(t *testing.T) {
	loaders := map[string]loader{"franz-go": franzLoad, "librdkafka": librdkafkaLoad}
	for _, victim := range []string{"broker", "plugin"} {
		for client, load := range loaders {
			for _, policy := range []string{"always", "interval"} {
				t.Run(victim+"/"+client+"/"+policy, func(t *testing.T) { killLoop(t, victim, load, policy) })
			}
		}
	}
}

func killLoop(t *testing.T, victim string, load loader, policy string) {
	b := startBroker(t, "--flush", policy)
	const topic = "killed"
	createTopic(t, b.addr(), topic, 1, nil)
	l := newLedger()
	stop := load(t, b.addr(), topic, l)
	ctx := testContext(t, time.Duration(kills())*15*time.Second+time.Minute)
	counted, idle, totalInFlight := 0, 0, 0
	for counted < kills() {
		// Some acknowledged records between kills, so that each kill meets a
		// broker that serves.
		if err := l.waitAcked(ctx, 50+rand.IntN(500)); err != nil {
			t.Fatalf("after %d kills: %v\n%v\n%s", counted, err, l.errs, b.tail())
		}
		inFlight := l.inFlight()
		if inFlight > 0 {
			counted++
			totalInFlight += inFlight
		} else {
			idle++
		}
		if victim == "broker" {
			b.kill()
			waitNoChildren(ctx, t, b)
			if err := b.launch(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		pids := b.plugins()
		if len(pids) == 0 {
			t.Fatal("the broker has no plugin process")
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err := l.waitAcked(ctx, l.inFlight()+1); err != nil {
			t.Fatalf("after %d kills of the plugin: %v\n%v\n%s", counted, err, l.errs, b.tail())
		}
	}
	stop()
	recovered := verify(t, b, topic, l)
	t.Logf("victim=%s flush=%s kills=%d (and %d with none in flight) in_flight=%d sent=%d acknowledged=%d retried_requests=%d recovered=%d",
		victim, policy, counted, idle, totalInFlight, l.sent, len(l.acked), l.retried, recovered)
}

// waitNoChildren waits until the plugins of a killed broker are gone: they must
// end by themselves. (FR-77)
func waitNoChildren(ctx context.Context, t *testing.T, b *broker) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(5 * time.Second); ; {
		if len(orphans(b.dir)) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("plugins outlived their killed broker by 5 s: %v", orphans(b.dir))
		}
		select {
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		case <-tick.C:
		}
	}
}

// verify reads the whole topic and holds it against the ledger. It returns how
// many records are there that were never acknowledged.
func verify(t *testing.T, b *broker, topic string, l *ledger) (recovered int) {
	t.Helper()
	if err := b.waitReady(); err != nil {
		t.Fatalf("broker did not answer: %v\n%s", err, b.tail())
	}
	for _, err := range l.errs {
		t.Errorf("a client saw: %v", err)
	}
	if len(l.acked) != l.sent {
		t.Errorf("%d of %d records acknowledged", len(l.acked), l.sent)
	}
	ctx := testContext(t, time.Minute)
	ends, err := kadm.NewClient(newClient(t, b.addr())).ListEndOffsets(ctx, topic)
	if err != nil || ends.Error() != nil {
		t.Fatalf("end offsets: %v %v", err, ends.Error())
	}
	end, _ := ends.Lookup(topic, 0)
	c := newClient(t, b.addr(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	at, values := map[int64]string{}, map[string]int64{}
	for i, r := range poll(t, c, int(end.Offset)) {
		if r.Offset != int64(i) {
			t.Fatalf("offset %d after %d records: a gap", r.Offset, i)
		}
		if first, twice := values[string(r.Value)]; twice {
			t.Errorf("%q is at %d and at %d", r.Value, first, r.Offset)
		}
		at[r.Offset], values[string(r.Value)] = string(r.Value), r.Offset
	}
	for n, offset := range l.acked {
		if at[offset] != value(n) {
			t.Errorf("record %d was acknowledged at %d, where %q is", n, offset, at[offset])
		}
	}
	for n := range l.sent {
		if _, ok := values[value(n)]; !ok {
			t.Errorf("record %d is missing", n)
		}
	}
	if t.Failed() {
		fmt.Println(b.tail())
	}
	return len(values) - len(l.acked)
}
