package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sys/unix"
)

// Outages and bugs of brokers and clients that were really met, each as a small
// scenario with its right outcome.

// FR-3: one broker with the default configuration serves at once, and says that
// nothing is replicated.
func TestFR3OneBrokerServesAndSaysItIsNotReplicated(t *testing.T) {
	b := startBroker(t)
	createTopic(t, b.addr(), "first", 3)
	franzProduce(t, b.addr(), "first", "none", numbered(10))
	if got := franzConsume(t, b.addr(), "first", 10); len(got) != 10 {
		t.Fatalf("%d records", len(got))
	}
	if !strings.Contains(b.output(), "not replicated") {
		t.Errorf("nothing on the console says that one broker is not replicated:\n%s", b.tail())
	}
}

// FR-44: a full disk refuses writes with a retriable storage error, serves
// reads, survives a kill and a start, even if not a byte is free, and works again when
// a topic is deleted.
func TestFR44FullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "small")
	smallDisk(t, dir, "48m")
	b := startBrokerOn(t, dir, nil, "--flush", "interval")
	createTopic(t, b.addr(), "big", 1)
	createTopic(t, b.addr(), "small", 1)
	franzProduce(t, b.addr(), "small", "none", numbered(100))
	stored := fill(t, b.addr(), "big")
	t.Logf("full after %d records of 100 kB", stored)
	if got := franzConsume(t, b.addr(), "small", 100); len(got) != 100 {
		t.Errorf("reads stopped on a full disk: %d records", len(got))
	}
	b.kill()
	b.start()
	if got := franzConsume(t, b.addr(), "big", stored); len(got) < stored {
		t.Errorf("after the restart %d of %d acknowledged records", len(got), stored)
	}
	b.kill()
	fillDisk(t, filepath.Join(dir, "filler"))
	b.start()
	for range 9 { // each is a record of the metadata
		b.kill()
		b.start()
	}
	if got := franzConsume(t, b.addr(), "small", 100); len(got) != 100 {
		t.Errorf("on a disk without a free byte %d records of 100", len(got))
	}
	deleteTopic(t, b.addr(), "big")
	franzProduce(t, b.addr(), "small", "none", numbered(1000))
	createTopic(t, b.addr(), "another", 1)
}

// fillDisk takes what is left of a disk, to the last byte.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 16; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, unix.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// fill produces until the disk is full and returns how many records were
// acknowledged.
func fill(t *testing.T, addr, topic string) (stored int) {
	t.Helper()
	c := newClient(t, addr, kgo.DefaultProduceTopic(topic), kgo.RecordRetries(1), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	for {
		err := c.ProduceSync(testContext(t, startTimeout), &kgo.Record{Value: make([]byte, 100_000)}).FirstErr()
		switch {
		case err == nil:
			stored++
		case errors.Is(err, kerr.KafkaStorageError):
			return stored
		default:
			t.Fatalf("after %d records: %v, want KAFKA_STORAGE_ERROR", stored, err)
		}
		if stored > 2000 {
			t.Fatal("the disk does not fill")
		}
	}
}

// FR-45: damaged and missing indexes are rebuilt.
func TestFR45DamagedIndexesAreRebuilt(t *testing.T) {
	b := startBroker(t, "--flush", "interval")
	createTopic(t, b.addr(), "indexed", 1)
	franzProduce(t, b.addr(), "indexed", "none", numbered(5000))
	b.stop()
	damaged := 0
	err := filepath.WalkDir(b.dir, func(path string, d os.DirEntry, err error) error {
		switch filepath.Ext(path) {
		case ".index":
			damaged++
			return os.WriteFile(path, []byte("not an index at all, and quite a bit of it"), 0o644)
		case ".timeindex":
			damaged++
			return os.Remove(path)
		}
		return err
	})
	if err != nil || damaged < 2 {
		t.Fatalf("damaged %d index files: %v", damaged, err)
	}
	b.start()
	check(t, franzConsume(t, b.addr(), "indexed", 5000), numbered(5000))
}

// FR-49: a record stamped far in the future is refused, so that it cannot hold
// its segment for ever.
func TestFR49FutureTimestampIsRefused(t *testing.T) {
	b := startBroker(t)
	createTopic(t, b.addr(), "future", 1)
	c := newClient(t, b.addr(), kgo.DefaultProduceTopic("future"))
	err := c.ProduceSync(testContext(t, startTimeout), &kgo.Record{Value: []byte("x"), Timestamp: time.Date(2050, 1, 1, 0, 0, 0, 0, time.UTC)}).FirstErr()
	if !errors.Is(err, kerr.InvalidTimestamp) {
		t.Fatalf("a record of 2050: %v, want INVALID_TIMESTAMP", err)
	}
}

// FR-57: answers lost on their way are retried by an idempotent producer, and
// each record is there once.
func TestFR57LostAnswersAreNotDuplicates(t *testing.T) {
	b := startBroker(t, "--flush", "interval")
	createTopic(t, b.addr(), "once", 1)
	proxy := startProxy(t, b.addr())
	c := newClient(t, proxy.addr(), kgo.Dialer(proxy.dial), kgo.DefaultProduceTopic("once"), kgo.StopProducerOnDataLossDetected(),
		kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }))
	ctx := testContext(t, time.Minute)
	rs := numbered(2000)
	for i := 0; i < len(rs); i += 100 {
		if i%300 == 0 {
			proxy.dropNextAnswer()
		}
		if err := c.ProduceSync(ctx, rs[i:i+100]...).FirstErr(); err != nil {
			t.Fatalf("records from %d: %v", i, err)
		}
	}
	if proxy.dropped() < 5 {
		t.Fatalf("only %d answers were lost", proxy.dropped())
	}
	if end := endOffset(t, b.addr(), "once"); end != int64(len(rs)) {
		t.Errorf("log end %d, want %d", end, len(rs))
	}
	check(t, franzConsume(t, b.addr(), "once", len(rs)), rs)
}

