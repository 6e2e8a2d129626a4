package memory

import (
	"math/bits"
	"sync"
	"unsafe"
)

// The sizes of pooled buffers: four to each doubling, so that at most a fifth of one is
// beyond what was asked for.
const (
	leastBufferBits = 12
	mostBufferBits  = 23
	bufferSteps     = 4
	bufferClasses   = (mostBufferBits-leastBufferBits)*bufferSteps + 1
)

// Buffers lends byte slices and takes them back, to be lent again. What nobody has
// borrowed is the collector's to take. All methods may be called concurrently.
type Buffers struct {
	classes [bufferClasses]sync.Pool // of *byte, the first of so many
}

// NewBuffers returns a pool that holds nothing.
func NewBuffers() *Buffers { return &Buffers{} }

// Get returns n bytes of any content, the caller's until Put. Its capacity is what it
// takes of memory: at most a quarter more than n, or 4 KiB.
func (b *Buffers) Get(n int) []byte {
	class, size := bufferClass(n)
	if class < 0 {
		return make([]byte, n)
	}
	if p, ok := b.classes[class].Get().(*byte); ok {
		return unsafe.Slice(p, size)[:n]
	}
	return make([]byte, n, size)
}

// Put gives a buffer of Get's back, from its first byte on. Nobody uses it any more.
func (b *Buffers) Put(buf []byte) {
	size := cap(buf)
	if size == 0 {
		return
	}
	if class, exact := bufferClass(size); class >= 0 && exact == size {
		b.classes[class].Put(unsafe.SliceData(buf))
	}
}

// BufferBytes is the capacity of what Get returns for n bytes.
func BufferBytes(n int) int {
	_, size := bufferClass(n)
	return size
}

// BufferBytesWithin is the greatest n for which what Get returns takes no more than
// room bytes, and 0 where every buffer takes more.
func BufferBytesWithin(room int) int {
	if room < 1<<leastBufferBits {
		return 0
	}
	class, size := bufferClass(room)
	if class < 0 || size == room {
		return room
	}
	doubling := bits.Len(uint(room)) - 1
	step := 1 << doubling / bufferSteps
	return room / step * step
}

// bufferClass is where buffers of at least n bytes are, and their size. A class below 0:
// so large a one is not pooled.
func bufferClass(n int) (class, size int) {
	if n <= 1<<leastBufferBits {
		return 0, 1 << leastBufferBits
	}
	if n > 1<<mostBufferBits {
		return -1, n
	}
	doubling := bits.Len(uint(n-1)) - 1 // n is above 1<<doubling, and at most twice that
	step := 1 << doubling / bufferSteps
	steps := (n - 1<<doubling + step - 1) / step
	return (doubling-leastBufferBits)*bufferSteps + steps, 1<<doubling + steps*step
}
