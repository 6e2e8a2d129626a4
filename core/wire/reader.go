package wire

import (
	"encoding/binary"
	"fmt"
)

// reader reads the fields of a request one after the other, without copying any.
// After the first that does not fit, bad is set and nothing is read any more.
type reader struct {
	src      []byte
	flexible bool
	left     int // parts that may still come
	bad      bool
}

func (r *reader) fail() { r.bad, r.src = true, nil }

// part counts an element of an array, or a tagged field.
func (r *reader) part() {
	if r.left--; r.left < 0 {
		r.fail()
	}
}

// take is the next n bytes, none if they are not there. Nothing can be appended to
// what it returns.
func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.src) {
		r.fail()
		return nil
	}
	b := r.src[:n:n]
	r.src = r.src[n:]
	return b
}

func (r *reader) int16() int16 {
	b := r.take(2)
	if b == nil {
		return 0
	}
	return int16(binary.BigEndian.Uint16(b))
}

func (r *reader) int32() int32 {
	b := r.take(4)
	if b == nil {
		return 0
	}
	return int32(binary.BigEndian.Uint32(b))
}

func (r *reader) uuid() (id [16]byte) {
	copy(id[:], r.take(len(id)))
	return id
}

func (r *reader) uvarint() int {
	if len(r.src) > 0 && r.src[0] < 0x80 {
		n := int(r.src[0])
		r.src = r.src[1:]
		return n
	}
	v, n := binary.Uvarint(r.src)
	if n <= 0 || n > binary.MaxVarintLen32 || v > 1<<32-1 {
		r.fail()
		return 0
	}
	r.src = r.src[n:]
	return int(v)
}

// arrayLen is the count of an array, which cannot be null.
func (r *reader) arrayLen() int {
	n := r.length()
	if n < 0 {
		r.fail()
	}
	return max(0, n)
}

// length is that of an array or of bytes, or below 0 for null.
func (r *reader) length() int {
	if r.flexible {
		return r.uvarint() - 1
	}
	n := int(r.int32())
	if n < nullLength {
		r.fail()
	}
	return n
}

// text is a string; null is the bytes nil.
func (r *reader) text() []byte {
	var n int
	if r.flexible {
		n = r.uvarint() - 1
	} else {
		n = int(r.int16())
	}
	if n < 0 {
		return nil
	}
	return r.take(n)
}

// name is a string that cannot be null.
func (r *reader) name() []byte {
	b := r.text()
	if b == nil {
		r.fail()
	}
	return b
}

// bytes are bytes; null is nil.
func (r *reader) bytes() []byte {
	n := r.length()
	if n < 0 {
		return nil
	}
	return r.take(n)
}

// tags passes over tagged fields: those that are not known are no error. (KIP-482)
func (r *reader) tags() {
	if !r.flexible {
		return
	}
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		r.part()
		r.uvarint()
		r.take(r.uvarint())
	}
}

// end says whether all was read as it should be.
func (r *reader) end(api string, version int16, parts int) error {
	if r.bad {
		return fmt.Errorf("%w: %s version %d ends inside a field or has more than %d parts", ErrMalformed, api, version, parts)
	}
	return nil
}
