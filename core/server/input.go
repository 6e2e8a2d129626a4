package server

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// readBufferBytes is what is read at once, of which small requests are cut.
const readBufferBytes = 4 << 10

// input is what a client has sent and the reader has not taken. It has a buffer only
// while there is something in it, so that connections that wait cost none. It is the
// reader's alone.
type input struct {
	nc      net.Conn
	buffers *sync.Pool
	raw     syscall.RawConn // nil where it is not a socket; then the buffer stays
	buf     *[readBufferBytes]byte
	from    int
	to      int
	at      time.Time // of the last bytes

	attempt func(fd uintptr) bool // is in.try
	err     error                 // of the last try
}

// newBuffers returns a pool of inputs' buffers.
func newBuffers() sync.Pool {
	return sync.Pool{New: func() any { return new([readBufferBytes]byte) }}
}

func (in *input) init(nc net.Conn, buffers *sync.Pool) {
	in.nc, in.buffers, in.attempt = nc, buffers, in.try
	if socket, ok := nc.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			in.raw = raw
		}
	}
}

// bytes are those that are there. They are valid until the next fill.
func (in *input) bytes() []byte {
	if in.buf == nil {
		return nil
	}
	return in.buf[in.from:in.to]
}

func (in *input) len() int { return in.to - in.from }

// take passes over n bytes that are there.
func (in *input) take(n int) {
	if in.from += n; in.from == in.to {
		in.from, in.to = 0, 0
	}
}

// fill waits for more bytes. There is room for some: what is there is less than a
// buffer.
func (in *input) fill() error {
	if in.from > 0 {
		in.from, in.to = 0, copy(in.buf[:], in.buf[in.from:in.to])
	}
	if in.raw == nil {
		in.need()
		n, err := in.nc.Read(in.buf[in.to:])
		in.to, in.at = in.to+n, time.Now()
		if n > 0 {
			return nil
		}
		return err
	}
	if err := in.raw.Read(in.attempt); err != nil {
		return err
	}
	in.at = time.Now()
	return in.err
}

// try reads if there is something to read, and is tried again when there is.
func (in *input) try(fd uintptr) (done bool) {
	in.need()
	for {
		n, err := syscall.Read(int(fd), in.buf[in.to:])
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			if in.to == 0 {
				in.letGo()
			}
			return false
		case err == nil && n == 0:
			err = io.EOF
		}
		in.to += max(0, n)
		in.err = err
		return true
	}
}

func (in *input) need() {
	if in.buf == nil {
		in.buf = in.buffers.Get().(*[readBufferBytes]byte)
	}
}

// letGo gives the buffer back, and drops what is in it.
func (in *input) letGo() {
	if in.buf != nil {
		in.buffers.Put(in.buf)
		in.buf, in.from, in.to = nil, 0, 0
	}
}
