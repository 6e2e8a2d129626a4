package recordbatch_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"testing"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"pgregory.net/rapid"
)

// sample is a batch whose every field differs, and its bytes by hand.
func sample() (recordbatch.Header, []byte) {
	h := recordbatch.Header{Payload: []byte("payload"), Info: recordbatch.Info{
		BaseOffset: 0x0102030405060708, LastOffset: 0x0102030405060708 + 4, LeaderEpoch: 0x11121314, Bytes: 68, Attributes: 0x0014,
		BaseTimestamp: 0x2122232425262728, MaxTimestamp: 0x3132333435363738, ProducerID: 0x4142434445464748,
		ProducerEpoch: 0x5152, BaseSequence: 0x61626364, Records: 5,
	}}
	b := []byte{
		1, 2, 3, 4, 5, 6, 7, 8, // base offset
		0, 0, 0, 56, // length
		0x11, 0x12, 0x13, 0x14, // leader epoch
		2,          // magic
		0, 0, 0, 0, // CRC
		0x00, 0x14, // attributes
		0, 0, 0, 4, // last offset delta
		0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28,
		0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38,
		0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48,
		0x51, 0x52,
		0x61, 0x62, 0x63, 0x64,
		0, 0, 0, 5, // records
		'p', 'a', 'y', 'l', 'o', 'a', 'd',
	}
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return h, b
}

func TestLayout(t *testing.T) {
	h, want := sample()
	got := recordbatch.Build([]byte("before"), h)
	if !bytes.Equal(got, append([]byte("before"), want...)) {
		t.Fatalf("built\n%x, want\n%x", got[6:], want)
	}
	info, batch, rest, err := recordbatch.Next(append(want, "after"...))
	if err != nil || info != h.Info || !bytes.Equal(batch, want) || string(rest) != "after" {
		t.Fatalf("got %+v, %d bytes, rest %q, %v", info, len(batch), rest, err)
	}
	if recordbatch.BaseOffset(want) != h.BaseOffset || recordbatch.Attributes(want) != h.Attributes {
		t.Fatal("fields by themselves differ")
	}
	if cap(batch) != len(batch) {
		t.Fatal("appending to a batch would write into what follows it")
	}
}

func TestRefused(t *testing.T) {
	_, good := sample()
	put := func(at int, b ...byte) []byte {
		out := bytes.Clone(good)
		copy(out[at:], b)
		return out
	}
	for _, test := range []struct {
		name string
		data []byte
		want error
	}{
		{"nothing", nil, recordbatch.ErrIncomplete},
		{"16 bytes", good[:16], recordbatch.ErrIncomplete},
		{"17 bytes", good[:17], recordbatch.ErrIncomplete},
		{"60 bytes", good[:60], recordbatch.ErrIncomplete},
		{"all but one", good[:len(good)-1], recordbatch.ErrIncomplete},
		{"length 0", put(8, 0, 0, 0, 0), recordbatch.ErrNotABatch},
		{"length 48", put(8, 0, 0, 0, 48), recordbatch.ErrNotABatch},
		{"length -1", put(8, 0xff, 0xff, 0xff, 0xff), recordbatch.ErrNotABatch},
		{"least length", put(8, 0x80, 0, 0, 0), recordbatch.ErrNotABatch},
		{"greatest length", put(8, 0x7f, 0xff, 0xff, 0xff), recordbatch.ErrNotABatch},
		{"greatest length that fits", put(8, 0x7f, 0xff, 0xff, 0xff-12), recordbatch.ErrIncomplete},
		{"length 49", put(8, 0, 0, 0, 49), recordbatch.ErrCRC},
		{"magic 1", put(16, 1), recordbatch.ErrNotABatch},
		{"magic 255", put(16, 255), recordbatch.ErrNotABatch},
		{"negative base offset", put(0, 0xff), recordbatch.ErrNotABatch},
		{"last offset beyond 63 bits", put(0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe), recordbatch.ErrNotABatch},
		{"negative last offset delta", put(23, 0xff), recordbatch.ErrNotABatch},
		{"least last offset delta", put(23, 0x80, 0, 0, 0), recordbatch.ErrNotABatch},
		{"negative record count", put(57, 0xff), recordbatch.ErrNotABatch},
		{"other payload", put(61, 'P'), recordbatch.ErrCRC},
		{"other CRC", put(17, good[17]+1), recordbatch.ErrCRC},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, _, _, err := recordbatch.Next(test.data); !errors.Is(err, test.want) {
				t.Fatalf("got %v, want %v", err, test.want)
			}
		})
	}
	if err := recordbatch.CheckCRC(good[:60]); !errors.Is(err, recordbatch.ErrIncomplete) {
		t.Fatalf("CRC of a part of a header: %v", err)
	}
}

