package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
	"golang.org/x/sys/unix"
)

// What others met with the disk of one of several brokers, each with its right outcome.

// sized makes n records of about 1 kB.
func sized(n int) []*kgo.Record {
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = &kgo.Record{Key: fmt.Append(nil, i), Value: fmt.Appendf(nil, "%d %01000d", i, i)}
	}
	return rs
}

// FR-32: a broker's whole disk becomes read-only, while it leads partitions and votes.
// Others lead all of them, and take records, before it has ended, which takes longer than a
// broker may be silent: what waits there must not wait for that.
func TestFR32ReadOnlyDisk(t *testing.T) {
	const brokers, topic, sick, most = 3, "orders", 1, 8 * time.Second
	dir := t.TempDir()
	fail := breakableDisk(t, brokerDir(dir, sick))
	b := startBrokersOn(t, dir, brokers)
	b.placeTopic(topic, nil, []int32{1, 2, 3}, []int32{1, 3, 2}, []int32{2, 1, 3})
	for p := range int32(3) {
		b.await(topic, p, inSync(brokers))
	}
	producer := newClient(t, b.addr(), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DisableIdempotentWrite(), kgo.RecordDeliveryTimeout(startTimeout))
	send := func(round int) {
		t.Helper()
		for p := range int32(3) {
			r := &kgo.Record{Partition: p, Value: fmt.Append(nil, round)}
			if err := producer.ProduceSync(testContext(t, startTimeout), r).FirstErr(); err != nil {
				t.Fatalf("round %d, partition %d: %v\n%s", round, p, err, b.tail())
			}
		}
	}
	send(0)
	fail()
	began := time.Now()
	send(1)
	for p := range int32(3) {
		b.await(topic, p, ledBy(2, 3))
	}
	if took := time.Since(began).Round(time.Millisecond); took > most {
		t.Errorf("others lead after %s, and not within %s", took, most)
	} else {
		t.Logf("others lead after %s", took)
	}
	send(2)
	c := newClient(t, b.addr(), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	got := map[string]int{}
	for _, r := range poll(t, c, 9) {
		got[fmt.Sprint(r.Partition, r.Offset, " ", string(r.Value))]++
	}
	for p := range 3 {
		for round := range 3 {
			if got[fmt.Sprint(p, round, " ", round)] != 1 {
				t.Errorf("partition %d, round %d: %v", p, round, got)
			}
		}
	}
}

// FR-33: the store of a broker fails where it reaches no controller: both others, of which
// one would be, are dead. Nobody is told, and so the broker ends by itself; what was
// acknowledged is with the others when they are back.
func TestFR33FailedDiskAndNoController(t *testing.T) {
	const brokers, topic, sick, n = 3, "orders", 1, 100
	if !full() {
		t.Skip("a broker waits for half a minute before it ends; core/lifecycle tests the same")
	}
	dir := t.TempDir()
	fail := breakableDisk(t, filepath.Join(brokerDir(dir, sick), "main"))
	b := startBrokersOn(t, dir, brokers)
	b.placeTopic(topic, nil, []int32{1, 2, 3})
	b.partition0(topic, brokers)
	franzProduce(t, b.addr(), topic, "none", numbered(n))
	b.dev("kill", 2)
	b.dev("kill", 3)
	fail()
	if err := b.produceOnce(b.addrOf(sick), topic, 0); err == nil {
		t.Errorf("a broker that has lost its disk and all others acknowledges a record")
	}
	err := eventually(testContext(t, 2*time.Minute), func() error {
		if m := b.members()[sick-1]; m.State != "ended" {
			return fmt.Errorf("it is %s", m.State)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, b.tail())
	}
	if out := b.output(); !strings.Contains(out, "the controller has not heard of it") {
		t.Errorf("it does not say why it has ended\n%s", b.tail())
	}
	restarted := make(chan error, 1)
	go func() { // neither is ready without the other
		_, err := b.command("dev", "restart", "2", "--data", b.dir)
		restarted <- err
	}()
	b.dev("restart", 3)
	if err := <-restarted; err != nil {
		t.Fatalf("%v\n%s", err, b.tail())
	}
	b.await(topic, 0, ledBy(2, 3))
	check(t, franzConsume(t, b.addr(), topic, n), numbered(n))
}

// FR-39: replicas are changed again and again while one that is to leave lags, and comes
// back, in and out of sync. No broker ever says that one is in sync that is no replica.
func TestFR39InSyncAreReplicas(t *testing.T) {
	t.Parallel()
	const brokers, topic = 4, "moved"
	b := startBrokers(t, brokers)
	b.placeTopic(topic, nil, []int32{1, 2, 3})
	b.partition0(topic, 3)
	l := newLedger()
	stop := franzLoad(t, b.addr(), topic, l)
	ctx, end := context.WithCancelCause(testContext(t, 5*time.Minute))
	watched := make(chan map[string]int, brokers)
	for n := int32(1); n <= brokers; n++ {
		c := newClient(t, b.addrOf(n))
		go func() { watched <- watchInSync(ctx, c, topic) }()
	}
	admin := newAdmin(t, b.addr())
	assign := func(replicas ...int32) {
		t.Helper()
		var req kadm.AlterPartitionAssignmentsReq
		req.Assign(topic, 0, replicas)
		if resp, err := admin.AlterPartitionAssignments(ctx, req); err != nil || resp.Error() != nil {
			t.Fatalf("to %v: %v %v\n%s", replicas, err, resp.Error(), b.tail())
		}
	}
	are := func(replicas ...int32) func(kmsg.MetadataResponseTopicPartition) error {
		return func(p kmsg.MetadataResponseTopicPartition) error {
			is := slices.Clone(p.Replicas)
			slices.Sort(is)
			if !slices.Equal(is, replicas) {
				return fmt.Errorf("replicas %v, want %v", is, replicas)
			}
			return nil
		}
	}
	rounds := 1
	if full() {
		rounds = 10
	}
	for range rounds {
		b.dev("pause", 3) // it is in sync, and falls behind
		waitAcked(ctx, t, b, l, l.inFlight()+1)
		assign(1, 2, 4)
		b.await(topic, 0, are(1, 2, 4))
		b.dev("resume", 3) // and asks to be in sync again
		b.partition0(topic, 3)
		assign(1, 2, 3)
		b.await(topic, 0, are(1, 2, 3))
		b.partition0(topic, 3)
	}
	stop()
	end(nil)
	seen, wrong := map[string]int{}, 0
	for range brokers {
		for is, times := range <-watched {
			seen[is] += times
			if strings.HasPrefix(is, "wrong") {
				wrong += times
			}
		}
	}
	if t.Logf("seen: %v", seen); wrong > 0 || len(seen) < 4 {
		t.Errorf("%d times one was in sync that is no replica; %d different answers", wrong, len(seen))
	}
	verify(t, b, topic, l)
}

// watchInSync asks one broker for partition 0 of a topic until ctx ends, and counts what it
// says: those that name one in sync that is no replica begin with "wrong".
func watchInSync(ctx context.Context, c *kgo.Client, topic string) map[string]int {
	seen := map[string]int{}
	req := kmsg.NewPtrMetadataRequest()
	of := kmsg.NewMetadataRequestTopic()
	of.Topic = &topic
	req.Topics = append(req.Topics, of)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		<-tick.C
		resp, err := c.SeedBrokers()[0].Request(ctx, req)
		if err != nil {
			continue // it is paused
		}
		is := resp.(*kmsg.MetadataResponse).Topics[0]
		if len(is.Partitions) == 0 {
			continue
		}
		p, kind := is.Partitions[0], ""
		for _, r := range p.ISR {
			if !slices.Contains(p.Replicas, r) {
				kind = "wrong "
			}
		}
		seen[fmt.Sprintf("%s%v of %v", kind, p.ISR, p.Replicas)]++
	}
	return seen
}

// segments are the files of records of a partition on one broker, the oldest first.
func (b *broker) segments(n int32, topic string, partition int32) []string {
	b.t.Helper()
	found, err := filepath.Glob(filepath.Join(b.dirOf(n), "main", fmt.Sprintf("%s-%d.*", topic, partition), "*.log"))
	if err != nil || len(found) == 0 {
		b.t.Fatalf("broker %d has no records of %s-%d: %v", n, topic, partition, err)
	}
	slices.Sort(found)
	return found
}

// flip changes a bit in the middle of a file.
func flip(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	at, is := info.Size()/2, make([]byte, 1)
	if _, err := f.ReadAt(is, at); err != nil {
		t.Fatal(err)
	}
	is[0] ^= 0x40
	if _, err := f.WriteAt(is, at); err != nil {
		t.Fatal(err)
	}
}

// fetchFrom asks one broker for partition 0 of a topic from an offset on, once.
func (b *broker) fetchFrom(n int32, topic string, offset int64) kmsg.FetchResponseTopicPartition {
	b.t.Helper()
	part := kmsg.NewFetchRequestTopicPartition()
	part.FetchOffset, part.PartitionMaxBytes = offset, 1<<20
	of := kmsg.NewFetchRequestTopic()
	of.Topic, of.TopicID, of.Partitions = topic, topicID(b.t, b.addrOf(n), topic), append(of.Partitions, part)
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.Topics = 500, 1, 1<<20, append(req.Topics, of)
	resp, err := newClient(b.t, b.addrOf(n)).SeedBrokers()[0].Request(testContext(b.t, startTimeout), req)
	if err != nil {
		b.t.Fatalf("fetch from broker %d: %v\n%s", n, err, b.tail())
	}
	return resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
}

// FR-41: a bit of an old segment is flipped on one follower, which then is to lead. It
// never hands out what is damaged, nor leaves it out, but says that it is damaged to the
// operator, and to readers that they are to ask again: another one that is in sync leads, and
// serves all records. The damaged one is not in sync any more.
func TestFR41FlippedBitOnOneReplica(t *testing.T) {
	t.Parallel()
	const brokers, topic, sick, n = 3, "archive", 2, 3000
	b := startBrokers(t, brokers)
	b.placeTopic(topic, map[string]string{"segment.bytes": "1048576", "retention.ms": "-1"}, []int32{1, 2, 3})
	b.partition0(topic, brokers)
	rs := sized(n)
	franzProduce(t, b.addr(), topic, "none", rs)
	b.partition0(topic, brokers)
	old := b.segments(sick, topic, 0)
	if len(old) < 2 {
		t.Fatalf("%d segments: none is sealed", len(old))
	}
	flip(t, old[0])
	b.dev("restart", sick) // it has read nothing again before somebody asks for it
	b.partition0(topic, brokers)
	b.lead(topic, sick)
	at, damaged := int64(0), false
	for at < n && !damaged {
		p := b.fetchFrom(sick, topic, at)
		switch err := kerr.ErrorForCode(p.ErrorCode); {
		case errors.Is(err, kerr.KafkaStorageError):
			damaged = true
		case err != nil || len(p.RecordBatches) == 0:
			t.Fatalf("at %d: %d bytes, %v\n%s", at, len(p.RecordBatches), err, b.tail())
		default:
			at = batchesEnd(t, p.RecordBatches, at, rs)
		}
	}
	if !damaged {
		t.Fatalf("broker %d serves its log to the end, with a damaged batch in it", sick)
	}
	if out := b.output(); !strings.Contains(out, "damaged") {
		t.Errorf("no broker says that records are damaged\n%s", b.tail())
	}
	b.await(topic, 0, ledBy(1, 3))
	check(t, franzConsume(t, b.addr(), topic, n), rs)
	write(t, b, writer(t, b, topic, kgo.AllISRAcks()), numbered(10)...)
	if now := b.await(topic, 0, inSync(brokers-1)); slices.Contains(now.ISR, sick) {
		t.Errorf("the damaged replica is in sync: %v", now.ISR)
	}
}

// batchesEnd holds whole batches against what was sent, from an offset on, and returns the
// offset after them.
func batchesEnd(t *testing.T, b []byte, from int64, want []*kgo.Record) (next int64) {
	t.Helper()
	part := kmsg.FetchResponseTopicPartition{RecordBatches: b, HighWatermark: int64(len(want)), LastStableOffset: int64(len(want))}
	got, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: from}, &part, kgo.DefaultDecompressor(), nil)
	if got.Err != nil || len(got.Records) == 0 {
		t.Fatalf("from %d: %d records, %v", from, len(got.Records), got.Err)
	}
	for i, r := range got.Records {
		if at := from + int64(i); r.Offset != at || string(r.Value) != string(want[at].Value) {
			t.Fatalf("offset %d is %d, %.20q", at, r.Offset, r.Value)
		}
	}
	return from + int64(len(got.Records))
}

