package plugin

import (
	"sync"
	"sync/atomic"
)

// memory is bytes that somebody may hold on to: who was given a part of them
// takes a reference before they are taken back, and frees it in the end. What is
// never freed is never used again, and so may be kept for ever.
type memory interface {
	Ref()
	Free()
}

// Sizes of the buffers that a socket is read into. The smaller holds a burst of
// small units, the larger one unit of the size that senders coalesce to.
const (
	smallChunkBytes = 256 << 10
	largeChunkBytes = 1<<20 + 64<<10
)

// chunk is a buffer that units are read into, and that goes back to its pool when
// nobody has a reference any more.
type chunk struct {
	b    []byte
	refs atomic.Int32
	pool *sync.Pool // nil: it is of no size that is kept
}

// chunkPools are where chunks come from.
type chunkPools struct {
	small, large sync.Pool
}

// get returns a chunk of at least so many bytes, with one reference.
func (p *chunkPools) get(bytes int) *chunk {
	pool, size := &p.small, smallChunkBytes
	switch {
	case bytes > largeChunkBytes:
		pool, size = nil, bytes
	case bytes > smallChunkBytes/2:
		pool, size = &p.large, largeChunkBytes
	}
	if pool != nil {
		if c, ok := pool.Get().(*chunk); ok {
			c.refs.Store(1)
			return c
		}
	}
	c := &chunk{b: make([]byte, size), pool: pool}
	c.refs.Store(1)
	return c
}

// Ref takes another reference.
func (c *chunk) Ref() { c.refs.Add(1) }

// Free gives one back.
func (c *chunk) Free() {
	if c.refs.Add(-1) == 0 && c.pool != nil {
		c.pool.Put(c)
	}
}

// alone says whether the caller's reference is the only one.
func (c *chunk) alone() bool { return c.refs.Load() == 1 }
