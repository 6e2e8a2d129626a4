package transporttest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

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

// stepOf draws a step.
func stepOf() *rapid.Generator[step] {
	return rapid.Custom(func(t *rapid.T) step {
		return step{
			Op: rapid.SampledFrom([]string{
				opSend, opSend, opSend, opReceive, opReceive, opReceive, opTransfer, opDial, opCancel, opClose, opNoRoom,
			}).Draw(t, "op"),
			Link: rapid.IntRange(0, historyLinks-1).Draw(t, "link"),
			Way:  rapid.IntRange(0, 1).Draw(t, "way"),
			Size: rapid.OneOf(rapid.IntRange(0, 64), rapid.IntRange(0, 40_000), rapid.SampledFrom([]int{1 << 16, 1 << 20, 1<<20 + 1, 3_000_000})).Draw(t, "size"),
			Cut:  rapid.IntRange(0, 100).Draw(t, "cut"),
		}
	})
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

// outsideTests makes ready, where the kit runs outside go test, what package rapid needs of
// package testing. A history that fails is told there, and not kept in a file.
var outsideTests = sync.OnceValue(func() error {
	if testing.Testing() {
		return nil
	}
	testing.Init()
	if !flag.Parsed() {
		if err := flag.CommandLine.Parse(nil); err != nil {
			return err
		}
	}
	return flag.Set("rapid.nofailfile", "true")
})

func histories(e *env) {
	if err := outsideTests(); err != nil {
		panic(lacking("histories cannot be drawn here: " + err.Error()))
	}
	a, b := e.node(1), e.node(2)
	record := &recorder{e: e}
	status, why := caught(func() {
		rapid.Check(record, func(t *rapid.T) {
			steps := rapid.SliceOfN(stepOf(), 1, 30).Draw(t, "steps")
			h := &history{e: e, a: a, b: b}
			status, message := caught(func() { h.run(steps) })
			for _, l := range h.links { // also after a failure, when others follow
				_ = l.dialled.Close()
				_ = l.accepted.Close()
			}
			if status != Passed {
				t.Fatalf("%s", message)
			}
		})
	})
	if status != Passed || record.failed {
		e.failf(saidBeginning, "%s%s", record.text(), why)
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

// recorder is the test that rapid sees.
type recorder struct {
	e      *env
	lines  []string
	failed bool
}

var _ rapid.TB = (*recorder)(nil)

// text is what rapid has said.
func (r *recorder) text() string {
	var all string
	for _, line := range r.lines {
		all += line + "\n"
	}
	return all
}

func (r *recorder) Helper()      {}
func (r *recorder) Name() string { return "transporttest-histories" }

func (r *recorder) Log(args ...any) { r.lines = append(r.lines, fmt.Sprint(args...)) }
func (r *recorder) Logf(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *recorder) Skip(args ...any)                 { r.Log(args...); r.SkipNow() }
func (r *recorder) Skipf(format string, args ...any) { r.Logf(format, args...); r.SkipNow() }
func (r *recorder) SkipNow()                         { panic(lacking(r.text())) }

func (r *recorder) Error(args ...any)                 { r.Log(args...); r.Fail() }
func (r *recorder) Errorf(format string, args ...any) { r.Logf(format, args...); r.Fail() }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); r.FailNow() }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); r.FailNow() }

func (r *recorder) Fail()        { r.failed = true }
func (r *recorder) FailNow()     { r.failed = true; panic(failure("")) }
func (r *recorder) Failed() bool { return r.failed }