// contents are the files below a directory with what is in them.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		found[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// FR-42: the metadata of one broker are cut short, as by a disk that has lost the rest. The
// broker does not start with them, says so, and touches no record. With empty metadata it
// is a new member: what it had of topics is there again, and not taken for orphans.
func TestFR42MetadataAreCutShort(t *testing.T) {
	t.Parallel()
	const brokers, topic, sick = 3, "kept", 3
	b := startBrokers(t, brokers)
	b.placeTopic(topic, nil, []int32{1, 2, 3})
	b.placeTopic("alone", nil, []int32{sick})
	b.partition0(topic, brokers)
	franzProduce(t, b.addr(), topic, "none", numbered(100))
	franzProduce(t, b.addr(), "alone", "none", numbered(100))
	b.dev("kill", sick)
	before := contents(t, filepath.Join(b.dirOf(sick), "main"))
	db := filepath.Join(b.dirOf(sick), "quorum", "quorum.db")
	info, err := os.Stat(db)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(db, info.Size()/2); err != nil {
		t.Fatal(err)
	}
	if out, err := b.command("dev", "restart", fmt.Sprint(sick), "--data", b.dir); err == nil {
		t.Fatalf("it starts: %s\n%s", out, b.tail())
	}
	if m := b.members()[sick-1]; m.State != "ended" || !strings.Contains(b.output(), "quorum.db") {
		t.Errorf("it is %s (%s), and does not name its database\n%s", m.State, m.Error, b.tail())
	}
	if after := contents(t, filepath.Join(b.dirOf(sick), "main")); !maps.Equal(after, before) {
		t.Errorf("the store has changed: %v, was %v", slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)))
	}
	b.await(topic, 0, inSync(brokers-1))
	if err := os.Rename(db, db+".cut"); err != nil {
		t.Fatal(err)
	}
	b.dev("restart", sick)
	b.partition0(topic, brokers)
	b.await("alone", 0, ledBy(sick))
	check(t, franzConsume(t, b.addr(), "alone", 100), numbered(100))
	check(t, franzConsume(t, b.addr(), topic, 100), numbered(100))
}

