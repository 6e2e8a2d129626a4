package faultfs

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"slices"
)

const (
	// pageBytes is the unit in which a system overwrites what it has in memory.
	pageBytes = 4 << 10
	// sectorBytes is what a disk writes whole or not at all.
	sectorBytes = 512
)

// content is the bytes of one file, and what a loss of power makes of them. Its caller
// guards it.
type content struct {
	file    *os.File
	bytes   int64
	durable int64 // the size when it was synced last
	// before is, for each page that was changed since the last sync, what the disk has of
	// it; what a page lacks is zeros.
	before map[int64][]byte
	// failed are those of before that a sync was refused for.
	failed map[int64]bool
}

func newContent(f *os.File) *content {
	return &content{file: f, before: map[int64][]byte{}, failed: map[int64]bool{}}
}

// change notes that bytes from one offset up to another are about to be changed.
func (c *content) change(from, to int64) error {
	for page := from / pageBytes; page*pageBytes < to; page++ {
		delete(c.failed, page)
		if _, ok := c.before[page]; ok {
			continue
		}
		at := page * pageBytes
		had := make([]byte, max(0, min(pageBytes, c.durable-at)))
		if _, err := c.file.ReadAt(had, at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		c.before[page] = had
	}
	return nil
}

func (c *content) write(p []byte, off int64) (int, error) {
	if err := c.change(off, off+int64(len(p))); err != nil {
		return 0, err
	}
	n, err := c.file.WriteAt(p, off)
	c.bytes = max(c.bytes, off+int64(n))
	return n, err
}

func (c *content) truncate(bytes int64) error {
	if bytes < c.bytes {
		if err := c.change(bytes, min(c.bytes, c.durable)); err != nil {
			return err
		}
	}
	if err := c.file.Truncate(bytes); err != nil {
		return err
	}
	c.bytes = bytes
	return nil
}

// sync makes durable what was changed, but for what an earlier sync was refused for.
func (c *content) sync() {
	for page := range c.before {
		if !c.failed[page] {
			delete(c.before, page)
		}
	}
	c.durable = c.bytes
}

// refuseSync forgets that what was changed is to be synced.
func (c *content) refuseSync() {
	for page := range c.before {
		c.failed[page] = true
	}
}

// losePower leaves what was synced, and of the rest what chance keeps.
func (c *content) losePower(rng *rand.Rand) error {
	pages := make([]int64, 0, len(c.before))
	for page := range c.before {
		pages = append(pages, page)
	}
	slices.Sort(pages)
	bytes, keeps := c.durable, func(int64) bool { return false }
	ways := 4
	if c.bytes < c.durable { // it was cut: as a whole, or not
		ways = 2
	}
	switch rng.IntN(ways) {
	case 0: // nothing
	case 1:
		bytes, keeps = c.bytes, func(int64) bool { return true }
	case 2: // a prefix
		first := c.durable
		if len(pages) > 0 {
			first = min(first, pages[0]*pageBytes)
		}
		end := first + rng.Int64N(c.bytes-first+1)
		bytes, keeps = max(c.durable, end), func(at int64) bool { return at < end }
	default: // here and there
		if rng.IntN(2) == 0 {
			bytes = c.bytes
		}
		keeps = func(int64) bool { return rng.IntN(2) == 0 }
	}
	for _, page := range pages {
		if err := c.restore(page, keeps); err != nil {
			return err
		}
	}
	if err := c.file.Truncate(bytes); err != nil {
		return err
	}
	c.bytes, c.durable = bytes, bytes
	clear(c.before)
	clear(c.failed)
	return nil
}

// restore takes from a page what the disk does not have of it.
func (c *content) restore(page int64, keeps func(at int64) bool) error {
	var had [pageBytes]byte
	copy(had[:], c.before[page])
	for at := 0; at < pageBytes; at += sectorBytes {
		off := page*pageBytes + int64(at)
		if !c.failed[page] && keeps(off) {
			continue
		}
		if _, err := c.file.WriteAt(had[at:at+sectorBytes], off); err != nil {
			return err
		}
	}
	return nil
}
