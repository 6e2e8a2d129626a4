package server

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/brokerd/brokerd/core/wire"
)

const (
	// spliceBytesMin is how large records are that are not copied into a frame.
	spliceBytesMin = 8 << 10
	markBytes      = 16
)

// recordsBody is a codec's response to Fetch as one that encodes itself, whose large
// records are parts of their own. The codec knows no such parts: it is given a mark in
// their place, which nobody outside ever sees or could guess.
type recordsBody struct {
	response *kmsg.FetchResponse
	records  [][]byte // the large ones
	mark     []byte
	fixed    int
	spliced  int
}

var _ wire.Body = (*recordsBody)(nil)

func recordsOf(r *kmsg.FetchResponse, version int16) *recordsBody {
	const fixed, eachTopic, eachPartition, eachAborted = 64, 48, 128, 24
	r.SetVersion(version)
	b := &recordsBody{response: r, mark: make([]byte, markBytes), fixed: fixed}
	_, _ = rand.Read(b.mark) // it never fails
	for i := range r.Topics {
		t := &r.Topics[i]
		b.fixed += eachTopic + len(t.Topic)
		for j := range t.Partitions {
			p := &t.Partitions[j]
			b.fixed += eachPartition + eachAborted*len(p.AbortedTransactions)
			if len(p.RecordBatches) < spliceBytesMin {
				b.fixed += len(p.RecordBatches)
				continue
			}
			b.records = append(b.records, p.RecordBatches)
			b.spliced += len(p.RecordBatches)
			p.RecordBatches = b.mark
		}
	}
	return b
}

func (b *recordsBody) Size() (appended, spliced int) { return b.fixed, b.spliced }

// Encode puts records in the place of the marks. A length stands before each: four
// bytes, or a varint of one more than it where the version is flexible.
func (b *recordsBody) Encode(dst []byte, splice func(at int, records []byte)) []byte {
	if len(b.records) == 0 {
		return b.response.AppendTo(dst)
	}
	encoded := b.response.AppendTo(make([]byte, 0, b.fixed))
	for _, part := range b.records {
		at := bytes.Index(encoded, b.mark)
		if b.response.IsFlexible() {
			dst = binary.AppendUvarint(append(dst, encoded[:at-1]...), uint64(len(part))+1)
		} else {
			dst = binary.BigEndian.AppendUint32(append(dst, encoded[:at-4]...), uint32(len(part)))
		}
		splice(len(dst), part)
		encoded = encoded[at+markBytes:]
	}
	return append(dst, encoded...)
}

func (b *recordsBody) Release() {}
