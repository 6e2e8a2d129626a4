package frame

import (
	"context"
	"errors"
	"hash/crc32"
	"io"
	"net"

	"github.com/brokerd/brokerd/sdk/transport"
)

const (
	// readBytes is how much is read at once of small messages, before there is room for
	// them.
	readBytes = 16 << 10
	// directBytes is from how much on the rest of a message is read by itself, and not
	// together with what follows it.
	directBytes = 4 << 10
)

var errSum = errors.New("a message does not have the checksum that its header says")

// roomError is an error of Room.
type roomError struct{ err error }

func (e roomError) Error() string { return e.err.Error() }

// receiver reads frames from a connection. A message may be read in several calls: what is
// here is how far it is.
type receiver struct {
	conn net.Conn
	buf  []byte // of readBytes; what is in from:to has been read and not used
	from int
	to   int
	// failed is what the connection has said when it was read ahead: what is in the buffer
	// comes before it.
	failed error

	head header // of the frame that is read now
	open bool   // head is valid
	body []byte // from Room; nil: not asked yet, unless has
	has  bool
	got  int // bytes of body
}

func newReceiver(conn net.Conn) receiver {
	return receiver{conn: conn, buf: make([]byte, readBytes)}
}

// receive reads the next message. After errDeadline it can be called again, and goes on.
func (r *receiver) receive(ctx context.Context, room transport.Room, ahead *ahead) ([]byte, error) {
	if !r.open {
		if err := r.readHeader(); err != nil {
			return nil, err
		}
	}
	if r.head.kind != kindMessage {
		return nil, r.readEnd()
	}
	if !r.has {
		if room == nil {
			return nil, roomError{transport.Errorf(transport.ErrInvalid, "Receive was given no Room")}
		}
		body, err := ahead.ask(ctx, room, r.head.length)
		if err != nil {
			return nil, roomError{err}
		}
		if len(body) != r.head.length {
			return nil, roomError{transport.Errorf(transport.ErrInvalid, "Room gave %d bytes of memory for a message of %d", len(body), r.head.length)}
		}
		r.body, r.has, r.got = body, true, 0
	}
	if err := r.readBody(); err != nil {
		return nil, err
	}
	message := r.body
	r.open, r.has, r.body = false, false, nil
	if r.head.summed && crc32.Checksum(message, castagnoli) != r.head.sum {
		return nil, errSum
	}
	return message, nil
}

func (r *receiver) readHeader() error {
	if err := r.fill(headerBytes); err != nil {
		return err
	}
	head, err := parseHeader(r.buf[r.from : r.from+headerBytes])
	if err != nil || head.kind != kindMessage && head.kind != kindEnd {
		return errHeader
	}
	r.from += headerBytes
	r.head, r.open = head, true
	return nil
}

// readEnd reads what the peer says of the link's end.
func (r *receiver) readEnd() error {
	if err := r.fill(r.head.length); err != nil {
		return err
	}
	body := r.buf[r.from : r.from+r.head.length]
	if !r.head.summed || crc32.Checksum(body, castagnoli) != r.head.sum {
		return errSum
	}
	return transport.Errorf(transport.ErrClosed, "%s", parseEnd(body).Message)
}

func (r *receiver) readBody() error {
	for {
		n := copy(r.body[r.got:], r.buf[r.from:r.to])
		r.got, r.from = r.got+n, r.from+n
		missing := len(r.body) - r.got
		if missing == 0 {
			return nil
		}
		if missing < directBytes {
			if err := r.fill(1); err != nil {
				return err
			}
			continue
		}
		if r.failed != nil {
			return r.failed
		}
		n, err := r.conn.Read(r.body[r.got:])
		r.got += n
		if err != nil && r.got < len(r.body) {
			return err
		}
	}
}

// fill reads until n bytes, of at most readBytes, are in the buffer.
func (r *receiver) fill(n int) error {
	if r.from == r.to {
		r.from, r.to = 0, 0
	}
	for r.to-r.from < n {
		if len(r.buf)-r.from < n {
			r.to = copy(r.buf, r.buf[r.from:r.to])
			r.from = 0
		}
		m, err := 0, r.failed
		if err == nil {
			m, err = r.conn.Read(r.buf[r.to:])
		}
		r.to += m
		if err != nil && r.to-r.from < n {
			if errors.Is(err, io.EOF) && r.to > r.from {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}
