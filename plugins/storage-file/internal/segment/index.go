package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sort"

	"github.com/brokerd/brokerd/sdk/recordbatch"
)

const (
	offsetMagic = "BOIX"
	timeMagic   = "BTIX"
	version     = 1
	flagGapped  = 1

	headerBytes      = 64
	headerCRCAt      = 60
	offsetEntryBytes = 8
	timeEntryBytes   = 12
	crcBytes         = 4

	// EntriesMax is how many entries an index has at most; the segment is full
	// then.
	EntriesMax = 1 << 20
	// BytesMax is how large a segment's file may be: positions are 31 bits.
	BytesMax = 1<<31 - 1
	// IndexBytesMax bounds an index file.
	IndexBytesMax = headerBytes + EntriesMax*timeEntryBytes + crcBytes
)

// ErrIndex says that the bytes are not a whole index of the segment.
var ErrIndex = errors.New("damaged index")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Summary is what is known of a segment as a whole.
type Summary struct {
	Base           int64
	Bytes          int64
	Next           int64 // the offset after the last batch; Base when empty
	MaxTimestamp   int64 // milliseconds since 1970, or -1
	FirstTimestamp int64 // max timestamp of the first batch, or -1
	WrittenMillis  int64 // when the last batch was written
	Gapped         bool  // offsets are missing between batches
}

type offsetEntry struct{ rel, pos uint32 }

type timeEntry struct {
	max int64
	rel uint32
}

// Index is the summary and sparse indexes of a segment. A copy of an Index
// stays valid while the original grows by Add; Cut starts anew.
type Index struct {
	Summary
	offsets []offsetEntry
	times   []timeEntry
	since   int64 // bytes since the last entry
}

// NewIndex returns the index of an empty segment.
func NewIndex(base int64) Index {
	return Index{Summary: Summary{Base: base, Next: base, MaxTimestamp: -1, FirstTimestamp: -1}}
}

// Add takes in the batch that follows; interval is the bytes between entries.
func (x *Index) Add(b recordbatch.Info, interval, nowMillis int64) {
	if x.Bytes == 0 {
		x.FirstTimestamp = b.MaxTimestamp
	}
	if b.BaseOffset != x.Next {
		x.Gapped = true
	}
	if b.MaxTimestamp > x.MaxTimestamp {
		x.MaxTimestamp = b.MaxTimestamp
	}
	if x.since >= interval && len(x.offsets) < EntriesMax {
		rel := uint32(b.BaseOffset - x.Base)
		x.offsets = append(x.offsets, offsetEntry{rel, uint32(x.Bytes)})
		if n := len(x.times); n == 0 || x.times[n-1].max < x.MaxTimestamp {
			x.times = append(x.times, timeEntry{x.MaxTimestamp, rel})
		}
		x.since = 0
	}
	x.since += int64(b.Bytes)
	x.Bytes += int64(b.Bytes)
	x.Next = b.LastOffset + 1
	x.WrittenMillis = nowMillis
}

// Full reports whether the index can take no more entries.
func (x *Index) Full() bool { return len(x.offsets) >= EntriesMax }

// Left is how many entries the index can still take.
func (x *Index) Left() int64 { return int64(EntriesMax - len(x.offsets)) }

// SizeInMemory is what the entries occupy.
func (x *Index) SizeInMemory() int64 {
	return int64(cap(x.offsets))*8 + int64(cap(x.times))*16
}

// At returns a position at or before the batch that holds offset, at which a
// batch starts, and that batch's offset (the least that it can be at 0).
func (x *Index) At(offset int64) (pos, batchOffset int64) {
	i := sort.Search(len(x.offsets), func(i int) bool { return x.Base+int64(x.offsets[i].rel) > offset })
	if i == 0 {
		return 0, x.Base
	}
	e := x.offsets[i-1]
	return int64(e.pos), x.Base + int64(e.rel)
}

// Before returns an offset such that no batch before the one at that offset
// has a timestamp of at least ts.
func (x *Index) Before(ts int64) int64 {
	i := sort.Search(len(x.times), func(i int) bool { return x.times[i].max >= ts })
	if i == 0 {
		return x.Base
	}
	return x.Base + int64(x.times[i-1].rel)
}

// MaxUpTo returns the greatest timestamp among the batches up to and including
// the one at the offset returned, whose records are all below upTo. ok is false
// when the index knows of none.
func (x *Index) MaxUpTo(upTo int64) (ts, offset int64, ok bool) {
	i := sort.Search(len(x.times), func(i int) bool { return x.Base+int64(x.times[i].rel) >= upTo })
	if i < 2 {
		return 0, 0, false
	}
	// The last entry's batch may reach upTo; the one before it ends before that.
	e := x.times[i-2]
	return e.max, x.Base + int64(e.rel), true
}

// CutBefore returns the index of the batches before one from which a walk finds
// where a cut at offset lies: some way before it, so that the walk meets a batch
// that stays. The greatest timestamp may be that of the walk's first batch, and
// Gapped may be set for a gap that lies behind the cut. ok is false when the
// walk must begin at the segment's start.
func (x *Index) CutBefore(offset int64) (cut Index, ok bool) {
	i := sort.Search(len(x.offsets), func(i int) bool { return x.Base+int64(x.offsets[i].rel) >= offset })
	if i < 2 {
		return NewIndex(x.Base), false
	}
	// The batch at this entry ends before the next entry, which is below offset.
	e := x.offsets[i-2]
	j := sort.Search(len(x.times), func(j int) bool { return x.times[j].rel > e.rel })
	if j == 0 {
		return NewIndex(x.Base), false
	}
	cut = Index{Summary: x.Summary, offsets: x.offsets[: i-2 : i-2], since: BytesMax}
	cut.Bytes, cut.Next, cut.MaxTimestamp = int64(e.pos), x.Base+int64(e.rel), x.times[j-1].max
	if x.times[j-1].rel == e.rel {
		j-- // the walk adds it again
	}
	cut.times = x.times[:j:j]
	return cut, true
}

