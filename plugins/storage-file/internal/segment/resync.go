package segment

import (
	"errors"
	"io"

	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// resyncBytes is how much of a file is looked through at once.
const resyncBytes = 1 << 20

// Resync looks in [pos, limit), behind damage, for the next place where batches
// go on: a whole batch, its CRC right, at or above what the chain expects, that
// ends where the file does or where another whole batch follows it. Bytes
// inside a record may look like a batch; they are not followed by the batch
// that comes next in the log.
func Resync(r io.ReaderAt, pos, limit int64, chain Chain) (at int64, first recordbatch.Info, found bool, err error) {
	buf := make([]byte, min(resyncBytes, max(limit-pos, 0)))
	for limit-pos >= recordbatch.HeaderBytes {
		b := buf[:min(int64(len(buf)), limit-pos)]
		if _, err := r.ReadAt(b, pos); err != nil && !errors.Is(err, io.EOF) {
			return 0, first, false, err
		}
		last := len(b) - recordbatch.HeaderBytes
		for i := 0; i <= last; i++ {
			info, err := recordbatch.Parse(b[i:])
			if err != nil || info.BaseOffset < chain.Next || int64(info.Bytes) > limit-pos-int64(i) {
				continue
			}
			if ok, err := goesOn(r, pos+int64(i), limit, info, chain); ok || err != nil {
				return pos + int64(i), info, ok, err
			}
		}
		pos += int64(last) + 1
	}
	return 0, first, false, nil
}

// goesOn reports whether a batch stands at pos, and the file ends after it, or
// the next batch, or a part of it, follows.
func goesOn(r io.ReaderAt, pos, limit int64, info recordbatch.Info, chain Chain) (bool, error) {
	chain.Next = info.BaseOffset
	w := NewWalk(r, pos, limit, chain)
	for range 2 {
		_, _, err := w.Next()
		var damage *Damage
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return true, nil // after the first
		case errors.As(err, &damage):
			return w.Pos() > pos && damage.Torn, nil
		default:
			return false, err
		}
	}
	return true, nil
}
