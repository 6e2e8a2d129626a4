package rpc

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// answerBytesMax bounds what a server may claim an answer to be.
const answerBytesMax = 256 << 20

// ClientID is how the programs call themselves.
const ClientID = "bench"

// Conn is one connection, for one goroutine; Close may be called from another.
type Conn struct {
	c    net.Conn
	in   *bufio.Reader
	form *kmsg.RequestFormatter
	out  []byte
	body []byte // of the last answer, which refers to it
	corr int32
}

// Dial connects.
func Dial(ctx context.Context, addr string) (*Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return New(c, bufferBytes), nil
}

// bufferBytes is for what comes in by Dial's connections.
const bufferBytes = 64 << 10

// New makes one of a connection, which becomes its own, with a buffer of its own for what
// comes in.
func New(c net.Conn, buffer int) *Conn {
	return &Conn{c: c, in: bufio.NewReaderSize(c, buffer), form: kmsg.NewRequestFormatter(kmsg.FormatterClientID(ClientID))}
}

// Close closes the connection; an exchange under way fails.
func (c *Conn) Close() { _ = c.c.Close() }

// Ask sends a request, its version set, and reads the answer. Bytes in the answer are
// the connection's until the next request.
func Ask[R kmsg.Response](c *Conn, req kmsg.Request, wait time.Duration) (R, error) {
	resp, err := c.exchange(req, wait)
	if err != nil {
		var none R
		return none, fmt.Errorf("%s: %w", kmsg.NameForKey(req.Key()), err)
	}
	return resp.(R), nil
}

func (c *Conn) exchange(req kmsg.Request, wait time.Duration) (kmsg.Response, error) {
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
	if n := int(size) - 4; n > cap(c.body) {
		c.body = make([]byte, n)
	}
	body := c.body[:size-4]
	if _, err := io.ReadFull(c.in, body); err != nil {
		return nil, err
	}
	if req.IsFlexible() && req.Key() != int16(kmsg.ApiVersions) {
		if len(body) == 0 || body[0] != 0 {
			return nil, errors.New("tags in the header")
		}
		body = body[1:]
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	return resp, resp.ReadFrom(body)
}
