package server

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// spliceBytesMin is how large records are that are not copied into a frame.
	spliceBytesMin = 8 << 10
	markBytes      = 16
)

// splicer makes frames in which large records are parts of their own, so that
// they are neither copied nor twice in memory. The codec knows no such parts: it
// is given a mark in their place, which nobody outside ever sees or could guess.
type splicer struct{ mark []byte }

func newSplicer() splicer {
	s := splicer{mark: make([]byte, markBytes)}
	_, _ = rand.Read(s.mark) // it never fails
	return s
}

// frame encodes a whole frame. The response's version is set. Records that are
// parts of it stay the response's.
func (s splicer) frame(correlationID int32, r kmsg.Response) net.Buffers {
	fetch, ok := r.(*kmsg.FetchResponse)
	if !ok {
		return net.Buffers{appendReply(nil, correlationID, r)}
	}
	var records [][]byte
	for i := range fetch.Topics {
		for j := range fetch.Topics[i].Partitions {
			if p := &fetch.Topics[i].Partitions[j]; len(p.RecordBatches) >= spliceBytesMin {
				records = append(records, p.RecordBatches)
				p.RecordBatches = s.mark
			}
		}
	}
	encoded := appendReply(make([]byte, 0, sizeOf(r)), correlationID, r)
	frame := s.splice(encoded, records, fetch.IsFlexible())
	size := 0
	for _, part := range frame {
		size += len(part)
	}
	binary.BigEndian.PutUint32(encoded, uint32(size-sizeBytes))
	return frame
}

// splice puts records in the place of the marks. A length stands before each:
// four bytes, or a varint of one more than it where the version is flexible. The
// longer length of the records takes room of the mark.
func (s splicer) splice(encoded []byte, records [][]byte, flexible bool) net.Buffers {
	frame := make(net.Buffers, 0, 2*len(records)+1)
	for _, part := range records {
		at := bytes.Index(encoded, s.mark)
		rest := encoded[at+markBytes:]
		if flexible {
			encoded = binary.AppendUvarint(encoded[:at-1], uint64(len(part))+1)
		} else {
			encoded = binary.BigEndian.AppendUint32(encoded[:at-4], uint32(len(part)))
		}
		frame = append(frame, encoded, part)
		encoded = rest
	}
	return append(frame, encoded)
}
