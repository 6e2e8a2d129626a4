package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestMemoryDoesNotClimb: a broker and its plugin take little when there is nothing to do,
// and under one load after the other, of requests of all sizes, with topics that come and go,
// no more than docs/operators.md says.
func TestMemoryDoesNotClimb(t *testing.T) {
	const (
		idle, loaded     = 45 << 20, 200 << 20
		clients, perLoad = 6, 128 << 20
	)
	b := startBroker(t, "--flush", "interval")
	createTopic(t, b.addr(), "first", 1)
	franzProduce(t, b.addr(), "first", "none", numbered(1))
	if err := eventually(testContext(t, time.Minute), func() error {
		if rss := memoryOfAll(t, b, "VmRSS:"); rss > idle {
			return fmt.Errorf("idle processes take %d MiB, %d allowed", rss>>20, idle>>20)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	before := memoryOfAll(t, b, "VmRSS:")
	for _, size := range []int{900_000, 100, 300_000, 1_000, 80_000, 10_000, 600_000} {
		topic := fmt.Sprint("of-", size)
		createTopic(t, b.addr(), topic, 6)
		n := perLoad / max(size, 1_000) / clients
		var all sync.WaitGroup
		for range clients {
			c := newClient(t, b.addr(), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.NoCompression()))
			all.Go(func() {
				value := make([]byte, size)
				for range n {
					c.Produce(t.Context(), &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
						if err != nil {
							t.Errorf("produce %d bytes: %v", size, err)
						}
					})
				}
				if err := c.Flush(t.Context()); err != nil {
					t.Errorf("produce %d bytes: %v", size, err)
				}
			})
		}
		all.Wait()
		c := newClient(t, b.addr(), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		for got := 0; got < n*clients; {
			fetches := c.PollFetches(testContext(t, time.Minute))
			if err := fetches.Err(); err != nil {
				t.Fatalf("consume %d bytes: %v (%d of %d records)\n%s", size, err, got, n*clients, b.tail())
			}
			got += fetches.NumRecords()
		}
		c.Close()
		deleteTopic(t, b.addr(), topic)
		t.Logf("record_bytes=%d rss=%d MiB", size, memoryOfAll(t, b, "VmRSS:")>>20)
	}
	peak := memoryOfAll(t, b, "VmHWM:")
	t.Logf("rss_idle=%d MiB rss_peak=%d MiB", before>>20, peak>>20)
	if peak > loaded {
		t.Errorf("resident memory rose to %d MiB, %d allowed", peak>>20, loaded>>20)
	}
}

// memoryOfAll is memoryOf the broker and its plugins together.
func memoryOfAll(t *testing.T, b *broker, which string) int {
	t.Helper()
	sum := memoryOf(t, b, which)
	for _, pid := range b.plugins() {
		sum += memoryOfProcess(t, pid, which)
	}
	return sum
}
