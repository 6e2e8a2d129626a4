package model

import "sync/atomic"

// Frame is memory that several batches share, such as the request in which they came:
// who keeps one of them keeps all of it from being freed. It is told from others by
// its address. Its methods may be called concurrently.
type Frame struct {
	// Bytes is all of it, with what is between the batches.
	Bytes int

	kept atomic.Bool
}

// Keep says that a part of the frame is kept after the append that brought it was
// answered, for as long as the keeper likes.
func (f *Frame) Keep() { f.kept.Store(true) }

// Kept reports whether anybody has called Keep: then nobody may use the memory again.
func (f *Frame) Kept() bool { return f.kept.Load() }
