package plugin

import (
	"errors"
	"fmt"
	"io"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// errFar says that an offset is too far from every place that is known.
var errFar = errors.New("too far to seek")

// errLease says that what was read is not what was leased.
var errLease = errors.New("not what was leased")

// seek finds the place of the first batch that ends at offset or behind it.
func (f *hostFiles) seek(le *lease, at cursor, offset int64) (pos int64, err error) {
	if at.offset == offset {
		return at.pos, nil
	}
	var b [recordbatch.HeaderBytes]byte
	pos = at.pos
	for range seekHeadersMax {
		if le.Limit-pos < recordbatch.HeaderBytes {
			return 0, errLease
		}
		if err := f.readFull(le, b[:], pos); err != nil {
			return 0, err
		}
		info, err := recordbatch.Parse(b[:])
		if err != nil {
			return 0, err
		}
		if info.LastOffset >= offset {
			return pos, nil
		}
		pos += int64(info.Bytes)
	}
	return 0, errFar
}

// readFull reads from a leased file; nothing less than all will do.
func (f *hostFiles) readFull(le *lease, b []byte, pos int64) error {
	return f.using(func() error {
		n, err := le.File.ReadAt(b, pos)
		if n == len(b) {
			return nil
		}
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
}

// readLease reads whole batches from pos on, where the first that the request asks
// for begins, and checks each.
func (f *hostFiles) readLease(le *lease, pos int64, req *storage.ReadRequest) (storage.ReadResult, error) {
	size := min(max(int64(req.MaxBytes), recordbatch.HeaderBytes), le.Limit-pos)
	data := req.Buf[:cap(req.Buf)]
	if int64(len(data)) < size {
		data = make([]byte, size)
	}
	data = data[:size]
	if err := f.readFull(le, data, pos); err != nil {
		return storage.ReadResult{}, err
	}
	need, err := recordbatch.Size(data)
	if err != nil || int64(need) > le.Limit-pos {
		return storage.ReadResult{}, errLease
	}
	if int64(need) > size && req.AtLeastOne {
		if data, err = f.readRest(le, data, need, pos); err != nil {
			return storage.ReadResult{}, err
		}
	}
	n, next, err := le.cut(data, req)
	return storage.ReadResult{Data: data[:n:n], Next: next}, err
}

// readRest reads what is missing of a batch that is larger than what was asked for.
func (f *hostFiles) readRest(le *lease, begun []byte, need int, pos int64) ([]byte, error) {
	n := len(begun)
	data := begun
	if cap(data) < need {
		data = make([]byte, n, need)
		copy(data, begun)
	}
	data = data[:need]
	return data, f.readFull(le, data[n:], pos+int64(n))
}

// cut checks batches in their order and returns how many bytes of them the request
// asks for, and the offset behind them.
func (le *lease) cut(data []byte, req *storage.ReadRequest) (n int, next int64, err error) {
	next = req.Offset
	for expected := int64(-1); n < len(data); {
		info, batch, _, err := recordbatch.Next(data[n:])
		switch {
		case errors.Is(err, recordbatch.ErrIncomplete):
			return n, next, nil
		case err != nil:
			return 0, 0, err
		case !le.inOrder(&info, expected, req.Offset):
			return 0, 0, fmt.Errorf("%w: a batch of offsets %d to %d", errLease, info.BaseOffset, info.LastOffset)
		case info.LastOffset >= req.UpTo:
			return n, next, nil
		case n+len(batch) > req.MaxBytes && (n > 0 || !req.AtLeastOne):
			return n, next, nil
		}
		n += len(batch)
		next = info.LastOffset + 1
		expected = next
	}
	return n, next, nil
}

// inOrder says whether a batch may follow one that ends at expected, or, if that is
// negative, be the first for an offset.
func (le *lease) inOrder(info *recordbatch.Info, expected, offset int64) bool {
	switch {
	case info.BaseOffset < le.First || info.LastOffset >= le.End:
		return false
	case expected >= 0:
		return info.BaseOffset == expected || info.BaseOffset > expected && le.Gaps
	default:
		return info.LastOffset >= offset && (info.BaseOffset <= offset || le.Gaps)
	}
}