// FR-58: an append whose store hangs fails with what a producer may retry, never
// with UNKNOWN_SERVER_ERROR, and the retry is no duplicate.
func TestFR58FailedAppendsAreRetriable(t *testing.T) {
	t.Parallel()
	const batches = 3
	b := startBroker(t)
	createTopic(t, b.addr(), "failing", 1)
	c := newClient(t, b.addr())
	id, epoch := initProducerID(t, c)
	for n := range int32(batches) {
		batch := rawBatch(value(int(n)), id, epoch, n)
		signalPlugins(t, b, syscall.SIGSTOP)
		code := rawProduce(t, c, "failing", batch).ErrorCode
		signalPlugins(t, b, syscall.SIGCONT)
		if err := kerr.ErrorForCode(code); err == nil || !kerr.IsRetriable(err) {
			t.Fatalf("batch %d, while the store hangs: code %d, want a retriable error", n, code)
		}
		err := eventually(testContext(t, startTimeout), func() error {
			return kerr.ErrorForCode(rawProduce(t, c, "failing", batch).ErrorCode)
		})
		if err != nil {
			t.Fatalf("batch %d, when the store goes on: %v\n%s", n, err, b.tail())
		}
	}
	if end := endOffset(t, b.addr(), "failing"); end != batches {
		t.Errorf("log end %d, want %d", end, batches)
	}
}

// FR-59: a producer that was idle for longer than its state is kept goes on with
// its next sequence number.
func TestFR59IdleProducerGoesOn(t *testing.T) {
	t.Parallel()
	const kept, tries = 2 * time.Second, 5
	b := startBrokerOn(t, t.TempDir(), []string{fmt.Sprint("BROKERD_PRODUCER_ID_EXPIRATION_MS=", kept.Milliseconds())})
	createTopic(t, b.addr(), "idle", 1)
	c := newClient(t, b.addr())
	var id int64
	var epoch int16
	for try := 1; ; try++ {
		id, epoch = initProducerID(t, c)
		if r := rawProduce(t, c, "idle", rawBatch("a", id, epoch, 0)); r.ErrorCode != 0 {
			t.Fatalf("sequence 0: %v", kerr.ErrorForCode(r.ErrorCode))
		}
		began := time.Now()
		r := rawProduce(t, c, "idle", rawBatch("b", id, epoch, 7))
		if r.ErrorCode == kerr.OutOfOrderSequenceNumber.Code {
			break
		}
		if took := time.Since(began); took < kept || try == tries { // or it was idle already, on a busy machine
			t.Fatalf("sequence 7 after 0 at once: code %d after %s, want OUT_OF_ORDER_SEQUENCE_NUMBER", r.ErrorCode, took)
		}
	}
	err := eventually(testContext(t, startTimeout), func() error {
		return kerr.ErrorForCode(rawProduce(t, c, "idle", rawBatch("b", id, epoch, 7)).ErrorCode)
	})
	if err != nil {
		t.Fatalf("sequence 7, long after 0: %v", err)
	}
}

