package transporttest

import (
	"context"
	"errors"
	"fmt"

	"github.com/brokerd/brokerd/sdk/transport"
)

func historyCases() []Case {
	return []Case{
		{Name: "histories", About: "whatever is done with links, what arrives on each is a beginning of what was sent", run: histories},
	}
}

// A step is one thing that is done with links. What cannot be done is left out.
type step struct {
	Op   string
	Link int // which of those that were made
	Way  int // from which end
	Size int
	Cut  int // where a message is cut into parts
}

// The steps. Receives are of what was sent, or wait in vain.
const (
	opDial     = "dial"
	opSend     = "send"
	opReceive  = "receive"
	opCancel   = "receive with a context that has ended"
	opTransfer = "send and receive"
	opClose    = "close"
	opNoRoom   = "receive without room"
)

const (
	historyLinks = 4        // at one time
	historyTaken = 48 << 10 // of messages under way on a link whose receiver comes later
)

// historyCount is how many histories there are; the first are short, so that what fails
// at once does so in few steps.
const (
	historyCount = 100
	historySteps = 30 // of the longest
)

var historyOps = []string{
	opSend, opSend, opSend, opReceive, opReceive, opReceive, opTransfer, opDial, opCancel, opClose, opNoRoom,
}

// step draws a step.
func (e *env) step() step {
	var size int
	switch e.rng.IntN(5) { // one in five is empty
	case 0, 1:
		size = e.rng.IntN(65)
	case 2:
		size = e.rng.IntN(40_001)
	case 3:
		size = []int{1 << 16, 1 << 20, 1<<20 + 1, 3_000_000}[e.rng.IntN(4)]
	}
	return step{
		Op: historyOps[e.rng.IntN(len(historyOps))], Link: e.rng.IntN(historyLinks), Way: e.rng.IntN(2),
		Size: size, Cut: e.rng.IntN(101),
	}
}

// sent is a message under way.
type sent struct {
	tag  uint64
	size int
}

// tracked is a link, and what is under way on it each way.
type tracked struct {
	pair
	under [2][]sent
}

// history is what the steps have led to.
type history struct {
	e     *env
	a, b  *node
	links []*tracked
	tag   uint64
}

func histories(e *env) {
	a, b := e.node(1), e.node(2)
	for n := range historyCount {
		steps := make([]step, 1+n*historySteps/historyCount)
		for i := range steps {
			steps[i] = e.step()
		}
		h := &history{e: e, a: a, b: b}
		status, message := caught(func() { h.run(steps) })
		for _, l := range h.links {
			_ = l.dialled.Close()
			_ = l.accepted.Close()
		}
		switch status {
		case Failed:
			panic(failure(fmt.Sprintf("%s\nThis came of one link that was made, and then: %#v", message, steps)))
		case NotApplicable:
			panic(lacking(message))
		}
	}
}

func (h *history) run(steps []step) {
	h.dial()
	for _, s := range steps {
		if len(h.links) == 0 || s.Op == opDial && len(h.links) < historyLinks {
			h.dial()
			continue
		}
		i := s.Link % len(h.links)
		l := h.links[i]
		switch s.Op {
		case opSend:
			h.send(l, s)
		case opReceive:
			h.receive(l, s.Way)
		case opCancel:
			_, err := l.ways()[s.Way][1].Receive(h.e.over(), room)
			h.e.wantCause(err, "Receive")
		case opTransfer:
			h.drain(l, s.Way)
			h.tag++
			h.e.transfer(l.ways()[s.Way][0], l.ways()[s.Way][1], h.tag, s.Size)
		case opClose:
			h.e.closes(l.ways()[s.Way][0])
			h.ended(i)
		case opNoRoom:
			h.noRoom(i, s.Way)
		}
	}
	for _, l := range h.links {
		h.drain(l, 0)
		h.drain(l, 1)
		l.passes(1 << 50)
	}
}

func (h *history) dial() {
	h.links = append(h.links, &tracked{pair: join(h.a, h.b, transport.Control+transport.Lane(len(h.links)%2))})
}

// send sends a message that is received later, if it is small enough for that.
func (h *history) send(l *tracked, s step) {
	bytes := s.Size
	for _, m := range l.under[s.Way] {
		bytes += m.size
	}
	if bytes > historyTaken {
		return
	}
	h.tag++
	data := message(h.tag, s.Size)
	cut := s.Size * s.Cut / 100
	h.e.send(l.ways()[s.Way][0], data[:cut], data[cut:])
	l.under[s.Way] = append(l.under[s.Way], sent{h.tag, s.Size})
}

// receive receives the next message, or nothing.
func (h *history) receive(l *tracked, way int) {
	link := l.ways()[way][1]
	if len(l.under[way]) == 0 {
		ctx, cancel := context.WithTimeout(h.e.ctx, moment/50)
		defer cancel()
		if _, err := link.Receive(ctx, room); !errors.Is(err, context.DeadlineExceeded) {
			h.e.failf(saidBeginning, "nothing is under way, and Receive gives %v", err)
		}
		return
	}
	next := l.under[way][0]
	l.under[way] = l.under[way][1:]
	h.e.receiveTag(link, next.tag, next.size)
}

func (h *history) drain(l *tracked, way int) {
	for len(l.under[way]) > 0 {
		h.receive(l, way)
	}
}

// noRoom receives with a room that fails, which ends the link.
func (h *history) noRoom(i, way int) {
	l := h.links[i]
	if len(l.under[way]) == 0 || l.under[way][0].size == 0 { // an empty message needs no room
		return
	}
	full := errors.New("no memory")
	ctx, cancel := h.e.within()
	defer cancel()
	_, err := l.ways()[way][1].Receive(ctx, func(context.Context, int) ([]byte, error) { return nil, full })
	if !errors.Is(err, full) {
		h.e.failf(saidRoomError, "room gives the error %q, and Receive gives %v", full, err)
	}
	l.under[way] = nil
	h.ended(i)
}

// ended sees that a link has ended, and that no more has arrived than was under way.
func (h *history) ended(i int) {
	l := h.links[i]
	h.links = append(h.links[:i:i], h.links[i+1:]...)
	for way, ends := range l.ways() {
		for n := 0; ; n++ {
			got, err := h.e.tryReceive(ends[1])
			if err != nil {
				h.e.wantClass(saidFinds, err, "receive on a link that has ended", transport.ErrClosed)
				break
			}
			if n == len(l.under[way]) {
				h.e.failf(saidBeginning, "%d messages were under way when the link ended, and more arrive", n)
			}
			if wrong := differs(got, l.under[way][n].tag, l.under[way][n].size); wrong != "" {
				h.e.failf(saidBeginning, "when the link has ended: %s", wrong)
			}
		}
	}
	h.e.findsEnd(l.dialled, "a link that has ended")
	h.e.findsEnd(l.accepted, "a link that has ended")
}
