package batch

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const now = 1_700_000_000_000

// lenient admits all that is well formed.
func lenient() Policy {
	return Policy{TimestampBeforeMax: math.MaxInt64, TimestampAfterMax: math.MaxInt64, ZstdAllowed: true, Now: now}
}

func build(t testing.TB, opts Options, records ...Record) []byte {
	t.Helper()
	b, err := Build(opts, records...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// two records, the second without key.
func two() []Record {
	return []Record{
		{Timestamp: now, Key: []byte("k"), Value: []byte("v"), Headers: []Header{{Key: "h", Value: []byte("x")}, {Key: "n"}}},
		{Timestamp: now + 5, Value: []byte("w")},
	}
}

// header changes a batch's header and computes its CRC again.
func header(t testing.TB, b []byte, change func(*recordbatch.Info)) []byte {
	t.Helper()
	info, err := recordbatch.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	payload := b[recordbatch.HeaderBytes:]
	change(&info)
	return recordbatch.Build(nil, recordbatch.Header{Info: info, Payload: payload})
}

// raw is a batch of one record made of payload as it is.
func raw(codec Codec, count int32, payload []byte) []byte {
	return recordbatch.Build(nil, recordbatch.Header{Payload: payload, Info: recordbatch.Info{
		LastOffset: int64(count) - 1, Attributes: int16(codec), BaseTimestamp: now, MaxTimestamp: now,
		ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Records: count,
	}})
}

// The rules, each with its error; where two are broken, Kafka's order decides.
func TestCheck(t *testing.T) {
	good := build(t, Options{}, two()...)
	put16 := func(at int, v uint16) []byte {
		b := append([]byte(nil), good...)
		binary.BigEndian.PutUint16(b[at:], v)
		return b
	}
	put32 := func(at int, v uint32) []byte {
		b := append([]byte(nil), good...)
		binary.BigEndian.PutUint32(b[at:], v)
		return b
	}
	attr := func(bits int16) []byte {
		return header(t, good, func(i *recordbatch.Info) { i.Attributes |= bits })
	}
	for _, test := range []struct {
		name   string
		data   []byte
		policy func(*Policy)
		want   error // nil passes
	}{
		{"good", good, nil, nil},
		{"nothing", nil, nil, model.ErrInvalidRecord},
		{"half a header", good[:16], nil, model.ErrInvalidRecord},
		{"cut", good[:len(good)-1], nil, model.ErrInvalidRecord},
		{"magic 1", put16(16, 0x0100), nil, model.ErrInvalidRecord},
		{"magic 0", put16(16, 0x0000), nil, model.ErrInvalidRecord},
		{"magic 3", put16(16, 0x0300), nil, model.ErrCorruptMessage},
		{"negative length", put32(8, 0xffffffff), nil, model.ErrCorruptMessage},
		{"length of nothing", put32(8, 0), nil, model.ErrCorruptMessage},
		{"length below a header", put32(8, 48), nil, model.ErrCorruptMessage},
		{"greatest length", put32(8, math.MaxInt32), nil, model.ErrCorruptMessage},
		{"two batches", append(append([]byte(nil), good...), good...), nil, model.ErrInvalidRecord},
		{"a byte too many", append(append([]byte(nil), good...), 0), nil, model.ErrInvalidRecord},
		{"zstd before version 7", build(t, Options{Codec: Zstd}, two()...), func(p *Policy) { p.ZstdAllowed = false }, model.ErrUnsupportedCompression},
		{"unknown codec", attr(5), nil, model.ErrUnsupportedCompression},
		{"unknown codec, damaged", put16(21, 7), nil, model.ErrUnsupportedCompression},
		{"base offset", build(t, Options{BaseOffset: 1}, two()...), nil, model.ErrInvalidRecord},
		{"negative base offset", put32(0, 0xffffffff), nil, model.ErrInvalidRecord},
		{"base offset, too large", build(t, Options{BaseOffset: 1}, two()...), func(p *Policy) { p.MaxBytes = 1 }, model.ErrInvalidRecord},
		{"as large as allowed", good, func(p *Policy) { p.MaxBytes = len(good) }, nil},
		{"too large", good, func(p *Policy) { p.MaxBytes = len(good) - 1 }, model.ErrMessageTooLarge},
		{"too large, damaged", put32(17, 0), func(p *Policy) { p.MaxBytes = 1 }, model.ErrMessageTooLarge},
		{"damaged", put32(17, 0), nil, model.ErrCorruptMessage},
		{"damaged counts", put32(57, 0xffffffff), nil, model.ErrCorruptMessage},
		{"no records", raw(None, 0, nil), nil, model.ErrInvalidRecord},
		{"empty batch of one offset", header(t, raw(None, 1, nil), func(i *recordbatch.Info) { i.Records = 0 }), nil, model.ErrInvalidRecord},
		{"negative count", header(t, good, func(i *recordbatch.Info) { i.Records = -1 }), nil, model.ErrInvalidRecord},
		{"greatest count", header(t, good, func(i *recordbatch.Info) { i.Records, i.LastOffset = math.MaxInt32, math.MaxInt32-1 }), nil, model.ErrInvalidRecord},
		{"negative last offset", header(t, good, func(i *recordbatch.Info) { i.LastOffset = -2 }), nil, model.ErrInvalidRecord},
		{"more offsets than records", header(t, good, func(i *recordbatch.Info) { i.LastOffset++ }), nil, model.ErrInvalidRecord},
		{"fewer records than counted", header(t, good, func(i *recordbatch.Info) { i.LastOffset++; i.Records++ }), nil, model.ErrInvalidRecord},
		{"more records than counted", header(t, good, func(i *recordbatch.Info) { i.LastOffset--; i.Records-- }), nil, model.ErrInvalidRecord},
		{"control", attr(recordbatch.AttrControl), nil, model.ErrInvalidRecord},
		{"transactional", attr(recordbatch.AttrTransactional), nil, model.ErrInvalidRecord},
		{"control, allowed", attr(recordbatch.AttrControl | recordbatch.AttrTransactional), func(p *Policy) { p.AllowControl = true }, nil},
		{"delete horizon", attr(recordbatch.AttrDeleteHorizon), nil, model.ErrInvalidRecord},
		{"idempotent", build(t, Options{Producer: &Producer{ID: 0}}, two()...), nil, nil},
		{"producer without sequence", build(t, Options{Producer: &Producer{ID: 9, Sequence: -1}}, two()...), nil, model.ErrInvalidRecord},
		{"producer without epoch", build(t, Options{Producer: &Producer{ID: 9, Epoch: -1}}, two()...), nil, model.ErrInvalidRecord},
		{"LogAppendTime from a client", attr(recordbatch.AttrLogAppendTime), nil, model.ErrInvalidTimestamp},
		{"offsets with a gap", build(t, Options{KeepOffsets: true}, Record{Offset: 0}, Record{Offset: 2}), nil, model.ErrInvalidRecord},
		{"a segment's size", good, func(p *Policy) { p.SegmentBytes = int64(len(good)) }, nil},
		{"above a segment's size", good, func(p *Policy) { p.SegmentBytes = int64(len(good)) - 1 }, model.ErrRecordListTooLarge},
		{"null key, segment", good, func(p *Policy) { p.SegmentBytes, p.Compacted = 1, true }, model.ErrInvalidRecord},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := lenient()
			if test.policy != nil {
				test.policy(&p)
			}
			data := append([]byte(nil), test.data...)
			got, err := Check(data, p)
			if !errors.Is(err, test.want) || (test.want == nil && err != nil) {
				t.Fatalf("got %v, want %v", err, test.want)
			}
			if string(data) != string(test.data) {
				t.Fatal("the batch was changed")
			}
			if err != nil {
				return
			}
			want, err := recordbatch.Parse(data)
			if err != nil || got.Info != want || got.LogAppendTime != -1 {
				t.Fatalf("got %+v, want %+v, %v", got, want, err)
			}
		})
	}
}

