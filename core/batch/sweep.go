package batch

import "math"

// swept is what sweep has seen of records: how many, the bytes that they take, and
// of their timestamp deltas the least and the greatest.
type swept struct {
	records int32
	bytes   int
	least   int64
	most    int64
	nullKey bool // of any of them
}

// headBytes is room for the numbers at the head of a record: four, and the attributes.
const headBytes = 32

// nowhere is beyond the end of any batch, and so is what begins there.
const nowhere = math.MaxInt32

// sweep passes over the records at the head of b that are well formed and have the
// offset deltas first, first+1 and so on below end. It stops before the first that is
// not, that does not lie in b with room for a head, or that has a number longer than
// nearly all are: walker.next says what that one is. It takes no record that next
// would refuse, and sees the same in it, in a fraction of the time.
func sweep(b []byte, first, end int32) swept {
	s := swept{least: math.MaxInt64, most: math.MinInt64}
	for i := first; i < end && len(b)-s.bytes >= headBytes; i++ {
		head := (*[headBytes]byte)(b[s.bytes:])
		length, at := headNumber(head, 0)
		next := s.bytes + at + int(length>>1)
		delta, at := headNumber(head, at+1) // behind the attributes
		offset, at := headNumber(head, at)
		key, at := headNumber(head, at)
		if length&1 != 0 || next > len(b) || offset != uint64(i)<<1 {
			break
		}
		value, at := number(b, s.bytes+at+sizeOf(key))
		headers, at := number(b, at+sizeOf(value))
		if headers != 0 {
			at = skipHeaders(b[:next], at, headers)
		}
		if at != next { // no field ends before it begins, so that all of them are inside
			break
		}
		ms := int64(delta>>1) ^ -int64(delta&1)
		s.least, s.most = min(s.least, ms), max(s.most, ms)
		s.nullKey = s.nullKey || key&1 != 0
		s.records++
		s.bytes = next
	}
	return s
}

// sizeOf is the length of a field, from its zigzag number; less than 0 is null.
func sizeOf(n uint64) int { return int(n>>1) &^ -int(n&1) }

// skipHeaders passes over n headers, in zigzag, and returns where they end, or nowhere.
func skipHeaders(b []byte, at int, n uint64) int {
	if n&1 != 0 {
		return nowhere
	}
	for range n >> 1 {
		key, after := number(b, at)
		if key&1 != 0 || after > len(b) {
			return nowhere
		}
		value, after := number(b, after+sizeOf(key))
		at = after + sizeOf(value)
	}
	return at
}

// headNumber reads a number of up to 21 bits, still in zigzag, and returns where it
// ends; nowhere, if it is longer or begins nowhere. It is small enough to be inlined.
func headNumber(b *[headBytes]byte, at int) (n uint64, end int) {
	n = uint64(b[at&(headBytes-1)])
	if n < 1<<7 {
		return n, at + 1
	}
	n = n&(1<<7-1) | uint64(b[(at+1)&(headBytes-1)])<<7
	if n < 1<<14 {
		return n, at + 2
	}
	n = n&(1<<14-1) | uint64(b[(at+2)&(headBytes-1)])<<14
	if n < 1<<21 {
		return n, at + 3
	}
	return 0, nowhere
}

// number reads a number of up to 28 bits, still in zigzag, and returns where it ends;
// nowhere, if it is longer or not in b as a whole. It is small enough to be inlined.
func number(b []byte, at int) (n uint64, end int) {
	for shift := 0; shift < 28 && at < len(b); shift += 7 {
		c := uint64(b[at])
		at++
		if c < 0x80 {
			return n | c<<shift, at
		}
		n |= c & 0x7f << shift
	}
	return 0, nowhere
}