// Stamping the leader's fields leaves the CRC right; stamping time renews it.
func TestStamp(t *testing.T) {
	h, b := sample()
	crc := bytes.Clone(b[17:21])
	recordbatch.Stamp(b, 77, 9)
	info, _, _, err := recordbatch.Next(b)
	if err != nil || info.BaseOffset != 77 || info.LastOffset != 81 || info.LeaderEpoch != 9 || !bytes.Equal(crc, b[17:21]) {
		t.Fatalf("got %+v, %v", info, err)
	}
	recordbatch.StampMaxTimestamp(b, 1234)
	if info, _, _, err = recordbatch.Next(b); err != nil || info.MaxTimestamp != 1234 || info.Attributes != h.Attributes {
		t.Fatalf("got %+v, %v", info, err)
	}
	recordbatch.StampLogAppendTime(b, 5678)
	info, _, _, err = recordbatch.Next(b)
	if err != nil || info.MaxTimestamp != 5678 || info.Attributes != h.Attributes|recordbatch.AttrLogAppendTime {
		t.Fatalf("got %+v, %v", info, err)
	}
	if string(b[recordbatch.HeaderBytes:]) != "payload" {
		t.Fatal("the payload changed")
	}
}

// What is built is found again, batch by batch, and any changed bit in the CRC's
// range is noticed.
func TestBuildNext(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var data []byte
		var want []recordbatch.Info
		for range rapid.IntRange(1, 5).Draw(t, "batches") {
			base, delta := rapid.Int64Range(0, math.MaxInt64-math.MaxInt32-1).Draw(t, "base"), rapid.Int32Range(0, math.MaxInt32).Draw(t, "delta")
			h := recordbatch.Header{Payload: rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "payload"), Info: recordbatch.Info{
				BaseOffset: base, LastOffset: base + int64(delta), LeaderEpoch: rapid.Int32().Draw(t, "epoch"),
				Attributes: rapid.Int16().Draw(t, "attributes"), BaseTimestamp: rapid.Int64().Draw(t, "base time"), MaxTimestamp: rapid.Int64().Draw(t, "max time"),
				ProducerID: rapid.Int64().Draw(t, "id"), ProducerEpoch: rapid.Int16().Draw(t, "producer epoch"), BaseSequence: rapid.Int32().Draw(t, "sequence"),
				Records: rapid.Int32Range(0, math.MaxInt32).Draw(t, "records"),
			}}
			h.Bytes = int32(recordbatch.HeaderBytes + len(h.Payload))
			data = recordbatch.Build(data, h)
			want = append(want, h.Info)
		}
		rest := data
		for i := range want {
			info, batch, after, err := recordbatch.Next(rest)
			if err != nil || info != want[i] {
				t.Fatalf("batch %d: %+v, want %+v, %v", i, info, want[i], err)
			}
			bit := rapid.IntRange(17*8, len(batch)*8-1).Draw(t, "bit")
			batch[bit/8] ^= 1 << (bit % 8)
			if err := recordbatch.CheckCRC(batch); !errors.Is(err, recordbatch.ErrCRC) {
				t.Fatalf("changed bit %d: %v", bit, err)
			}
			rest = after
		}
		if len(rest) != 0 {
			t.Fatalf("%d bytes left", len(rest))
		}
	})
}

// FuzzNext: no input panics; what is found is in the input and builds again as
// it was.
func FuzzNext(f *testing.F) {
	_, b := sample()
	f.Add(b)
	f.Add(b[:40])
	f.Add(append(bytes.Clone(b), b...))
	f.Fuzz(func(t *testing.T, data []byte) {
		if n, err := recordbatch.Size(data); err == nil && n <= len(data) {
			// Most inputs would fail at the CRC: see what is behind it.
			recordbatch.StampMaxTimestamp(data[:n], 0)
		}
		info, batch, rest, err := recordbatch.Next(data)
		if err != nil {
			return
		}
		if len(batch)+len(rest) != len(data) || int(info.Bytes) != len(batch) || info.LastOffset < info.BaseOffset || info.Records < 0 {
			t.Fatalf("%+v, %d and %d of %d bytes", info, len(batch), len(rest), len(data))
		}
		if again := recordbatch.Build(nil, recordbatch.Header{Info: info, Payload: batch[recordbatch.HeaderBytes:]}); !bytes.Equal(again, batch) {
			t.Fatalf("built again\n%x, was\n%x", again, batch)
		}
	})
}

func BenchmarkNext(b *testing.B) {
	h, _ := sample()
	h.Payload = make([]byte, 16<<10)
	data := recordbatch.Build(nil, h)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, _, err := recordbatch.Next(data); err != nil {
			b.Fatal(err)
		}
	}
}
