package peer

import "time"

// message is something that is to be written on a link.
type message struct {
	kind   kind
	parts  [][]byte
	bytes  int
	at     time.Time
	number uint64     // of a question
	sent   func(bool) // of a stream; may be nil
}

// outbox is what waits to be written on a link, and what of it is with the driver.
type outbox struct {
	list    []message // from head on
	head    int
	written int // how many of them are with the driver: the first
	// bytes is of all, and writtenBytes of those that are with the driver.
	bytes, writtenBytes int
}

func (b *outbox) len() int          { return len(b.list) - b.head }
func (b *outbox) waiting() int      { return b.len() - b.written }
func (b *outbox) at(i int) *message { return &b.list[b.head+i] }

// fits says whether so many bytes more are within a bound, beside one larger message.
func (b *outbox) fits(n, bytesMax int) bool {
	if n > bytesMax {
		return b.len() < queueMax && b.bytes <= bytesMax
	}
	return b.len() < queueMax && b.bytes+n <= bytesMax
}

func (b *outbox) push(m message) {
	if b.head > len(b.list)/2 {
		n := copy(b.list, b.list[b.head:])
		clear(b.list[n:])
		b.list, b.head = b.list[:n], 0
	}
	b.list = append(b.list, m)
	b.bytes += m.bytes
}

// pushFirst puts a message before all that were not written.
func (b *outbox) pushFirst(m message) {
	b.push(m)
	waiting := b.list[b.head+b.written:]
	copy(waiting[1:], waiting)
	waiting[0] = m
}

// pop takes the first, which was written.
func (b *outbox) pop() message {
	m := *b.at(0)
	*b.at(0) = message{}
	b.head++
	b.bytes -= m.bytes
	b.written--
	b.writtenBytes -= m.bytes
	if b.head == len(b.list) {
		b.list, b.head = b.list[:0], 0
	}
	return m
}

// remove takes one away that was not written.
func (b *outbox) remove(i int) {
	b.bytes -= b.at(i).bytes
	if i <= b.len()/2 {
		copy(b.list[b.head+1:], b.list[b.head:b.head+i])
		*b.at(0) = message{}
		b.head++
		return
	}
	at := b.head + i
	copy(b.list[at:], b.list[at+1:])
	b.list[len(b.list)-1] = message{}
	b.list = b.list[:len(b.list)-1]
}

// next gives the driver one more, if it may have one.
func (b *outbox) next() (*message, bool) {
	if b.waiting() == 0 || b.written > 0 && (b.written >= windowMax || b.writtenBytes >= windowBytes) {
		return nil, false
	}
	m := b.at(b.written)
	b.written++
	b.writtenBytes += m.bytes
	return m, true
}

// makeRoom drops the oldest posts that were not written until so many bytes fit, and says
// whether they do.
func (b *outbox) makeRoom(n, bytesMax int) bool {
	for i := b.written; i < b.len() && !b.fits(n, bytesMax); {
		if b.at(i).kind == kindPost {
			b.remove(i)
		} else {
			i++
		}
	}
	return b.fits(n, bytesMax)
}

// dropOld drops posts from before a time.
func (b *outbox) dropOld(before time.Time) {
	for i := b.written; i < b.len(); {
		if m := b.at(i); m.kind == kindPost && m.at.Before(before) {
			b.remove(i)
		} else {
			i++
		}
	}
}

// dropPings drops what was about a link that has ended.
func (b *outbox) dropPings() {
	for i := b.written; i < b.len(); {
		if k := b.at(i).kind; k == kindPing || k == kindPong {
			b.remove(i)
		} else {
			i++
		}
	}
}

// dropQuestion takes a question away, unless it was written.
func (b *outbox) dropQuestion(number uint64) {
	for i := b.written; i < b.len(); i++ {
		if m := b.at(i); m.kind == kindQuestion && m.number == number {
			b.remove(i)
			return
		}
	}
}
