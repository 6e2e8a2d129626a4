package logstore

import (
	"bytes"
	"errors"
	"io"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// The file of the segment that grows may be longer than the log, by zeros: a write
// into blocks that were written before needs no commit of the file system's journal
// when it is synced. The checkpoint says so before the file is longer, so that the
// zeros are neither damage nor loss to the next opening. A segment that grows no more
// is as long as its batches.

const (
	// aheadLeast and aheadMost bound the zeros that are written at once: as many as
	// the segment holds, so that small logs stay small.
	aheadLeast = 16 << 10
	aheadMost  = 1 << 20
	// aheadGrantMost is aheadMost for a grant, which ends with the zeros.
	aheadGrantMost = 4 << 20
	// aheadSmall: larger writes are worth a commit of the journal each.
	aheadSmall = 64 << 10
	// aheadLooked is how far zeros are looked at for something else, since what
	// follows them was written and damaged.
	aheadLooked = aheadMost
	// pageBytes: a kill cuts a write short where a page ends.
	pageBytes = 4 << 10
)

// zeroBytes is the length of zeros.
const zeroBytes = 64 << 10

// zeros is never changed.
var zeros [zeroBytes]byte

// appendZeros adds n bytes of zeros to a vector.
func appendZeros(vec [][]byte, n int64) [][]byte {
	for n > 0 {
		part := min(n, zeroBytes)
		vec = append(vec, zeros[:part])
		n -= part
	}
	return vec
}

// aheadDue is how many zeros to write behind a group of appends, which all wait for
// a sync.
func (l *log) aheadDue(g *group) int64 {
	end := l.index.Bytes + g.bytes
	if l.loose || g.bytes > aheadSmall || end <= l.ahead {
		return 0
	}
	return l.aheadFrom(end, aheadMost)
}

// aheadFrom is how many zeros go behind the position, having noted that there will
// be some; none where that is not possible.
func (l *log) aheadFrom(end, most int64) int64 {
	n := min(max(l.index.Bytes, aheadLeast), most, l.options.SegmentBytes-end)
	if n < pageBytes || l.noteAhead(l.last().Base()) != nil {
		return 0
	}
	return n
}

// noteAhead makes the checkpoint say that the file of the segment with the base
// offset may be longer than the log.
func (l *log) noteAhead(base int64) error {
	if l.ckpt.Ahead != nil && *l.ckpt.Ahead == base {
		return nil
	}
	old := l.aheadIn
	l.aheadIn = &base
	if err := l.writeCheckpoint(l.ckpt.State); err != nil {
		l.aheadIn = old
		return err
	}
	return nil
}

// lendAhead writes zeros for a grant whose appends all wait for a sync, and returns
// where it ends.
func (l *log) lendAhead(seg *segment.Segment, limit int64) int64 {
	if l.typical > aheadSmall {
		return limit
	}
	if left := l.ahead - l.index.Bytes; left < min(max(l.index.Bytes, aheadLeast), aheadGrantMost)/2 {
		n := l.aheadFrom(l.index.Bytes, aheadGrantMost)
		if n == 0 {
			return limit
		}
		from := max(l.index.Bytes, l.ahead)
		if _, err := seg.File().WriteVecAt(appendZeros(nil, l.index.Bytes+n-from), from); err != nil {
			return limit // they were not needed, and what is there of them is zeros
		}
		l.ahead = l.index.Bytes + n
	}
	return min(limit, l.ahead)
}

// cutAhead makes the file of the last segment, which is acquired, as long as the
// log.
func (l *log) cutAhead(seg *segment.Segment) error {
	size, _, err := seg.File().Stat()
	if err != nil {
		return err
	}
	if size > l.index.Bytes {
		if err := seg.File().Truncate(l.index.Bytes); err != nil {
			return err
		}
		l.touch(seg)
	}
	l.ahead = 0
	return nil
}

// endsAt reports whether the file ends at the position, or has zeros in the next so
// many bytes: no batch begins so.
func endsAt(f vfs.File, pos, bytes int64) (bool, error) {
	b := make([]byte, min(bytes, zeroBytes))
	for from := pos; from < pos+bytes; from += int64(len(b)) {
		n, err := f.ReadAt(b, from)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if !isZero(b[:n]) {
			return false, nil
		}
		if n < len(b) {
			return true, nil
		}
	}
	return true, nil
}

func isZero(b []byte) bool { return len(b) == 0 || bytes.Equal(b, zeros[:len(b)]) }

// cutShort reports whether what lies at the position, in a file that had zeros
// there, is what a kill has left of a write: from the end of a page on there are
// still zeros. Otherwise it was written whole, and was damaged since.
func cutShort(f vfs.File, pos, size int64) (bool, error) {
	var head [recordbatch.HeaderBytes]byte
	n, err := f.ReadAt(head[:], pos)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	end := pos + int64(n)
	if info, err := recordbatch.Parse(head[:n]); err == nil {
		end = min(pos+int64(info.Bytes), size)
	}
	last := (end - 1) / pageBytes * pageBytes
	if last <= pos {
		return false, nil
	}
	tail := make([]byte, end-last)
	if _, err := f.ReadAt(tail, last); err != nil {
		return false, err
	}
	return isZero(tail), nil
}
