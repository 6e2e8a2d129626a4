package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// answerBytesMax bounds what a server may claim an answer to be.
const answerBytesMax = 64 << 20

// conn is one connection on which one request is under way at a time. A client library
// would share connections between members, and a join holds one up.
type conn struct {
	c    net.Conn
	in   *bufio.Reader
	form *kmsg.RequestFormatter
	out  []byte
	corr int32
}

func dial(ctx context.Context, addr string) (*conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &conn{c: c, in: bufio.NewReader(c), form: kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench"))}, nil
}

func (c *conn) close() { _ = c.c.Close() }

// ask sends a request, its version set, and reads the answer.
func ask[R kmsg.Response](c *conn, req kmsg.Request, wait time.Duration) (R, error) {
	resp, err := c.exchange(req, wait)
	if err != nil {
		var none R
		return none, fmt.Errorf("%s: %w", kmsg.NameForKey(req.Key()), err)
	}
	return resp.(R), nil
}

func (c *conn) exchange(req kmsg.Request, wait time.Duration) (kmsg.Response, error) {
	if err := c.c.SetDeadline(time.Now().Add(wait)); err != nil {
		return nil, err
	}
	c.corr++
	c.out = c.form.AppendRequest(c.out[:0], req, c.corr)
	if _, err := c.c.Write(c.out); err != nil {
		return nil, err
	}
	var head [8]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return nil, err
	}
	size, corr := binary.BigEndian.Uint32(head[:]), int32(binary.BigEndian.Uint32(head[4:]))
	if size < 4 || size > answerBytesMax || corr != c.corr {
		return nil, fmt.Errorf("an answer of %d bytes to %d, not to %d", size, corr, c.corr)
	}
	body := make([]byte, size-4)
	if _, err := io.ReadFull(c.in, body); err != nil {
		return nil, err
	}
	if req.IsFlexible() {
		if len(body) == 0 || body[0] != 0 {
			return nil, fmt.Errorf("tags in the header")
		}
		body = body[1:]
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	return resp, resp.ReadFrom(body)
}
