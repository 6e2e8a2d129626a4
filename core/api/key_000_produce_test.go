package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// toProduce is a request for partitions of topics, "orders-0" and so on, with
// acks=all.
func toProduce(data map[string][]byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks = -1
	var names []string
	for k := range data {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		i := strings.LastIndexByte(k, '-')
		var index int32
		fmt.Sscan(k[i+1:], &index)
		topic := k[:i]
		part := kmsg.ProduceRequestTopicPartition{Partition: index, Records: data[k]}
		if n := len(req.Topics); n > 0 && req.Topics[n-1].Topic == topic {
			req.Topics[n-1].Partitions = append(req.Topics[n-1].Partitions, part)
			continue
		}
		req.Topics = append(req.Topics, kmsg.ProduceRequestTopic{Topic: topic, TopicID: topicID(topic), Partitions: []kmsg.ProduceRequestTopicPartition{part}})
	}
	return req
}

// codes are the error codes of an answer by topic-partition.
func codes(resp *kmsg.ProduceResponse) map[string]int16 {
	out := make(map[string]int16)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			out[fmt.Sprintf("%s-%d", t.Topic, p.Partition)] = p.ErrorCode
		}
	}
	return out
}

func TestProduceChecks(t *testing.T) {
	good := func() []byte { return records(t, batch.Options{}, "v") }
	corrupt := good()
	corrupt[len(corrupt)-1] ^= 1
	for _, c := range []struct {
		name    string
		version int16
		data    []byte
		to      string
		change  func(*kmsg.ProduceRequest, *cluster)
		want    int16
	}{
		{name: "good", version: 9, data: good(), to: "orders-0", want: 0},
		{name: "null records", version: 9, data: nil, to: "orders-0", want: 87},
		{name: "empty records", version: 9, data: []byte{}, to: "orders-0", want: 87},
		{name: "corrupt", version: 9, data: corrupt, to: "orders-0", want: 2},
		{name: "two batches", version: 9, data: append(good(), good()...), to: "orders-0", want: 87},
		{name: "zstd too early", version: 6, data: records(t, batch.Options{Codec: batch.Zstd}, "v"), to: "orders-0", want: 76},
		{name: "zstd", version: 7, data: records(t, batch.Options{Codec: batch.Zstd}, "v"), to: "orders-0", want: 0},
		{name: "unknown topic", version: 9, data: good(), to: "nope-0", want: 3},
		{name: "unknown partition", version: 9, data: good(), to: "orders-9", want: 3},
		{name: "negative partition", version: 9, data: good(), to: "orders-0", want: 3,
			change: func(r *kmsg.ProduceRequest, _ *cluster) { r.Topics[0].Partitions[0].Partition = -1 }},
		{name: "unknown topic ID", version: 13, data: good(), to: "nope-0", want: 100},
		{name: "topic ID", version: 13, data: good(), to: "orders-0", want: 0},
		{name: "internal topic", version: 9, data: good(), to: "__consumer_offsets-0", want: 17},
		{name: "bad acks", version: 9, data: good(), to: "orders-0", want: 21,
			change: func(r *kmsg.ProduceRequest, _ *cluster) { r.Acks = 2 }},
		{name: "bad acks to an unknown topic", version: 9, data: good(), to: "nope-0", want: 21,
			change: func(r *kmsg.ProduceRequest, _ *cluster) { r.Acks = -2 }},
		{name: "transactional ID", version: 9, data: good(), to: "orders-0", want: 35,
			change: func(r *kmsg.ProduceRequest, _ *cluster) { r.TransactionID = ptr("t") }},
		{name: "transactional ID denied", version: 9, data: good(), to: "orders-0", want: 53,
			change: func(r *kmsg.ProduceRequest, c *cluster) {
				r.TransactionID = ptr("t")
				c.deny[security.Action{Operation: security.OpWrite, Resource: security.TransactionalID, Name: "t"}] = true
			}},
		{name: "transactional batch", version: 9, data: records(t, batch.Options{Attributes: recordbatch.AttrTransactional, Producer: &batch.Producer{ID: 1}}, "v"), to: "orders-0", want: 35},
		{name: "control batch", version: 9, data: records(t, batch.Options{Attributes: recordbatch.AttrControl}, "v"), to: "orders-0", want: 87},
		{name: "denied", version: 9, data: good(), to: "orders-0", want: 29,
			change: func(_ *kmsg.ProduceRequest, c *cluster) { c.denyTopic("orders", security.OpWrite) }},
		{name: "denied and unknown", version: 9, data: good(), to: "nope-0", want: 29,
			change: func(_ *kmsg.ProduceRequest, c *cluster) { c.denyTopic("nope", security.OpWrite) }},
		{name: "not leader", version: 9, data: good(), to: "orders-1", want: 6},
		{name: "no company", version: 9, data: good(), to: "orders-0", want: 19,
			change: func(_ *kmsg.ProduceRequest, c *cluster) { c.appendErr = model.ErrNotEnoughReplicas }},
		// FR-58: a client takes UNKNOWN_SERVER_ERROR as final, and writes twice.
		{name: "error without a code", version: 9, data: good(), to: "orders-0", want: 56,
			change: func(_ *kmsg.ProduceRequest, c *cluster) { c.appendErr = errors.New("surprise") }},
		{name: "timestamp too late", version: 9, to: "orders-0", want: 32,
			data: func() []byte {
				b, _ := batch.Build(batch.Options{}, batch.Record{Timestamp: testTime().AddDate(1, 0, 0).UnixMilli(), Value: []byte("v")})
				return b
			}()},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newCluster(t)
			f.topic("orders", self, 2)
			f.topic("other", self)
			f.topic("__consumer_offsets", self)
			req := toProduce(map[string][]byte{c.to: c.data})
			if c.change != nil {
				c.change(req, f)
			}
			resp := ask[*kmsg.ProduceResponse](t, newHandler(f), c.version, req)
			part := resp.Topics[0].Partitions[0]
			if part.ErrorCode != c.want {
				t.Fatalf("code %d (%v), want %d", part.ErrorCode, str(part.ErrorMessage), c.want)
			}
			if (c.want == 0) != (part.BaseOffset == 0) {
				t.Errorf("base offset %d", part.BaseOffset)
			}
			if c.version >= 8 && (c.want == 0) != (part.ErrorMessage == nil) {
				t.Errorf("message %v", str(part.ErrorMessage))
			}
		})
	}
}

