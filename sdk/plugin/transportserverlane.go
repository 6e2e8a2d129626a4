package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/streams"
)

// callsMax bounds the dials and accepts of one lane that are under way.
const callsMax = 1024

// transportServerLane serves one lane of a transport: its links, or the connections of its
// network. Its reader never waits for a link.
type transportServerLane struct {
	transport transport.Transport // nil: connections are passed
	network   streams.Network
	to        link
	out       *outbox
	parts     *parts
	wg        sync.WaitGroup

	mu    sync.Mutex
	calls map[uint64]context.CancelFunc // dials and accepts, by sequence
	links map[uint64]*servedLink
	last  uint64 // link that was numbered
	ended bool
}

func newTransportServerLane(o openTransport, to link) *transportServerLane {
	return &transportServerLane{
		transport: o.transport, network: o.network, to: to, out: newOutbox(), parts: newParts(to),
		calls: map[uint64]context.CancelFunc{}, links: map[uint64]*servedLink{},
	}
}

// run serves units until the lane ends, and then ends every link that it has given.
func (l *transportServerLane) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := make(chan error, 1)
	go func() {
		err := l.out.send(ctx, l.to)
		cancel()
		sent <- err
	}()
	err := l.to.receive(func(in incoming) error { return l.dispatch(ctx, in) })
	if errors.Is(err, io.EOF) { // an orderly end
		err = nil
	}
	cancel()
	l.endLinks()
	l.wg.Wait()
	err = errors.Join(err, <-sent)
	l.out.close()
	return err
}

// endLinks ends every link, and those that come.
func (l *transportServerLane) endLinks() {
	l.mu.Lock()
	l.ended = true
	links := l.links
	l.links = map[uint64]*servedLink{}
	l.mu.Unlock()
	for _, link := range links {
		link.end()
	}
}

// dispatch begins what a unit asks for.
func (l *transportServerLane) dispatch(ctx context.Context, in incoming) error {
	closeFile(in.file) // none is asked for
	in.file = nil
	u, err := parseUnit(in)
	if err != nil {
		return err
	}
	switch u.kind {
	case kindDial, kindAccept:
		return l.call(ctx, u)
	case kindCancel:
		l.cancel(u)
		return nil
	}
	l.mu.Lock()
	link := l.links[u.link]
	if u.kind == kindClose {
		delete(l.links, u.link)
	}
	known := u.link > 0 && u.link <= l.last
	l.mu.Unlock()
	switch {
	case link == nil && known:
		return nil // it was closed while somebody used it
	case link == nil:
		return fmt.Errorf("%w: kind %d for link %d, which there is not", errUnit, u.kind, u.link)
	}
	switch u.kind {
	case kindSend:
		return link.part(u, in.mem)
	case kindCredit:
		return link.addCredit(u)
	case kindRoom:
		link.room()
		return nil
	case kindClose:
		link.end()
		return nil
	}
	return fmt.Errorf("%w: kind %d", errUnit, u.kind)
}

// call begins a dial or an accept.
func (l *transportServerLane) call(ctx context.Context, u tunit) error {
	var to transport.Target
	if u.kind == kindDial {
		var err error
		if to, err = parseDial(u.body); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	l.mu.Lock()
	_, twice := l.calls[u.seq]
	full := len(l.calls) >= callsMax
	if !twice && !full {
		l.calls[u.seq] = cancel
	}
	l.mu.Unlock()
	u.body = nil
	switch {
	case twice:
		cancel()
		return fmt.Errorf("%w: sequence %d comes twice", errUnit, u.seq)
	case full:
		cancel()
		l.out.put(answerTo(&u, transport.Errorf(transport.ErrRetry, "%d calls are under way", callsMax)), true)
		return nil
	}
	l.wg.Go(func() {
		defer cancel()
		a := l.answer(ctx, &u, to)
		l.mu.Lock()
		delete(l.calls, u.seq)
		served := l.links[a.link]
		l.mu.Unlock()
		l.out.put(a, true)
		if served != nil {
			l.wg.Go(served.receive)
		}
	})
	return nil
}

// answer makes a link or a connection, and the unit that tells of it.
func (l *transportServerLane) answer(ctx context.Context, u *tunit, to transport.Target) *tunit {
	if l.transport == nil {
		file, err := l.connect(ctx, u.kind, to.Endpoint)
		a := answerTo(u, err)
		a.file = file
		return a
	}
	var link transport.Link
	var err error
	if u.kind == kindDial {
		link, err = l.transport.Dial(ctx, to)
	} else {
		link, err = l.transport.Accept(ctx)
	}
	if err != nil {
		return answerTo(u, err)
	}
	served := newServedLink(l, link)
	if !l.add(served) {
		served.end()
		return answerTo(u, errLaneEnded)
	}
	a := answerTo(u, nil)
	a.link = served.id
	a.body = appendPeer(a.body, link.Lane(), link.Peer())
	return a
}

var errLaneEnded = transport.Errorf(transport.ErrClosed, "the broker does not need the transport any more")

// add numbers a link. It fails when the lane has ended.
func (l *transportServerLane) add(link *servedLink) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.last++
	link.id = l.last
	l.links[link.id] = link
	return true
}

// connect makes a connection, and keeps nothing of it but the file that is to be passed.
func (l *transportServerLane) connect(ctx context.Context, kind byte, endpoint string) (*os.File, error) {
	var conn net.Conn
	var err error
	if kind == kindDial {
		conn, err = l.network.Dial(ctx, endpoint)
	} else {
		conn, err = l.network.Accept(ctx)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // the file is another descriptor of it
	socket, ok := conn.(interface{ File() (*os.File, error) })
	if !ok {
		return nil, transport.Errorf(transport.ErrInvalid, "the plugin's connections are no sockets, and cannot be passed")
	}
	file, err := socket.File()
	if err != nil {
		return nil, transport.Errorf(transport.ErrRetry, "pass a connection: %v", err)
	}
	return file, nil
}

// cancel gives up the call or the sending of a sequence. What has been answered is not there
// any more.
func (l *transportServerLane) cancel(u tunit) {
	l.mu.Lock()
	cancel, link := l.calls[u.seq], l.links[u.link]
	l.mu.Unlock()
	switch {
	case cancel != nil && u.link == 0:
		cancel()
	case link != nil:
		link.giveUp(u.seq)
	}
}
