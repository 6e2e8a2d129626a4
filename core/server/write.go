package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// sendFileBytes is how much of a file the kernel is asked to send at once, so that a
	// sweep sees whether it moves.
	sendFileBytes = 1 << 20
	// copyBytes is the memory by which a section goes that the kernel cannot send.
	copyBytes = 64 << 10
	// partsMax is how many parts one system call takes.
	partsMax = 1024
)

// direct is a system call on a connection's socket, which is tried again when the socket
// takes more.
type direct struct {
	one, parts, file func(fd uintptr) (done bool) // are sender.tryOne, tryParts and tryFile, bound once

	from *os.File // what tryFile sends
	pos  int64
	rest int
	n    int // what came of the last try
	err  error
}

// sendsFiles says whether the kernel can send what lies in a file over this connection.
func (c *conn) sendsFiles() bool {
	return canSendFiles && c.in.raw != nil && !c.srv.copies.Load()
}

// write writes everything, as long as the client takes some of it in time.
func (s *sender) write() (sent bool) {
	if !s.conn.beginSending(s.batch) {
		return false
	}
	from := 0
	for i := range s.cuts {
		cut := &s.cuts[i]
		s.part(s.buf[from:cut.at])
		from = cut.at
		if cut.section == nil {
			s.part(cut.records)
		} else if !s.writeSection(cut.section) {
			return false
		}
	}
	s.part(s.buf[from:])
	return s.writeParts(false)
}

// part adds bytes to those that are written together.
func (s *sender) part(b []byte) {
	if len(b) > 0 {
		s.parts = append(s.parts, b)
	}
}

// writeParts writes the parts. more says that a section follows, which is sent together
// with their end.
func (s *sender) writeParts(more bool) (sent bool) {
	s.left = s.parts
	for len(s.left) > 0 {
		n, err := s.writeLeft(more)
		s.moved += n
		if err != nil && !s.goesOn(err) {
			return false
		}
	}
	clear(s.parts)
	s.parts, s.left = s.parts[:0], nil
	return true
}

// writeLeft writes what is left of the parts, or some of it, and takes that away.
func (s *sender) writeLeft(more bool) (n int64, err error) {
	c := s.conn
	switch {
	case more:
		s.worker.waits()
		err = s.try(s.direct.parts)
		n = int64(s.direct.n)
	case len(s.left) > 1:
		s.worker.waits()
		return s.left.WriteTo(c.nc)
	case c.in.raw != nil:
		err = s.try(s.direct.one)
		n = int64(s.direct.n)
	default:
		s.worker.waits()
		var m int
		m, err = c.nc.Write(s.left[0])
		n = int64(m)
	}
	s.take(int(n))
	return n, err
}

// take takes n bytes away from what is left.
func (s *sender) take(n int) {
	for n > 0 && n >= len(s.left[0]) {
		n -= len(s.left[0])
		s.left = s.left[1:]
	}
	if n > 0 {
		s.left[0] = s.left[0][n:]
	}
}

// goesOn says, of a write that ended in an error, whether it was only interrupted and is
// to go on. Otherwise the connection is ended.
func (s *sender) goesOn(err error) bool {
	c, reason := s.conn, ClosedByClient
	if errors.Is(err, os.ErrDeadlineExceeded) {
		moved := s.moved
		if s.moved = 0; c.sendingMoves(moved, time.Now()) {
			return true
		}
		reason = ClosedSlow
	}
	c.fail(reason, fmt.Errorf("send reply: %w", err))
	return false
}

// try lets a system call be tried until it has done something, or was interrupted.
func (s *sender) try(call func(fd uintptr) (done bool)) error {
	d := &s.direct
	d.n, d.err = 0, nil
	if err := s.conn.in.raw.Write(call); err != nil {
		return err
	}
	return d.err
}

// tryOne sends what is left, which is one part. It tells the others when it is to wait.
func (s *sender) tryOne(fd uintptr) (done bool) {
	n, err := syscall.Write(int(fd), s.left[0])
	if errors.Is(err, syscall.EAGAIN) {
		s.worker.waits()
	}
	return s.direct.tried(n, err)
}

// tryParts sends what is left of the parts.
func (s *sender) tryParts(fd uintptr) (done bool) {
	return s.direct.tried(sendMore(fd, s.left[:min(len(s.left), partsMax)]))
}