// A batch that is refused before it reaches the log is answered with where the
// log starts, from version 5 on.
func TestRefusedBatchesTellTheLogStart(t *testing.T) {
	c := newCluster(t)
	id := c.topic("orders", self)
	c.fill(t, model.Partition{Topic: id})
	c.logs[model.Partition{Topic: id}].start = 1
	late, err := batch.Build(batch.Options{}, batch.Record{Timestamp: testTime().AddDate(1, 0, 0).UnixMilli(), Value: []byte("v")})
	if err != nil {
		t.Fatal(err)
	}
	corrupt := records(t, batch.Options{}, "v")
	corrupt[len(corrupt)-1] ^= 1
	for _, x := range []struct {
		version int16
		data    []byte
		want    int64
	}{{9, late, 1}, {5, late, 1}, {9, corrupt, -1}} {
		part := ask[*kmsg.ProduceResponse](t, newHandler(c), x.version, toProduce(map[string][]byte{"orders-0": x.data})).Topics[0].Partitions[0]
		if part.ErrorCode == 0 || part.LogStartOffset != x.want {
			t.Errorf("version %d: code %d, log start %d, want %d", x.version, part.ErrorCode, part.LogStartOffset, x.want)
		}
	}
}

func str(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

// One bad partition does not fail the others.
func TestProducePartitionsAreIndependent(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self, 2, self)
	good := func() []byte { return records(t, batch.Options{}, "v") }
	resp := ask[*kmsg.ProduceResponse](t, newHandler(c), 9, toProduce(map[string][]byte{
		"orders-0": good(), "orders-1": good(), "orders-2": good(), "orders-7": good(), "nope-0": good(),
	}))
	want := map[string]int16{"orders-0": 0, "orders-1": 6, "orders-2": 0, "orders-7": 3, "nope-0": 3}
	if got := codes(resp); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// A partition that a request names twice is refused, and neither batch is
// appended.
func TestProducePartitionTwice(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self, self)
	req := toProduce(map[string][]byte{"orders-0": records(t, batch.Options{}, "v"), "orders-1": records(t, batch.Options{}, "v")})
	req.Topics = append(req.Topics, kmsg.ProduceRequestTopic{Topic: "orders", TopicID: topicID("orders"), Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: 0, Records: records(t, batch.Options{}, "w")}}})
	for _, version := range []int16{9, 13} {
		resp := ask[*kmsg.ProduceResponse](t, newHandler(c), version, req)
		if a, b, d := resp.Topics[0].Partitions[0].ErrorCode, resp.Topics[1].Partitions[0].ErrorCode, resp.Topics[0].Partitions[1].ErrorCode; a != 42 || b != 42 || d != 0 {
			t.Errorf("version %d: %d, %d and %d", version, a, b, d)
		}
	}
	if len(c.appends) != 2 { // orders-1, once for each version
		t.Errorf("%d appends", len(c.appends))
	}
}

