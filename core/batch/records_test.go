package batch

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// golden is what a franz-go client (v1.22.3) was given to produce; testdata/kgo
// has the batches that it sent, one for each codec, with and without an idempotent
// producer.
func golden() []Record {
	var records []Record
	for i := range 30 {
		r := Record{Offset: int64(i), Timestamp: 1_700_000_000_000 + int64(i*i%7)*250, Value: fmt.Appendf(nil, "value %d of a batch that a client made", i)}
		if i%3 != 0 {
			r.Key = fmt.Appendf(nil, "key-%d", i%5)
		}
		if i == 4 {
			r.Value = nil
		}
		if i%10 == 7 {
			r.Headers = []Header{{Key: "trace", Value: []byte{byte(i), 0xff}}, {Key: "empty"}}
		}
		records = append(records, r)
	}
	return records
}

func TestGolden(t *testing.T) {
	for c := None; c <= Zstd; c++ {
		for _, kind := range []string{"plain", "idempotent"} {
			t.Run(c.String()+", "+kind, func(t *testing.T) {
				data, err := os.ReadFile(filepath.Join("testdata", "kgo", c.String()+"-"+kind+".bin"))
				if err != nil {
					t.Fatal(err)
				}
				sent := bytes.Clone(data)
				got, err := Check(data, lenient())
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(data, sent) {
					t.Fatal("the batch was changed")
				}
				want := recordbatch.Info{LastOffset: 29, LeaderEpoch: -1, Bytes: int32(len(data)), Attributes: int16(c),
					BaseTimestamp: now, MaxTimestamp: now + 4*250, ProducerID: -1, ProducerEpoch: -1, BaseSequence: 0, Records: 30}
				if kind == "idempotent" {
					want.ProducerID, want.ProducerEpoch = 4711, 3
				}
				if diff := cmp.Diff(want, got.Info); diff != "" {
					t.Fatal(diff)
				}
				var records []Record
				for r, err := range Records(data, 0) {
					if err != nil {
						t.Fatal(err)
					}
					records = append(records, r)
				}
				if diff := cmp.Diff(golden(), records); diff != "" {
					t.Fatal(diff)
				}
			})
		}
	}
}

// drawRecords draws records that any batch may hold.
func drawRecords(t *rapid.T) []Record {
	field := rapid.OneOf(rapid.Just[[]byte](nil), rapid.SliceOfN(rapid.Byte(), 0, 50), rapid.Map(rapid.IntRange(0, 100_000), func(n int) []byte { return make([]byte, n) }))
	records := make([]Record, rapid.IntRange(1, 20).Draw(t, "records"))
	for i := range records {
		records[i] = Record{
			Offset: int64(i), Timestamp: rapid.OneOf(rapid.Just[int64](-1), rapid.Int64Range(0, math.MaxInt64/2)).Draw(t, "timestamp"),
			Key: field.Draw(t, "key"), Value: field.Draw(t, "value"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			records[i].Headers = append(records[i].Headers, Header{Key: rapid.StringN(0, 10, 20).Draw(t, "header"), Value: field.Draw(t, "header value")})
		}
	}
	return records
}

// What is built passes, and reads back as it was.
func TestBuiltBatchesPass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := drawRecords(t)
		opts := Options{Codec: Codec(rapid.Int8Range(0, int8(Zstd)).Draw(t, "codec"))}
		if rapid.Bool().Draw(t, "idempotent") {
			opts.Producer = &Producer{ID: rapid.Int64Range(0, 100).Draw(t, "id"), Epoch: 1, Sequence: 7}
		}
		data, err := Build(opts, records...)
		if err != nil {
			t.Fatal(err)
		}
		sent := bytes.Clone(data)
		if _, err := Check(data, lenient()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(sent, data) {
			t.Fatal("changed")
		}
		var got []Record
		for r, err := range Records(data, 0) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r)
		}
		if !reflect.DeepEqual(records, got) {
			t.Fatalf("got %.1000v, want %.1000v", got, records)
		}
	})
}

// No changed bit goes unnoticed, from the length and magic on. Base offset and
// leader epoch are the leader's.
func TestFlippedBit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data, err := Build(Options{Codec: Codec(rapid.Int8Range(0, int8(Zstd)).Draw(t, "codec"))}, drawRecords(t)...)
		if err != nil {
			t.Fatal(err)
		}
		at := rapid.IntRange(16, len(data)-1).Draw(t, "at")
		data[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, err := Check(data, lenient()); err == nil {
			t.Fatalf("a changed bit in byte %d passed", at)
		}
	})
}

// Several batches, with gaps between and inside, a control batch, an empty one.
func TestRecordsOfManyBatches(t *testing.T) {
	var data []byte
	add := func(b []byte) { data = append(data, b...) }
	add(build(t, Options{BaseOffset: 10}, Record{Timestamp: 1}, Record{Timestamp: 2}))
	add(build(t, Options{BaseOffset: 20, Codec: Zstd, KeepOffsets: true}, Record{Offset: 21, Timestamp: 3}, Record{Offset: 25, Timestamp: 4}))
	add(recordbatch.Build(nil, recordbatch.Header{Info: recordbatch.Info{BaseOffset: 30, LastOffset: 35, MaxTimestamp: -1}}))
	add(build(t, Options{BaseOffset: 40, Attributes: recordbatch.AttrControl | recordbatch.AttrTransactional}, Record{Timestamp: 5, Key: []byte{0, 0, 0, 1}}))
	var got []int64
	for r, err := range Records(data, 0) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.Offset, r.Timestamp)
	}
	if diff := cmp.Diff([]int64{10, 1, 11, 2, 21, 3, 25, 4, 40, 5}, got); diff != "" {
		t.Fatal(diff)
	}
	for range Records(data, 0) {
		break // stopping early is allowed
	}
	n := 0
	var last error
	for _, err := range Records(data[:len(data)-1], 0) {
		n, last = n+1, err
	}
	if n != 5 || last == nil {
		t.Fatalf("%d results of cut batches, the last error %v", n, last)
	}
}

