package load

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The layout of a record batch that is read and written here (Kafka's format v2):
//
//	0          8        12       16     17    21      23            27 ...        57      61
//	| offset 8 | length | epoch  | magic | crc | attrs | last delta | times, ids | count | records
const (
	batchLengthAt = 8
	batchCRCAt    = 17
	batchSumAt    = 21 // from here on the CRC counts
	batchCountAt  = 57
	batchHeader   = 61
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch makes one batch of records with these values, without compression, as a
// producer without an ID sends it.
func Batch(at time.Time, values ...[]byte) []byte {
	return pack(at, 0, len(values), plainRecords(values))
}

func plainRecords(values [][]byte) []byte {
	var out []byte
	for i, v := range values {
		r := kmsg.Record{OffsetDelta: int32(i), Value: v}
		r.Length = int32(len(r.AppendTo(nil)) - 1) // without the length itself, which is one byte while it is 0
		out = r.AppendTo(out)
	}
	return out
}

func pack(at time.Time, attributes int16, count int, records []byte) []byte {
	b := kmsg.RecordBatch{
		Length: int32(batchHeader - batchLengthAt - 4 + len(records)), PartitionLeaderEpoch: -1, Magic: 2, Attributes: attributes,
		LastOffsetDelta: int32(count - 1), FirstTimestamp: at.UnixMilli(), MaxTimestamp: at.UnixMilli(),
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(count), Records: records,
	}
	out := b.AppendTo(nil)
	seal(out)
	return out
}

func seal(batch []byte) {
	binary.BigEndian.PutUint32(batch[batchCRCAt:], crc32.Checksum(batch[batchSumAt:], castagnoli))
}

// Value is one record's value of so many bytes: words and numbers, as messages are, the
// same for the same seed.
func Value(bytes int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	out := make([]byte, 0, bytes+32)
	for len(out) < bytes {
		out = fmt.Appendf(out, `{"%s":%d},`, words[r.IntN(len(words))], r.IntN(1_000_000))
	}
	return out[:bytes]
}

var words = [...]string{"account", "amount", "city", "created", "currency", "customer", "device", "event", "order", "price", "region", "status", "trace", "user"}

// BatchBytesMax is how large a full batch becomes: what brokers accept by default, and
// what producers send at most.
const BatchBytesMax = 1_000_000

// FullBatch is a batch of records with values of so many bytes, as many as fit before it
// is compressed.
func FullBatch(at time.Time, valueBytes, batchBytes int, codec Codec) (batch []byte, records int, err error) {
	one := len(plainRecords([][]byte{Value(valueBytes, 0)}))
	const deltas = 2 // a record's offset delta takes up to so many bytes more
	n := max(1, (batchBytes-batchHeader)/(one+deltas))
	packed, attributes, err := codec.compress(plainRecords(Values(n, valueBytes)))
	if err != nil {
		return nil, 0, err
	}
	return pack(at, attributes, n, packed), n, nil
}

// Values are so many, each another.
func Values(n, valueBytes int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = Value(valueBytes, uint64(i))
	}
	return out
}

// walk counts the records of whole batches, which must go on at offset next; the last
// batch may be cut off. It returns where they end.
func walk(data []byte, next int64) (records int64, end int64, err error) {
	end = next
	for len(data) >= batchHeader {
		size := batchLengthAt + 4 + int(binary.BigEndian.Uint32(data[batchLengthAt:]))
		if size > len(data) {
			break
		}
		base := int64(binary.BigEndian.Uint64(data))
		n := int64(binary.BigEndian.Uint32(data[batchCountAt:]))
		if base > end || base+n <= end {
			return records, end, fmt.Errorf("a batch of %d records at offset %d where %d was next", n, base, end)
		}
		records, end = records+base+n-end, base+n
		data = data[size:]
	}
	return records, end, nil
}