// Batches are queued when a request is begun, in that order, though answers come
// in another.
func TestProduceOrder(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self)
	c.hold = true
	h := newHandler(c)
	var answers []func() *kmsg.ProduceResponse
	for i := range 5 {
		req := toProduce(map[string][]byte{"orders-0": records(t, batch.Options{}, fmt.Sprint(i))})
		req.Version = 9
		answer := begin(t.Context(), h, callOf(req))
		if len(c.appends) != i+1 {
			t.Fatalf("request %d was begun, %d batches are queued", i, len(c.appends))
		}
		answers = append(answers, func() *kmsg.ProduceResponse {
			return decoded[*kmsg.ProduceResponse](t, req, answer(t.Context()))
		})
	}
	c.release()
	for i := range slices.Backward(answers) {
		if got := answers[i]().Topics[0].Partitions[0].BaseOffset; got != int64(i) {
			t.Errorf("request %d has offset %d", i, got)
		}
	}
}

// A request whose context ends is not answered, and what arrives later does no
// harm.
func TestProduceGivenUp(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self)
	c.hold = true
	req := toProduce(map[string][]byte{"orders-0": records(t, batch.Options{}, "v")})
	req.Version = 9
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	reply := begin(t.Context(), newHandler(c), callOf(req))(ctx)
	if !reply.Close || reply.Body != nil {
		t.Errorf("got %+v", reply)
	}
	c.release()
}

func TestProduceWithoutAcks(t *testing.T) {
	for _, c := range []struct {
		to    string
		close bool
	}{{"orders-0", false}, {"orders-1", true}, {"nope-0", true}} {
		f := newCluster(t)
		f.topic("orders", self, 2)
		req := toProduce(map[string][]byte{c.to: records(t, batch.Options{}, "v")})
		req.Acks, req.Version = 0, 9
		reply := begin(t.Context(), newHandler(f), callOf(req))(t.Context())
		if reply.Body != nil || reply.Close != c.close || c.close && !strings.Contains(reply.Reason, c.to) {
			t.Errorf("%s: %+v", c.to, reply)
		}
	}
}

// From version 10 on a client is told who leads, at the listener that it came
// through. (KIP-951)
func TestProduceNamesTheLeader(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self, 2, model.NoNode)
	for _, version := range []int16{9, 10, 13} {
		req := toProduce(map[string][]byte{"orders-1": records(t, batch.Options{}, "v"), "orders-2": records(t, batch.Options{}, "v")})
		resp := ask[*kmsg.ProduceResponse](t, newHandler(c), version, req)
		led, leaderless := resp.Topics[0].Partitions[0], resp.Topics[0].Partitions[1]
		if led.ErrorCode != 6 || leaderless.ErrorCode != 6 {
			t.Fatalf("version %d: %+v", version, resp)
		}
		if version < 10 {
			if led.CurrentLeader.LeaderID != -1 || len(resp.Brokers) != 0 {
				t.Errorf("version %d: %+v", version, resp)
			}
			continue
		}
		if led.CurrentLeader.LeaderID != 2 || led.CurrentLeader.LeaderEpoch != 7 || leaderless.CurrentLeader.LeaderID != -1 {
			t.Errorf("version %d: %+v and %+v", version, led.CurrentLeader, leaderless.CurrentLeader)
		}
		if len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != 2 || resp.Brokers[0].Host != "b.example" || resp.Brokers[0].Port != 9092 {
			t.Errorf("version %d: %+v", version, resp.Brokers)
		}
	}
}

