package plugin

import "sync"

// parts is memory for parts of messages. Where the link keeps nothing of what it has sent,
// what has been sent is used again.
type parts struct {
	reuse        bool
	small, large sync.Pool // of *[]byte, of smallBytesMax and partBytesMax
}

func newParts(to link) *parts { return &parts{reuse: to.filesPass()} }

// get returns memory for n bytes, partBytesMax at most, and what gives it back, which may be
// nil.
func (p *parts) get(n int) (b []byte, free func()) {
	if !p.reuse || n <= copyBytesMax { // many of which may wait
		return make([]byte, n), nil
	}
	pool, size := &p.large, partBytesMax
	if n <= smallBytesMax {
		pool, size = &p.small, smallBytesMax
	}
	kept, ok := pool.Get().(*[]byte)
	if !ok {
		fresh := make([]byte, size)
		kept = &fresh
	}
	return (*kept)[:n], func() { pool.Put(kept) }
}