// KIP-467: which records, and why; one bad timestamp makes it a matter of
// timestamps.
func TestRecordErrors(t *testing.T) {
	key, late, early := []byte("k"), int64(now+1001), int64(now-2001)
	records := []Record{{Timestamp: now, Key: key}, {Timestamp: now}, {Timestamp: late, Key: key}, {Timestamp: early, Key: key}, {Timestamp: -1, Key: key}}
	for c := None; c <= Zstd; c++ {
		for _, test := range []struct {
			name                      string
			compacted, logAppendTime  bool
			before, after             int64
			records                   []Record
			want                      []int32
			reason                    error
			messageOfFirst, elsewhere string
		}{
			{name: "all good", before: 2001, after: 1001, records: records},
			{name: "null key", compacted: true, before: 2001, after: 1001, records: records, want: []int32{1}, reason: model.ErrInvalidRecord, messageOfFirst: "key"},
			{name: "late", before: 2001, after: 1000, records: records, want: []int32{2}, reason: model.ErrInvalidTimestamp, messageOfFirst: "more than 1000 ms after"},
			{name: "early", before: 2000, after: 1001, records: records, want: []int32{3}, reason: model.ErrInvalidTimestamp, messageOfFirst: "more than 2000 ms before"},
			{name: "all", compacted: true, records: records, want: []int32{1, 2, 3}, reason: model.ErrInvalidTimestamp, messageOfFirst: "key"},
			{name: "the broker's time", logAppendTime: true, records: records},
			{name: "the broker's time, compacted", logAppendTime: true, compacted: true, records: records, want: []int32{1}, reason: model.ErrInvalidRecord, messageOfFirst: "key"},
			{name: "far apart", before: 1, after: 1, records: []Record{{Timestamp: math.MinInt64 + 1}}, want: []int32{0}, reason: model.ErrInvalidTimestamp, messageOfFirst: "timestamp"},
			{name: "far apart, allowed", before: math.MaxInt64, after: 1, records: []Record{{Timestamp: math.MinInt64 + 1}}},
		} {
			t.Run(test.name+", "+c.String(), func(t *testing.T) {
				p := Policy{Compacted: test.compacted, LogAppendTime: test.logAppendTime, TimestampBeforeMax: test.before, TimestampAfterMax: test.after, ZstdAllowed: true, Now: now}
				_, err := Check(build(t, Options{Codec: c}, test.records...), p)
				if len(test.want) == 0 {
					if err != nil {
						t.Fatal(err)
					}
					return
				}
				var got *RecordsError
				if !errors.As(err, &got) || !errors.Is(err, test.reason) {
					t.Fatalf("got %v, want records refused for %v", err, test.reason)
				}
				if len(got.Records) != len(test.want) {
					t.Fatalf("got %+v, want %v", got.Records, test.want)
				}
				for i, index := range test.want {
					if got.Records[i].Index != index {
						t.Fatalf("got %+v, want %v", got.Records, test.want)
					}
				}
				if !strings.Contains(got.Records[0].Message, test.messageOfFirst) || !strings.Contains(got.Message, test.messageOfFirst) {
					t.Fatalf("got %q in %q", got.Records[0].Message, got.Message)
				}
			})
		}
	}
}