// Encode returns the contents of the two index files.
func (x *Index) Encode() (offsets, times []byte) {
	offsets = x.header(offsetMagic, len(x.offsets), offsetEntryBytes)
	for _, e := range x.offsets {
		offsets = binary.BigEndian.AppendUint32(offsets, e.rel)
		offsets = binary.BigEndian.AppendUint32(offsets, e.pos)
	}
	times = x.header(timeMagic, len(x.times), timeEntryBytes)
	for _, e := range x.times {
		times = binary.BigEndian.AppendUint64(times, uint64(e.max))
		times = binary.BigEndian.AppendUint32(times, e.rel)
	}
	return closeCRC(offsets), closeCRC(times)
}

func closeCRC(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[headerBytes:], castagnoli))
}

func (x *Index) header(magic string, count, entryBytes int) []byte {
	b := make([]byte, 0, headerBytes+count*entryBytes+crcBytes)
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint16(b, version)
	flags := uint16(0)
	if x.Gapped {
		flags |= flagGapped
	}
	b = binary.BigEndian.AppendUint16(b, flags)
	for _, v := range []int64{x.Base, x.Bytes, x.Next, x.MaxTimestamp, x.FirstTimestamp, x.WrittenMillis} {
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	b = binary.BigEndian.AppendUint32(b, uint32(count))
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// DecodeSummary reads the summary from the head of an index file.
func DecodeSummary(b []byte, magic string) (Summary, int, error) {
	if len(b) < headerBytes || string(b[:4]) != magic ||
		crc32.Checksum(b[:headerCRCAt], castagnoli) != binary.BigEndian.Uint32(b[headerCRCAt:]) {
		return Summary{}, 0, fmt.Errorf("%w: header", ErrIndex)
	}
	if v := binary.BigEndian.Uint16(b[4:]); v != version {
		return Summary{}, 0, fmt.Errorf("%w: version %d", ErrIndex, v)
	}
	at := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[8+8*i:])) }
	s := Summary{
		Base: at(0), Bytes: at(1), Next: at(2),
		MaxTimestamp: at(3), FirstTimestamp: at(4), WrittenMillis: at(5),
		Gapped: binary.BigEndian.Uint16(b[6:])&flagGapped != 0,
	}
	count := binary.BigEndian.Uint32(b[56:])
	if count > EntriesMax || s.Bytes < 0 || s.Bytes > BytesMax || s.Base < 0 || s.Next < s.Base {
		return Summary{}, 0, fmt.Errorf("%w: numbers in the header", ErrIndex)
	}
	return s, int(count), nil
}

// Decode reads an index from its two files. It believes nothing that the files
// don't agree on.
func Decode(offsets, times []byte) (Index, error) {
	s, entries, err := body(offsets, offsetMagic, offsetEntryBytes)
	if err != nil {
		return Index{}, err
	}
	ts, timeEntries, err := body(times, timeMagic, timeEntryBytes)
	if err != nil {
		return Index{}, err
	}
	if s != ts {
		return Index{}, fmt.Errorf("%w: the two files differ", ErrIndex)
	}
	x := Index{Summary: s, since: BytesMax}
	for e := range slices.Chunk(entries, offsetEntryBytes) {
		entry := offsetEntry{binary.BigEndian.Uint32(e), binary.BigEndian.Uint32(e[4:])}
		if n := len(x.offsets); n > 0 && (x.offsets[n-1].rel >= entry.rel || x.offsets[n-1].pos >= entry.pos) ||
			int64(entry.pos) >= s.Bytes || s.Base+int64(entry.rel) >= s.Next {
			return Index{}, fmt.Errorf("%w: offset entry %d", ErrIndex, n)
		}
		x.offsets = append(x.offsets, entry)
	}
	for e := range slices.Chunk(timeEntries, timeEntryBytes) {
		entry := timeEntry{int64(binary.BigEndian.Uint64(e)), binary.BigEndian.Uint32(e[8:])}
		if n := len(x.times); n > 0 && (x.times[n-1].rel >= entry.rel || x.times[n-1].max >= entry.max) {
			return Index{}, fmt.Errorf("%w: time entry %d", ErrIndex, n)
		}
		x.times = append(x.times, entry)
	}
	return x, nil
}

func body(b []byte, magic string, entryBytes int) (Summary, []byte, error) {
	s, count, err := DecodeSummary(b, magic)
	if err != nil {
		return Summary{}, nil, err
	}
	if len(b) != headerBytes+count*entryBytes+crcBytes {
		return Summary{}, nil, fmt.Errorf("%w: %d bytes for %d entries", ErrIndex, len(b), count)
	}
	entries := b[headerBytes : len(b)-crcBytes]
	if crc32.Checksum(entries, castagnoli) != binary.BigEndian.Uint32(b[len(b)-crcBytes:]) {
		return Summary{}, nil, fmt.Errorf("%w: CRC of entries", ErrIndex)
	}
	return s, entries, nil
}
