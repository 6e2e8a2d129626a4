package wire

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

const (
	firstCommit int16 = 2
	lastCommit  int16 = 10
)

// drawCommit is a request as the codec writes it.
func drawCommit(t *rapid.T) *kmsg.OffsetCommitRequest {
	text := rapid.StringN(0, 20, 300)
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version = rapid.Int16Range(firstCommit, lastCommit).Draw(t, "version")
	req.Group, req.MemberID = text.Draw(t, "group"), text.Draw(t, "member")
	req.Generation, req.RetentionTimeMillis = rapid.Int32().Draw(t, "generation"), rapid.Int64().Draw(t, "retention")
	if id := text.Draw(t, "instance"); rapid.Bool().Draw(t, "static") {
		req.InstanceID = &id
	}
	for range rapid.IntRange(0, 4).Draw(t, "topics") {
		topic := kmsg.NewOffsetCommitRequestTopic()
		topic.Topic, topic.TopicID = text.Draw(t, "name"), [16]byte{rapid.Byte().Draw(t, "ID"), 7}
		for range rapid.IntRange(0, 4).Draw(t, "partitions") {
			part := kmsg.NewOffsetCommitRequestTopicPartition()
			part.Partition, part.Offset, part.LeaderEpoch = rapid.Int32().Draw(t, "partition"), rapid.Int64().Draw(t, "offset"), rapid.Int32().Draw(t, "epoch")
			if m := text.Draw(t, "metadata"); rapid.Bool().Draw(t, "with metadata") {
				part.Metadata = &m
			}
			drawTags(t, &part.UnknownTags)
			topic.Partitions = append(topic.Partitions, part)
		}
		drawTags(t, &topic.UnknownTags)
		req.Topics = append(req.Topics, topic)
	}
	drawTags(t, &req.UnknownTags)
	return req
}

// sameText: null is not the same as nothing.
func sameText(got []byte, want *string) bool {
	return (got == nil) == (want == nil) && (want == nil || string(got) == *want)
}

// sameCommit fails unless c is what the codec reads.
func sameCommit(t failer, c *OffsetCommit, want *kmsg.OffsetCommitRequest) {
	t.Helper()
	if string(c.Group) != want.Group || string(c.MemberID) != want.MemberID || !sameText(c.InstanceID, want.InstanceID) ||
		c.Generation != want.Generation || c.RetentionMillis != want.RetentionTimeMillis || len(c.Topics) != len(want.Topics) {
		t.Fatalf("got %+v, want %+v", c, want)
	}
	n := 0
	for i := range want.Topics {
		got, want := &c.Topics[i], &want.Topics[i]
		if string(got.Name) != want.Topic || got.ID != want.TopicID || len(got.Partitions) != len(want.Partitions) {
			t.Fatalf("topic %d: %+v, want %+v", i, got, want)
		}
		for j := range want.Partitions {
			got, want := got.Partitions[j], want.Partitions[j]
			if got.Index != want.Partition || got.Offset != want.Offset || got.LeaderEpoch != want.LeaderEpoch || !sameText(got.Metadata, want.Metadata) {
				t.Fatalf("topic %d: %+v, want %+v", i, got, want)
			}
			n++
		}
	}
	if c.Partitions() != n {
		t.Fatalf("%d partitions, want %d", c.Partitions(), n)
	}
}

// What the codec writes is read, into a value that was used before, in every version;
// what is cut is refused; and it is answered as the codec does.
func TestOffsetCommit(t *testing.T) {
	var used OffsetCommit
	rapid.Check(t, func(t *rapid.T) {
		req := drawCommit(t)
		want := kmsg.NewPtrOffsetCommitRequest()
		body := readBoth(t, req, &used, want)
		sameCommit(t, &used, want)

		resp := kmsg.NewPtrOffsetCommitResponse()
		resp.Version = req.Version
		var codes []Code
		for _, in := range want.Topics {
			topic := kmsg.OffsetCommitResponseTopic{Topic: in.Topic, TopicID: in.TopicID}
			for _, p := range in.Partitions {
				codes = append(codes, rapid.Int16().Draw(t, "code"))
				topic.Partitions = append(topic.Partitions, kmsg.OffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: codes[len(codes)-1]})
			}
			resp.Topics = append(resp.Topics, topic)
		}
		answer := used.AppendAnswer([]byte("before"), req.Version, codes)
		if want := resp.AppendTo([]byte("before")); !bytes.Equal(answer, want) {
			t.Fatalf("version %d:\n%x, the codec writes\n%x", req.Version, answer, want)
		}
		if len(answer)-len("before") > used.Size() {
			t.Fatalf("version %d: %d bytes, size %d", req.Version, len(answer), used.Size())
		}
		used.Forget()
		if err := used.Read(req.Version, body[:rapid.IntRange(0, len(body)-1).Draw(t, "cut")]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("a part was read: %v", err)
		}
		used.Forget()
	})
}

// A null where none may be, and lengths that mean nothing, are refused.
func TestOffsetCommitNulls(t *testing.T) {
	body := func(topics ...byte) []byte {
		return slices.Concat([]byte{0, 1, 'g'}, bytes.Repeat([]byte{0xff}, 4), []byte{0, 0}, bytes.Repeat([]byte{0xff}, 8), topics)
	}
	checkNulls(t, func() readable { return new(OffsetCommit) }, []nullCase{
		{2, body(0, 0, 0, 0), true},
		{2, body(0xff, 0xff, 0xff, 0xff), false},
		{2, body(0xff, 0xff, 0xff, 0xfb), false},
		{8, []byte{2, 'g', 0, 0, 0, 1, 2, 'm', 0, 1, 0}, true},
		{8, []byte{2, 'g', 0, 0, 0, 1, 2, 'm', 0, 0, 0}, false},
		{8, []byte{0, 0, 0, 0, 1, 2, 'm', 0, 1, 0}, false},
		{8, []byte{2, 'g', 0, 0, 0, 1, 0, 0, 1, 0}, false},
	})
}

// FuzzOffsetCommitRead: no input panics; what is read is what the codec reads, and what is
// refused is nothing that it would write.
func FuzzOffsetCommitRead(f *testing.F) {
	for v := firstCommit; v <= lastCommit; v++ {
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Version, req.Group = v, "g"
		req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Partition: 1, Offset: 7, Metadata: kmsg.StringPtr("m")}, {}}}}
		f.Add(v, req.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, version int16, body []byte) {
		if version < firstCommit || version > lastCommit {
			return
		}
		var c OffsetCommit
		want := kmsg.NewPtrOffsetCommitRequest()
		readAny(t, version, body, &c, want, func() { sameCommit(t, &c, want) })
	})
}

// Reading and answering take no memory once there was room for as much.
func TestOffsetCommitAllocatesNothing(t *testing.T) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group = 9, "crew"
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "orders", Partitions: make([]kmsg.OffsetCommitRequestTopicPartition, 100)}}
	body := req.AppendTo(nil)
	var c OffsetCommit
	codes, dst := make([]Code, 100), make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() {
		if err := c.Read(req.Version, body); err != nil {
			t.Fatal(err)
		}
		dst = c.AppendAnswer(dst[:0], req.Version, codes)
		c.Forget()
	}); n > 0 {
		t.Fatalf("%v allocations", n)
	}
}
