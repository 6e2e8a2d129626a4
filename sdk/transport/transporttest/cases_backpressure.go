package transporttest

import (
	"fmt"
	"sync/atomic"

	"github.com/brokerd/brokerd/sdk/transport"
)

func backpressureCases() []Case {
	return []Case{
		{Name: "send-waits", About: "Send waits when LinkBytesMax is under way, and goes on when it is received", run: sendWaits},
		{Name: "send-waits-large", About: "of messages larger than LinkBytesMax one at most is under way", run: sendWaitsLarge},
		{Name: "send-goes-on", About: "a Send that waits goes on whenever something is received, however little", run: sendGoesOn},
	}
}

// flood is a sender that sends faster than anybody receives.
type flood struct {
	*task
	size  int
	count int
	taken atomic.Int64 // messages whose Send has returned
}

// flood sends count messages of a size, tagged 0 and on, until the case ends.
func (e *env) flood(link transport.Link, size, count int) *flood {
	f := &flood{size: size, count: count}
	f.task = e.start("send without a receiver", func() error {
		for tag := range count {
			if err := link.Send(e.ctx, message(uint64(tag), size)); err != nil {
				return fmt.Errorf("send message %d of %d bytes: %w", tag, size, err)
			}
			f.taken.Add(1)
		}
		return nil
	})
	return f
}

// bytes is how much the transport has taken.
func (f *flood) bytes() int { return int(f.taken.Load()) * f.size }

// stalls waits until the sender waits, and fails the case when too much was taken.
func (f *flood) stalls() {
	for {
		before := f.taken.Load()
		waits := f.waits(2 * moment)
		if !waits && f.outcome() != nil {
			f.e.must(saidTaken, f.outcome(), f.act)
		}
		if !waits || f.bytes() > transport.LinkBytesMax+f.size {
			f.e.failf(saidWaits, "%d bytes of messages of %d bytes were sent, nobody receives, and Send does not wait", f.bytes(), f.size)
		}
		if f.taken.Load() == before {
			return
		}
	}
}

// drain receives everything that the sender sends.
func (f *flood) drain(link transport.Link) {
	for tag := range f.count {
		f.receiveTag(link, uint64(tag), f.size)
	}
	f.e.must(saidTaken, f.end(saidTaken), f.act)
}

func sendWaits(e *env) {
	for _, size := range []int{16 << 10, 100_000, 1 << 20, 5 << 20} {
		p := e.pair()
		for _, way := range p.ways() {
			f := e.flood(way[0], size, 2*transport.LinkBytesMax/size+2)
			f.stalls()
			if least := 64 << 10; size < least && !f.until(func() bool { return f.bytes() >= least }) {
				e.failf(saidLeast, "%d bytes are under way, nobody receives, and Send waits already", f.bytes())
			}
			f.drain(way[1])
		}
		p.passes(1 << 32)
		e.closeAll()
	}
}

func sendWaitsLarge(e *env) {
	const size, count = transport.LinkBytesMax + transport.LinkBytesMax/4, 4
	p := e.pair()
	for _, way := range p.ways() {
		f := e.flood(way[0], size, count)
		for range 20 { // the first may be taken, or not before it is received
			if f.taken.Load() > 1 || !f.waits(moment) {
				break
			}
		}
		if n := f.taken.Load(); n > 1 {
			e.failf(saidMemory, "%d messages of %d bytes were sent, nobody receives, and Send has not waited", n, size)
		}
		f.drain(way[1])
	}
}

func sendGoesOn(e *env) {
	const size = 256 << 10
	p := e.pair()
	for _, way := range p.ways() {
		f := e.flood(way[0], size, 3*transport.LinkBytesMax/size)
		f.stalls()
		// As much more is taken, sooner or later, as was received.
		before := f.taken.Load()
		most := int64(transport.LinkBytesMax/size) + 1
		received := 0
		for ; f.taken.Load() < before+8 && received < int(most)+8; received++ {
			e.receiveTag(way[1], uint64(received), size)
			f.waits(moment / 5)
		}
		if !f.until(func() bool { return f.taken.Load() > before }) {
			e.failf(saidTaken, "%d messages were received, and a Send that waits does not go on", received)
		}
		if under := f.taken.Load() - int64(received); under > most+1 {
			e.failf(saidWaits, "%d bytes are under way", under*size)
		}
		for tag := received; tag < f.count; tag++ {
			e.receiveTag(way[1], uint64(tag), size)
		}
		e.must(saidTaken, f.end(saidTaken), f.act)
	}
}

// until waits, within the kit's patience, until something is so.
func (t *task) until(so func() bool) bool {
	ctx, cancel := t.e.within()
	defer cancel()
	for ctx.Err() == nil {
		if so() {
			return true
		}
		if !t.waits(moment / 5) {
			return so()
		}
	}
	return so()
}
