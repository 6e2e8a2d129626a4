package batch

import (
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// Record is one record. A nil Key or Value is null, which differs from empty.
type Record struct {
	Offset    int64
	Timestamp int64 // milliseconds since 1970, or -1
	Key       []byte
	Value     []byte
	Headers   []Header
}

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte // nil is null
}

// Records reads the records of whole batches that stand back to back in data,
// as a log returns them. With LogAppendTime each record has its batch's time.
// Records of control batches come too. limit bounds what one batch may
// decompress to; 0 is DefaultMaxDecompressedBytes.
//
// It ends after the first error, which wraps model.ErrCorruptMessage where a
// batch is damaged, else a sentinel as Check has it. Keys, values and headers
// point into data, or into memory of their own where the batch is compressed.
func Records(data []byte, limit int64) iter.Seq2[Record, error] {
	return each(data, limit, recordsOf)
}

// Stamp is when a record is from, and where.
type Stamp struct {
	Offset    int64
	Timestamp int64 // milliseconds since 1970, or -1
}

// Stamps reads no more of the records than that, otherwise as Records does, in
// memory that does not grow with what a batch decompresses to. It keeps one of the
// few decoders while it goes through a batch: whoever ranges over it does not wait
// for anything, nor check or read another batch meanwhile.
func Stamps(data []byte, limit int64) iter.Seq2[Stamp, error] {
	return each(data, limit, stampsOf)
}

// each goes through batches that stand back to back, until one ends it.
func each[T any](data []byte, limit int64, of func([]byte, recordbatch.Info, int64, func(T, error) bool) bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for rest := data; len(rest) > 0; {
			info, b, after, err := recordbatch.Next(rest)
			if err != nil {
				var none T
				yield(none, fmt.Errorf("%w: %w", model.ErrCorruptMessage, err))
				return
			}
			if !of(b, info, limit, yield) {
				return
			}
			rest = after
		}
	}
}

// stampsOf yields the stamps of one batch, and reports whether to go on.
func stampsOf(b []byte, info recordbatch.Info, limit int64, yield func(Stamp, error) bool) bool {
	w, err := walk(b, info, limit)
	if err != nil {
		yield(Stamp{}, fmt.Errorf("batch at offset %d: %w", info.BaseOffset, err))
		return false
	}
	defer w.close()
	for i := range info.Records {
		head, err := w.next()
		var s Stamp
		if err == nil {
			s, err = head.stamp(info)
		}
		if err != nil {
			yield(Stamp{}, fmt.Errorf("batch at offset %d: record %d: %w", info.BaseOffset, i, err))
			return false
		}
		if !yield(s, nil) {
			return false
		}
	}
	return true
}

// stamp is where a record of this batch is, and when it is from.
func (r recordHead) stamp(info recordbatch.Info) (Stamp, error) {
	s := Stamp{Offset: info.BaseOffset + int64(r.offsetDelta), Timestamp: info.BaseTimestamp + r.timestampDelta}
	if info.Attributes&recordbatch.AttrLogAppendTime != 0 {
		s.Timestamp = info.MaxTimestamp
	}
	if s.Offset < info.BaseOffset || s.Offset > info.LastOffset {
		return Stamp{}, invalid("its offset delta is %d", r.offsetDelta)
	}
	return s, nil
}

// recordsOf yields one batch's records, and reports whether to go on.
func recordsOf(b []byte, info recordbatch.Info, limit int64, yield func(Record, error) bool) bool {
	payload, err := decompress(b, info, limit)
	if err != nil {
		yield(Record{}, fmt.Errorf("batch at offset %d: %w", info.BaseOffset, err))
		return false
	}
	w := walker{buf: payload}
	for i := range info.Records {
		r, err := w.full(info)
		if err != nil {
			yield(Record{}, fmt.Errorf("batch at offset %d: record %d: %w", info.BaseOffset, i, err))
			return false
		}
		if !yield(r, nil) {
			return false
		}
	}
	return true
}

// decompress returns a batch's records in one piece.
func decompress(b []byte, info recordbatch.Info, limit int64) ([]byte, error) {
	w, err := walk(b, info, limit)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if w.src == nil {
		return w.buf, nil
	}
	var out []byte
	for {
		err := w.fill()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, w.buf...)
	}
}

// full reads a record with all that is in it; the whole payload is in w.buf.
func (w *walker) full(info recordbatch.Info) (Record, error) {
	start := w.pos
	head, err := w.next()
	if err != nil {
		return Record{}, err
	}
	s, err := head.stamp(info)
	if err != nil {
		return Record{}, err
	}
	r := Record{Offset: s.Offset, Timestamp: s.Timestamp}
	// next found the record well formed: what follows can't fail.
	v := walker{buf: w.buf[start:w.pos]}
	_, _ = v.varint(maxVarint32Bytes)
	_, _ = v.readByte()
	_, _ = v.varint(maxVarint64Bytes)
	_, _ = v.varint(maxVarint32Bytes)
	r.Key, r.Value = v.bytes(), v.bytes()
	n, _ := v.varint(maxVarint32Bytes)
	if n > 0 {
		r.Headers = make([]Header, 0, n)
	}
	for range n {
		r.Headers = append(r.Headers, Header{Key: string(v.bytes()), Value: v.bytes()})
	}
	return r, nil
}

// bytes reads a length and as many bytes of a record that is known to be well
// formed.
func (w *walker) bytes() []byte {
	n, _ := w.varint(maxVarint32Bytes)
	if n < 0 {
		return nil
	}
	b := w.buf[w.pos : w.pos+int(n) : w.pos+int(n)]
	w.pos += int(n)
	return b
}
