package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// hostileClients is how many of each kind attack at once.
const hostileClients = 500

// announcedBytes is the size of a request that is never sent whole: nearly the
// largest that the budget allows.
const announcedBytes = 50 << 20

// TestHostileClientsStayWithinTheBudget lets 500 clients trickle frames that
// they announce at 50 MiB, and 500 ask for records and never read the answers.
// Memory stays within the budget and what the program itself takes, and other
// clients are served meanwhile.
func TestHostileClientsStayWithinTheBudget(t *testing.T) {
	const budget = 256 << 20
	b := startBrokerOn(t, t.TempDir(), []string{"BROKERD_MEMORY=256MiB", "BROKERD_ADVERTISED_LISTENERS="}, "--flush", "interval")
	createTopic(t, b.addr(), "wanted", 1)
	big := make([]*kgo.Record, 64)
	for i := range big {
		big[i] = &kgo.Record{Key: []byte("k"), Value: make([]byte, 500_000)}
	}
	franzProduce(t, b.addr(), "wanted", "none", big)
	before := memoryOf(t, b, "VmRSS:")

	stop := make(chan struct{})
	var tricklers sync.WaitGroup
	defer tricklers.Wait()
	defer close(stop)
	for i := range hostileClients {
		trickler := dial(t, b.addr())
		tricklers.Go(func() { trickle(trickler, stop) })
		deaf := dial(t, b.addr())
		askAndNeverRead(t, deaf, i)
	}
	var took []time.Duration
	c := newClient(t, b.addr(), kgo.DefaultProduceTopic("wanted"))
	ctx := testContext(t, 2*time.Minute)
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); {
		start := time.Now()
		if err := c.ProduceSync(ctx, &kgo.Record{Value: []byte("served")}).FirstErr(); err != nil {
			t.Fatalf("another client is not served: %v\n%s", err, b.tail())
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	most, slowest := took[len(took)*99/100], took[len(took)-1]
	peak := memoryOf(t, b, "VmHWM:")
	t.Logf("clients=%d rss_before=%d MiB rss_peak=%d MiB budget=%d MiB produces=%d p99=%s slowest=%s",
		2*hostileClients, before>>20, peak>>20, budget>>20, len(took), most, slowest)
	const own = 128 << 20 // as docs/operators.md promises
	if limit := budget + own; peak > limit {
		t.Errorf("resident memory rose to %d MiB, limit %d MiB", peak>>20, limit>>20)
	}
	if most > time.Second || slowest > 5*time.Second {
		t.Errorf("another client waited %s, and in 99 of 100 cases up to %s", slowest, most)
	}
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// trickle announces a produce request of announcedBytes and sends it a little at a
// time, as fast as it is taken in the beginning.
func trickle(c net.Conn, stop <-chan struct{}) {
	header := kmsg.NewRequestFormatter(kmsg.FormatterClientID("hostile")).AppendRequest(nil, kmsg.NewPtrProduceRequest(), 1)
	_, _ = c.Write(binary.BigEndian.AppendUint32(nil, announcedBytes))
	_, _ = c.Write(header[4:18])
	chunk := make([]byte, 64<<10)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			if _, err := c.Write(chunk); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
		}
	}
}

// askAndNeverRead asks many times for all there is, and never reads.
func askAndNeverRead(t *testing.T, c net.Conn, n int) {
	t.Helper()
	part := kmsg.NewFetchRequestTopicPartition()
	part.FetchOffset, part.PartitionMaxBytes = 0, 50<<20
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.Partitions = "wanted", []kmsg.FetchRequestTopicPartition{part}
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.MaxBytes, req.SessionEpoch = 11, -1, 50<<20, -1
	req.Topics = []kmsg.FetchRequestTopic{topic}
	format := kmsg.NewRequestFormatter(kmsg.FormatterClientID(fmt.Sprintf("deaf-%d", n)))
	var out []byte
	for i := range int32(20) {
		out = append(out, format.AppendRequest(nil, req, i)...)
	}
	_ = c.SetWriteDeadline(time.Now().Add(2 * time.Second))
	_, _ = c.Write(out)
}

// memoryOf is the resident memory of the broker, without its plugins, in bytes:
// VmRSS as it is, VmHWM at its highest.
func memoryOf(t *testing.T, b *broker, which string) int {
	t.Helper()
	return memoryOfProcess(t, b.pid(), which)
}

func memoryOfProcess(t *testing.T, pid int, which string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == which {
			kib, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("no %s in /proc", which)
	return 0
}
