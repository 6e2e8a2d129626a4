package recordbatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// The layout, in bytes from the start of a batch.
const (
	offBaseOffset     = 0
	offLength         = 8
	offLeaderEpoch    = 12
	offMagic          = 16
	offCRC            = 17
	offAttributes     = 21
	offLastDelta      = 23
	offBaseTimestamp  = 27
	offMaxTimestamp   = 35
	offProducerID     = 43
	offProducerEpoch  = 51
	offBaseSequence   = 53
	offRecordCount    = 57
	HeaderBytes       = 61 // the whole header
	lengthPrefixBytes = 12 // what the batch length does not count
	// MinBytes is the least that a batch can be: a header without records.
	MinBytes = HeaderBytes
	// Magic is the only version of the format that is spoken here.
	Magic = 2
)

// Attributes of a batch.
const (
	CodecMask         = 0x07
	AttrLogAppendTime = 0x08
	AttrTransactional = 0x10
	AttrControl       = 0x20
	AttrDeleteHorizon = 0x40 // the base timestamp is when tombstones may go (KIP-534)
)

// ErrIncomplete: the bytes end before the batch does.
var ErrIncomplete = errors.New("incomplete batch")

// ErrNotABatch: the bytes cannot be a batch, however many follow.
var ErrNotABatch = errors.New("not a record batch")

// ErrCRC: the batch's bytes are not those that its CRC was computed over.
var ErrCRC = errors.New("record batch CRC mismatch")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Info is what the header says, with the batch's length in bytes, header
// included.
type Info struct {
	BaseOffset    int64
	LastOffset    int64
	LeaderEpoch   int32
	Bytes         int32
	Attributes    int16
	BaseTimestamp int64 // milliseconds since 1970
	MaxTimestamp  int64 // milliseconds since 1970, or -1
	ProducerID    int64 // or -1
	ProducerEpoch int16
	BaseSequence  int32 // or -1
	Records       int32
}

// Size returns the length in bytes of the batch that starts at b[0], from its
// first 17 bytes. ErrIncomplete when b is shorter than those; ErrNotABatch when
// the length or the magic cannot be right. The batch may be longer than b.
func Size(b []byte) (int, error) {
	if len(b) < offCRC {
		return 0, ErrIncomplete
	}
	n := int64(int32(binary.BigEndian.Uint32(b[offLength:]))) + lengthPrefixBytes
	if n < MinBytes {
		return 0, fmt.Errorf("%w: length field %d", ErrNotABatch, n-lengthPrefixBytes)
	}
	if n > math.MaxInt32 {
		return 0, fmt.Errorf("%w: length field %d", ErrNotABatch, n-lengthPrefixBytes)
	}
	if b[offMagic] != Magic {
		return 0, fmt.Errorf("%w: magic %d", ErrNotABatch, b[offMagic])
	}
	return int(n), nil
}

// Parse reads the header of the batch that starts at b[0], of which only the
// header needs to be there. It checks that the header's own numbers agree with
// each other; the CRC is CheckCRC's.
func Parse(b []byte) (Info, error) {
	n, err := Size(b)
	if err != nil {
		return Info{}, err
	}
	if len(b) < HeaderBytes {
		return Info{}, ErrIncomplete
	}
	info := Info{
		BaseOffset:    int64(binary.BigEndian.Uint64(b[offBaseOffset:])),
		LeaderEpoch:   int32(binary.BigEndian.Uint32(b[offLeaderEpoch:])),
		Bytes:         int32(n),
		Attributes:    int16(binary.BigEndian.Uint16(b[offAttributes:])),
		BaseTimestamp: int64(binary.BigEndian.Uint64(b[offBaseTimestamp:])),
		MaxTimestamp:  int64(binary.BigEndian.Uint64(b[offMaxTimestamp:])),
		ProducerID:    int64(binary.BigEndian.Uint64(b[offProducerID:])),
		ProducerEpoch: int16(binary.BigEndian.Uint16(b[offProducerEpoch:])),
		BaseSequence:  int32(binary.BigEndian.Uint32(b[offBaseSequence:])),
		Records:       int32(binary.BigEndian.Uint32(b[offRecordCount:])),
	}
	delta := int32(binary.BigEndian.Uint32(b[offLastDelta:]))
	switch {
	case delta < 0:
		return Info{}, fmt.Errorf("%w: last offset delta %d", ErrNotABatch, delta)
	case info.BaseOffset < 0 || info.BaseOffset > math.MaxInt64-int64(delta)-1:
		return Info{}, fmt.Errorf("%w: base offset %d", ErrNotABatch, info.BaseOffset)
	case info.Records < 0:
		return Info{}, fmt.Errorf("%w: record count %d", ErrNotABatch, info.Records)
	}
	info.LastOffset = info.BaseOffset + int64(delta)
	return info, nil
}

