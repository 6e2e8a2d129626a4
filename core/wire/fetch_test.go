package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/brokerd/brokerd/core/model"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

const (
	firstFetch int16 = 4
	lastFetch  int16 = 18
)

// drawFetch is a request as the codec writes it.
func drawFetch(t *rapid.T) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version = rapid.Int16Range(firstFetch, lastFetch).Draw(t, "version")
	req.ReplicaID = rapid.Int32Range(-2, 3).Draw(t, "replica")
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = rapid.Int32().Draw(t, "wait"), rapid.Int32().Draw(t, "min"), rapid.Int32().Draw(t, "max")
	req.IsolationLevel = rapid.Int8().Draw(t, "isolation")
	req.SessionID, req.SessionEpoch = rapid.Int32().Draw(t, "session"), rapid.Int32().Draw(t, "epoch")
	name := rapid.StringN(0, 20, 300)
	id := rapid.SliceOfN(rapid.Byte(), 16, 16)
	for range rapid.IntRange(0, 4).Draw(t, "topics") {
		topic := kmsg.NewFetchRequestTopic()
		topic.Topic = name.Draw(t, "name")
		copy(topic.TopicID[:], id.Draw(t, "ID"))
		for range rapid.IntRange(0, 4).Draw(t, "partitions") {
			part := kmsg.NewFetchRequestTopicPartition()
			part.Partition, part.CurrentLeaderEpoch = rapid.Int32().Draw(t, "partition"), rapid.Int32().Draw(t, "leader epoch")
			part.FetchOffset, part.LogStartOffset = rapid.Int64().Draw(t, "offset"), rapid.Int64().Draw(t, "start")
			part.LastFetchedEpoch, part.PartitionMaxBytes = rapid.Int32().Draw(t, "last epoch"), rapid.Int32().Draw(t, "max")
			if rapid.Bool().Draw(t, "follower") {
				part.ReplicaDirectoryID, part.HighWatermark = [16]byte{1}, 7
			}
			drawTags(t, &part.UnknownTags)
			topic.Partitions = append(topic.Partitions, part)
		}
		drawTags(t, &topic.UnknownTags)
		req.Topics = append(req.Topics, topic)
	}
	for range rapid.IntRange(0, 3).Draw(t, "forgotten") {
		topic := kmsg.NewFetchRequestForgottenTopic()
		topic.Topic = name.Draw(t, "name")
		copy(topic.TopicID[:], id.Draw(t, "ID"))
		topic.Partitions = rapid.SliceOfN(rapid.Int32(), 0, 4).Draw(t, "partitions")
		drawTags(t, &topic.UnknownTags)
		req.ForgottenTopics = append(req.ForgottenTopics, topic)
	}
	req.Rack = name.Draw(t, "rack")
	if rapid.Bool().Draw(t, "cluster") {
		req.ClusterID = kmsg.StringPtr(name.Draw(t, "cluster"))
	}
	if rapid.Bool().Draw(t, "state") {
		req.ReplicaState.ID, req.ReplicaState.Epoch = rapid.Int32Range(-1, 4).Draw(t, "state's ID"), rapid.Int64().Draw(t, "state's epoch")
		drawTags(t, &req.ReplicaState.UnknownTags)
	}
	drawTags(t, &req.UnknownTags)
	return req
}

// asRead is what the codec reads, as a Fetch.
func asRead(req *kmsg.FetchRequest) Fetch {
	f := Fetch{
		ReplicaID: max(req.ReplicaID, req.ReplicaState.ID), MaxWaitMillis: req.MaxWaitMillis, MinBytes: req.MinBytes, MaxBytes: req.MaxBytes,
		IsolationLevel: req.IsolationLevel, SessionID: req.SessionID, SessionEpoch: req.SessionEpoch, Rack: []byte(req.Rack),
	}
	for _, t := range req.Topics {
		topic := FetchTopic{Name: []byte(t.Topic), ID: t.TopicID}
		for _, p := range t.Partitions {
			topic.Partitions = append(topic.Partitions, FetchPartition{
				Index: p.Partition, LeaderEpoch: p.CurrentLeaderEpoch, LastFetchedEpoch: p.LastFetchedEpoch,
				MaxBytes: p.PartitionMaxBytes, Offset: p.FetchOffset, LogStart: p.LogStartOffset,
			})
		}
		f.Topics = append(f.Topics, topic)
	}
	for _, t := range req.ForgottenTopics {
		f.Forgotten = append(f.Forgotten, ForgottenTopic{Name: []byte(t.Topic), ID: t.TopicID, Partitions: t.Partitions})
	}
	return f
}