// FR-43: the disk of one broker is full, with a topic that nobody else has. It is killed,
// started while the disk is full, killed again, and started when there is room: no record
// is taken for what nobody wants.
func TestFR43FullDiskKeepsTheOnlyReplica(t *testing.T) {
	t.Parallel()
	const brokers, sick = 3, 2
	dir := t.TempDir()
	disk := filepath.Join(brokerDir(dir, sick), "main")
	smallDisk(t, disk, "48m")
	b := startBrokersOn(t, dir, brokers, "--flush", "interval")
	b.placeTopic("alone", map[string]string{"retention.ms": "-1"}, []int32{sick})
	b.await("alone", 0, inSync(1))
	stored := fill(t, b.addr(), "alone")
	b.dev("kill", sick)
	b.await("alone", 0, ledBy(-1))
	b.dev("restart", sick)
	b.await("alone", 0, ledBy(sick))
	if got := franzConsume(t, b.addr(), "alone", stored); len(got) < stored {
		t.Errorf("on the full disk %d of %d records", len(got), stored)
	}
	b.dev("kill", sick)
	if err := unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT, "size=96m"); err != nil {
		t.Fatal(err)
	}
	b.dev("restart", sick)
	b.await("alone", 0, ledBy(sick))
	if got := franzConsume(t, b.addr(), "alone", stored); len(got) < stored {
		t.Errorf("with room again %d of %d records", len(got), stored)
	}
	franzProduce(t, b.addr(), "alone", "none", numbered(100))
	if end := endOffset(t, b.addr(), "alone"); end < int64(stored)+100 {
		t.Errorf("it ends at %d after %d and 100 records", end, stored)
	}
}
