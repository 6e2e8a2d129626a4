package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
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
// retry. (FR-57, FR-76, FR-77)
func TestKill(t *testing.T) {
	t.Parallel()
	for _, carrier := range []string{carrierAuto, carrierSocket, carrierGRPC} {
		for _, victim := range []string{"broker", "plugin"} {
			for client, load := range loaders() {
				for _, policy := range []string{"always", "interval"} {
					if carrier != carrierAuto && !full() && (client != "franz-go" || policy != "interval") {
						continue // the same for the client
					}
					t.Run(carrier+"/"+victim+"/"+client+"/"+policy, func(t *testing.T) { killLoop(t, carrier, victim, load, policy) })
				}
			}
		}
	}
}

// TestFR60RestartUnderLoad restarts the whole cluster, which is one broker, under
// idempotent load: as an operator does, and as a crash does. Clients go on by
// themselves, without one out-of-order or other fatal error.
func TestFR60RestartUnderLoad(t *testing.T) {
	t.Parallel()
	const topic, restarts = "restarted", 4
	for client, load := range loaders() {
		t.Run(client, func(t *testing.T) {
			b := startBroker(t)
			createTopic(t, b.addr(), topic, 1)
			l := newLedger()
			stop := load(t, b.addr(), topic, l)
			ctx := testContext(t, 2*time.Minute)
			for n := range restarts {
				waitAcked(ctx, t, b, l, 200)
				if n%2 == 0 {
					b.stop()
				} else {
					b.kill()
				}
				b.start()
			}
			waitAcked(ctx, t, b, l, l.inFlight()+1)
			stop()
			verify(t, b, topic, l)
		})
	}
}

func killLoop(t *testing.T, carrier, victim string, load loader, policy string) {
	b := startBroker(t, append(carrying(carrier), "--flush", policy)...)
	const topic = "killed"
	createTopic(t, b.addr(), topic, 1)
	l := newLedger()
	stop := load(t, b.addr(), topic, l)
	ctx := testContext(t, time.Duration(kills())*15*time.Second+time.Minute)
	counted, idle, totalInFlight := 0, 0, 0
	for counted < kills() {
		// Some acknowledged records between kills, so that each kill meets a
		// broker that serves.
		waitAcked(ctx, t, b, l, 50+rand.IntN(500))
		if n := l.killing(); n > 0 {
			counted++
			totalInFlight += n
		} else {
			idle++
		}
		if victim == "broker" {
			b.kill()
			waitUnheld(t, b)
			b.launch()
			continue
		}
		signalPlugins(t, b, syscall.SIGKILL)
		waitAcked(ctx, t, b, l, l.inFlight()+1)
	}
	stop()
	now := verify(t, b, topic, l)
	t.Logf("carrier=%s victim=%s flush=%s kills=%d (and %d with none in flight) in_flight=%d sent=%d acknowledged=%d retried=%d recovered=%d of %d",
		carrier, victim, policy, counted, idle, totalInFlight, now.sent, len(now.acked), now.retried, now.recovered(), len(now.caught))
}

// signalPlugins sends a signal to the broker's plugins, of which there must be
// one. Those that are to stop have stopped when it returns.
func signalPlugins(t *testing.T, b *broker, sig syscall.Signal) {
	t.Helper()
	pids := b.plugins()
	if len(pids) == 0 {
		t.Fatal("the broker has no plugin process")
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig) // fails where it is gone
	}
	if sig != syscall.SIGSTOP {
		return
	}
	for _, pid := range pids {
		if err := eventually(testContext(t, startTimeout), func() error { return stopped(pid) }); err != nil {
			t.Fatal(err)
		}
	}
}

// stopped is nil when no thread of a process runs: on a busy machine each of them goes
// on for a while after the signal.
func stopped(pid int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return fmt.Errorf("look for the threads of process %d: %w", pid, err)
	}
	if len(threads) == 0 {
		return fmt.Errorf("process %d is gone", pid)
	}
	for _, name := range threads {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		if fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); fields[0] != "T" {
			return fmt.Errorf("a thread of process %d is in state %s", pid, fields[0])
		}
	}
	return nil
}

// waitAcked waits until n more records have been acknowledged.
func waitAcked(ctx context.Context, t *testing.T, b *broker, l *ledger, n int) {
	t.Helper()
	if err := l.waitAcked(ctx, n); err != nil {
		t.Fatalf("the load stands still: %v\n%s", err, b.tail())
	}
}

// verify reads the whole topic and holds it against the ledger. It returns what
// the ledger has.
func verify(t *testing.T, b *broker, topic string, l *ledger) (now told) {
	t.Helper()
	b.waitReady()
	now = l.read()
	for _, err := range now.errs {
		t.Errorf("a client saw: %v", err)
	}
	if len(now.acked) != now.sent {
		t.Errorf("%d of %d records acknowledged", len(now.acked), now.sent)
	}
	at, values := map[int64]string{}, map[string]int64{}
	for i, r := range poll(t, fromStart(t, b.addr(), topic), int(endOffset(t, b.addr(), topic))) {
		if r.Offset != int64(i) {
			t.Fatalf("offset %d after %d records: a gap", r.Offset, i)
		}
		if first, twice := values[string(r.Value)]; twice {
			t.Errorf("%q is at %d and at %d", r.Value, first, r.Offset)
		}
		at[r.Offset], values[string(r.Value)] = string(r.Value), r.Offset
	}
	for n, offset := range now.acked {
		if at[offset] != value(n) {
			t.Errorf("record %d was acknowledged at %d, where %q is", n, offset, at[offset])
		}
	}
	for n := range now.sent {
		if _, ok := values[value(n)]; !ok {
			t.Errorf("record %d is missing", n)
		}
	}
	if t.Failed() {
		t.Log(b.tail())
	}
	return now
}
