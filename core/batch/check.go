package batch

import (
	"errors"
	"fmt"
	"math"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// DefaultMaxDecompressedBytes is how far the records of one batch may unfold
// where a Policy doesn't say.
const DefaultMaxDecompressedBytes = 128 << 20

// Policy is what a topic and the broker ask of a batch.
type Policy struct {
	// MaxBytes is the topic's max.message.bytes, and SegmentBytes its
	// segment.bytes. 0 or less: not checked.
	MaxBytes     int
	SegmentBytes int64
	// LogAppendTime: the topic's timestamps are the broker's.
	LogAppendTime bool
	// TimestampBeforeMax and TimestampAfterMax bound how far a record's
	// CreateTime may lie before and after Now, in milliseconds. They are
	// literal: 0 admits only Now, math.MaxInt64 admits all.
	TimestampBeforeMax int64
	TimestampAfterMax  int64
	// Compacted topics need keys.
	Compacted bool
	// ZstdAllowed: the produce request's version is 7 or above. (KIP-110)
	ZstdAllowed bool
	// MaxDecompressedBytes bounds what the records unfold to; 0 is
	// DefaultMaxDecompressedBytes.
	MaxDecompressedBytes int64
	// AllowControl admits control and transactional batches: those that the
	// broker writes itself, and those that a coordinator has vouched for.
	AllowControl bool
	// Now is the time of the append, in milliseconds since 1970.
	Now int64
}

// Checked is a batch that passed. Info is its header after what Check stamped.
type Checked struct {
	Info recordbatch.Info
	// LogAppendTime is the time stamped into the batch in milliseconds, or -1.
	LogAppendTime int64
}

// Check validates data as what a producer sent for one partition: exactly one
// batch. The order of the checks is Kafka's, so that a batch with two faults
// gets the error that clients expect.
//
// Where the topic has LogAppendTime it stamps that into data; where the header's
// max timestamp is not the records', it stamps the right one, because retention
// and the time index believe it. data is changed only when the batch passes.
//
// Errors wrap a sentinel of model. Check keeps nothing of data and may be called
// concurrently. It works in the memory of a few pooled decoders: at most
// GOMAXPROCS batches are decompressed at once, others wait their turn.
func Check(data []byte, p Policy) (Checked, error) {
	if err := checkFrame(data, &p); err != nil {
		return Checked{}, err
	}
	info, err := checkHeader(data, &p)
	if err != nil {
		return Checked{}, err
	}
	maxTimestamp, err := checkRecords(data, info, &p)
	if err != nil {
		return Checked{}, err
	}
	if p.SegmentBytes > 0 && int64(len(data)) > p.SegmentBytes {
		return Checked{}, fmt.Errorf("%w: %d bytes, a segment has %d", model.ErrRecordListTooLarge, len(data), p.SegmentBytes)
	}
	out := Checked{Info: info, LogAppendTime: -1}
	switch {
	case p.LogAppendTime:
		recordbatch.StampLogAppendTime(data, p.Now)
		out.Info.Attributes |= recordbatch.AttrLogAppendTime
		out.Info.MaxTimestamp, out.LogAppendTime = p.Now, p.Now
	case maxTimestamp != info.MaxTimestamp:
		recordbatch.StampMaxTimestamp(data, maxTimestamp)
		out.Info.MaxTimestamp = maxTimestamp
	}
	return out, nil
}

// checkFrame: one batch of magic 2 in a codec that the client may use, its CRC
// whole. What it passes has a full header.
func checkFrame(data []byte, p *Policy) error {
	n, err := recordbatch.Size(data)
	switch {
	case errors.Is(err, recordbatch.ErrIncomplete):
		return invalid("there must be one record batch, in %d bytes there is none", len(data))
	case err != nil && oldMagic(data):
		return invalid("only record batches of version 2 are taken: %v", err)
	case err != nil:
		return fmt.Errorf("%w: %w", model.ErrCorruptMessage, err)
	case n > len(data):
		return invalid("the record batch has %d bytes, %d came", n, len(data))
	}
	codec := Codec(recordbatch.Attributes(data) & recordbatch.CodecMask)
	if !codec.valid() || (codec == Zstd && !p.ZstdAllowed) {
		return fmt.Errorf("%w: %s", model.ErrUnsupportedCompression, codec)
	}
	if n < len(data) {
		return invalid("there must be one record batch, %d bytes follow the first", len(data)-n)
	}
	if base := recordbatch.BaseOffset(data); base != 0 {
		return invalid("the base offset of a produced batch is 0, not %d", base)
	}
	if p.MaxBytes > 0 && n > p.MaxBytes {
		return fmt.Errorf("%w: %d bytes, the topic takes %d", model.ErrMessageTooLarge, n, p.MaxBytes)
	}
	if err := recordbatch.CheckCRC(data); err != nil {
		return fmt.Errorf("%w: %w", model.ErrCorruptMessage, err)
	}
	return nil
}

// oldMagic: the header is of a message format from before version 2, which has
// its magic at the same place.
func oldMagic(data []byte) bool {
	const magicAt, leastOldLength = 16, 14
	length := int32(uint32(data[8])<<24 | uint32(data[9])<<16 | uint32(data[10])<<8 | uint32(data[11]))
	return length >= leastOldLength && data[magicAt] < recordbatch.Magic
}

// checkHeader: the header's numbers, after the CRC vouches that they are the
// client's own.
func checkHeader(data []byte, p *Policy) (recordbatch.Info, error) {
	info, err := recordbatch.Parse(data)
	if err != nil {
		return info, invalid("%v", err)
	}
	switch {
	case info.Records == 0:
		return info, invalid("the batch has no records")
	case info.LastOffset-info.BaseOffset+1 != int64(info.Records):
		return info, invalid("the batch has %d records in %d offsets", info.Records, info.LastOffset-info.BaseOffset+1)
	case info.Attributes&recordbatch.AttrControl != 0 && !p.AllowControl:
		return info, invalid("clients may not write control records")
	case info.Attributes&recordbatch.AttrTransactional != 0 && !p.AllowControl:
		return info, invalid("no transaction is open for a transactional batch")
	case info.ProducerID > model.NoProducerID && info.BaseSequence < 0 && info.Attributes&recordbatch.AttrControl == 0:
		return info, invalid("base sequence %d with producer ID %d", info.BaseSequence, info.ProducerID)
	case info.ProducerID > model.NoProducerID && info.ProducerEpoch < 0:
		return info, invalid("producer epoch %d with producer ID %d", info.ProducerEpoch, info.ProducerID)
	case info.Attributes&recordbatch.AttrDeleteHorizon != 0:
		return info, invalid("clients may not set a delete horizon")
	case info.Attributes&recordbatch.AttrLogAppendTime != 0: // whatever the topic's own type is, as in Kafka's LogValidator
		return info, fmt.Errorf("%w: clients may not set the timestamp type to LogAppendTime", model.ErrInvalidTimestamp)
	}
	return info, nil
}

// checkRecords walks all records and returns the greatest timestamp among them. Those
// that sweep can take it takes together, others one by one.
func checkRecords(data []byte, info recordbatch.Info, p *Policy) (int64, error) {
	w, err := walk(data, info, p.MaxDecompressedBytes)
	if err != nil {
		return 0, err
	}
	defer w.close()
	var refused *RecordsError
	maxTimestamp := int64(-1)
	for i := int32(0); i < info.Records; {
		s := sweep(w.buf[w.pos:], i, info.Records)
		if s.records > 0 && p.takes(info.BaseTimestamp, s) {
			maxTimestamp = max(maxTimestamp, info.BaseTimestamp+s.most)
			w.pos += s.bytes
			i += s.records
			continue
		}
		for range max(1, s.records) {
			r, err := w.next()
			if err != nil {
				return 0, fmt.Errorf("record %d: %w", i, err)
			}
			if r.offsetDelta != i {
				return 0, invalid("record %d has offset delta %d", i, r.offsetDelta)
			}
			maxTimestamp = max(maxTimestamp, info.BaseTimestamp+r.timestampDelta)
			refused = p.judge(refused, i, info.BaseTimestamp, r)
			i++
		}
	}
	if err := refused.result(); err != nil {
		return 0, err
	}
	if err := w.end(); err != nil {
		return 0, err
	}
	return maxTimestamp, nil
}

// takes reports whether judge would find nothing in any of the records.
func (p *Policy) takes(base int64, s swept) bool {
	switch {
	case p.Compacted && s.nullKey:
		return false
	case p.LogAppendTime:
		return true
	}
	return !overflows(base, s.least) && !overflows(base, s.most) && inBounds(base+s.least, p) && inBounds(base+s.most, p)
}

// judge adds record i to refused if the policy refuses it.
func (p *Policy) judge(refused *RecordsError, i int32, base int64, r recordHead) *RecordsError {
	ts := base + r.timestampDelta
	switch {
	case p.Compacted && r.keyNull:
		return refused.add(i, model.ErrInvalidRecord, "a compacted topic needs keys")
	case p.LogAppendTime:
	case overflows(base, r.timestampDelta):
		return refused.add(i, model.ErrInvalidTimestamp, "timestamp %d%+d is out of range", base, r.timestampDelta)
	case ts != -1 && !inBounds(ts, p):
		return refused.add(i, model.ErrInvalidTimestamp, "%s", outOfBounds(ts, p))
	}
	return refused
}

func overflows(a, b int64) bool {
	return (b > 0 && a > math.MaxInt64-b) || (b < 0 && a < math.MinInt64-b)
}

// outOfBounds is the sentence about a timestamp that is not inBounds.
func outOfBounds(ts int64, p *Policy) string {
	if ts >= p.Now {
		return fmt.Sprintf("timestamp %d is more than %d ms after the broker's %d", ts, p.TimestampAfterMax, p.Now)
	}
	return fmt.Sprintf("timestamp %d is more than %d ms before the broker's %d", ts, p.TimestampBeforeMax, p.Now)
}

// inBounds: a difference that doesn't fit in 64 bits is further than any bound
// but the greatest.
func inBounds(ts int64, p *Policy) bool {
	if ts >= p.Now {
		d := ts - p.Now
		return p.TimestampAfterMax == math.MaxInt64 || (d >= 0 && d <= p.TimestampAfterMax)
	}
	d := p.Now - ts
	return p.TimestampBeforeMax == math.MaxInt64 || (d >= 0 && d <= p.TimestampBeforeMax)
}
