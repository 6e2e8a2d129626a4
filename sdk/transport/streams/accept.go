package streams

import (
	"errors"
	"log/slog"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/frame"
)

// acceptPause is how long the transport rests when its network gives no connection.
const acceptPause = 50 * time.Millisecond

// listen accepts connections until the transport is closed.
func (t *Transport) listen() {
	defer t.work.Done()
	for {
		conn, err := t.network.Accept(t.closing)
		if err != nil {
			if t.closing.Err() != nil || errors.Is(err, transport.ErrClosed) {
				return
			}
			t.warn("a connection could not be accepted", "err", err)
			pause := time.NewTimer(acceptPause)
			select {
			case <-pause.C:
			case <-t.closing.Done():
				pause.Stop()
			}
			continue
		}
		s := t.strangers.add(conn)
		t.work.Add(1)
		go func() {
			defer t.work.Done()
			t.meet(s)
		}()
	}
}

// meet makes a link of a connection, or ends it.
func (t *Transport) meet(s *stranger) {
	link, err := t.greet(s)
	t.strangers.remove(s)
	if err == nil {
		t.links <- link // its place is taken
		return
	}
	_ = s.conn.Close()
	if t.closing.Err() == nil {
		t.warn("a peer's link was not made", "peer", s.conn.RemoteAddr().String(), "err", err)
	}
}

// greet hears who is there, and answers. For a link that it returns a place is taken.
func (t *Transport) greet(s *stranger) (transport.Link, error) {
	if err := s.conn.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return nil, err
	}
	conn, err := t.protect(t.closing, s.conn, false)
	if err != nil {
		return nil, err
	}
	hello, err := frame.Hear(conn.Conn)
	if err != nil {
		if err = classify(err); !errors.Is(err, transport.ErrRetry) {
			frame.Refuse(conn.Conn, err)
		}
		return nil, err
	}
	proof, err := conn.check(hello.Identity)
	if err == nil {
		err = frame.Meets(t.identity, hello.To())
	}
	if err == nil {
		err = t.takePlace(s, t.queue(hello.Lane))
	}
	if err != nil {
		frame.Refuse(conn.Conn, err)
		return nil, err
	}
	link, err := t.agree(conn, hello, proof)
	if err != nil {
		<-t.queue(hello.Lane).places
		return nil, err
	}
	return link, nil
}

// agree says so to the peer, and makes the link if the peer agrees too.
func (t *Transport) agree(conn *protected, hello frame.Hello, proof transport.Proof) (transport.Link, error) {
	if err := conn.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return nil, err
	}
	if err := frame.Agree(conn.Conn, t.identity, hello); err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return t.link(conn, transport.Peer{Identity: hello.Identity, Proof: proof}, hello.Lane)
}

// takePlace waits for a place among the links of a lane that are not accepted. Who may
// wait, or has one, is a stranger no more.
func (t *Transport) takePlace(s *stranger, q *queue) error {
	select {
	case q.places <- struct{}{}:
		t.strangers.know(s)
		return nil
	default:
	}
	busy := transport.Errorf(transport.ErrRetry, "%d links wait to be accepted", acceptMax)
	if q.waiters.Add(1) > waitersMax {
		q.waiters.Add(-1)
		return busy
	}
	defer q.waiters.Add(-1)
	t.strangers.know(s)
	wait := time.NewTimer(acceptWait)
	defer wait.Stop()
	select {
	case q.places <- struct{}{}:
		return nil
	case <-wait.C:
		return busy
	case <-t.closing.Done():
		return transport.Errorf(transport.ErrRetry, "the node is closing")
	}
}

// warn tells an operator of peers and strangers, who decide how often there is something to
// tell: most of it is for who debugs.
func (t *Transport) warn(message string, args ...any) {
	level := slog.LevelDebug
	now, last := time.Now().UnixNano(), t.warned.Load()
	if now-last > int64(warnEvery) && t.warned.CompareAndSwap(last, now) {
		level = slog.LevelWarn
	}
	t.log.Log(t.closing, level, message, args...)
}
