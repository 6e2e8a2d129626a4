package segment

import (
	"errors"
	"fmt"
	"io"

	"github.com/brokerd/brokerd/sdk/recordbatch"
)

const (
	// walkBytes is what a walk reads at once.
	walkBytes = 256 << 10
	// headersBytes is what a walk over headers reads at once.
	headersBytes = 16 << 10
)

// Damage says where a segment stops being a sequence of batches.
type Damage struct {
	Pos    int64
	Offset int64 // the least that the offset of the batch there should be
	// Torn: the bytes end inside a batch, as a write that was cut leaves them.
	Torn   bool
	Reason error
}

// Error tells the place and the reason.
func (d *Damage) Error() string {
	return fmt.Sprintf("damage at position %d, offset %d: %v", d.Pos, d.Offset, d.Reason)
}

// Unwrap returns the reason.
func (d *Damage) Unwrap() error { return d.Reason }

// Chain is what a batch must follow. It checks what no CRC covers.
type Chain struct {
	Next int64 // the least base offset
	// Gaps allows a base offset above Next.
	Gaps bool
	// Epoch is the least leader epoch.
	Epoch int32
	// EpochOf, if set, returns the leader epoch that the batch at an offset
	// must have; known is false when any is right.
	EpochOf func(offset int64) (epoch int32, known bool)
}

// ErrChain says that a batch does not follow the one before it.
var ErrChain = errors.New("batch does not follow its neighbour")

// Check takes in the next batch.
func (c *Chain) Check(b recordbatch.Info) error {
	switch {
	case b.BaseOffset < c.Next, b.BaseOffset > c.Next && !c.Gaps:
		return fmt.Errorf("%w: base offset %d where %d was due", ErrChain, b.BaseOffset, c.Next)
	case b.LeaderEpoch < c.Epoch:
		return fmt.Errorf("%w: leader epoch %d after %d", ErrChain, b.LeaderEpoch, c.Epoch)
	}
	if c.EpochOf != nil {
		if epoch, known := c.EpochOf(b.BaseOffset); known && epoch != b.LeaderEpoch {
			return fmt.Errorf("%w: leader epoch %d where %d was written", ErrChain, b.LeaderEpoch, epoch)
		}
	}
	c.Next, c.Epoch = b.LastOffset+1, b.LeaderEpoch
	return nil
}

// Walk goes from batch to batch in [pos, limit) of a file. It is used by one
// goroutine.
type Walk struct {
	r     io.ReaderAt
	pos   int64
	limit int64
	chain Chain
	buf   []byte
	at    int64 // position of buf[0]
	have  int   // bytes of buf that are filled
}

// NewWalk starts at pos, where a batch starts.
func NewWalk(r io.ReaderAt, pos, limit int64, chain Chain) *Walk {
	return &Walk{r: r, pos: pos, limit: limit, chain: chain, at: pos}
}

// Use has the walk read into the memory of buf, as far as it has room. It is the walk's
// until Buffer gives it back.
func (w *Walk) Use(buf []byte) { w.buf, w.have = buf[:0], 0 }

// Buffer is the memory that the walk read into, which it has outgrown where it had to
// have more. The walk has ended.
func (w *Walk) Buffer() []byte { return w.buf }

// Pos is where the next batch starts.
func (w *Walk) Pos() int64 { return w.pos }

// Next returns the next batch whole, its CRC checked. The bytes are good until
// the following call. io.EOF at the limit; a *Damage when what follows is not a
// batch, or does not follow; any other error is the file's.
func (w *Walk) Next() (recordbatch.Info, []byte, error) {
	info, err := w.header(walkBytes)
	if err != nil {
		return info, nil, err
	}
	b, err := w.fill(int(info.Bytes), walkBytes)
	if err != nil {
		return info, nil, err
	}
	if err := recordbatch.CheckCRC(b); err != nil {
		return info, nil, w.damage(err, false)
	}
	return info, b, w.step(info)
}

// NextHeader is Next for the header alone: the CRC is not checked.
func (w *Walk) NextHeader() (recordbatch.Info, error) {
	info, err := w.header(headersBytes)
	if err != nil {
		return info, err
	}
	return info, w.step(info)
}

// Pass goes past a batch whose records are damaged, where its header can be
// believed: it follows the chain, and a whole batch, its CRC right, follows it in
// offset and in place. It reports false, and goes nowhere, otherwise.
func (w *Walk) Pass() (recordbatch.Info, bool) {
	info, err := w.header(headersBytes)
	if err != nil {
		return info, false
	}
	chain := w.chain
	if chain.Check(info) != nil {
		return info, false
	}
	if _, _, err := NewWalk(w.r, w.pos+int64(info.Bytes), w.limit, chain).Next(); err != nil {
		return info, false
	}
	return info, w.step(info) == nil
}

func (w *Walk) step(info recordbatch.Info) error {
	if err := w.chain.Check(info); err != nil {
		return w.damage(err, false)
	}
	w.pos += int64(info.Bytes)
	return nil
}

func (w *Walk) header(chunk int) (recordbatch.Info, error) {
	left := w.limit - w.pos
	if left <= 0 {
		return recordbatch.Info{}, io.EOF
	}
	b, err := w.fill(int(min(left, recordbatch.HeaderBytes)), chunk)
	if err != nil {
		return recordbatch.Info{}, err
	}
	info, err := recordbatch.Parse(b)
	if err != nil {
		return info, w.damage(err, errors.Is(err, recordbatch.ErrIncomplete))
	}
	if int64(info.Bytes) > left {
		return info, w.damage(recordbatch.ErrIncomplete, true)
	}
	return info, nil
}

func (w *Walk) damage(reason error, torn bool) error {
	return &Damage{Pos: w.pos, Offset: w.chain.Next, Torn: torn, Reason: reason}
}

// fill returns the n bytes at pos, which are before the limit, and reads a
// chunk ahead where it has to read.
func (w *Walk) fill(n, chunk int) ([]byte, error) {
	if from := w.pos - w.at; from >= 0 && from+int64(n) <= int64(w.have) {
		return w.buf[from : from+int64(n)], nil
	}
	want := int(min(w.limit-w.pos, int64(max(n, chunk))))
	if cap(w.buf) < want {
		w.buf = make([]byte, want)
	}
	w.buf = w.buf[:want]
	got, err := w.r.ReadAt(w.buf, w.pos)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read at %d: %w", w.pos, err)
	}
	w.at, w.have = w.pos, got
	if got < n {
		w.have = 0
		return nil, w.damage(recordbatch.ErrIncomplete, true)
	}
	return w.buf[:n], nil
}
