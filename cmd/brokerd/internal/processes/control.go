package processes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	socketName = "socket"
	// requestMax and answerMax bound what is read, in bytes.
	requestMax = 4 << 10
	answerMax  = 256 << 10
	// requestTimeout is how long somebody may take to say what is wanted.
	requestTimeout = 5 * time.Second
)

// What can be asked for.
const (
	Show    = "status"
	Kill    = "kill"    // SIGKILL
	Pause   = "pause"   // SIGSTOP
	Resume  = "resume"  // SIGCONT
	Restart = "restart" // SIGTERM, if it runs, and a new start
)

// ErrNone says that nobody runs brokers on the directory.
var ErrNone = errors.New("no brokers run there")

// Request is what is asked for.
type Request struct {
	Do     string `json:"do"`
	Broker int    `json:"broker,omitempty"` // whom, but for Show
}

// answered is the reply.
type answered struct {
	Brokers []Status `json:"brokers,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// Ask has something done to the brokers of a data directory, and returns how they are when it
// is done: a process that was killed is gone, one that was started again is ready.
// ErrNone: nobody runs them.
func Ask(ctx context.Context, data string, r Request) ([]Status, error) {
	dir, err := os.Open(filepath.Join(data, ownDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, fmt.Errorf("look for the brokers: %w", err)
	}
	defer func() { _ = dir.Close() }()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", within(dir, socketName))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, fmt.Errorf("reach who runs the brokers: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	if err := json.NewEncoder(conn).Encode(r); err != nil {
		return nil, fmt.Errorf("ask who runs the brokers: %w", err)
	}
	var a answered
	err = json.NewDecoder(io.LimitReader(conn, answerMax)).Decode(&a)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("hear from who runs the brokers: %w", err)
	case a.Error != "":
		return a.Brokers, errors.New(a.Error)
	}
	return a.Brokers, nil
}

// request is one that waits for its answer.
type request struct {
	Request
	// answer is called once.
	answer func([]Status, error)
}

// socket is where requests come in.
type socket struct {
	net.Listener
	dir *os.File
}

// listen makes the socket. Whoever calls it holds the data directory, so that a socket that is
// there is nobody's.
func listen(data string) (*socket, error) {
	path, err := makeOwn(data)
	if err != nil {
		return nil, fmt.Errorf("make a socket for those who ask: %w", err)
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("make a socket for those who ask: %w", err)
	}
	at := within(dir, socketName)
	if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("remove an old socket: %w", err), dir.Close())
	}
	l, err := net.Listen("unix", at)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a socket for those who ask: %w", err), dir.Close())
	}
	return &socket{Listener: l, dir: dir}, nil
}

func (s *socket) close() error { return errors.Join(s.Close(), s.dir.Close()) }

// serve answers until the socket is closed.
func (g *group) serve(s *socket) {
	for {
		conn, err := s.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			select {
			case <-g.over:
				return
			case <-time.After(requestTimeout): // no descriptors, maybe
				continue
			}
		}
		g.workers.Go(func() { g.serveOne(conn) })
	}
}

// serveOne answers one who asks.
func (g *group) serveOne(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(requestTimeout))
	var r Request
	if err := json.NewDecoder(io.LimitReader(conn, requestMax)).Decode(&r); err != nil {
		return
	}
	done := make(chan answered, 1)
	ask := request{Request: r, answer: func(s []Status, err error) {
		a := answered{Brokers: s}
		if err != nil {
			a.Error = err.Error()
		}
		done <- a
	}}
	var a answered
	select {
	case g.requests <- ask:
		select {
		case a = <-done:
		case <-g.over:
			a.Error = errStopped.Error()
		}
	case <-g.over:
		a.Error = errStopped.Error()
	}
	_ = conn.SetWriteDeadline(time.Now().Add(requestTimeout))
	_ = json.NewEncoder(conn).Encode(a) // who has gone is not told
}
