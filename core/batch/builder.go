package batch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// Options say how a batch is built. The zero value is an ordinary batch,
// uncompressed, at offset 0, as a producer sends it.
type Options struct {
	Codec       Codec
	BaseOffset  int64
	LeaderEpoch int32
	// Attributes are or-ed to the codec: recordbatch.AttrControl and so on.
	Attributes int16
	// Producer is set for batches of an idempotent producer.
	Producer *Producer
	// KeepOffsets takes the records' own offsets, which rise from BaseOffset on
	// and may leave gaps; otherwise they are numbered from BaseOffset.
	KeepOffsets bool
}

// Producer is what an idempotent producer puts in its batches. (KIP-98)
type Producer struct {
	ID       int64
	Epoch    int16
	Sequence int32 // of the first record
}

// Builder makes one batch of records. It is for one goroutine.
type Builder struct {
	opts     Options
	records  []byte
	scratch  []byte
	count    int32
	last     int64 // offset of the last record
	baseTime int64
	maxTime  int64
}

// NewBuilder returns an empty builder.
func NewBuilder(opts Options) *Builder {
	return &Builder{opts: opts, last: opts.BaseOffset, maxTime: -1}
}

// Build makes a batch of records in one call.
func Build(opts Options, records ...Record) ([]byte, error) {
	b := NewBuilder(opts)
	for _, r := range records {
		if err := b.Add(r); err != nil {
			return nil, err
		}
	}
	return b.Batch()
}

// Len is the number of records added.
func (b *Builder) Len() int { return int(b.count) }

// Bytes is how many bytes the records take before compression.
func (b *Builder) Bytes() int { return len(b.records) }

// Add appends a record, copying it. It fails when the offset doesn't rise, or
// the batch would outgrow what its format can hold; nothing is added then.
func (b *Builder) Add(r Record) error {
	offset := b.opts.BaseOffset + int64(b.count)
	if b.opts.KeepOffsets {
		offset = r.Offset
	}
	delta := offset - b.opts.BaseOffset
	switch {
	case delta < 0 || (b.count > 0 && offset <= b.last):
		return fmt.Errorf("add record at offset %d after %d: offsets must rise", offset, b.last)
	case delta > math.MaxInt32:
		return fmt.Errorf("add record at offset %d: too far from base offset %d", offset, b.opts.BaseOffset)
	}
	if b.count == 0 {
		b.baseTime = r.Timestamp
	}
	b.scratch = appendBody(b.scratch[:0], r, r.Timestamp-b.baseTime, delta)
	if int64(len(b.records))+int64(len(b.scratch)) > math.MaxInt32-recordbatch.HeaderBytes-maxVarint32Bytes {
		return fmt.Errorf("add record of %d bytes: %w", len(b.scratch), model.ErrMessageTooLarge)
	}
	b.records = binary.AppendVarint(b.records, int64(len(b.scratch)))
	b.records = append(b.records, b.scratch...)
	b.count, b.last, b.maxTime = b.count+1, offset, max(b.maxTime, r.Timestamp)
	return nil
}

func appendBody(dst []byte, r Record, timestampDelta, offsetDelta int64) []byte {
	dst = append(dst, 0) // attributes
	dst = binary.AppendVarint(dst, timestampDelta)
	dst = binary.AppendVarint(dst, offsetDelta)
	dst = appendBytes(dst, r.Key)
	dst = appendBytes(dst, r.Value)
	dst = binary.AppendVarint(dst, int64(len(r.Headers)))
	for _, h := range r.Headers {
		dst = appendBytes(dst, []byte(h.Key))
		dst = appendBytes(dst, h.Value)
	}
	return dst
}

func appendBytes(dst, v []byte) []byte {
	if v == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(v))), v...)
}

// Reset takes out all records. The room that they have taken is used again.
func (b *Builder) Reset() {
	*b = Builder{opts: b.opts, records: b.records[:0], scratch: b.scratch[:0], last: b.opts.BaseOffset, maxTime: -1}
}

// Batch returns the batch, which is the caller's. The builder may go on: what
// is added afterwards is in the next batch returned, with all before it.
func (b *Builder) Batch() ([]byte, error) { return b.AppendBatch(nil) }

// AppendBatch is Batch, whose result it appends to dst.
func (b *Builder) AppendBatch(dst []byte) ([]byte, error) {
	payload, err := compress(b.opts.Codec, b.records)
	if err != nil {
		return nil, fmt.Errorf("build batch: %w", err)
	}
	info := recordbatch.Info{
		BaseOffset: b.opts.BaseOffset, LastOffset: b.last, LeaderEpoch: b.opts.LeaderEpoch,
		Attributes: b.opts.Attributes&^recordbatch.CodecMask | int16(b.opts.Codec), BaseTimestamp: b.baseTime, MaxTimestamp: b.maxTime,
		ProducerID: model.NoProducerID, ProducerEpoch: -1, BaseSequence: -1, Records: b.count,
	}
	if p := b.opts.Producer; p != nil {
		info.ProducerID, info.ProducerEpoch, info.BaseSequence = p.ID, p.Epoch, p.Sequence
	}
	return recordbatch.Build(dst, recordbatch.Header{Info: info, Payload: payload}), nil
}

// compress encodes all records of a batch.
func compress(codec Codec, records []byte) ([]byte, error) {
	if codec == None {
		return records, nil
	}
	var out bytes.Buffer
	w, err := newEncoder(codec, &out)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(records); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
