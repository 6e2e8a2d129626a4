package frame

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"

	"github.com/brokerd/brokerd/sdk/transport"
)

// lingerBytesMax is how much is read, and dropped, of a peer that was refused.
const lingerBytesMax = 64 << 10

// Greet says hello on a connection that this end has dialled, and returns what the other
// end says of itself. There is a link when this end agrees with that: Confirm it, or
// Decline. Greet reads not a byte of what follows, and takes as long as the deadline of the
// connection permits.
//
// ErrOther: who answers is not whom the hello expects, which was told to it, or speaks no
// frames. ErrRetry: it speaks other versions of them. ErrInvalid: the hello cannot be said. What the other end says of its own is returned
// with its class. What goes wrong with the connection is returned as it says it.
func Greet(conn net.Conn, h Hello) (Hello, error) {
	b, err := h.encode()
	if err != nil {
		return Hello{}, err
	}
	_, failed := conn.Write(b)
	answer, err := Hear(conn) // also after a failure: the other end may have said why before it hung up
	switch {
	case err != nil:
		return Hello{}, err
	case failed != nil:
		return Hello{}, fmt.Errorf("say hello: %w", failed)
	case answer.Lane != h.Lane:
		err = transport.Errorf(transport.ErrOther, "lane %v was dialled, and lane %v answers", h.Lane, answer.Lane)
	default:
		err = Meets(answer.Identity, h.To())
	}
	if err != nil {
		Decline(conn, err)
	}
	return answer, err
}

// Confirm tells the other end that there is a link.
func Confirm(conn net.Conn) error {
	var b [headerBytes]byte
	seal(b[:], kindReady)
	if _, err := conn.Write(b[:]); err != nil {
		return fmt.Errorf("confirm a hello: %w", err)
	}
	return nil
}

// Decline tells the other end why there is no link after it has agreed to one. It waits for
// nothing, and leaves the connection open.
func Decline(conn net.Conn, reason error) {
	_, _ = conn.Write(encodeEnd(reason)) // a courtesy
}

// Hear waits for the hello of the other end, and returns it. Its errors are those of
// Greet, and ErrRetry where the other end speaks other versions of frames only: it is told
// so by Hear, and one of both may be upgraded.
func Hear(conn net.Conn) (Hello, error) {
	body, err := hear(conn, kindHello)
	if err != nil {
		return Hello{}, err
	}
	h, err := parseHello(body)
	if errors.Is(err, errVersion) {
		err = transport.Errorf(transport.ErrRetry, "%v", err)
		Decline(conn, err)
		return Hello{}, err
	}
	if err != nil {
		return Hello{}, transport.Errorf(transport.ErrOther, "%v", err)
	}
	return h, nil
}

// hear reads the body of a frame of a kind, or of an end, whose reason is its error.
func hear(conn net.Conn, want kind) ([]byte, error) {
	b := make([]byte, headerBytes+max(HelloBytesMax, endBytesMax))
	if _, err := io.ReadFull(conn, b[:headerBytes]); err != nil {
		return nil, fmt.Errorf("wait for a hello: %w", err)
	}
	if b[0] == 0x16 && b[1] == 3 { // as every client of TLS begins, and no frame can: it is too long
		return nil, transport.Errorf(transport.ErrDenied, "TLS was spoken where plaintext is configured")
	}
	head, err := parseHeader(b[:headerBytes])
	if err != nil || head.kind != want && head.kind != kindEnd {
		return nil, transport.Errorf(transport.ErrOther, "%v", errHello)
	}
	body := b[headerBytes : headerBytes+head.length]
	if _, err := io.ReadFull(conn, body); err != nil {
		return nil, fmt.Errorf("read a hello: %w", err)
	}
	if !head.summed || crc32.Checksum(body, castagnoli) != head.sum {
		return nil, transport.Errorf(transport.ErrOther, "%v", errHello)
	}
	if head.kind == kindEnd {
		return nil, parseEnd(body)
	}
	return body, nil
}

// Agree answers a hello that was heard, and waits until the other end agrees with the
// answer: then there is a link. Its errors are those of Greet.
func Agree(conn net.Conn, own transport.Identity, heard Hello) error {
	b, err := Hello{Identity: own, Lane: heard.Lane, ToNode: transport.AnyNode}.encode()
	if err != nil {
		return err
	}
	if _, err := conn.Write(b); err != nil {
		return fmt.Errorf("answer a hello: %w", err)
	}
	_, err = hear(conn, kindReady)
	return err
}

// Refuse answers with the reason why there is no link, and gives the other end until the
// deadline of the connection to read it. It leaves the connection open.
func Refuse(conn net.Conn, reason error) {
	if _, err := conn.Write(encodeEnd(reason)); err == nil {
		Linger(conn)
	}
}

// Linger ends what this end sends, and waits, until the deadline of the connection at most,
// for the other to hang up: a connection that is closed while something of its peer has not
// been read is reset, and the reset overtakes what was sent last.
func Linger(conn net.Conn) {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, conn, lingerBytesMax) // whatever it is, the connection ends
}
