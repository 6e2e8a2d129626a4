package frame

import (
	"hash/crc32"
	"net"
	"os"

	"github.com/brokerd/brokerd/sdk/transport"
)

// errDeadline is what a connection says whose deadline has passed.
var errDeadline = os.ErrDeadlineExceeded

const (
	// recordBytes is the largest record of TLS: a write of so much, or of a multiple of it,
	// is not cut into pieces that are smaller than need be.
	recordBytes = 16 << 10
	// vectorKept is how many parts of a message the sender keeps room for.
	vectorKept = 1 << 10
)

// sender writes frames to a connection. All but turn is for who has the turn.
type sender struct {
	turn chan struct{} // a place for one

	conn   net.Conn
	sum    bool
	below  *Below
	socket bool // the connection writes vectors
	header [headerBytes]byte
	vector net.Buffers // what is still to be written; reuses the memory of parts
	parts  [][]byte
	gather []byte // of recordBytes, where the connection writes no vectors
}

func newSender(conn net.Conn, opt Options) sender {
	s := sender{turn: make(chan struct{}, 1), conn: conn, sum: opt.Sum, below: opt.Below}
	switch conn.(type) {
	case *net.TCPConn, *net.UnixConn:
		s.socket = true
	default:
		s.gather = make([]byte, 0, recordBytes)
	}
	return s
}

// messageBytes is the size of a message in parts.
func messageBytes(message [][]byte) (int, error) {
	size := 0
	for _, part := range message {
		if len(part) > transport.MessageBytesMax-size {
			return 0, transport.Errorf(transport.ErrInvalid, "the message is larger than %d bytes", transport.MessageBytesMax)
		}
		size += len(part)
	}
	return size, nil
}

// send writes a message. Of one that failed it says whether it went in part: nothing can
// be sent any more then.
func (s *sender) send(size int, message [][]byte) (inPart bool, err error) {
	h := header{kind: kindMessage, length: size, summed: s.sum}
	if s.sum {
		for _, part := range message {
			h.sum = crc32.Update(h.sum, castagnoli, part)
		}
	}
	h.put(s.header[:])
	if !s.socket {
		return s.sendGathered(message)
	}
	s.parts = append(append(s.parts[:0], s.header[:]), message...)
	s.vector = s.parts
	n, err := s.vector.WriteTo(s.conn)
	clear(s.parts) // they are the caller's
	if cap(s.parts) > vectorKept {
		s.parts = nil
	}
	return n > 0, err
}

// sendGathered is send where the connection writes no vectors: in pieces of whole records,
// large parts from where they lie. What lies below TLS may have written any part of one that
// failed.
func (s *sender) sendGathered(message [][]byte) (inPart bool, err error) {
	s.below.hold()
	err = s.put(s.header[:])
	for _, part := range message {
		if err == nil {
			err = s.put(part)
		}
	}
	if err == nil {
		err = s.flush()
	}
	s.gather = s.gather[:0]
	if err != nil {
		return true, err // after a write that failed, TLS can write no more
	}
	return true, s.below.release()
}

// put writes a part, or keeps it for the next record.
func (s *sender) put(part []byte) error {
	if len(s.gather) > 0 {
		n := min(len(part), recordBytes-len(s.gather))
		s.gather = append(s.gather, part[:n]...)
		if part = part[n:]; len(s.gather) == recordBytes {
			if err := s.flush(); err != nil {
				return err
			}
		}
	}
	if whole := len(part) / recordBytes * recordBytes; whole > 0 {
		if _, err := s.conn.Write(part[:whole]); err != nil {
			return err
		}
		part = part[whole:]
	}
	s.gather = append(s.gather, part...)
	return nil
}

func (s *sender) flush() error {
	if len(s.gather) == 0 {
		return nil
	}
	_, err := s.conn.Write(s.gather)
	s.gather = s.gather[:0]
	return err
}
