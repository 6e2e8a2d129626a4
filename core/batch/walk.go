package batch

import (
	"errors"
	"fmt"
	"io"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// A record, in a batch of version 2; all numbers are zigzag varints:
//
//	length of what follows (32 bits)
//	attributes (1 byte, unused)
//	timestamp delta (64 bits)
//	offset delta (32 bits)
//	key length (32 bits, negative is null), key
//	value length (32 bits, negative is null), value
//	header count (32 bits)
//	  key length (32 bits), key
//	  value length (32 bits, negative is null), value
const (
	maxVarint32Bytes = 5
	maxVarint64Bytes = 10
	minHeaderBytes   = 2 // two lengths
)

// walkBytes is the window through which decompressed records are seen.
const walkBytes = 32 << 10

// errUnfolds: records unfold beyond the limit. A client that gets it splits its
// batch.
var errUnfolds = fmt.Errorf("%w: the records decompress to more than is allowed", model.ErrMessageTooLarge)

// recordHead is what is looked at of a record that is only checked.
type recordHead struct {
	timestampDelta int64
	offsetDelta    int32
	keyNull        bool
}

// walker goes through records without holding any. It is used once, by one
// goroutine, and must be closed.
type walker struct {
	src   *source // nil where buf is all there is
	buf   []byte  // buf[pos:] is not yet read
	pos   int
	base  int64 // how many bytes were before buf
	limit int64 // how many may come in all
}

// walk starts at the records of a whole batch.
func walk(data []byte, info recordbatch.Info, limit int64) (walker, error) {
	if limit <= 0 {
		limit = DefaultMaxDecompressedBytes
	}
	payload := data[recordbatch.HeaderBytes:info.Bytes]
	codec := Codec(info.Attributes & recordbatch.CodecMask)
	if codec == None {
		return walker{buf: payload, limit: int64(len(payload))}, nil
	}
	src, err := openSource(codec, payload, limit)
	if err != nil {
		return walker{}, err
	}
	return walker{src: src, limit: limit}, nil
}

func (w *walker) close() {
	if w.src != nil {
		w.src.close()
		w.src = nil
	}
	w.buf = nil
}

func (w *walker) offset() int64 { return w.base + int64(w.pos) }

// fill replaces a buffer that was read to its end. io.EOF: nothing follows.
func (w *walker) fill() error {
	if w.src == nil {
		return io.EOF
	}
	w.base += int64(len(w.buf))
	w.pos, w.buf = 0, nil
	b, err := w.src.more()
	if w.base+int64(len(b)) > w.limit {
		return errUnfolds
	}
	if len(b) > 0 {
		w.buf = b
		return nil
	}
	return err
}

func (w *walker) readByte() (byte, error) {
	if w.pos == len(w.buf) {
		if err := w.fill(); err != nil {
			return 0, err
		}
	}
	b := w.buf[w.pos]
	w.pos++
	return b, nil
}

// varint reads a zigzag number of at most maxBytes bytes.
func (w *walker) varint(maxBytes int) (int64, error) {
	if w.pos < len(w.buf) && w.buf[w.pos] < 0x80 { // most are one byte
		u := uint64(w.buf[w.pos])
		w.pos++
		return int64(u>>1) ^ -int64(u&1), nil
	}
	var u uint64
	for i := range maxBytes {
		b, err := w.readByte()
		if err != nil {
			return 0, err
		}
		u |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			if maxBytes == maxVarint32Bytes {
				u &= 1<<32 - 1
			}
			return int64(u>>1) ^ -int64(u&1), nil
		}
	}
	return 0, invalid("a number is longer than %d bytes", maxBytes)
}

func (w *walker) skip(n int64) error {
	for {
		have := int64(len(w.buf) - w.pos)
		if n <= have {
			w.pos += int(n)
			return nil
		}
		n -= have
		w.pos = len(w.buf)
		if err := w.fill(); err != nil {
			return err
		}
	}
}

// next reads one record.
func (w *walker) next() (recordHead, error) {
	r, err := w.record()
	if errors.Is(err, io.EOF) {
		return r, invalid("the batch ends inside it")
	}
	return r, err
}

func (w *walker) record() (recordHead, error) {
	var r recordHead
	n, err := w.varint(maxVarint32Bytes)
	if err != nil {
		return r, err
	}
	end := w.offset() + n
	if n < 0 {
		return r, invalid("its length is %d", n)
	}
	if _, err = w.readByte(); err != nil { // attributes
		return r, err
	}
	if r.timestampDelta, err = w.varint(maxVarint64Bytes); err != nil {
		return r, err
	}
	delta, err := w.varint(maxVarint32Bytes)
	if err != nil {
		return r, err
	}
	r.offsetDelta = int32(delta)
	if r.keyNull, err = w.field("key", end); err != nil {
		return r, err
	}
	if _, err = w.field("value", end); err != nil {
		return r, err
	}
	if err = w.headers(end); err != nil {
		return r, err
	}
	if w.offset() != end {
		return r, invalid("its length is %d, its fields take %d", n, w.offset()-end+n)
	}
	return r, nil
}

func (w *walker) headers(end int64) error {
	n, err := w.varint(maxVarint32Bytes)
	if err != nil {
		return err
	}
	if n < 0 || n > (end-w.offset())/minHeaderBytes {
		return invalid("it has %d headers in %d bytes", n, end-w.offset())
	}
	for range n {
		null, err := w.field("header key", end)
		if err != nil {
			return err
		}
		if null {
			return invalid("a header has no key")
		}
		if _, err := w.field("header value", end); err != nil {
			return err
		}
	}
	return nil
}

// field passes over a length and as many bytes, which must lie before end.
func (w *walker) field(what string, end int64) (null bool, err error) {
	n, err := w.varint(maxVarint32Bytes)
	if err != nil {
		return false, err
	}
	if n < 0 {
		return true, nil
	}
	if n > end-w.offset() {
		return false, invalid("its %s has %d bytes, beyond the record's end", what, n)
	}
	return false, w.skip(n)
}

// end makes sure that nothing follows the last record.
func (w *walker) end() error {
	_, err := w.readByte()
	switch {
	case err == nil:
		return invalid("bytes follow the last record")
	case errors.Is(err, io.EOF):
		return nil
	}
	return err
}
