package batch

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"pgregory.net/rapid"
)

// TestRecompress: from any codec to any other the records and the header stay, but
// for the codec, and the result passes Check.
func TestRecompress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := drawRecords(t)
		from := Codec(rapid.Int8Range(0, int8(Zstd)).Draw(t, "from"))
		to := Codec(rapid.Int8Range(0, int8(Zstd)).Draw(t, "to"))
		policy := lenient()
		policy.LogAppendTime = rapid.Bool().Draw(t, "log append time")
		data, err := Build(Options{Codec: from, Producer: &Producer{ID: 9, Epoch: 2, Sequence: 7}}, records...)
		if err != nil {
			t.Fatal(err)
		}
		checked, err := Check(data, policy)
		if err != nil {
			t.Fatal(err)
		}
		before := bytes.Clone(data)
		out, again, err := Recompress(data, checked, to, policy)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(data, before) {
			t.Fatal("what came was changed")
		}
		if from == to && &out[0] != &data[0] {
			t.Fatal("a batch in the right codec was copied")
		}
		info, rest, err := parsed(out)
		if err != nil || rest != 0 || info != again.Info {
			t.Fatalf("header %+v, told %+v, %d bytes follow, %v", info, again.Info, rest, err)
		}
		want := checked.Info
		want.Attributes, want.Bytes = want.Attributes&^recordbatch.CodecMask|int16(to), int32(len(out))
		if info != want || again.LogAppendTime != checked.LogAppendTime {
			t.Fatalf("header %+v, want %+v", info, want)
		}
		if a, b := all(t, data), all(t, out); !reflect.DeepEqual(a, b) {
			t.Fatalf("records %.500v, want %.500v", b, a)
		}
	})
}

// parsed reads the header of a whole batch and checks its CRC.
func parsed(data []byte) (recordbatch.Info, int, error) {
	info, _, rest, err := recordbatch.Next(data)
	return info, len(rest), err
}

func all(t *rapid.T, data []byte) []Record {
	var got []Record
	for r, err := range Records(data, 0) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r)
	}
	return got
}

// TestRecompressLimits: what is small as it came may be large as it is kept, and is
// refused as it would have been had it come so.
func TestRecompressLimits(t *testing.T) {
	for _, c := range []struct {
		name         string
		max, segment int64
		to           Codec
		decompressed int64
		want         error
	}{
		{name: "fits", max: 200_000, segment: 1 << 20, to: None},
		{name: "too large for the topic", max: 50_000, segment: 1 << 20, to: None, want: model.ErrMessageTooLarge},
		{name: "too large for a segment", max: 200_000, segment: 50_000, to: None, want: model.ErrRecordListTooLarge},
		{name: "nothing is checked", to: None},
		{name: "smaller in another codec", max: 50_000, segment: 50_000, to: Gzip},
		{name: "unfolds to more than is allowed", max: 200_000, to: Gzip, decompressed: 50_000, want: model.ErrMessageTooLarge},
	} {
		data := build(t, Options{Codec: Zstd}, Record{Value: bytes.Repeat([]byte("abc"), 40_000)})
		policy := lenient()
		policy.MaxBytes, policy.SegmentBytes = int(c.max), c.segment
		checked, err := Check(data, policy)
		if err != nil {
			t.Fatal(err)
		}
		policy.MaxDecompressedBytes = c.decompressed
		if _, _, err := Recompress(data, checked, c.to, policy); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// TestCodecNamed: each codec has a name as a topic's, and producer is none.
func TestCodecNamed(t *testing.T) {
	seen := map[Codec]bool{}
	for _, name := range []string{"uncompressed", "gzip", "snappy", "lz4", "zstd"} {
		c, ok := CodecNamed(name)
		if !ok || seen[c] || name != "uncompressed" && c.String() != name {
			t.Errorf("%s is %s, %v", name, c, ok)
		}
		seen[c] = true
	}
	for _, name := range []string{"producer", "none", ""} {
		if c, ok := CodecNamed(name); ok {
			t.Errorf("%q is %s", name, c)
		}
	}
}
