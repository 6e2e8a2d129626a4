package load

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestFullBatch(t *testing.T) {
	for _, size := range []int{1, 100, 1 << 10, 2_000_000} {
		batch, n, err := FullBatch(time.Unix(1, 0), size, BatchBytesMax, None)
		if err != nil {
			t.Fatal(err)
		}
		if n > 1 && (len(batch) > BatchBytesMax || len(batch) < BatchBytesMax*9/10) {
			t.Errorf("%d bytes: a batch of %d, which is not nearly %d", size, len(batch), BatchBytesMax)
		}
		var b kmsg.RecordBatch
		if err := b.ReadFrom(batch); err != nil {
			t.Fatal(err)
		}
		if int(b.NumRecords) != n || int(b.LastOffsetDelta) != n-1 {
			t.Errorf("%d bytes: %d records to offset %d, not %d", size, b.NumRecords, b.LastOffsetDelta, n)
		}
	}
}

func TestCompressedBatchesAreSmaller(t *testing.T) {
	plain, n, err := FullBatch(time.Unix(1, 0), 1<<10, BatchBytesMax, None)
	if err != nil {
		t.Fatal(err)
	}
	for _, codec := range []Codec{LZ4, Zstd} {
		batch, m, err := FullBatch(time.Unix(1, 0), 1<<10, BatchBytesMax, codec)
		if err != nil || m != n || len(batch) >= len(plain) {
			t.Errorf("%s: %d records in %d bytes, %v; %d in %d without", codec, m, len(batch), err, n, len(plain))
		}
	}
	if _, _, err := FullBatch(time.Unix(1, 0), 1, 100, "gzip"); err == nil {
		t.Error("a codec that is not known is taken")
	}
}

func at(offset int64, values ...string) []byte {
	var v [][]byte
	for _, s := range values {
		v = append(v, []byte(s))
	}
	b := Batch(time.Unix(1, 0), v...)
	binary.BigEndian.PutUint64(b, uint64(offset))
	return b
}

func TestWalk(t *testing.T) {
	whole := append(at(5, "a", "b", "c"), at(8, "d")...)
	for _, c := range []struct {
		name         string
		data         []byte
		next         int64
		records, end int64
		wrong        bool
	}{
		{"nothing", nil, 5, 0, 5, false},
		{"all", whole, 5, 4, 9, false},
		{"from within a batch", whole, 6, 3, 9, false},
		{"cut off", whole[:len(whole)-1], 5, 3, 8, false},
		{"cut off in a header", whole[:len(whole)-len(at(8, "d"))+20], 5, 3, 8, false},
		{"a gap", whole, 4, 0, 4, true},
		{"again", whole, 9, 0, 9, true},
	} {
		records, end, err := walk(c.data, c.next)
		if records != c.records || end != c.end || (err != nil) != c.wrong {
			t.Errorf("%s: %d records to %d, %v", c.name, records, end, err)
		}
	}
}

func TestValuesDiffer(t *testing.T) {
	a, b := Value(100, 1), Value(100, 2)
	if len(a) != 100 || len(b) != 100 || bytes.Equal(a, b) || !bytes.Equal(a, Value(100, 1)) || bytes.ContainsRune(a, '\n') {
		t.Errorf("%q and %q", a, b)
	}
}