// fetchDiffers says how what was read differs from what the codec reads.
func fetchDiffers(got *Fetch, want *kmsg.FetchRequest) string {
	same := cmp.Transformer("exported", func(f Fetch) any {
		f.partitions, f.forgotten = nil, nil
		return struct {
			Head      [7]int64
			Rack      string
			Topics    []FetchTopic
			Forgotten []ForgottenTopic
		}{[7]int64{int64(max(f.ReplicaID, -1)), int64(f.MaxWaitMillis), int64(f.MinBytes), int64(f.MaxBytes), int64(f.IsolationLevel), int64(f.SessionID), int64(f.SessionEpoch)}, string(f.Rack), f.Topics, f.Forgotten}
	})
	return cmp.Diff(asRead(want), *got, same, equateEmpty[byte](), equateEmpty[int32](), equateEmpty[FetchPartition](), equateEmpty[FetchTopic](), equateEmpty[ForgottenTopic]())
}

// equateEmpty takes nil for an empty slice.
func equateEmpty[T any]() cmp.Option {
	return cmp.FilterValues(func(a, b []T) bool { return len(a) == 0 && len(b) == 0 }, cmp.Comparer(func(_, _ []T) bool { return true }))
}

// What the codec writes is read, into a value that was used before, in every version;
// what is cut is refused.
func TestFetchRead(t *testing.T) {
	var used Fetch
	rapid.Check(t, func(t *rapid.T) {
		req := drawFetch(t)
		want := kmsg.NewPtrFetchRequest()
		body := readBoth(t, req, &used, want)
		if diff := fetchDiffers(&used, want); diff != "" {
			t.Fatalf("version %d (-want +got):\n%s", req.Version, diff)
		}
		used.Forget()
		if err := used.Read(req.Version, body[:rapid.IntRange(0, len(body)-1).Draw(t, "cut")]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("a part was read: %v", err)
		}
		used.Forget()
	})
}

// A null where none may be, and lengths that mean nothing, are refused.
func TestFetchNulls(t *testing.T) {
	for v := firstFetch; v <= lastFetch; v++ {
		req := kmsg.NewPtrFetchRequest()
		req.Version, req.Rack = v, "r"
		empty := req.AppendTo(nil)
		req.Topics = []kmsg.FetchRequestTopic{{Topic: "t"}}
		topic := req.AppendTo(nil)
		req.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{Topic: "f"}}
		all := req.AppendTo(nil)
		for _, body := range [][]byte{empty, topic, all} {
			var f Fetch
			if err := f.Read(v, body); err != nil {
				t.Fatalf("version %d: %v", v, err)
			}
			refused := 0
			for i := range body { // whatever the codec would take a null for, and more
				for _, null := range [][]byte{{0xff, 0xff, 0xff, 0xff}, {0xff, 0xff, 0xff, 0xfe}, {0xff, 0xff}, {0}} {
					bad := slices.Clone(body)
					copy(bad[i:], null)
					err := f.Read(v, bad)
					if decodesToday(v, bad) {
						continue
					}
					if refused++; err == nil {
						t.Errorf("version %d: %x, with %x at %d, was read", v, body, null, i)
					}
				}
			}
			if refused == 0 {
				t.Errorf("version %d: nothing is refused", v)
			}
		}
	}
}

// decodesToday is what Decode makes of requests that have no reader of their own.
func decodesToday(version int16, body []byte) bool {
	req := kmsg.NewPtrFetchRequest()
	req.Version = version
	return req.ReadFrom(body) == nil && !hasWrongNull(req, body)
}

// Whatever counts are claimed, memory is taken for what is there.
func TestFetchCounts(t *testing.T) {
	for v := firstFetch; v <= lastFetch; v++ {
		for _, fill := range []byte{0x00, 0x01, 0x02, 0x7f, 0xff} {
			body := bytes.Repeat([]byte{fill}, 64<<10)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_ = new(Fetch).Read(v, body)
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 64*uint64(len(body)) {
				t.Errorf("version %d: %d bytes of %#x took %d", v, len(body), fill, n)
			}
		}
	}
	if err := new(Fetch).Read(12, make([]byte, maxBodyBytes+1)); !errors.Is(err, ErrMalformed) {
		t.Errorf("a body beyond the bound: %v", err)
	}
}

