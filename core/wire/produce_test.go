package wire

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

const (
	firstProduce int16 = 3
	lastProduce  int16 = 13
)

// drawProduce is a request as the codec writes it.
func drawProduce(t *rapid.T) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version = rapid.Int16Range(firstProduce, lastProduce).Draw(t, "version")
	if rapid.Bool().Draw(t, "transactional") {
		id := rapid.String().Draw(t, "transactional ID")
		req.TransactionID = &id
	}
	req.Acks = rapid.Int16().Draw(t, "acks")
	req.TimeoutMillis = rapid.Int32().Draw(t, "timeout")
	for range rapid.IntRange(0, 4).Draw(t, "topics") {
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic = rapid.StringN(0, 20, 300).Draw(t, "name")
		copy(topic.TopicID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "ID"))
		for range rapid.IntRange(0, 4).Draw(t, "partitions") {
			part := kmsg.NewProduceRequestTopicPartition()
			part.Partition = rapid.Int32().Draw(t, "partition")
			part.Records = rapid.OneOf(rapid.Just[[]byte](nil), rapid.SliceOfN(rapid.Byte(), 0, 300)).Draw(t, "records")
			drawTags(t, &part.UnknownTags)
			topic.Partitions = append(topic.Partitions, part)
		}
		drawTags(t, &topic.UnknownTags)
		req.Topics = append(req.Topics, topic)
	}
	drawTags(t, &req.UnknownTags)
	return req
}

func drawTags(t *rapid.T, tags *kmsg.Tags) {
	for range rapid.IntRange(0, 2).Draw(t, "tags") {
		tags.Set(rapid.Uint32Range(100, 1<<20).Draw(t, "tag"), rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "value"))
	}
}

// sameProduce fails unless p is what the codec reads.
func sameProduce(t failer, p *Produce, want *kmsg.ProduceRequest) {
	t.Helper()
	if (p.TransactionalID == nil) != (want.TransactionID == nil) || want.TransactionID != nil && string(p.TransactionalID) != *want.TransactionID {
		t.Fatalf("transactional ID %q, want %v", p.TransactionalID, want.TransactionID)
	}
	if p.Acks != want.Acks || p.TimeoutMillis != want.TimeoutMillis || len(p.Topics) != len(want.Topics) {
		t.Fatalf("got %+v, want %+v", p, want)
	}
	for i := range want.Topics {
		got, want := &p.Topics[i], &want.Topics[i]
		if string(got.Name) != want.Topic || got.ID != want.TopicID || len(got.Partitions) != len(want.Partitions) {
			t.Fatalf("topic %d: %+v, want %+v", i, got, want)
		}
		for j := range want.Partitions {
			got, want := got.Partitions[j], want.Partitions[j]
			if got.Index != want.Partition || (got.Records == nil) != (want.Records == nil) || !bytes.Equal(got.Records, want.Records) {
				t.Fatalf("topic %d: %+v, want %+v", i, got, want)
			}
		}
	}
}

// What the codec writes is read, into a value that was used before, in every version;
// what is cut is refused.
func TestProduceRead(t *testing.T) {
	var used Produce
	rapid.Check(t, func(t *rapid.T) {
		req := drawProduce(t)
		want := kmsg.NewPtrProduceRequest()
		body := readBoth(t, req, &used, want)
		sameProduce(t, &used, want)
		used.Forget()
		if err := used.Read(req.Version, body[:rapid.IntRange(0, len(body)-1).Draw(t, "cut")]); err == nil {
			t.Fatal("a part was read")
		}
		used.Forget()
	})
}

// A null where none may be, and lengths that mean nothing, are refused.
func TestProduceNulls(t *testing.T) {
	checkNulls(t, func() readable { return new(Produce) }, []nullCase{
		{3, []byte{0xff, 0xff, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0}, true},
		{3, []byte{0xff, 0xff, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff}, false},
		{3, []byte{0xff, 0xff, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xfe}, false},
		{9, []byte{0, 0, 1, 0, 0, 0, 1, 1, 0}, true},
		{9, []byte{0, 0, 1, 0, 0, 0, 1, 0, 0}, false},
		{3, []byte{0xff, 0xff, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}, true},        // a name of no bytes
		{3, []byte{0xff, 0xff, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 0}, false}, // no name
		{9, []byte{0, 0, 1, 0, 0, 0, 1, 2, 1, 1, 0, 0}, true},                                //
		{9, []byte{0, 0, 1, 0, 0, 0, 1, 2, 0, 1, 0, 0}, false},                               //
		{9, []byte{0, 0, 1, 0, 0, 0, 1, 2, 1, 2, 0, 0, 0, 9, 0, 0, 0, 0}, true},              // null records
		{3, []byte{0xff, 0xff, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff}, true},
		{3, []byte{0xff, 0xff, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9, 0xff, 0xff, 0xff, 0xfe}, false},
	})
}

