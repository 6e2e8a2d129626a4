package plugin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// iovMax is how many pieces one system call takes.
const iovMax = 1024

// scratchBytes is room for the heads and small data of the units that go out in
// one system call, if no unit needs more.
const scratchBytes = 64 << 10

// socketLink carries units over a connected unix socket, back to back without
// anything between them. A unit that a descriptor goes with is sent by a system
// call of its own: the receiver's system call that gets the descriptor then ends
// within that unit, so that it is known which one it belongs to, also when no
// descriptor could be made of it.
type socketLink struct {
	conn  *net.UnixConn
	pools *chunkPools

	// Of send. pieces are what the next system call writes; the heads among them
	// are parts of scratch.
	scratch []byte
	start   int // what of scratch is not in pieces yet
	pieces  net.Buffers
	bytes   int
}

func newSocketLink(conn *net.UnixConn) *socketLink {
	return &socketLink{conn: conn, pools: &chunkPools{}, scratch: make([]byte, 0, scratchBytes)}
}

func (*socketLink) filesPass() bool { return true }

// send implements link. Data is not used any more when it returns.
func (l *socketLink) send(units outgoing) error {
	defer l.forget()
	for i := range units.count() {
		if f := units.file(i); f != nil {
			if err := l.flush(); err != nil {
				return err
			}
			if err := l.sendFile(units, i, f); err != nil {
				return err
			}
			continue
		}
		if err := l.add(units, i); err != nil {
			return err
		}
	}
	return l.flush()
}

// add puts a unit behind those that wait, having written them if they are many.
func (l *socketLink) add(units outgoing, i int) error {
	need := units.bytesMax(i) + copyBytesMax
	if l.bytes >= coalesceBytes || len(l.pieces) >= iovMax || cap(l.scratch)-len(l.scratch) < need {
		if err := l.flush(); err != nil {
			return err
		}
		if cap(l.scratch) < need {
			l.scratch = make([]byte, 0, need)
		}
	}
	before := len(l.scratch)
	out, data := units.encode(i, l.scratch)
	size := recordbatch.TotalBytes(data)
	if size <= copyBytesMax {
		for _, part := range data {
			out = append(out, part...)
		}
		size = 0
	}
	l.scratch = out
	l.bytes += len(out) - before + size
	if size > 0 {
		l.cut()
		l.pieces = append(l.pieces, data...)
	}
	return nil
}

// cut makes a piece of what scratch has gathered.
func (l *socketLink) cut() {
	if l.start < len(l.scratch) {
		l.pieces = append(l.pieces, l.scratch[l.start:])
		l.start = len(l.scratch)
	}
}

// flush writes what waits.
func (l *socketLink) flush() error {
	l.cut()
	pieces := l.pieces // which WriteTo uses up
	var err error
	if len(pieces) > 0 {
		_, err = pieces.WriteTo(l.conn)
	}
	clear(l.pieces)
	l.pieces, l.scratch, l.start, l.bytes = l.pieces[:0], l.scratch[:0], 0, 0
	return err
}

// forget drops what was not written, and a scratch that grew for one unit.
func (l *socketLink) forget() {
	clear(l.pieces)
	l.pieces, l.start, l.bytes = l.pieces[:0], 0, 0
	if l.scratch = l.scratch[:0]; cap(l.scratch) > 4*scratchBytes {
		l.scratch = make([]byte, 0, scratchBytes)
	}
}

// sendFile sends a unit with its descriptor.
func (l *socketLink) sendFile(units outgoing, i int, f *os.File) error {
	unit, data := units.encode(i, nil)
	for _, part := range data {
		unit = append(unit, part...)
	}
	n, _, err := l.conn.WriteMsgUnix(unit, syscall.UnixRights(int(f.Fd())), nil)
	if err != nil {
		return fmt.Errorf("pass a descriptor: %w", err)
	}
	if n < len(unit) {
		_, err = l.conn.Write(unit[n:])
	}
	return err
}

