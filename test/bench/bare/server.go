package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// requestBytesMax bounds what a request may be, and with it a connection's buffer.
	requestBytesMax = 16 << 20
	// bufferBytes is what a connection's buffer begins with.
	bufferBytes = 4 << 10
	// headerBytes are the key, the version, the correlation ID and the length of the
	// client ID, with which every request begins.
	headerBytes = 10
)

var errRequest = errors.New("a request that is not understood")

// server has the topics. All its methods may be called concurrently.
type server struct {
	dir string
	log *slog.Logger

	mu     sync.Mutex
	topics []*topic
}

func newServer(dir string, log *slog.Logger) *server { return &server{dir: dir, log: log} }

// run serves the connections of a listener, which it closes, until ctx ends, and returns
// after all of them.
func (s *server) run(ctx context.Context, l net.Listener) error {
	var conns sync.WaitGroup
	defer s.close()
	defer conns.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		conns.Go(func() {
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			defer c.Close()
			if err := newConn(s, c).serve(); err != nil && ctx.Err() == nil {
				s.log.Warn("a connection ended", "err", err)
			}
		})
	}
}

// conn is one connection. It belongs to one goroutine.
type conn struct {
	s        *server
	c        io.ReadWriter
	in       []byte
	at, upto int // what was read and not taken yet, in in

	last   *partition // that the last batch was for,
	answer []byte     // and what is answered then
}

func newConn(s *server, c io.ReadWriter) *conn {
	return &conn{s: s, c: c, in: make([]byte, bufferBytes)}
}

// serve answers one request after another until the client has no more.
func (c *conn) serve() error {
	for {
		switch err := c.one(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// one reads one request and answers it. It returns io.EOF where there is none.
func (c *conn) one() error {
	request, err := c.next()
	if err != nil {
		return err
	}
	var answer []byte
	if kmsg.Key(binary.BigEndian.Uint16(request)) == kmsg.Produce {
		answer, err = c.produce(request)
	} else {
		answer, err = c.ask(request)
	}
	if err != nil {
		return err
	}
	_, err = c.c.Write(answer)
	return err
}

// next is the next request, without its size, at least a header; it is valid until the
// next call. The buffer becomes larger by what came, not by what is said to come.
func (c *conn) next() ([]byte, error) {
	const prefix = 4
	need := prefix
	for {
		have := c.in[c.at:c.upto]
		if len(have) >= prefix {
			size := binary.BigEndian.Uint32(have)
			if size < headerBytes || size > requestBytesMax {
				return nil, fmt.Errorf("%w: of %d bytes", errRequest, size)
			}
			need = prefix + int(size)
		}
		if need > prefix && len(have) >= need {
			c.at += need
			return have[prefix:need], nil
		}
		if c.at > 0 {
			c.upto, c.at = copy(c.in, have), 0
		}
		if c.upto == len(c.in) {
			c.in = append(c.in, make([]byte, len(c.in))...)
		}
		// Not much of the request behind this one: it would have to be moved.
		n, err := c.c.Read(c.in[c.upto:min(len(c.in), max(need, bufferBytes))])
		if n == 0 && err != nil {
			if c.upto > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		c.upto += n
	}
}
