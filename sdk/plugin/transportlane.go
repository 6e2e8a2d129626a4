package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/brokerd/brokerd/sdk/transport"
)

// transportLane is the client's side of a transport's lane. Its reader never waits for a link.
type transportLane struct {
	gone     chan struct{} // closed when the lane is dead
	out      *outbox
	parts    *parts
	answered atomic.Int64 // answers: while it moves, the plugin lives
	connects bool         // connections come, and no links
	late     chan transportAnswer

	seq atomic.Uint64

	mu    sync.Mutex
	calls map[uint64]*transportCall // dials and accepts
	links map[uint64]*messageLink
	dead  error
}

// transportCall is a dial or an accept that is under way.
type transportCall struct {
	answered chan transportAnswer // has room for it
	left     bool                 // nobody waits for the answer
	late     chan transportAnswer // of an accept: who takes the answer then
}

// lateMax is how many links are kept that came when who had asked for one had given up.
const lateMax = 64

// transportAnswer is what came of one.
type transportAnswer struct {
	link *messageLink
	file *os.File
	err  error
}

func newTransportLane(to link, connects bool) *transportLane {
	return &transportLane{
		gone: make(chan struct{}), out: newOutbox(), parts: newParts(to), connects: connects,
		late: make(chan transportAnswer, lateMax), calls: map[uint64]*transportCall{}, links: map[uint64]*messageLink{},
	}
}

// run moves units until the link ends, and then ends all that is open.
func (l *transportLane) run(ctx context.Context, to link) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { _ = l.out.send(ctx, to) }) // receive gets the link's own error
	err := to.receive(l.receive)
	l.fail(fmt.Errorf("the connection to the plugin ended: %w", err))
	cancel()
	wg.Wait()
}

// fail declares the lane dead, and ends everything.
func (l *transportLane) fail(cause error) {
	l.mu.Lock()
	if l.dead != nil {
		l.mu.Unlock()
		return
	}
	l.dead = cause
	links := make([]*messageLink, 0, len(l.links))
	for _, link := range l.links {
		links = append(links, link)
	}
	close(l.gone)
	l.mu.Unlock()
	l.out.close()
	for _, link := range links {
		link.over(transport.Errorf(transport.ErrClosed, "%v", cause))
	}
}

// next returns a sequence.
func (l *transportLane) next() uint64 { return l.seq.Add(1) }

// call dials or accepts. When the lane is dead, that may be tried again: with the next
// process.
func (l *transportLane) call(ctx context.Context, kind byte, body []byte) (transportAnswer, error) {
	var late chan transportAnswer
	if kind == kindAccept {
		late = l.late
	}
	select {
	case a := <-late:
		return a, nil
	default:
	}
	c := &transportCall{answered: make(chan transportAnswer, 1), late: late}
	seq := l.next()
	l.mu.Lock()
	dead := l.dead
	if dead == nil {
		l.calls[seq] = c
	}
	l.mu.Unlock()
	if dead != nil {
		return transportAnswer{}, transport.Errorf(transport.ErrRetry, "%v", dead)
	}
	u := transportRequest(kind, seq, 0)
	u.body = body
	l.out.put(u, true)
	select {
	case a := <-c.answered:
		return a, a.err
	case a := <-late:
		l.leave(seq, c)
		return a, nil
	case <-l.gone:
		l.leave(seq, c)
		return transportAnswer{}, transport.Errorf(transport.ErrRetry, "the plugin's process has ended")
	case <-ctx.Done():
		l.leave(seq, c)
		return transportAnswer{}, context.Cause(ctx)
	}
}

// leave gives up a call.
func (l *transportLane) leave(seq uint64, c *transportCall) {
	l.mu.Lock()
	c.left = true
	l.mu.Unlock()
	select {
	case a := <-c.answered: // it came before
		c.keep(a)
	default:
		l.out.put(transportRequest(kindCancel, seq, 0), true)
	}
}

