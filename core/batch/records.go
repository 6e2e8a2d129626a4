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
	return func(yield func(Record, error) bool) {
		for len(data) > 0 {
			info, b, rest, err := recordbatch.Next(data)
			if err != nil {
				yield(Record{}, fmt.Errorf("%w: %w", model.ErrCorruptMessage, err))
				return
			}
			if !recordsOf(b, info, limit, yield) {
				return
			}
			data = rest
		}
	}
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
			if errors.Is(err, io.EOF) {
				err = invalid("the batch ends inside it")
			}
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
	r := Record{Offset: info.BaseOffset + int64(head.offsetDelta), Timestamp: info.BaseTimestamp + head.timestampDelta}
	if info.Attributes&recordbatch.AttrLogAppendTime != 0 {
		r.Timestamp = info.MaxTimestamp
	}
	if r.Offset < info.BaseOffset || r.Offset > info.LastOffset {
		return Record{}, invalid("its offset delta is %d", head.offsetDelta)
	}
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
