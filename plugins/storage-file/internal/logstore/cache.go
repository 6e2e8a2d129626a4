package logstore

import (
	"sync"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
)

// indexBytesMax bounds the memory of the indexes of segments that no longer
// grow. Beyond it the one that was loaded longest ago is dropped, and loaded
// again when it is needed.
const (
	indexBytesMax = 64 << 20
	indexCountMax = 64 << 10
)

// indexCache knows which segments have their index in memory.
type indexCache struct {
	mu    sync.Mutex
	queue []cachedIndex
	bytes int64
}

type cachedIndex struct {
	seg   *segment.Segment
	bytes int64
}

func newIndexCache() *indexCache { return &indexCache{} }

// loaded takes note of an index, and drops others to keep the bound.
func (c *indexCache) loaded(seg *segment.Segment, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, cachedIndex{seg, bytes})
	c.bytes += bytes
	for len(c.queue) > 1 && (c.bytes > indexBytesMax || len(c.queue) > indexCountMax) {
		c.queue[0].seg.DropIndex()
		c.bytes -= c.queue[0].bytes
		c.queue[0] = cachedIndex{}
		c.queue = c.queue[1:]
	}
}
