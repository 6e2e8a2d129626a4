package model

import "sync/atomic"

// Frame is memory that several batches share, such as the request in which they came:
// who keeps one of them keeps all of it from being used for something else. It is told
// from others by its address. Its methods may be called concurrently.
type Frame struct {
	// Bytes is all of it, with what is between the batches.
	Bytes int

	free    func()
	keepers atomic.Int32
}

// NewFrame returns a frame that nobody keeps. Unless it is nil, free is called each time
// when the last keeper has dropped the frame, by him; then it may be lent again.
func NewFrame(bytes int, free func()) *Frame { return &Frame{Bytes: bytes, free: free} }

// Keep says that the frame is kept, until as many calls of Drop. Whoever calls it knows
// that somebody else keeps the frame meanwhile, or lends it.
func (f *Frame) Keep() { f.keepers.Add(1) }

// Drop says that one who kept the frame does not look at it any more.
func (f *Frame) Drop() {
	if f.keepers.Add(-1) == 0 && f.free != nil {
		f.free()
	}
}