// A request that has waited is told who leads by then; and never that it is this broker, which
// says itself that it does not lead. (KIP-951)
func TestProduceNamesTheLeaderOfTheEnd(t *testing.T) {
	c := newCluster(t)
	id := c.topic("orders", self, self)
	c.hold, c.appendErr = true, model.ErrNotLeaderOrFollower
	req := toProduce(map[string][]byte{"orders-0": records(t, batch.Options{}, "v"), "orders-1": records(t, batch.Options{}, "v")})
	req.Version = 10
	answer := begin(t.Context(), newHandler(c), callOf(req))
	c.apply(&image.PartitionChangeRecord{Partition: model.Partition{Topic: id}, LeaderChange: true, Leader: 2})
	c.release()
	resp := decoded[*kmsg.ProduceResponse](t, req, answer(t.Context()))
	moved, stays := resp.Topics[0].Partitions[0], resp.Topics[0].Partitions[1]
	if moved.ErrorCode != 6 || moved.CurrentLeader.LeaderID != 2 || moved.CurrentLeader.LeaderEpoch != 8 || len(resp.Brokers) != 1 {
		t.Errorf("of the partition that moved: %+v, brokers %+v", moved, resp.Brokers)
	}
	if stays.ErrorCode != 6 || stays.CurrentLeader.LeaderID != -1 || stays.CurrentLeader.LeaderEpoch != -1 {
		t.Errorf("of the other: %+v", stays)
	}
}

// Records without a key are refused one by one in a compacted topic. (KIP-467)
func TestProduceRecordErrors(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self)
	c.apply(&image.ConfigRecord{Resource: model.Resource{Type: model.ResourceTopic, Name: "orders"}, Key: "cleanup.policy", Value: "compact"})
	data, err := batch.Build(batch.Options{}, batch.Record{Timestamp: testTime().UnixMilli(), Key: []byte("k")}, batch.Record{Timestamp: testTime().UnixMilli()})
	if err != nil {
		t.Fatal(err)
	}
	part := ask[*kmsg.ProduceResponse](t, newHandler(c), 9, toProduce(map[string][]byte{"orders-0": data})).Topics[0].Partitions[0]
	if part.ErrorCode != 87 || part.ErrorMessage == nil || len(part.ErrorRecords) != 1 || part.ErrorRecords[0].RelativeOffset != 1 || part.ErrorRecords[0].ErrorMessage == nil {
		t.Fatalf("got %+v", part)
	}
}

func TestProduceTopicSettings(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self)
	h := newHandler(c, func(cfg *Config, _ *Deps) {
		cfg.Properties = map[string]Property{"message.max.bytes": {Value: "100"}, "log.message.timestamp.type": {Value: "LogAppendTime", Default: true}}
	})
	big := records(t, batch.Options{}, strings.Repeat("x", 200))
	if got := codes(ask[*kmsg.ProduceResponse](t, h, 9, toProduce(map[string][]byte{"orders-0": big}))); got["orders-0"] != 10 {
		t.Errorf("above message.max.bytes: %v", got)
	}
	set := func(key, value string) {
		c.apply(&image.ConfigRecord{Resource: model.Resource{Type: model.ResourceTopic, Name: "orders"}, Key: key, Value: value})
	}
	set("max.message.bytes", "1000")
	set("message.timestamp.type", "LogAppendTime")
	part := ask[*kmsg.ProduceResponse](t, h, 9, toProduce(map[string][]byte{"orders-0": big})).Topics[0].Partitions[0]
	if part.ErrorCode != 0 || part.LogAppendTime != testTime().UnixMilli() {
		t.Errorf("after the topic's settings changed: %+v", part)
	}
}

// A topic with a codec of its own keeps what came in it, and only what is then small
// enough.
func TestProduceRecompresses(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self)
	h := newHandler(c)
	set := func(key, value string) {
		c.apply(&image.ConfigRecord{Resource: model.Resource{Type: model.ResourceTopic, Name: "orders"}, Key: key, Value: value})
	}
	for _, one := range []struct {
		kept     string
		sent     batch.Codec
		maxBytes string
		want     batch.Codec
		code     int16
	}{
		{kept: "producer", sent: batch.Gzip, maxBytes: "5000", want: batch.Gzip},
		{kept: "zstd", sent: batch.Gzip, maxBytes: "5000", want: batch.Zstd},
		{kept: "zstd", sent: batch.None, maxBytes: "5000", want: batch.Zstd},
		{kept: "lz4", sent: batch.LZ4, maxBytes: "5000", want: batch.LZ4},
		{kept: "uncompressed", sent: batch.Snappy, maxBytes: "5000", want: batch.None},
		{kept: "uncompressed", sent: batch.Snappy, maxBytes: "1000", code: 10},
	} {
		set("compression.type", one.kept)
		set("max.message.bytes", one.maxBytes)
		before := len(c.appends)
		sent := records(t, batch.Options{Codec: one.sent}, strings.Repeat("x", 2000))
		got := codes(ask[*kmsg.ProduceResponse](t, h, 9, toProduce(map[string][]byte{"orders-0": sent})))
		if got["orders-0"] != one.code {
			t.Errorf("%s as %s: %v, want %d", one.sent, one.kept, got, one.code)
		}
		if one.code != 0 {
			if len(c.appends) != before {
				t.Errorf("%s as %s: appended", one.sent, one.kept)
			}
			continue
		}
		a := c.appends[before]
		info, err := recordbatch.Parse(a.Data)
		if err != nil || batch.Codec(info.Attributes&recordbatch.CodecMask) != one.want || a.Batch.Bytes != int32(len(a.Data)) {
			t.Errorf("%s as %s: appended %+v of %d bytes (%v)", one.sent, one.kept, info, len(a.Data), err)
		}
	}
}

