package memory

import "sync/atomic"

// Tally is a number of bytes that is kept for long, and how many may be. Unlike a
// Budget it lets nobody wait and refuses nothing: whoever adds to it has looked before
// whether there is room, or has to keep what it adds. All methods may be called
// concurrently.
type Tally struct {
	total int64
	used  atomic.Int64
}

// NewTally returns a tally of which nothing is used.
func NewTally(total int64) *Tally { return &Tally{total: max(total, 0)} }

// Total is how many bytes may be kept.
func (t *Tally) Total() int64 { return t.total }

// Used is how many are, which may be more.
func (t *Tally) Used() int64 { return t.used.Load() }

// Add counts n more, or with n below 0 fewer.
func (t *Tally) Add(n int64) { t.used.Add(n) }
