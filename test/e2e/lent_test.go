package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The carriers between the broker and its plugin, as storage.stores names them.
const (
	carrierAuto   = "auto"
	carrierSocket = "socket"
	carrierGRPC   = "grpc"
)

// stores is the setting of a broker whose store goes by the carrier.
func stores(carrier string) string {
	return `{main: {plugin: storage-file, carrier: ` + carrier + `, config: {path: "${data}/main"}}}`
}

// carrying are the arguments of such a broker.
func carrying(carrier string) []string { return []string{"--set", "storage.stores=" + stores(carrier)} }

// carriedEnv is the environment of brokers of which the tests do not say what their
// store goes by.
func carriedEnv() []string {
	carrier := os.Getenv("BROKERD_E2E_CARRIER")
	if carrier == "" {
		return nil
	}
	return []string{"BROKERD_STORAGE_STORES=" + stores(carrier)}
}

// lentKills is how often the plugin is killed in mid-grant and mid-lease.
func lentKills() int {
	if n, err := strconv.Atoi(os.Getenv("BROKERD_E2E_KILLS")); err == nil {
		return n
	}
	if full() {
		return 200
	}
	return 4
}

const (
	lentPartitions = 3
	// lentFillBytes is how much of a topic is more than the broker keeps in memory of
	// its end, so that readers from the start need the files.
	lentFillBytes = 12 << 20
	// lentMemory leaves that little.
	lentMemory = "BROKERD_MEMORY=32MiB"
	// recoveryMax is how long a broker may take at most to acknowledge again after
	// its plugin was killed, on a machine that is busy.
	recoveryMax = 20 * time.Second
	// settledFor is how long a plugin has to live so that the next starts at once
	// when it dies. (core/pluginhost)
	settledFor = 1100 * time.Millisecond
)

// TestKillLent kills the storage plugin with SIGKILL again and again, each time while
// the broker holds the ends of logs, and stretches of them, to which records are
// written and from which they are read at that moment. Nothing that was acknowledged
// is lost, doubled or moved, and no consumer gets a byte that was not produced.
func TestKillLent(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"replicated", "interval"} {
		t.Run(policy, func(t *testing.T) { killLent(t, carrierAuto, policy) })
	}
	for _, carrier := range []string{carrierSocket, carrierGRPC} {
		if full() { // TestKill has them too
			t.Run("interval/"+carrier, func(t *testing.T) { killLent(t, carrier, "interval") })
		}
	}
}

// lentWork is what goes on while plugins are killed.
type lentWork struct {
	b     *broker
	topic string
	p     *prover

	read   atomic.Int64 // records
	passes atomic.Int64 // from the start to where the end was
	mu     sync.Mutex
	errs   []error
}

func (w *lentWork) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs = append(w.errs, err)
}

// failed is what the clients were told that nobody may be told.
func (w *lentWork) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(append(slices.Clone(w.errs), w.p.failed())...)
}