// However many records are bad, few are named.
func TestRecordErrorsAreBounded(t *testing.T) {
	_, err := Check(build(t, Options{}, make([]Record, 10_000)...), Policy{Compacted: true, TimestampBeforeMax: math.MaxInt64})
	var got *RecordsError
	if !errors.As(err, &got) || len(got.Records) != maxRecordErrors {
		t.Fatalf("got %v", err)
	}
}

func TestTimestampOverflow(t *testing.T) {
	data := header(t, build(t, Options{}, Record{Timestamp: 1}, Record{Timestamp: 3}), func(i *recordbatch.Info) { i.BaseTimestamp = math.MaxInt64 - 1 })
	if _, err := Check(data, lenient()); !errors.Is(err, model.ErrInvalidTimestamp) {
		t.Fatalf("got %v", err)
	}
}

// LogAppendTime is stamped under a new CRC; the records stay as they are.
func TestLogAppendTime(t *testing.T) {
	for c := None; c <= Zstd; c++ {
		data := build(t, Options{Codec: c}, two()...)
		payload := string(data[recordbatch.HeaderBytes:])
		p := Policy{LogAppendTime: true, ZstdAllowed: true, Now: now + 77}
		got, err := Check(data, p)
		if err != nil {
			t.Fatal(err)
		}
		info, _, _, err := recordbatch.Next(data)
		if err != nil || info != got.Info || got.LogAppendTime != p.Now || info.MaxTimestamp != p.Now || info.Attributes != int16(c)|recordbatch.AttrLogAppendTime {
			t.Fatalf("%s: %+v, %+v, %v", c, got, info, err)
		}
		if string(data[recordbatch.HeaderBytes:]) != payload {
			t.Fatalf("%s: the records changed", c)
		}
		for r, err := range Records(data, 0) {
			if err != nil || r.Timestamp != p.Now {
				t.Fatalf("%s: %+v, %v", c, r, err)
			}
		}
		if _, err := Check(data, p); !errors.Is(err, model.ErrInvalidTimestamp) {
			t.Fatalf("%s: a batch that has LogAppendTime already, on such a topic: %v", c, err)
		}
	}
}