// FuzzProduceRead: no input panics; what is read is what the codec reads, and what is
// refused is nothing that it would write.
func FuzzProduceRead(f *testing.F) {
	for v := firstProduce; v <= lastProduce; v++ {
		req := kmsg.NewPtrProduceRequest()
		req.Version = v
		req.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: 1, Records: []byte("records")}, {}}}}
		f.Add(v, req.AppendTo(nil))
	}
	f.Add(int16(9), []byte{0, 0, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, version int16, body []byte) {
		if version < firstProduce || version > lastProduce {
			return
		}
		var p Produce
		want := kmsg.NewPtrProduceRequest()
		readAny(t, version, body, &p, want, func() { sameProduce(t, &p, want) })
	})
}

// A produce of 8 MiB that claims as many topics as it could hold, and one that has very
// many true ones, cost next to nothing.
func TestHostileProduceCounts(t *testing.T) {
	const size = 8 << 20
	body := make([]byte, 0, size)
	body = append(body, 0xff, 0xff) // no transactional ID
	body = append(body, 0, 1, 0, 0, 0, 0)
	claim := binary.BigEndian.AppendUint32(body, size/2-100)
	lie := slices.Concat(claim, make([]byte, size))
	for i := len(claim); i < len(lie); i += 6 {
		lie[i] = 0x7f // each topic's name is 32 KiB: there are far fewer than claimed
	}
	if n := allocatedBy(func() { _ = new(Produce).Read(3, lie) }); n > 1<<20 {
		t.Errorf("a false count made the decoder allocate %d bytes", n)
	}
	many := slices.Concat(claim, make([]byte, size*3)) // topics of six zero bytes
	if n := allocatedBy(func() { _ = new(Produce).Read(3, many) }); n > 1<<20 {
		t.Errorf("very many topics made the decoder allocate %d bytes", n)
	}
	if err := new(Produce).Read(3, many); err == nil {
		t.Error("more topics than any request may have")
	}
	for _, topics := range []uint32{produceKeep - 1, produceKeep, produceKeep + 1, maxProduceParts, maxProduceParts + 1} {
		var p Produce
		err := p.Read(3, slices.Concat(binary.BigEndian.AppendUint32(body, topics), make([]byte, 6*topics)))
		if (err == nil) != (topics <= maxProduceParts) || err == nil && len(p.Topics) != int(topics) {
			t.Errorf("%d topics: %d, %v", topics, len(p.Topics), err)
		}
		if p.Forget(); cap(p.Topics) > 2*produceKeep {
			t.Errorf("room for %d topics is kept", cap(p.Topics))
		}
	}
}

// drawAnswer is an answer in our form, and in the codec's.
func drawAnswer(t *rapid.T) (*ProduceResponse, *kmsg.ProduceResponse) {
	text := rapid.StringN(0, 20, 300)
	some := func(label string) *string {
		if s := text.Draw(t, label); rapid.Bool().Draw(t, label+" is there") {
			return &s
		}
		return nil
	}
	ours, codecs := &ProduceResponse{}, kmsg.NewPtrProduceResponse()
	for range rapid.IntRange(0, 3).Draw(t, "topics") {
		a := ProducedTopic{Name: []byte(text.Draw(t, "name")), ID: [16]byte{rapid.Byte().Draw(t, "ID"), 7}}
		b := kmsg.NewProduceResponseTopic()
		b.Topic, b.TopicID = string(a.Name), a.ID
		for range rapid.IntRange(0, 3).Draw(t, "partitions") {
			p := ProducedPartition{
				Index: rapid.Int32().Draw(t, "partition"), Code: rapid.Int16().Draw(t, "code"), BaseOffset: rapid.Int64().Draw(t, "base"),
				LogAppendTime: rapid.Int64().Draw(t, "time"), LogStart: rapid.Int64().Draw(t, "start"), Message: some("message"),
				Leader: rapid.Int32Range(-1, 3).Draw(t, "leader"), LeaderEpoch: rapid.Int32Range(-1, 3).Draw(t, "epoch"),
			}
			q := kmsg.NewProduceResponseTopicPartition()
			q.Partition, q.ErrorCode, q.BaseOffset, q.LogAppendTime, q.LogStartOffset, q.ErrorMessage = p.Index, p.Code, p.BaseOffset, p.LogAppendTime, p.LogStart, p.Message
			q.CurrentLeader.LeaderID, q.CurrentLeader.LeaderEpoch = p.Leader, p.LeaderEpoch
			for range rapid.IntRange(0, 3).Draw(t, "records") {
				r := ProducedRecord{Index: rapid.Int32().Draw(t, "record"), Message: text.Draw(t, "why")}
				p.Records = append(p.Records, r)
				q.ErrorRecords = append(q.ErrorRecords, kmsg.ProduceResponseTopicPartitionErrorRecord{RelativeOffset: r.Index, ErrorMessage: &r.Message})
			}
			a.Partitions, b.Partitions = append(a.Partitions, p), append(b.Partitions, q)
		}
		ours.Topics, codecs.Topics = append(ours.Topics, a), append(codecs.Topics, b)
	}
	for range rapid.IntRange(0, 3).Draw(t, "brokers") {
		b := ProducedBroker{ID: rapid.Int32().Draw(t, "broker"), Host: text.Draw(t, "host"), Port: rapid.Int32().Draw(t, "port"), Rack: some("rack")}
		ours.Brokers = append(ours.Brokers, b)
		codecs.Brokers = append(codecs.Brokers, kmsg.ProduceResponseBroker{NodeID: b.ID, Host: b.Host, Port: b.Port, Rack: b.Rack})
	}
	return ours, codecs
}