func killLent(t *testing.T, carrier, policy string) {
	b := startWatched(t, []string{lentMemory}, append(carrying(carrier), "--flush", policy)...)
	w := &lentWork{b: b, topic: "lent"}
	createTopic(t, b.addr(), w.topic, lentPartitions)
	ctx := testContext(t, time.Duration(lentKills())*10*time.Second+2*time.Minute)
	w.p = newProver(t, b.addr(), w.topic, lentPartitions, 1)
	w.p.produce(lentFillBytes / lentPartitions / (proofBytesMax / 2))
	if err := w.p.flush(ctx); err != nil {
		t.Fatalf("fill the topic: %v", err)
	}

	working, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { w.p.keepOn(working, 5, 10*time.Millisecond) })
	work.Go(func() { w.follow(working) })
	for range 2 {
		work.Go(func() { w.readAgain(working) })
	}
	t.Cleanup(func() { stop(); work.Wait() })

	var took []time.Duration
	passed := 0 // snapshots without a grant or a lease
	for len(took) < lentKills() {
		pause(ctx, settledFor+rand.N(300*time.Millisecond))
		if err := w.failed(); err != nil {
			t.Fatalf("after %d kills: %v\n%s", len(took), err, b.tail())
		}
		grants, leases := b.lent()
		if carrier == carrierAuto && (grants == 0 || leases == 0) {
			if passed++; ctx.Err() != nil {
				t.Fatalf("%d kills, and %d times the broker held %d grants and %d leases\n%s", len(took), passed, grants, leases, b.tail())
			}
			continue
		}
		if carrier != carrierAuto && grants+leases > 0 {
			t.Fatalf("over %s the broker holds %d grants and %d leases", carrier, grants, leases)
		}
		began := time.Now()
		signalPlugins(t, b, syscall.SIGKILL)
		within, cancel := context.WithTimeout(ctx, recoveryMax)
		err := w.p.waitAcked(within, 1)
		cancel()
		if err != nil {
			t.Fatalf("kill %d: %v after %v\n%s", len(took)+1, err, time.Since(began), b.tail())
		}
		took = append(took, time.Since(began))
	}
	stop()
	work.Wait()
	w.verify(ctx, t)
	slices.Sort(took)
	t.Logf("carrier=%s flush=%s kills=%d (and %d times nothing was lent) acknowledged again after %v (median) and %v (at most), records=%d read=%d passes=%d",
		carrier, policy, len(took), passed, took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond),
		w.p.sent[0].Load()*lentPartitions, w.read.Load(), w.passes.Load())
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// follow reads the topic from its start to its end, and goes on there.
func (w *lentWork) follow(ctx context.Context) {
	r, err := reading(w.b.addr(), w.topic, lentPartitions, kgo.NewOffset().AtStart())
	if err != nil {
		w.fail(err)
		return
	}
	defer r.client.Close()
	for ctx.Err() == nil {
		n, err := r.poll(ctx, false)
		w.read.Add(int64(n))
		if err != nil {
			w.fail(fmt.Errorf("a consumer that follows: %w", err))
			return
		}
	}
}

// readAgain reads the topic from its start to where its end is, again and again.
func (w *lentWork) readAgain(ctx context.Context) {
	for ctx.Err() == nil {
		end := w.p.acked[0].Load()
		r, err := reading(w.b.addr(), w.topic, lentPartitions, kgo.NewOffset().AtStart())
		if err != nil {
			w.fail(err)
			return
		}
		for ctx.Err() == nil && r.next[0] < end && err == nil {
			var n int
			n, err = r.poll(ctx, false)
			w.read.Add(int64(n))
		}
		r.client.Close()
		if err != nil {
			w.fail(fmt.Errorf("a consumer that reads again: %w", err))
			return
		}
		w.passes.Add(1)
	}
}

// verify holds what is there against what was sent, also after a restart.
func (w *lentWork) verify(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := w.p.flush(ctx); err != nil {
		t.Errorf("the producer was told: %v", err)
	}
	if err := w.failed(); err != nil {
		t.Errorf("a client was told: %v", err)
	}
	for _, when := range []string{"after the kills", "after a restart"} {
		r, err := reading(w.b.addr(), w.topic, lentPartitions, kgo.NewOffset().AtStart())
		if err != nil {
			t.Fatal(err)
		}
		total := int64(0)
		for i := range w.p.sent {
			sent := w.p.sent[i].Load()
			if acked := w.p.acked[i].Load(); acked != sent {
				t.Errorf("%d of %d records of partition %d were acknowledged", acked, sent, i)
			}
			total += sent
		}
		for read := int64(0); read < total; {
			n, err := r.poll(ctx, false)
			if read += int64(n); err != nil || ctx.Err() != nil {
				t.Errorf("%s, after %d records of %d: %v %v", when, read, total, err, ctx.Err())
				break
			}
		}
		r.client.Close()
		ends, err := newAdmin(t, w.b.addr()).ListEndOffsets(ctx, w.topic)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		for i := range w.p.sent {
			if end, _ := ends.Lookup(w.topic, int32(i)); end.Offset != w.p.sent[i].Load() {
				t.Errorf("%s: partition %d ends at %d, and %d records were sent", when, i, end.Offset, w.p.sent[i].Load())
			}
		}
		w.b.stop()
		w.b.start()
	}
	if t.Failed() {
		t.Log(w.b.tail())
	}
}
