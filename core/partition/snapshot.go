package partition

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

// The producer snapshot, big-endian:
//
//	offset size
//	     0    2  version              2
//	     2    4  producers            n
//	     6    .  n entries, idlest first
//	   end    4  CRC-32C of all before it
//
//	entry, then its batches:
//	     0    8  producer ID
//	     8    2  producer epoch
//	    10    8  idle time, in milliseconds, when the snapshot was taken
//	    18    8  max timestamp of the newest batch in milliseconds, or -1;
//	             version 1 did not have it
//	    26    1  batches              1 to 5
//	batch:
//	     0    4  first sequence
//	     4    4  last sequence
//	     8    8  base offset
//	    16    8  last offset
//	    24    8  log append time in milliseconds, or -1
const (
	snapshotVersion    = 2
	snapshotHeadBytes  = 6
	snapshotEntryBytes = 27
	snapshotStampBytes = 8 // of an entry, the max timestamp
	snapshotBatchBytes = 32
	snapshotTailBytes  = 4
)

// errSnapshot: the bytes are not a snapshot that this release reads. The log
// is scanned instead.
var errSnapshot = errors.New("not a producer snapshot")

// encodeProducers writes the table as it was before the batches in undone,
// which maps a producer to its state before the first of them.
func encodeProducers(p *producers, now time.Time, undone map[int64]*undo) []byte {
	b := make([]byte, snapshotHeadBytes, snapshotHeadBytes+p.len()*(snapshotEntryBytes+2*snapshotBatchBytes)+snapshotTailBytes)
	binary.BigEndian.PutUint16(b, snapshotVersion)
	n := uint32(0)
	for e := p.ends.next; e != &p.ends; e = e.next {
		state := &e.state
		if before, ok := undone[e.id]; ok {
			if !before.known {
				continue
			}
			state = &before.state
		}
		if state.n == 0 {
			continue // nothing of it is in the log
		}
		b = appendProducer(b, e.id, state, now)
		n++
	}
	binary.BigEndian.PutUint32(b[2:], n)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

func appendProducer(b []byte, id int64, s *producerState, now time.Time) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(id))
	b = binary.BigEndian.AppendUint16(b, uint16(s.epoch))
	b = binary.BigEndian.AppendUint64(b, uint64(max(0, now.Sub(s.lastAppend).Milliseconds())))
	b = binary.BigEndian.AppendUint64(b, uint64(s.maxTimestamp))
	b = append(b, s.n)
	for i := range s.n {
		batch := &s.batches[i]
		b = binary.BigEndian.AppendUint32(b, uint32(batch.firstSeq))
		b = binary.BigEndian.AppendUint32(b, uint32(batch.lastSeq))
		b = binary.BigEndian.AppendUint64(b, uint64(batch.base))
		b = binary.BigEndian.AppendUint64(b, uint64(batch.last))
		b = binary.BigEndian.AppendUint64(b, uint64(batch.timestamp))
	}
	return b
}

// decodeProducers replaces the table by the snapshot's. On an error the table is
// empty. The time that passed since the snapshot was taken is not counted as
// idle: a producer is forgotten late rather than early.
func decodeProducers(p *producers, now time.Time, b []byte) error {
	p.reset()
	if len(b) < snapshotHeadBytes+snapshotTailBytes {
		return fmt.Errorf("%w: %d bytes", errSnapshot, len(b))
	}
	body, sum := b[:len(b)-snapshotTailBytes], binary.BigEndian.Uint32(b[len(b)-snapshotTailBytes:])
	if crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) != sum {
		return fmt.Errorf("%w: CRC mismatch", errSnapshot)
	}
	version := binary.BigEndian.Uint16(body)
	if version < 1 || version > snapshotVersion {
		return fmt.Errorf("%w: version %d", errSnapshot, version)
	}
	left := binary.BigEndian.Uint32(body[2:])
	rest := body[snapshotHeadBytes:]
	var err error
	for ; left > 0 && err == nil; left-- {
		rest, err = decodeProducer(p, now, version, rest)
	}
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: %d bytes too many", errSnapshot, len(rest))
	}
	if err != nil {
		p.reset()
	}
	return err
}

func decodeProducer(p *producers, now time.Time, version uint16, b []byte) ([]byte, error) {
	size := snapshotEntryBytes
	if version == 1 {
		size -= snapshotStampBytes
	}
	if len(b) < size {
		return nil, fmt.Errorf("%w: it ends inside an entry", errSnapshot)
	}
	id := int64(binary.BigEndian.Uint64(b))
	idle := int64(binary.BigEndian.Uint64(b[10:]))
	s := producerState{epoch: int16(binary.BigEndian.Uint16(b[8:])), n: b[size-1], maxTimestamp: -1}
	if version > 1 {
		s.maxTimestamp = int64(binary.BigEndian.Uint64(b[18:]))
	}
	b = b[size:]
	if s.n == 0 || s.n > producerBatches || len(b) < int(s.n)*snapshotBatchBytes || idle < 0 {
		return nil, fmt.Errorf("%w: producer %d has %d batches in %d bytes", errSnapshot, id, s.n, len(b))
	}
	s.lastAppend = now.Add(-time.Duration(min(idle, idleMaxMillis)) * time.Millisecond)
	for i := range s.n {
		s.batches[i] = producerBatch{
			firstSeq:  int32(binary.BigEndian.Uint32(b)),
			lastSeq:   int32(binary.BigEndian.Uint32(b[4:])),
			base:      int64(binary.BigEndian.Uint64(b[8:])),
			last:      int64(binary.BigEndian.Uint64(b[16:])),
			timestamp: int64(binary.BigEndian.Uint64(b[24:])),
		}
		b = b[snapshotBatchBytes:]
	}
	if _, twice := p.byID[id]; twice {
		return nil, fmt.Errorf("%w: producer %d is in it twice", errSnapshot, id)
	}
	p.insert(id).state = s
	return b, nil
}

// idleMaxMillis keeps an idle time of a snapshot inside a time.Duration.
const idleMaxMillis = 1 << 42