// keep keeps what was accepted for the next who accepts, and closes what else nobody gets.
func (c *transportCall) keep(a transportAnswer) {
	if a.err == nil {
		select {
		case c.late <- a:
			return
		default:
		}
	}
	a.drop()
}

// drop closes what nobody gets.
func (a transportAnswer) drop() {
	closeFile(a.file)
	if a.link != nil {
		_ = a.link.Close() // it gives no error
	}
}

// receive takes a unit from the plugin.
func (l *transportLane) receive(in incoming) error {
	u, err := parseUnit(in)
	if err != nil {
		closeFile(in.file)
		return err
	}
	l.answered.Add(1)
	if u.kind == kindDial|kindAnswer || u.kind == kindAccept|kindAnswer {
		return l.callAnswered(&u, in)
	}
	closeFile(in.file) // none is asked for
	l.mu.Lock()
	link := l.links[u.link]
	l.mu.Unlock()
	if link == nil {
		return nil // it was closed meanwhile
	}
	switch u.kind {
	case kindSend | kindAnswer:
		return link.sent(&u)
	case kindTook | kindAnswer:
		return link.took(&u)
	case kindMessage | kindAnswer:
		return link.told(&u)
	case kindRoom | kindAnswer:
		return link.part(&u)
	}
	return fmt.Errorf("%w: kind %d", errUnit, u.kind)
}

// callAnswered ends the call that a unit answers.
func (l *transportLane) callAnswered(u *tunit, in incoming) error {
	var a transportAnswer
	var body []byte
	body, a.err = u.result()
	switch {
	case errors.Is(a.err, errUnit):
		closeFile(u.file)
		return a.err
	case a.err != nil:
		closeFile(u.file)
	case l.connects && lost(in):
		a.err = transport.Errorf(transport.ErrRetry, "the descriptor that the plugin passed was lost, as when too many files are open")
	case l.connects && u.file == nil:
		return fmt.Errorf("%w: a connection without a descriptor", errUnit)
	case l.connects:
		a.file = u.file
	default:
		closeFile(u.file)
		link, err := l.add(u.link, bytes.Clone(body))
		if err != nil {
			return err
		}
		a.link = link
	}
	l.mu.Lock()
	c := l.calls[u.seq]
	delete(l.calls, u.seq)
	left := c != nil && c.left
	if c != nil && !left {
		c.answered <- a
	}
	l.mu.Unlock()
	switch {
	case c == nil:
		a.drop()
		return fmt.Errorf("%w: an answer to call %d, which was not made", errUnit, u.seq)
	case left:
		c.keep(a)
	}
	return nil
}

// isGone says whether the lane is dead.
func (l *transportLane) isGone() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

// closeLinks closes every link, and what nobody has accepted.
func (l *transportLane) closeLinks() {
	l.mu.Lock()
	links := make([]*messageLink, 0, len(l.links))
	for _, link := range l.links {
		links = append(links, link)
	}
	l.mu.Unlock()
	for _, link := range links {
		_ = link.Close() // it gives no error
	}
	l.dropLate()
}

// dropLate closes what was accepted late and is wanted by nobody.
func (l *transportLane) dropLate() {
	for {
		select {
		case a := <-l.late:
			a.drop()
		default:
			return
		}
	}
}

// add makes the link of a number, which the plugin has given.
func (l *transportLane) add(id uint64, body []byte) (*messageLink, error) {
	lane, peer, err := parsePeer(body)
	if err != nil {
		return nil, err
	}
	link := newMessageLink(l, id, lane, peer)
	l.mu.Lock()
	_, twice := l.links[id]
	if !twice {
		l.links[id] = link
	}
	l.mu.Unlock()
	if twice || id == 0 {
		return nil, fmt.Errorf("%w: link %d comes twice", errUnit, id)
	}
	return link, nil
}

// forget drops a link that was closed.
func (l *transportLane) forget(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.links, id)
}