// FR-78: librdkafka goes on compressing with each codec.
func TestFR78LibrdkafkaCompresses(t *testing.T) {
	b := startBroker(t)
	want := map[string]uint8{"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
	for codec, attr := range want {
		topic := "compressed-" + codec
		createTopic(t, b.addr(), topic, 1)
		kcatProduce(t, b.addr(), topic, codec, numbered(1000))
		for _, r := range franzConsume(t, b.addr(), topic, 1000) {
			if r.Attrs.CompressionType() != attr {
				t.Fatalf("kcat -z %s: a batch with codec %d", codec, r.Attrs.CompressionType())
			}
		}
	}
}

// FR-79: clients elsewhere would be told to dial their own loopback; the start
// says so.
func TestFR79AdvertisedLoopbackIsWarnedOf(t *testing.T) {
	b := newBroker(t, t.TempDir())
	b.env = []string{
		fmt.Sprintf("BROKERD_LISTENERS=PLAINTEXT://0.0.0.0:%d", b.port),
		fmt.Sprintf("BROKERD_ADVERTISED_LISTENERS=PLAINTEXT://127.0.0.1:%d", b.port),
	}
	b.start()
	if out := b.output(); !strings.Contains(out, "advertised") || !strings.Contains(out, "127.0.0.1") {
		t.Errorf("no warning names the advertised loopback address:\n%s", b.tail())
	}
}

// FR-80: a topic deleted and made again is another topic: a consumer of the old
// one is told, never left in silence.
func TestFR80RecreatedTopicIsNotSilence(t *testing.T) {
	b := startBroker(t)
	createTopic(t, b.addr(), "again", 1)
	franzProduce(t, b.addr(), "again", "none", numbered(10))
	c := fromStart(t, b.addr(), "again", kgo.KeepRetryableFetchErrors(), kgo.FetchMaxWait(200*time.Millisecond))
	poll(t, c, 10)
	deleteTopic(t, b.addr(), "again")
	createTopic(t, b.addr(), "again", 1)
	franzProduce(t, b.addr(), "again", "none", numbered(5))
	ctx := testContext(t, 20*time.Second)
	for ctx.Err() == nil {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil && ctx.Err() == nil {
			t.Logf("told: %v", err)
			return
		}
		if fetches.NumRecords() > 0 {
			t.Logf("reads the new topic")
			return
		}
	}
	t.Fatal("20 s of silence")
}

// FR-81: a consumer's metadata requests do not make a deleted topic again.
func TestFR81DeletedTopicStaysDeleted(t *testing.T) {
	t.Parallel()
	b := startBrokerOn(t, t.TempDir(), []string{"BROKERD_AUTO_CREATE_TOPICS_ENABLE=true"})
	createTopic(t, b.addr(), "gone", 1)
	c := newClient(t, b.addr(), kgo.ConsumeTopics("gone"), kgo.MetadataMaxAge(100*time.Millisecond), kgo.MetadataMinAge(50*time.Millisecond))
	polling, stop := context.WithTimeout(t.Context(), 2*time.Second)
	defer stop()
	c.PollFetches(polling)
	deleteTopic(t, b.addr(), "gone")
	again, stopAgain := context.WithTimeout(t.Context(), 2*time.Second)
	defer stopAgain()
	c.PollFetches(again)
	listed, err := newAdmin(t, b.addr()).ListTopics(testContext(t, startTimeout))
	if err != nil || listed.Has("gone") {
		t.Fatalf("topic is there again (%v)", err)
	}
}

// FR-84: partitions that CreatePartitions acknowledged are in the metadata at
// once, and take records.
func TestFR84NewPartitionsAreThereAtOnce(t *testing.T) {
	b := startBroker(t)
	createTopic(t, b.addr(), "grows", 1)
	admin := newAdmin(t, b.addr())
	ctx := testContext(t, time.Minute)
	for n := 2; n <= 20; n++ {
		resp, err := admin.UpdatePartitions(ctx, n, "grows")
		if err != nil || resp.Error() != nil {
			t.Fatalf("to %d partitions: %v %v", n, err, resp.Error())
		}
		fresh := newClient(t, b.addr(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		meta, err := kadm.NewClient(fresh).Metadata(ctx, "grows")
		if err != nil || len(meta.Topics["grows"].Partitions) != n {
			t.Fatalf("metadata has %d partitions, want %d (%v)", len(meta.Topics["grows"].Partitions), n, err)
		}
		r := &kgo.Record{Topic: "grows", Partition: int32(n - 1), Value: []byte("x")}
		if err := fresh.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatalf("produce to partition %d: %v", n-1, err)
		}
	}
}