// A value that is used again takes no memory for a request like the one before, and
// keeps none of a large one.
func TestFetchIsUsedAgain(t *testing.T) {
	req := kmsg.NewPtrFetchRequest()
	req.Version = 12
	for range 10 {
		req.Topics = append(req.Topics, kmsg.FetchRequestTopic{Topic: "t", Partitions: make([]kmsg.FetchRequestTopicPartition, 10)})
		req.ForgottenTopics = append(req.ForgottenTopics, kmsg.FetchRequestForgottenTopic{Topic: "t", Partitions: make([]int32, 10)})
	}
	body := req.AppendTo(nil)
	var f Fetch
	if n := testing.AllocsPerRun(100, func() {
		if err := f.Read(12, body); err != nil {
			t.Fatal(err)
		}
		f.Forget()
	}); n > 0 {
		t.Errorf("%.0f allocations", n)
	}
	req.Topics[0].Partitions = make([]kmsg.FetchRequestTopicPartition, 2*fetchKeep)
	if err := f.Read(12, req.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	if f.Forget(); cap(f.partitions) > 0 {
		t.Error("much is kept")
	}
}

// FuzzFetchRead: no input panics; what is read is what the codec reads. What is refused
// is refused today, or nothing that the codec would write.
func FuzzFetchRead(f *testing.F) {
	for v := firstFetch; v <= lastFetch; v++ {
		req := kmsg.NewPtrFetchRequest()
		req.Version = v
		req.Topics = []kmsg.FetchRequestTopic{{Topic: "t", Partitions: []kmsg.FetchRequestTopicPartition{{Partition: 1, HighWatermark: 5}, {}}}}
		req.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{Topic: "f", Partitions: []int32{1, 2}}}
		req.ClusterID, req.ReplicaState.ID = kmsg.StringPtr("c"), 3
		f.Add(v, req.AppendTo(nil))
	}
	f.Add(int16(12), bytes.Repeat([]byte{0xff}, 12))
	f.Fuzz(func(t *testing.T, version int16, body []byte) {
		if version < firstFetch || version > lastFetch {
			return
		}
		var got Fetch
		err := got.Read(version, body)
		want := kmsg.NewPtrFetchRequest()
		want.Version = version
		switch werr := want.ReadFrom(body); {
		case err != nil && !errors.Is(err, ErrMalformed):
			t.Fatalf("error without its sentinel: %v", err)
		case err == nil && (werr != nil || hasWrongNull(want, body)):
			t.Fatalf("read %x, which is refused today: %v", body, werr)
		case err != nil && werr == nil && bytes.HasPrefix(body, want.AppendTo(nil)):
			t.Fatalf("refused %x: %v", body, err)
		case err == nil:
			if diff := fetchDiffers(&got, want); diff != "" {
				t.Fatalf("%x (-want +got):\n%s", body, diff)
			}
		}
	})
}

// drawFetched is an answer, and the same for the codec.
func drawFetched(t *rapid.T, file *os.File, version int16, r *FetchResponse) *kmsg.FetchResponse {
	want := kmsg.NewPtrFetchResponse()
	want.Version = version
	if version >= fetchSessions {
		want.ErrorCode, want.SessionID = rapid.Int16().Draw(t, "code"), rapid.Int32().Draw(t, "session")
	}
	r.Code, r.SessionID = want.ErrorCode, want.SessionID
	for range rapid.IntRange(0, 3).Draw(t, "topics") {
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic = rapid.StringN(0, 20, 300).Draw(t, "name")
		topic.TopicID[3] = rapid.Byte().Draw(t, "ID")
		r.Topic(topic.Topic, topic.TopicID)
		for range rapid.IntRange(0, 4).Draw(t, "partitions") {
			topic.Partitions = append(topic.Partitions, drawFetchedPartition(t, file, version, r.Partition(0)))
		}
		want.Topics = append(want.Topics, topic)
	}
	if version >= fetchFlexible && rapid.Bool().Draw(t, "brokers") {
		b := ProducedBroker{ID: rapid.Int32().Draw(t, "broker"), Host: rapid.StringN(0, 200, 300).Draw(t, "host"), Port: 9092}
		if rapid.Bool().Draw(t, "rack") {
			b.Rack = kmsg.StringPtr("r")
		}
		r.Brokers = append(r.Brokers, b)
		to := kmsg.NewFetchResponseBroker()
		to.NodeID, to.Host, to.Port, to.Rack = b.ID, b.Host, b.Port, b.Rack
		want.Brokers = append(want.Brokers, to)
	}
	return want
}

// spliced is what an answer sends from where it is.
type spliced struct {
	places []place
	size   Size
	small  int // parts that would better be copied
}

type place struct {
	at      int
	records []byte
}

func (s *spliced) Records(at int, records []byte) {
	if len(records) < spliceBytesMin {
		s.small++
	}
	s.places = append(s.places, place{at, records})
	s.size.Spliced += len(records)
}

func (s *spliced) Section(at int, section *model.Section) {
	b := make([]byte, section.Bytes)
	if _, err := section.File.ReadAt(b, section.Pos); err != nil {
		panic(err)
	}
	s.places = append(s.places, place{at, b})
	s.size.Sections += len(b)
}

