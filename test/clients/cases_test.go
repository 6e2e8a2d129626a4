package clients

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// testCase is what every client is put through that has what it needs.
type testCase struct {
	name  string
	needs []feature
	run   func(r *run, c *client, p program)
}

// codecs are the compressions of the protocol: their place is their number in the
// attributes of batches.
var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

func cases() []testCase {
	var all []testCase
	for number, codec := range codecs {
		all = append(all, testCase{
			name: "produce+consume/" + codec, needs: []feature{feature(codec)},
			run: func(r *run, c *client, p program) { roundTrip(r, c, p, codec, uint8(number)) },
		})
	}
	return append(all,
		testCase{name: "idempotent", needs: []feature{idempotent}, run: idempotence},
		testCase{name: "idempotent/lost answer", needs: []feature{idempotent}, run: lostAnswer},
		testCase{name: "members", run: func(r *run, c *client, p program) { members(r, c, p, "eager") }},
		testCase{name: "members/cooperative", needs: []feature{cooperative}, run: func(r *run, c *client, p program) {
			members(r, c, p, "cooperative")
		}},
		testCase{name: "members/static", needs: []feature{static}, run: staticMembers},
		testCase{name: "resume/broker", run: resumeAfterBroker},
		testCase{name: "resume/plugin", run: resumeAfterPlugin},
		testCase{name: "advertised", run: advertised},
		testCase{name: "admin", needs: []feature{admin}, run: administer},
	)
}

const (
	// sent is how many records a case sends, to so many partitions.
	sent           = 500
	sentPartitions = 3
	// sentAgo is how old the first record is made: its time is not the broker's.
	sentAgo = time.Minute
)

// startTime is the first record's timestamp.
func startTime() int64 { return time.Now().Add(-sentAgo).UnixMilli() }

// expected is record i as every producer sends it; the first one's timestamp is
// given.
func expected(i int, first int64) *kgo.Record {
	return &kgo.Record{
		Key:   fmt.Appendf(nil, "k-%d", i),
		Value: fmt.Appendf(nil, "v-%d-%s", i, strings.Repeat(string(rune('a'+i%26)), 100)),
		Headers: []kgo.RecordHeader{
			{Key: "n", Value: fmt.Append(nil, i)},
			{Key: "empty", Value: []byte{}},
		},
		Timestamp: time.UnixMilli(first + int64(i)),
	}
}

// roundTrip: what the driver sends arrives as it was sent, in batches of the codec,
// and what others sent with that codec the driver reads.
func roundTrip(r *run, c *client, p program, codec string, number uint8) {
	first := startTime()
	topic := r.topic(r.addr, "produced-"+codec, sentPartitions)
	r.driverProduces(p, r.addr, topic, first, "codec="+codec)
	for _, rec := range r.checkProduced(c, r.addr, topic, first) {
		if got := rec.Attrs.CompressionType(); got != number {
			r.Fatalf("the batch of %s is compressed with %s, want %s", rec.Key, codecs[got], codec)
		}
	}
	topic = r.topic(r.addr, "consumed-"+codec, sentPartitions)
	want := r.produce(r.addr, topic, 0, first, codec)
	r.checkConsumed(p, r.addr, topic, want)
}

// idempotence: every record is there once, and in batches with a producer's ID and
// sequence.
func idempotence(r *run, c *client, p program) {
	first := startTime()
	topic := r.topic(r.addr, "idempotent", sentPartitions)
	r.driverProduces(p, r.addr, topic, first, "idempotent=true")
	for _, rec := range r.checkProduced(c, r.addr, topic, first) {
		if rec.ProducerID < 0 {
			r.Fatalf("%s came without a producer ID", rec.Key)
		}
	}
}

// administer: the driver does all that its client's admin part can, and what it
// deleted at last is gone.
func administer(r *run, c *client, p program) {
	topic := r.newName("admin")
	events, err := p.drive(r.Context(), "admin", "bootstrap="+r.addr, "topic="+topic)
	var calls []string
	for _, e := range events {
		calls = append(calls, e.Call)
	}
	r.Logf("calls that went well: %s", strings.Join(calls, ", "))
	if err != nil {
		r.Fatal(err)
	}
	switch deleted := slices.Contains(calls, "delete_topic"); {
	case len(calls) == 0:
		r.Fatalf("the driver made no call")
	case deleted != c.has(deletion):
		r.Fatalf("the driver deleted the topic: %t", deleted)
	case !deleted:
		return
	}
	a, ctx := r.admin(r.addr), r.within(askTimeout)
	err = eventually(ctx, func() error {
		topics, err := a.ListTopics(ctx)
		if err == nil && topics.Has(topic) {
			err = fmt.Errorf("topic %s is still there", topic)
		}
		return err
	})
	if err != nil {
		r.Error(err)
	}
}

// driverProduces lets the driver send all records, with the given keys beside the
// usual ones.
func (r *run) driverProduces(p program, addr, topic string, first int64, more ...string) {
	r.Helper()
	args := []string{"produce", "bootstrap=" + addr, "topic=" + topic, fmt.Sprintf("count=%d", sent), "from=0", fmt.Sprintf("timestamp=%d", first)}
	events, err := p.drive(r.Context(), append(args, more...)...)
	if err != nil {
		r.Fatal(err)
	}
	if n := len(events); n == 0 || events[n-1].Event != "produced" || events[n-1].Count != sent {
		r.Fatalf("the driver told %+v of %d records", events, sent)
	}
}

