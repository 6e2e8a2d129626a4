package e2e

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestGroupsStayWithinTheBudget: 400 groups of one member, each of which offers a
// megabyte, come to hold no more than groups may. Who committed before goes on.
func TestGroupsStayWithinTheBudget(t *testing.T) {
	const budget, own, attackers, atOnce = 128 << 20, 128 << 20, 400, 16
	b := startBrokerOn(t, t.TempDir(), []string{"BROKERD_MEMORY=128MiB"})
	createTopic(t, b.addr(), "orders", 1)
	admin := newAdmin(t, b.addr())
	commit := func(at int64) error {
		var offsets kadm.Offsets
		offsets.AddOffset("orders", 0, at, -1)
		return admin.CommitAllOffsets(testContext(t, startTimeout), "worker", offsets)
	}
	if err := commit(1); err != nil {
		t.Fatal(err)
	}
	before := memoryOf(t, b, "VmRSS:")
	var taken, refused atomic.Int64
	groups := make(chan string)
	var all sync.WaitGroup
	for range atOnce {
		old := oldClient(t, b.addr())
		all.Go(func() {
			for group := range groups {
				var err error
				late := eventually(testContext(t, 2*time.Minute), func() error {
					if err = joinLarge(t, old, group, largeBytes, 10*time.Minute); errors.Is(err, kerr.CoordinatorLoadInProgress) {
						return err
					}
					return nil
				})
				switch {
				case late != nil:
					t.Errorf("group %s: %v", group, late)
				case err == nil:
					taken.Add(1)
				case errors.Is(err, kerr.CoordinatorNotAvailable):
					refused.Add(1)
				default:
					t.Errorf("group %s: %v", group, err)
				}
			}
		})
	}
	for i := range attackers {
		groups <- fmt.Sprint("attack-", i)
	}
	close(groups)
	all.Wait()
	peak := memoryOf(t, b, "VmHWM:")
	t.Logf("taken=%d refused=%d rss_before=%d MiB rss_peak=%d MiB", taken.Load(), refused.Load(), before>>20, peak>>20)
	if taken.Load() < 8 || taken.Load() > 16 || taken.Load()+refused.Load() != attackers {
		t.Errorf("%d groups of a megabyte were taken in, %d refused", taken.Load(), refused.Load())
	}
	if limit := budget + own; peak > limit {
		t.Errorf("resident memory rose to %d MiB, limit %d MiB", peak>>20, limit>>20)
	}
	if err := commit(2); err != nil {
		t.Errorf("a group that was there before: %v", err)
	}
}

// largeBytes of metadata fit into a batch of the offsets topic.
const largeBytes = 1_000_000

// joinLarge joins a group with this much metadata, and syncs with it.
func joinLarge(t *testing.T, c *kgo.Client, group string, size int, session time.Duration) error {
	join := joinRequest(group)
	join.SessionTimeoutMillis, join.Protocols[0].Metadata = int32(session.Milliseconds()), make([]byte, size)
	resp, err := c.SeedBrokers()[0].Request(t.Context(), join)
	if err != nil {
		return err
	}
	joined := resp.(*kmsg.JoinGroupResponse)
	if err := kerr.ErrorForCode(joined.ErrorCode); err != nil {
		return err
	}
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.Generation, sync.MemberID = group, joined.Generation, joined.MemberID
	_, err = c.SeedBrokers()[0].Request(t.Context(), sync)
	return err
}

// TestConsumersWaitForMemory: consumers whose groups have no memory neither end nor ask
// without pause, and begin when there is some.
func TestConsumersWaitForMemory(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	b := startBrokerOn(t, t.TempDir(), []string{"BROKERD_MEMORY=128MiB"}, "--admin-port", strconv.Itoa(port))
	createTopic(t, b.addr(), "orders", 1)
	franzProduce(t, b.addr(), "orders", "none", numbered(3))
	findCoordinator(t, newClient(t, b.addr()), "any")
	old, begun := oldClient(t, b.addr()), time.Now()
	for i, size := 0, largeBytes; size > 0; i++ { // to the last byte
		err := eventually(testContext(t, startTimeout), func() error {
			err := joinLarge(t, old, fmt.Sprint("attack-", i), size, 15*time.Second)
			if errors.Is(err, kerr.CoordinatorNotAvailable) {
				size /= 2
				return nil
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	all.Go(func() {
		c := newClient(t, b.addr(), kgo.ConsumerGroup("franz"), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if f := c.PollRecords(testContext(t, 2*time.Minute), 3); f.NumRecords() == 0 {
			t.Errorf("franz-go: %v", f.Errors())
		}
		t.Logf("franz-go consumes after %s", time.Since(begun))
	})
	all.Go(func() {
		got := kafkaTool(t, nil, "consumer.ConsoleConsumer", "--bootstrap-server", b.addr(), "--topic", "orders", "--group", "java",
			"--from-beginning", "--max-messages", "3", "--timeout-ms", "60000")
		if want := "value 0\nvalue 1\nvalue 2\n"; string(got) != want {
			t.Errorf("Kafka's consumer read %q", got)
		}
		t.Logf("Kafka's consumer has consumed after %s", time.Since(begun))
	})
	all.Wait()
	metrics := httpGet(t, fmt.Sprintf("http://127.0.0.1:%d/metrics", port))
	if !strings.Contains(metrics, "\nbrokerd_coordinator_memory_limit_bytes 1.6777216e+07\n") || !strings.Contains(metrics, "\nbrokerd_coordinator_memory_bytes ") {
		t.Error("what groups take is not shown")
	}
	for line := range strings.Lines(metrics) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "brokerd_coordinator_refused_memory_total "); ok {
			refused, err := strconv.Atoi(n)
			t.Logf("refused=%d", refused)
			if most := int(time.Since(begun)/time.Second) * 50; err != nil || refused < 3 || refused > most {
				t.Errorf("%s requests were refused (%v), at most %d are fair", n, err, most)
			}
			return
		}
	}
	t.Error("refused requests are not counted")
}