// passed is a descriptor that was passed with the unit that the byte at offset
// `at` of a chunk belongs to; without a file it was lost on the way.
type passed struct {
	file *os.File
	at   int
}

// receive implements link. It reads as much as there is with each system call,
// and holds no more than one unit beyond what was asked for by receivers.
func (l *socketLink) receive(fn func(incoming) error) error {
	c := l.pools.get(0)
	var files []passed
	defer func() {
		c.Free()
		for _, f := range files {
			closeFile(f.file)
		}
	}()
	oob := make([]byte, syscall.CmsgSpace(4))
	start, end := 0, 0
	for {
		n, err := l.read(c.b[end:], oob, end, &files)
		if err != nil {
			return err
		}
		end += n
		var need int
		for {
			need, err = unitLength(c.b[start:end])
			if err != nil {
				return err
			}
			if end-start < need {
				break
			}
			in := incoming{unit: c.b[start : start+need : start+need], mem: c, size: len(c.b)}
			if len(files) > 0 && files[0].at < start+need {
				in.file = files[0].file
				files = files[1:]
			}
			if err := fn(in); err != nil {
				return err
			}
			start += need
		}
		if start == end && c.alone() {
			start, end = 0, 0
			continue
		}
		if !roomFor(c, start, end, need) {
			next := l.pools.get(min(need, max(largeChunkBytes, 2*(end-start))))
			copy(next.b, c.b[start:end])
			for i := range files {
				files[i].at -= start
			}
			c.Free()
			c, start, end = next, 0, end-start
		}
	}
}

// readBytesMin is the least room that is worth a system call, where the
// alternative is to copy no more than that into another chunk.
const readBytesMin = 16 << 10

// roomFor says whether to read on into c, where a unit of `need` bytes begins at
// start and has come up to end. A large unit gets room as its bytes come, not as
// its length claims.
func roomFor(c *chunk, start, end, need int) bool {
	if start+need <= len(c.b) {
		return len(c.b)-end >= readBytesMin || end-start > readBytesMin
	}
	return start == 0 && len(c.b)-end >= readBytesMin
}

// unitLength is how long the unit is that begins with b, of what can be seen of
// it: at least the length field.
func unitLength(b []byte) (int, error) {
	if len(b) < lengthBytes {
		return lengthBytes, nil
	}
	n := uint64(binary.BigEndian.Uint32(b)) + lengthBytes
	if n < headBytes || n > maxUnitBytes {
		return 0, fmt.Errorf("%w: length %d", errUnit, n-lengthBytes)
	}
	return int(n), nil
}

// read reads once, and notes a descriptor that came. A message that has one ends
// the bytes that one system call returns.
func (l *socketLink) read(b, oob []byte, at int, files *[]passed) (int, error) {
	n, oobn, flags, _, err := l.conn.ReadMsgUnix(b, oob)
	if err != nil {
		return 0, err
	}
	if oobn > 0 || flags&syscall.MSG_CTRUNC != 0 {
		f, err := parseRights(oob[:oobn])
		if err != nil {
			return 0, err
		}
		*files = append(*files, passed{file: f, at: at + n - 1})
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// parseRights makes a file of the descriptor that was passed, nil if none arrived.
func parseRights(oob []byte) (*os.File, error) {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("read what came with a unit: %w", err)
	}
	var file *os.File
	for i := range messages {
		fds, err := syscall.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if file != nil { // we asked for room for one
				closeFile(file)
				_ = syscall.Close(fd)
				return nil, errors.New("several descriptors came with one unit")
			}
			file = os.NewFile(uintptr(fd), "passed")
		}
	}
	return file, nil
}

// closeFile closes f if there is one. Nothing was written through it that a
// failure could lose.
func closeFile(f *os.File) {
	if f != nil {
		_ = f.Close()
	}
}