func TestProduceInternalTopicByAdminClient(t *testing.T) {
	c := newCluster(t)
	c.topic("__consumer_offsets", self)
	req := toProduce(map[string][]byte{"__consumer_offsets-0": records(t, batch.Options{}, "v")})
	req.Version = 9
	call := callOf(req)
	call.ClientID = "__admin_client"
	if got := codes(decoded[*kmsg.ProduceResponse](t, req, begin(t.Context(), newHandler(c), call)(t.Context()))); got["__consumer_offsets-0"] != 0 {
		t.Fatalf("got %v", got)
	}
}

// What broke inside stays inside.
func TestProduceHidesStorageErrors(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self)
	c.appendErr = fmt.Errorf("write /var/lib/secret: %w", model.ErrStorage)
	part := ask[*kmsg.ProduceResponse](t, newHandler(c), 9, toProduce(map[string][]byte{"orders-0": records(t, batch.Options{}, "v")})).Topics[0].Partitions[0]
	if part.ErrorCode != 56 || strings.Contains(str(part.ErrorMessage), "secret") {
		t.Fatalf("got %d %s", part.ErrorCode, str(part.ErrorMessage))
	}
}

// FR-58: UNKNOWN_SERVER_ERROR makes a producer give up a record that may be in
// the log, and its application send it again. Whatever an append fails with, the
// code is another one, and where the record may be there, a retriable one.
func TestFR58FailedAppendsAreRetriable(t *testing.T) {
	for _, err := range []error{
		errors.New("surprise"), io.ErrUnexpectedEOF, os.ErrPermission, context.DeadlineExceeded, context.Canceled,
		model.ErrStorage, model.ErrRequestTimedOut, model.ErrNotEnoughReplicas, model.ErrNotEnoughReplicasAfter, model.ErrNotLeaderOrFollower,
	} {
		for version := int16(3); version <= 13; version++ {
			c := newCluster(t)
			c.topic("orders", self)
			c.appendErr = fmt.Errorf("append: %w", err)
			req := toProduce(map[string][]byte{"orders-0": records(t, batch.Options{}, "v")})
			got := ask[*kmsg.ProduceResponse](t, newHandler(c), version, req).Topics[0].Partitions[0].ErrorCode
			if got == 0 || !kerr.IsRetriable(kerr.ErrorForCode(got)) {
				t.Errorf("%v, version %d: code %d", err, version, got)
			}
		}
	}
}

// The request's memory goes back when nobody looks at it any more but for those who keep
// its frame, which whoever appends is told of, unless the batch lies elsewhere by then.
func TestProduceGivesMemoryBack(t *testing.T) {
	for _, x := range []struct {
		name            string
		framed, unspent bool
		kept            string
		want            bool
	}{
		{name: "spent", kept: "producer", want: true},
		{name: "under way", kept: "producer", unspent: true},
		{name: "in a frame", kept: "producer", framed: true, unspent: true, want: true},
		{name: "in another codec", kept: "zstd", framed: true, want: true},
	} {
		c := newCluster(t)
		c.topic("orders", self)
		c.apply(&image.ConfigRecord{Resource: model.Resource{Type: model.ResourceTopic, Name: "orders"}, Key: "compression.type", Value: x.kept})
		c.unspent = x.unspent
		req := toProduce(map[string][]byte{"orders-0": records(t, batch.Options{}, "v"), "nope-0": nil})
		req.Version = 9
		call := callOf(req)
		if x.framed {
			call.Frame = model.NewFrame(len(call.Body), nil)
		}
		reply := begin(t.Context(), newHandler(c), call)(t.Context())
		if reply.Spent != x.want {
			t.Errorf("%s: %v", x.name, reply.Spent)
		}
		if got := c.appends[0].Frame; x.kept == "producer" && got != call.Frame || x.kept != "producer" && got != nil {
			t.Errorf("%s: appended in frame %p, the request's is %p", x.name, got, call.Frame)
		}
	}
}