// The bytes of every version are the codec's, and no more than Size.
func TestProduceResponse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ours, codecs := drawAnswer(t)
		for v := firstProduce; v <= lastProduce; v++ {
			codecs.Version = v
			got := ours.AppendTo([]byte("before"), v)
			if want := codecs.AppendTo([]byte("before")); !bytes.Equal(got, want) {
				t.Fatalf("version %d:\n%x, the codec writes\n%x", v, got, want)
			}
			if len(got)-len("before") > ours.Size() {
				t.Fatalf("version %d: %d bytes, size %d", v, len(got), ours.Size())
			}
		}
	})
}

// An answer begins as one that says nothing, for just what was asked.
func TestProduceResponseAnswers(t *testing.T) {
	p := &Produce{Topics: []ProduceTopic{
		{Name: []byte("a"), Partitions: []ProducePartition{{Index: 4}, {Index: 2}}}, {ID: [16]byte{1}}, {Name: []byte("c"), Partitions: []ProducePartition{{Index: 1}}},
	}}
	var r ProduceResponse
	for range 2 {
		r.Answer(p)
		empty := func(index int32) ProducedPartition {
			return ProducedPartition{Index: index, BaseOffset: -1, LogAppendTime: -1, LogStart: -1, Leader: -1, LeaderEpoch: -1}
		}
		want := []ProducedTopic{
			{Name: []byte("a"), Partitions: []ProducedPartition{empty(4), empty(2)}}, {ID: [16]byte{1}, Partitions: []ProducedPartition{}},
			{Name: []byte("c"), Partitions: []ProducedPartition{empty(1)}},
		}
		if diff := cmp.Diff(want, r.Topics); diff != "" {
			t.Fatal(diff)
		}
		r.Topics[0].Partitions[1].Code, r.Brokers = 7, []ProducedBroker{{ID: 1}}
		r.Forget()
	}
}

// Reading and answering take no memory once there was room for as much.
func TestProduceAllocatesNothing(t *testing.T) {
	req := kmsg.NewPtrProduceRequest()
	req.Version = 12
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: "orders", Partitions: make([]kmsg.ProduceRequestTopicPartition, 6)}}
	body := req.AppendTo(nil)
	var p Produce
	var r ProduceResponse
	dst := make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() {
		if err := p.Read(req.Version, body); err != nil {
			t.Fatal(err)
		}
		r.Answer(&p)
		dst = r.AppendTo(dst[:0], req.Version)
		r.Forget()
		p.Forget()
	}); n > 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkProduce(b *testing.B) {
	for _, version := range []int16{8, 12} {
		req := kmsg.NewPtrProduceRequest()
		req.Version = version
		req.Topics = []kmsg.ProduceRequestTopic{{Topic: "orders", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: make([]byte, 180)}}}}
		body := req.AppendTo(nil)
		var p Produce
		var r ProduceResponse
		var dst []byte
		b.ReportAllocs()
		for b.Loop() {
			_ = p.Read(version, body)
			r.Answer(&p)
			dst = r.AppendTo(dst[:0], version)
			r.Forget()
			p.Forget()
		}
	}
}