func TestBuilderRefuses(t *testing.T) {
	b := NewBuilder(Options{BaseOffset: 5, KeepOffsets: true})
	for _, step := range []struct {
		offset int64
		good   bool
	}{{4, false}, {6, true}, {6, false}, {5, false}, {7, true}, {5 + math.MaxInt32 + 1, false}, {5 + math.MaxInt32, true}} {
		if err := b.Add(Record{Offset: step.offset}); (err == nil) != step.good {
			t.Fatalf("offset %d: %v", step.offset, err)
		}
	}
	if b.Len() != 3 {
		t.Fatalf("%d records", b.Len())
	}
	if _, err := Build(Options{Codec: 5}, Record{}); err == nil {
		t.Fatal("an unknown codec was taken")
	}
}

// FuzzCheck: no input panics, and what passes is what it says.
func FuzzCheck(f *testing.F) {
	files, err := filepath.Glob("testdata/kgo/*.bin")
	if err != nil || len(files) == 0 {
		f.Fatalf("no golden batches: %v", err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, false)
	}
	f.Add(build(f, Options{}, two()...), true)
	f.Add(build(f, Options{Codec: Snappy}, two()...), true)
	f.Fuzz(func(t *testing.T, data []byte, logAppendTime bool) {
		const limit = 1 << 20
		if n, err := recordbatch.Size(data); err == nil && n == len(data) {
			// Most inputs would fail at the CRC: see what is behind it.
			recordbatch.StampMaxTimestamp(data, now)
		}
		p := lenient()
		p.MaxDecompressedBytes, p.LogAppendTime = limit, logAppendTime
		got, err := Check(data, p)
		n := int32(0)
		for r, rerr := range Records(data, limit) {
			if err == nil && (rerr != nil || r.Offset != int64(n)) {
				t.Fatalf("record %d of a batch that passed: %+v, %v", n, r, rerr)
			}
			n++
		}
		if err != nil {
			return
		}
		if info, perr := recordbatch.Parse(data); perr != nil || info != got.Info || n != info.Records {
			t.Fatalf("got %+v, the batch has %+v and %d records, %v", got, info, n, perr)
		}
		if cerr := recordbatch.CheckCRC(data); cerr != nil {
			t.Fatal(cerr)
		}
		if got.Info.Attributes&(recordbatch.AttrControl|recordbatch.AttrTransactional) != 0 {
			t.Fatal("a control or transactional batch passed")
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	records := make([]Record, 500)
	for i := range records {
		records[i] = Record{Timestamp: now + int64(i), Key: fmt.Appendf(nil, "key-%d", i), Value: bytes.Repeat([]byte("words and "), 10), Headers: []Header{{Key: "h", Value: []byte("v")}}}
	}
	for c := None; c <= Zstd; c++ {
		b.Run(c.String(), func(b *testing.B) {
			data := build(b, Options{Codec: c}, records...)
			b.SetBytes(int64(len(build(b, Options{}, records...))))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Check(data, lenient()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCheckRecord is the cost of each record in a batch of a megabyte, and of a
// batch of one record.
func BenchmarkCheckRecord(b *testing.B) {
	for _, c := range []struct{ bytes, records int }{{100, 9000}, {1024, 1000}, {100, 1}} {
		b.Run(fmt.Sprintf("%dx%d", c.records, c.bytes), func(b *testing.B) {
			records := make([]Record, c.records)
			for i := range records {
				records[i] = Record{Timestamp: now + int64(i/100), Value: make([]byte, c.bytes)}
			}
			data := build(b, Options{}, records...)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Check(data, lenient()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(c.records), "ns/record")
		})
	}
}

// Stamps gives what Records does, without the memory.
func TestStamps(t *testing.T) {
	records := []Record{
		{Timestamp: 10, Value: make([]byte, 3<<20)},
		{Offset: 3, Timestamp: 5},
		{Offset: 7, Timestamp: 30},
	}
	for c := None; c <= Zstd; c++ {
		for _, attributes := range []int16{0, recordbatch.AttrLogAppendTime} {
			if attributes != 0 && c != None {
				continue // the codec makes no difference
			}
			one, err := Build(Options{Codec: c, Attributes: attributes, BaseOffset: 100}, records[:2]...)
			if err != nil {
				t.Fatal(err)
			}
			two, err := Build(Options{Codec: c, Attributes: attributes, KeepOffsets: true}, records...)
			if err != nil {
				t.Fatal(err)
			}
			data := slices.Concat(one, two)
			before := allocated()
			var got []Stamp
			for s, err := range Stamps(data, 0) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, s)
			}
			if grown := allocated() - before; grown > 4<<20 {
				t.Errorf("%s: %d bytes were allocated", c, grown)
			}
			var want []Stamp
			for r, err := range Records(data, 0) {
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, Stamp{r.Offset, r.Timestamp})
			}
			if diff := cmp.Diff(want, got); diff != "" || len(got) != 5 {
				t.Errorf("%s: %d stamps: %s", c, len(got), diff)
			}
		}
	}
	damaged, err := Build(Options{}, records[0])
	if err != nil {
		t.Fatal(err)
	}
	damaged[len(damaged)-1] ^= 1
	for _, err := range Stamps(damaged, 0) {
		if !errors.Is(err, model.ErrCorruptMessage) {
			t.Errorf("damaged: %v", err)
		}
	}
}