// Retention believes the max timestamp, so that a client can't choose it.
func TestMaxTimestampIsTheRecords(t *testing.T) {
	for _, claimed := range []int64{-1, now, now + 1<<40} {
		data := header(t, build(t, Options{}, two()...), func(i *recordbatch.Info) { i.MaxTimestamp = claimed })
		got, err := Check(data, lenient())
		if err != nil {
			t.Fatal(err)
		}
		if info, _, _, err := recordbatch.Next(data); err != nil || info != got.Info || info.MaxTimestamp != now+5 {
			t.Fatalf("claimed %d: %+v, %v", claimed, info, err)
		}
	}
}

// What a record may look like inside.
func TestRecordLayout(t *testing.T) {
	body := func(b ...byte) []byte { return append([]byte{byte(len(b) << 1)}, b...) }
	for _, test := range []struct {
		name    string
		payload []byte
		good    bool
	}{
		{"least", body(0, 0, 0, 1, 1, 0), true},
		{"empty key and value", body(0, 0, 0, 0, 0, 0), true},
		{"length -3 is null", body(0, 0, 0, 5, 5, 0), true},
		{"key and value", body(0, 0, 0, 2, 'k', 4, 'v', 'w', 0), true},
		{"header", body(0, 0, 0, 1, 1, 2, 2, 'h', 1), true},
		{"nothing", nil, false},
		{"length only", []byte{2}, false},
		{"negative length", []byte{1}, false},
		{"length without end", []byte{0xff, 0xff, 0xff, 0xff, 0xff, 1}, false},
		{"length beyond the batch", append([]byte{100}, 0, 0, 0, 1, 1, 0), false},
		{"length of 2 GiB", []byte{0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 1, 1, 0}, false},
		{"length too short", []byte{10, 0, 0, 0, 1, 1, 0}, false},
		{"length too long", []byte{14, 0, 0, 0, 1, 1, 0, 0}, false},
		{"key beyond the record", body(0, 0, 0, 20, 'k', 1, 0), false},
		{"key of 2 GiB", body(0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0x0f, 1, 0), false},
		{"value beyond the record", body(0, 0, 0, 1, 20, 'v', 0), false},
		{"negative header count", body(0, 0, 0, 1, 1, 1), false},
		{"header count beyond the record", body(0, 0, 0, 1, 1, 4, 0, 0), false},
		{"2 billion headers", body(0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f), false},
		{"header without key", body(0, 0, 0, 1, 1, 2, 1, 1), false},
		{"header value beyond the record", body(0, 0, 0, 1, 1, 2, 0, 20), false},
		{"offset delta 1", body(0, 0, 2, 1, 1, 0), false},
		{"negative offset delta", body(0, 0, 1, 1, 1, 0), false},
		{"bytes after", append(body(0, 0, 0, 1, 1, 0), 0), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			for c := None; c <= Zstd; c++ {
				payload, err := compress(c, test.payload)
				if err != nil {
					t.Fatal(err)
				}
				_, err = Check(raw(c, 1, payload), lenient())
				if (err == nil) != test.good || (err != nil && !errors.Is(err, model.ErrInvalidRecord)) {
					t.Fatalf("%s: got %v", c, err)
				}
			}
		})
	}
}

// However many records there are.
func TestCheckAllocatesNothing(t *testing.T) {
	for _, records := range [][]Record{two(), make([]Record, 5000)} {
		data := build(t, Options{}, records...)
		p := lenient()
		if n := testing.AllocsPerRun(100, func() {
			if _, err := Check(data, p); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Fatalf("%v allocations for %d records", n, len(records))
		}
	}
}