// CheckCRC checks the whole batch in b, whose length is the batch's.
func CheckCRC(b []byte) error {
	if len(b) < HeaderBytes {
		return ErrIncomplete
	}
	want := binary.BigEndian.Uint32(b[offCRC:])
	if got := crc32.Checksum(b[offAttributes:], castagnoli); got != want {
		return fmt.Errorf("%w: stored %08x, computed %08x", ErrCRC, want, got)
	}
	return nil
}

// Next parses the batch at the head of b, checks its CRC, and returns it and
// what follows it. ErrIncomplete when b ends inside the batch.
func Next(b []byte) (info Info, batch, rest []byte, err error) {
	if info, err = Parse(b); err != nil {
		return Info{}, nil, nil, err
	}
	if len(b) < int(info.Bytes) {
		return Info{}, nil, nil, ErrIncomplete
	}
	batch, rest = b[:info.Bytes:info.Bytes], b[info.Bytes:]
	if err = CheckCRC(batch); err != nil {
		return Info{}, nil, nil, err
	}
	return info, batch, rest, nil
}

// TotalBytes is the length in bytes of all parts together.
func TotalBytes(parts [][]byte) int {
	n := 0
	for _, part := range parts {
		n += len(part)
	}
	return n
}

// Stamp writes the leader's fields into a batch: base offset and leader epoch.
// Both are outside the CRC, so that nothing is computed again. (KIP-101)
func Stamp(b []byte, baseOffset int64, leaderEpoch int32) {
	binary.BigEndian.PutUint64(b[offBaseOffset:], uint64(baseOffset))
	binary.BigEndian.PutUint32(b[offLeaderEpoch:], uint32(leaderEpoch))
}

// StampLogAppendTime sets the timestamp type to LogAppendTime and the max
// timestamp to ms, and computes the CRC again. b is the whole batch.
func StampLogAppendTime(b []byte, ms int64) {
	attr := binary.BigEndian.Uint16(b[offAttributes:]) | AttrLogAppendTime
	binary.BigEndian.PutUint16(b[offAttributes:], attr)
	binary.BigEndian.PutUint64(b[offMaxTimestamp:], uint64(ms))
	binary.BigEndian.PutUint32(b[offCRC:], crc32.Checksum(b[offAttributes:], castagnoli))
}

// StampMaxTimestamp sets the max timestamp to ms, and computes the CRC again. b
// is the whole batch.
func StampMaxTimestamp(b []byte, ms int64) {
	binary.BigEndian.PutUint64(b[offMaxTimestamp:], uint64(ms))
	binary.BigEndian.PutUint32(b[offCRC:], crc32.Checksum(b[offAttributes:], castagnoli))
}

// BaseOffset reads one field of a header that Parse may refuse as a whole. b
// holds at least HeaderBytes, as for Attributes.
func BaseOffset(b []byte) int64 { return int64(binary.BigEndian.Uint64(b[offBaseOffset:])) }

// Attributes reads one field of a header that Parse may refuse as a whole.
func Attributes(b []byte) int16 { return int16(binary.BigEndian.Uint16(b[offAttributes:])) }

// Header is what Build needs to know of a batch.
type Header struct {
	Info
	// Payload is the records as they stand in the batch: encoded, and
	// compressed if Attributes say so.
	Payload []byte
}

// Build appends a batch to dst: its header from h (Bytes is computed, the last
// offset delta is LastOffset-BaseOffset), then h.Payload.
func Build(dst []byte, h Header) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, HeaderBytes)...)
	dst = append(dst, h.Payload...)
	b := dst[start:]
	Stamp(b, h.BaseOffset, h.LeaderEpoch)
	binary.BigEndian.PutUint32(b[offLength:], uint32(len(b)-lengthPrefixBytes))
	b[offMagic] = Magic
	binary.BigEndian.PutUint16(b[offAttributes:], uint16(h.Attributes))
	binary.BigEndian.PutUint32(b[offLastDelta:], uint32(h.LastOffset-h.BaseOffset))
	binary.BigEndian.PutUint64(b[offBaseTimestamp:], uint64(h.BaseTimestamp))
	binary.BigEndian.PutUint64(b[offMaxTimestamp:], uint64(h.MaxTimestamp))
	binary.BigEndian.PutUint64(b[offProducerID:], uint64(h.ProducerID))
	binary.BigEndian.PutUint16(b[offProducerEpoch:], uint16(h.ProducerEpoch))
	binary.BigEndian.PutUint32(b[offBaseSequence:], uint32(h.BaseSequence))
	binary.BigEndian.PutUint32(b[offRecordCount:], uint32(h.Records))
	binary.BigEndian.PutUint32(b[offCRC:], crc32.Checksum(b[offAttributes:], castagnoli))
	return dst
}
