package wire

import "encoding/binary"

// These append fields of responses, as reader reads those of requests.

func appendInt16(dst []byte, n int16) []byte { return binary.BigEndian.AppendUint16(dst, uint16(n)) }
func appendInt32(dst []byte, n int32) []byte { return binary.BigEndian.AppendUint32(dst, uint32(n)) }
func appendInt64(dst []byte, n int64) []byte { return binary.BigEndian.AppendUint64(dst, uint64(n)) }

func appendArrayLen(dst []byte, n int, flexible bool) []byte {
	if flexible {
		return binary.AppendUvarint(dst, uint64(n)+1)
	}
	return appendInt32(dst, int32(n))
}

func appendText[T string | []byte](dst []byte, s T, flexible bool) []byte {
	if flexible {
		dst = binary.AppendUvarint(dst, uint64(len(s))+1)
	} else {
		dst = appendInt16(dst, int16(len(s)))
	}
	return append(dst, s...)
}

// appendNullText takes nil for null.
func appendNullText(dst []byte, s *string, flexible bool) []byte {
	switch {
	case s != nil:
		return appendText(dst, *s, flexible)
	case flexible:
		return append(dst, 0)
	}
	return appendInt16(dst, nullLength)
}

// appendTags ends what has no tagged fields.
func appendTags(dst []byte, flexible bool) []byte {
	if flexible {
		return append(dst, 0)
	}
	return dst
}

// textBytes bounds what a string of n bytes takes.
func textBytes(n int) int { return binary.MaxVarintLen32 + n }
