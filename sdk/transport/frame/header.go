package frame

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/brokerd/brokerd/sdk/transport"
)

// A frame is a header and a body. Numbers are big-endian.
//
//	 0        4    5    6     8        12       16
//	+--------+----+----+-----+--------+--------+------ ...
//	| length |kind|flag| nil |  sum   | check  | body
//	+--------+----+----+-----+--------+--------+------ ...
//
// length  bytes of the body
// kind    what the body is
// flag    bit 0: sum is the CRC32C of the body; otherwise sum is 0
// nil     zero
// check   CRC32C of the twelve bytes before it
const headerBytes = 16

// kind is what a frame's body is.
type kind uint8

const (
	kindHello   kind = 1 // hello.go
	kindMessage kind = 2 // one message
	kindEnd     kind = 3 // end.go: the sender ends the link
	kindReady   kind = 4 // nothing: who has dialled agrees with the answer to its hello
)

const flagSum = 1

// errHeader is all that is said of a header that is none: what was sent is no frame.
var errHeader = errors.New("what was sent is no frame")

// castagnoli is the table of CRC32C, for which processors have an instruction.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is the header of a frame.
type header struct {
	kind   kind
	length int
	summed bool
	sum    uint32
}

// put writes the header to b, of headerBytes.
func (h header) put(b []byte) {
	binary.BigEndian.PutUint32(b[0:], uint32(h.length))
	b[4] = byte(h.kind)
	b[5], b[6], b[7] = 0, 0, 0
	if h.summed {
		b[5] = flagSum
	}
	binary.BigEndian.PutUint32(b[8:], h.sum)
	binary.BigEndian.PutUint32(b[12:], crc32.Checksum(b[:12], castagnoli))
}

// parseHeader reads the header in b, of headerBytes. It admits no length that its kind
// cannot have.
func parseHeader(b []byte) (header, error) {
	if binary.BigEndian.Uint32(b[12:]) != crc32.Checksum(b[:12], castagnoli) {
		return header{}, errHeader
	}
	h := header{
		kind:   kind(b[4]),
		summed: b[5] == flagSum,
		sum:    binary.BigEndian.Uint32(b[8:]),
	}
	length := binary.BigEndian.Uint32(b[0:])
	if h.kind < kindHello || h.kind > kindReady || b[5] > flagSum || b[6] != 0 || b[7] != 0 || !h.summed && h.sum != 0 || length > h.kind.bytesMax() {
		return header{}, errHeader
	}
	h.length = int(length)
	return h, nil
}

// bytesMax is the longest body of a kind.
func (k kind) bytesMax() uint32 {
	switch k {
	case kindHello:
		return HelloBytesMax
	case kindMessage:
		return transport.MessageBytesMax
	case kindEnd:
		return endBytesMax
	default:
		return 0
	}
}