// tryFile sends some of a file.
func (s *sender) tryFile(fd uintptr) (done bool) {
	d := &s.direct
	return d.tried(sendFile(fd, d.from, d.pos, min(d.rest, sendFileBytes)))
}

func (d *direct) tried(n int, err error) (done bool) {
	d.n, d.err = max(0, n), err
	switch {
	case errors.Is(err, syscall.EAGAIN):
		return false
	case err == nil && n == 0:
		d.err = errFileEnds
	case errors.Is(err, syscall.EINTR):
		d.err = nil
	}
	return true
}

var errFileEnds = fmt.Errorf("the file ends: %w", io.ErrUnexpectedEOF)

// writeSection writes what is to be sent before a section, and the section: by the
// kernel, from the file, or else through memory.
func (s *sender) writeSection(section *model.Section) (sent bool) {
	if s.copies {
		return s.copySection(section, section.Pos)
	}
	if !s.writeParts(true) {
		return false
	}
	d := &s.direct
	d.from, d.pos, d.rest = section.File, section.Pos, section.Bytes
	for d.rest > 0 {
		err := s.try(d.file)
		d.pos, d.rest, s.moved = d.pos+int64(d.n), d.rest-d.n, s.moved+int64(d.n)
		switch {
		case err == nil:
		case cannotSendFile(err):
			return s.mayCopy() && s.copySection(section, d.pos)
		case s.fileFailed(err):
			s.damaged(section, d.pos, err)
			return false
		case !s.goesOn(err):
			return false
		}
	}
	d.from = nil
	return true
}

// cannotSendFile says whether the kernel does not send from this file at all.
func cannotSendFile(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported)
}

// fileFailed says whether it was the file that failed, or the connection: the kernel does
// not tell.
func (s *sender) fileFailed(err error) bool {
	if errors.Is(err, errFileEnds) {
		return true
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
		return false
	}
	var first [1]byte
	_, err = s.direct.from.ReadAt(first[:], s.direct.pos)
	return err != nil
}

// mayCopy takes the memory to copy with, for a reply for which none was asked.
func (s *sender) mayCopy() bool {
	c, r := s.conn, s.batch[len(s.batch)-1]
	more, taken := c.ask(copyBytes)
	if !taken {
		c.fail(ClosedMemory, errNoMemory)
		c.tellUnkept(r, errNoMemory)
		return false
	}
	s.copies, r.held = true, r.held.plus(more)
	c.sendingHolds(more)
	return true
}

// copySection writes what is to be sent before a section, and the section from pos on,
// through memory.
func (s *sender) copySection(section *model.Section, pos int64) (sent bool) {
	buf := s.conn.srv.large.Get(copyBytes)
	defer s.conn.srv.large.Put(buf)
	for end := section.Pos + int64(section.Bytes); pos < end; {
		b := buf[:min(end-pos, copyBytes)]
		if n, err := section.File.ReadAt(b, pos); n < len(b) {
			s.damaged(section, pos+int64(n), err)
			return false
		}
		if s.conn.sendsFiles() { // it was asked to, and did not, though the file can be read
			s.conn.srv.copies.Store(true)
		}
		s.part(b)
		if !s.writeParts(false) {
			return false
		}
		pos += int64(len(b))
	}
	return true
}

// damaged ends the connection, whose reply can't be completed.
func (s *sender) damaged(section *model.Section, pos int64, err error) {
	c, r := s.conn, s.batch[len(s.batch)-1]
	c.guard(r.header, section.Owner.Damaged)
	c.fail(ClosedByStore, fmt.Errorf("read records at byte %d of %s: %w", pos, section.File.Name(), err))
	if ok, left := c.srv.sparse.may("damaged", time.Now()); ok {
		c.srv.log.Error("records can't be read from their file while they are sent, the connection is closed; look whether the disk fails, or who changes the store's files",
			"file", section.File.Name(), "from", section.Pos, "bytes", section.Bytes, "failed_at", pos, "err", err,
			"api", kmsg.NameForKey(r.header.Key), "client", r.header.ClientID, "listener", c.from.Listener, "remote", c.remote, "left_out", left)
	}
}
