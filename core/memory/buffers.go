package memory

import (
	"math/bits"
	"sync"
	"sync/atomic"
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

// Buffers lends byte slices and takes them back, to be lent again. Of those that nobody
// has borrowed it keeps no more than its limit, and for long only what is needed again
// and again: see Trim. All else is the collector's to take. All methods may be called
// concurrently.
//
// A sync.Pool would keep what was idle at the last two collections, however much that is;
// and since what is lent again makes no garbage, collections are rare.
type Buffers struct {
	limit   int64
	idle    atomic.Int64 // bytes on all shelves
	shelves [bufferClasses]shelf
}

// shelf has the idle buffers of one size. Who came last goes first, since the
// processor's cache may still have it.
type shelf struct {
	mu      sync.Mutex
	idle    []*byte // the first of so many
	surplus int     // how many of them were idle at all times since the last trim
}

// NewBuffers returns a pool that holds nothing, and will never hold more than limit
// bytes that nobody has borrowed.
func NewBuffers(limit int64) *Buffers { return &Buffers{limit: limit} }

// Get returns n bytes of any content, the caller's until Put. Its capacity is what it
// takes of memory: at most a quarter more than n, or 4 KiB.
func (b *Buffers) Get(n int) []byte { return b.get(n, 1) }

// GetRoomy is Get for those of whom each wants another size, as large requests do. Where
// none that fits is idle, it returns an idle one of less than twice the size (or 8 KiB)
// rather than make one. What that takes of memory is its capacity here too.
func (b *Buffers) GetRoomy(n int) []byte { return b.get(n, bufferSteps) }

// get looks for an idle buffer among so many classes, from the one that fits on.
func (b *Buffers) get(n, classes int) []byte {
	class, size := bufferClass(n)
	if class < 0 {
		return make([]byte, n)
	}
	for c := class; c < min(class+classes, bufferClasses); c++ {
		if p := b.shelves[c].take(); p != nil {
			size = classBytes(c)
			b.idle.Add(-int64(size))
			return unsafe.Slice(p, size)[:n]
		}
	}
	return make([]byte, n, size)
}

// Put gives a buffer of Get's back, from its first byte on. Nobody uses it any more.
func (b *Buffers) Put(buf []byte) {
	size := cap(buf)
	if size == 0 {
		return
	}
	class, exact := bufferClass(size)
	if class < 0 || exact != size {
		return
	}
	if b.idle.Add(int64(size)) > b.limit {
		b.drop((*shelf).shed)
		if b.idle.Load() > b.limit {
			b.idle.Add(-int64(size))
			return
		}
	}
	b.shelves[class].put(unsafe.SliceData(buf))
}

// Idle is how many bytes it keeps that nobody has borrowed.
func (b *Buffers) Idle() int64 { return b.idle.Load() }

// Trim lets go of what was idle at all times since the last call. It is called now and
// then.
func (b *Buffers) Trim() { b.drop((*shelf).trim) }

// drop lets go of what each shelf lets go of.
func (b *Buffers) drop(some func(*shelf) int) {
	for class := range b.shelves {
		if n := some(&b.shelves[class]); n > 0 {
			b.idle.Add(-int64(n) * int64(classBytes(class)))
		}
	}
}

// take is nil where there is none.
func (s *shelf) take() *byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.idle) - 1
	if n < 0 {
		return nil
	}
	p := s.idle[n]
	s.idle[n], s.idle = nil, s.idle[:n]
	s.surplus = min(s.surplus, n)
	return p
}

func (s *shelf) put(p *byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, p)
}

// shed lets go of what was not needed since the last trim, and says how many those are.
func (s *shelf) shed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shedLocked()
}

// trim is shed, and begins to count anew.
func (s *shelf) trim() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := s.shedLocked()
	s.surplus = len(s.idle)
	return gone
}

func (s *shelf) shedLocked() int {
	gone := s.surplus
	n := copy(s.idle, s.idle[gone:])
	clear(s.idle[n:])
	s.idle, s.surplus = s.idle[:n], 0
	return gone
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

// classBytes is the size of a class's buffers.
func classBytes(class int) int {
	doubling, steps := leastBufferBits+class/bufferSteps, class%bufferSteps
	return 1<<doubling + steps*(1<<doubling/bufferSteps)
}
