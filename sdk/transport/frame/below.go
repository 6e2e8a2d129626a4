package frame

import (
	"errors"
	"net"
	"sync"
)

// belowBytes is how much Below joins into one system call: a message of 64 KiB with what
// TLS adds to it.
const belowBytes = 68 << 10

var errTooMuch = errors.New("the peer sent more than is taken of one that has not proved who it is")

// Below lies between crypto/tls and the connection. It bounds what is read of a peer until
// a Link is made of it, and then lets the records of one message be written by few system
// calls, where crypto/tls has one for each. Its methods are for crypto/tls.
type Below struct {
	net.Conn

	left    int // of what may be read
	bounded bool

	mu   sync.Mutex
	held bool
	buf  []byte // what is held
}

// NewBelow makes one, which reads at most so many bytes before a Link is made of it.
func NewBelow(conn net.Conn, bytesMax int) *Below {
	return &Below{Conn: conn, left: bytesMax, bounded: true}
}

// Read implements net.Conn.
func (b *Below) Read(p []byte) (int, error) {
	if !b.bounded {
		return b.Conn.Read(p)
	}
	if b.left == 0 {
		return 0, errTooMuch
	}
	n, err := b.Conn.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// Write implements net.Conn.
func (b *Below) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.held && len(b.buf) == 0 {
		return b.Conn.Write(p)
	}
	if len(b.buf)+len(p) > belowBytes {
		if err := b.flush(); err != nil {
			return 0, err
		}
	}
	b.buf = append(b.buf, p...)
	if b.held {
		return len(p), nil
	}
	return len(p), b.flush()
}

// CloseWrite ends what this end sends, where the connection can.
func (b *Below) CloseWrite() error {
	half, ok := b.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// unbound ends the bound of what is read.
func (b *Below) unbound() {
	if b != nil {
		b.bounded = false
	}
}

// hold lets what is written wait for release, or until it is much.
func (b *Below) hold() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.buf == nil {
		b.buf = make([]byte, 0, belowBytes)
	}
	b.held = true
}

// release writes what waits. After an error it may have written a part: nothing can be
// written any more.
func (b *Below) release() error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = false
	return b.flush()
}

// flush writes what waits. The lock is held.
func (b *Below) flush() error {
	if len(b.buf) == 0 {
		return nil
	}
	n, err := b.Conn.Write(b.buf)
	b.buf = b.buf[:copy(b.buf, b.buf[n:])]
	return err
}