func drawFetchedPartition(t *rapid.T, file *os.File, version int16, p *FetchedPartition) kmsg.FetchResponseTopicPartition {
	out := kmsg.NewFetchResponseTopicPartition()
	p.Index, p.Code, p.HighWatermark = rapid.Int32().Draw(t, "index"), rapid.Int16().Draw(t, "code"), rapid.Int64().Draw(t, "high watermark")
	p.LastStable, p.LogStart, p.Committed = rapid.Int64().Draw(t, "last stable"), rapid.Int64().Draw(t, "start"), rapid.Bool().Draw(t, "committed")
	for range rapid.IntRange(0, 3).Draw(t, "parts") {
		p.Records = append(p.Records, bytes.Repeat([]byte{rapid.Byte().Draw(t, "fill")}, rapid.SampledFrom([]int{0, 1, 200, spliceBytesMin - 1, spliceBytesMin, 20_000}).Draw(t, "size")))
	}
	if n := rapid.SampledFrom([]int{0, 0, 1, 5000}).Draw(t, "section"); n > 0 {
		p.Section = model.Section{File: file, Pos: rapid.Int64Range(0, fileBytes-int64(n)).Draw(t, "pos"), Bytes: n}
		out.RecordBatches = make([]byte, n)
		if _, err := file.ReadAt(out.RecordBatches, p.Section.Pos); err != nil {
			t.Fatal(err)
		}
	}
	if version >= fetchRacks && rapid.Bool().Draw(t, "elsewhere") {
		p.Preferred = rapid.Int32().Draw(t, "preferred")
	}
	if version >= fetchFlexible && rapid.Bool().Draw(t, "diverging") {
		p.DivergingEpoch, p.DivergingEnd = rapid.Int32().Draw(t, "epoch"), rapid.Int64().Draw(t, "end")
	}
	if version >= fetchFlexible && rapid.Bool().Draw(t, "leader") {
		p.Leader, p.LeaderEpoch = rapid.Int32().Draw(t, "leader"), rapid.Int32().Draw(t, "leader's epoch")
	}
	out.Partition, out.ErrorCode, out.HighWatermark, out.LastStableOffset, out.LogStartOffset = p.Index, p.Code, p.HighWatermark, p.LastStable, p.LogStart
	out.PreferredReadReplica = p.Preferred
	out.RecordBatches = append(out.RecordBatches, slices.Concat(p.Records...)...)
	if out.RecordBatches == nil {
		out.RecordBatches = []byte{}
	}
	if p.Committed {
		out.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
	}
	out.DivergingEpoch.Epoch, out.DivergingEpoch.EndOffset = p.DivergingEpoch, p.DivergingEnd
	out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = p.Leader, p.LeaderEpoch
	return out
}

// fileBytes is the size of a file that sections lie in.
const fileBytes = 32 << 10

// An answer has the codec's bytes, in every version, and no more than it announces;
// large records, and what lies in files, are sent from where they are, and nothing else is.
func TestFetchResponse(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "records"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for i := range fileBytes / 8 {
		if _, err := file.Write(binary.BigEndian.AppendUint64(nil, uint64(i))); err != nil {
			t.Fatal(err)
		}
	}
	var used FetchResponse
	rapid.Check(t, func(t *rapid.T) {
		used.Forget()
		version := rapid.Int16Range(firstFetch, lastFetch).Draw(t, "version")
		want := drawFetched(t, file, version, &used).AppendTo(nil)
		var got []byte
		var parts spliced
		dst, from := used.Encode(nil, version, &parts), 0
		for _, p := range parts.places {
			got = append(append(got, dst[from:p.at]...), p.records...)
			from = p.at
		}
		got = append(got, dst[from:]...)
		if !bytes.Equal(got, want) {
			t.Fatalf("version %d:\n%x\nwant\n%x", version, got, want)
		}
		size := used.Size()
		if len(dst) > size.Appended || parts.size.Spliced != size.Spliced || parts.size.Sections != size.Sections {
			t.Fatalf("%d bytes beside %+v, announced are %+v", len(dst), parts.size, size)
		}
		if parts.small > 0 {
			t.Fatalf("%d small parts are sent from where they are", parts.small)
		}
	})
}

// BenchmarkFetchRead reads a request that names 100 partitions, again and again.
func BenchmarkFetchRead(b *testing.B) {
	req := kmsg.NewPtrFetchRequest()
	req.Version = 12
	req.Topics = []kmsg.FetchRequestTopic{{Topic: "orders", Partitions: make([]kmsg.FetchRequestTopicPartition, 100)}}
	for i := range req.Topics[0].Partitions {
		req.Topics[0].Partitions[i].HighWatermark = 1<<63 - 1
	}
	body := req.AppendTo(nil)
	var f Fetch
	b.ReportAllocs()
	for b.Loop() {
		if err := f.Read(12, body); err != nil {
			b.Fatal(err)
		}
		f.Forget()
	}
}