// checkProduced reads a topic and holds it against what the driver was to send. It
// returns the records.
func (r *run) checkProduced(c *client, addr, topic string, first int64) []*kgo.Record {
	r.Helper()
	got := r.readAll(addr, topic)
	if len(got) != sent {
		r.Errorf("%d records are there, want %d", len(got), sent)
	}
	seen := make(map[string]bool)
	// A client that sends what it may place and what it may not in two goes keeps the
	// order of each.
	type lane struct {
		partition int32
		placed    bool
	}
	last := make(map[lane]int)
	for _, rec := range got {
		i, err := strconv.Atoi(strings.TrimPrefix(string(rec.Key), "k-"))
		if err != nil || seen[string(rec.Key)] {
			r.Fatalf("%s is there twice, or nobody sent it", rec.Key)
		}
		seen[string(rec.Key)] = true
		l := lane{rec.Partition, i%3 == 0}
		if before, ok := last[l]; ok && i < before {
			r.Errorf("partition %d has record %d behind %d", rec.Partition, i, before)
		}
		last[l] = i
		if c.has(partitions) && i%3 == 0 && rec.Partition != 0 {
			r.Errorf("record %d is in partition %d, want 0", i, rec.Partition)
		}
		r.checkRecord(c, rec, expected(i, first))
	}
	return got
}

// checkRecord holds a record against what was sent, as far as the client can say it.
func (r *run) checkRecord(c *client, got, want *kgo.Record) {
	r.Helper()
	if string(got.Key) != string(want.Key) || string(got.Value) != string(want.Value) {
		r.Errorf("%s=%s, want %s=%s", got.Key, got.Value, want.Key, want.Value)
	}
	if c.has(headers) {
		same := slices.EqualFunc(got.Headers, want.Headers, func(a, b kgo.RecordHeader) bool {
			return a.Key == b.Key && string(a.Value) == string(b.Value) && a.Value != nil
		})
		if !same {
			r.Errorf("%s has the headers %q, want %q", got.Key, got.Headers, want.Headers)
		}
	}
	if c.has(timestamps) && !got.Timestamp.Equal(want.Timestamp) {
		r.Errorf("%s is of %s, want %s", got.Key, got.Timestamp, want.Timestamp)
	}
}

// readAll reads all that is in a topic.
func (r *run) readAll(addr, topic string) []*kgo.Record {
	r.Helper()
	ends, err := r.admin(addr).ListEndOffsets(r.within(askTimeout), topic)
	if err != nil || ends.Error() != nil {
		r.Fatalf("end offsets of %s: %v %v", topic, err, ends.Error())
	}
	var n int64
	from := make(map[int32]kgo.Offset)
	for partition, end := range ends[topic] {
		n += end.Offset
		from[partition] = kgo.NewOffset().AtStart()
	}
	c := r.client(addr, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	ctx := r.within(askTimeout)
	var out []*kgo.Record
	for int64(len(out)) < n {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			r.Fatalf("read %s: %v (%d of %d records)", topic, err, len(out), n)
		}
		out = append(out, fetches.Records()...)
	}
	return out
}

// kgoCodecs are franz-go's names for the codecs.
func kgoCodecs(codec string) kgo.CompressionCodec {
	return map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[codec]
}

// produce sends records from the given one on, evenly to all partitions of a topic,
// and returns them as they are there.
func (r *run) produce(addr, topic string, from int, first int64, codec string) []*kgo.Record {
	r.Helper()
	c := r.client(addr, kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgoCodecs(codec)),
		kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	out := make([]*kgo.Record, sent)
	for i := range out {
		out[i] = expected(from+i, first)
	}
	if err := c.ProduceSync(r.within(askTimeout), out...).FirstErr(); err != nil {
		r.Fatalf("produce to %s: %v", topic, err)
	}
	return out
}

// checkConsumed lets the driver read a topic and holds what it tells against what
// is there.
func (r *run) checkConsumed(p program, addr, topic string, want []*kgo.Record) {
	r.Helper()
	events, err := p.drive(r.Context(), "consume", "bootstrap="+addr, "topic="+topic, fmt.Sprintf("count=%d", len(want)))
	if err != nil {
		r.Fatal(err)
	}
	if len(events) != len(want) {
		r.Errorf("the driver read %d records, want %d", len(events), len(want))
	}
	at := make(map[place]*kgo.Record)
	for _, rec := range want {
		at[place{rec.Partition, rec.Offset}] = rec
	}
	next := make(map[int32]int64)
	for _, e := range events {
		if e.Event != "record" || e.Offset != next[e.Partition] {
			r.Fatalf("the driver told %q of offset %d in partition %d, want record %d", e.Event, e.Offset, e.Partition, next[e.Partition])
		}
		next[e.Partition]++
		if rec := at[place{e.Partition, e.Offset}]; rec == nil {
			r.Errorf("the driver read a record at %d of partition %d, where there is none", e.Offset, e.Partition)
		} else if why := differs(e, rec); why != "" {
			r.Errorf("the driver read record %s wrongly: %s", rec.Key, why)
		}
	}
}

// place is where a record is.
type place struct {
	partition int32
	offset    int64
}

// differs says what of a record a driver read otherwise than it is, or nothing.
func differs(e event, want *kgo.Record) string {
	switch {
	case e.Key != string(want.Key):
		return fmt.Sprintf("key %q", e.Key)
	case e.Value != string(want.Value):
		return fmt.Sprintf("value %q", e.Value)
	case e.Timestamp != want.Timestamp.UnixMilli():
		return fmt.Sprintf("timestamp %d, want %d", e.Timestamp, want.Timestamp.UnixMilli())
	case !slices.EqualFunc(e.Headers, want.Headers, func(a [2]string, b kgo.RecordHeader) bool { return a[0] == b.Key && a[1] == string(b.Value) }):
		return fmt.Sprintf("headers %q", e.Headers)
	}
	return ""
}
